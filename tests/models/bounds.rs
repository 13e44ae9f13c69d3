//! Between which numbers a value is, as told by the words that all CPUs share: `value - posted`, at every moment of every schedule.
//!
//! One CPU's slot is enough: `posted` is a sum over the CPUs, each CPU's share of it changes by itself, and adds that are in flight are
//! counted whichever CPU's slot they wrote to. The state is what the slot is over a multiple of the batch and what was not posted yet, not
//! the totals, so adds go on for ever and the states are finite.
//!
//! "The value" is a choice: adds that overlap the reader's call count or do not. A reader that loads all words at one moment is what
//! the proof looks at, so it is tried with more contexts; one that loads them one by one is tried with fewer.

use crate::checker::{Fault, Model, explore};

/// How far the value may be from what was posted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Claim {
    /// Below and above, if the CPU wrote.
    below: i8,
    above: i8,
    /// Both ways, for each add that was announced and is not done.
    in_flight: i8,
}

impl Claim {
    /// The library's.
    const fn of(batch: i8, nesting: i8) -> Self {
        Claim { below: (nesting - 1) * (batch - 1), above: nesting * (batch - 1), in_flight: batch }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Load {
    Done,
    Posted,
    Begun,
    Touched,
}

/// In which order a reader loads.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Order {
    AllAtOnce,
    /// The library's.
    DoneFirst,
    BegunBeforePosted,
    DoneAfterPosted,
    TouchedBeforePosted,
}

impl Order {
    fn loads(self) -> [Load; 4] {
        match self {
            Order::AllAtOnce | Order::DoneFirst => [Load::Done, Load::Posted, Load::Begun, Load::Touched],
            Order::BegunBeforePosted => [Load::Done, Load::Begun, Load::Posted, Load::Touched],
            Order::DoneAfterPosted => [Load::Posted, Load::Done, Load::Begun, Load::Touched],
            Order::TouchedBeforePosted => [Load::Done, Load::Touched, Load::Posted, Load::Begun],
        }
    }
}

/// A context that adds pinned; the next one interrupts it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Pinned {
    Rests,
    Wrote { amount: i8, crossed: i8, must_touch: bool },
}

/// A task that adds and may be preempted, for as long as it takes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Unpinned {
    Rests,
    Announced,
    Wrote { amount: i8, crossed: i8 },
    Posted,
}

/// What `value - posted` can be, by the choice of adds: bit `MIDDLE + n` is for `n`. What is further away is forgotten, and so found to be a
/// fault at worst.
type Values = u64;
const MIDDLE: i8 = 32;

fn shifted(values: Values, by: i8) -> Values {
    if by < 0 { values >> -by } else { values << by }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Reader {
    nr_loaded: usize,
    /// `begun - done`, as far as either is loaded.
    nr_in_flight: i8,
    has_touched: bool,
    values: Values,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct OneCpu<const NESTING: usize, const TASKS: usize> {
    batch: i8,
    claim: Claim,
    order: Order,
    announces: bool,
    /// The slot's total, over a multiple of the batch.
    rest: i8,
    /// Whether the CPU is in the mask.
    touched: bool,
    pinned: [Pinned; NESTING],
    unpinned: [Unpinned; TASKS],
    reader: Option<Reader>,
}

impl<const NESTING: usize, const TASKS: usize> OneCpu<NESTING, TASKS> {
    fn new(batch: i8, claim: Claim, order: Order) -> Self {
        OneCpu {
            batch,
            claim,
            order,
            announces: true,
            rest: 0,
            touched: false,
            pinned: [Pinned::Rests; NESTING],
            unpinned: [Unpinned::Rests; TASKS],
            reader: None,
        }
    }

    /// How many batches lie between the slot's total and what it would be.
    fn crossed(&self, amount: i8) -> i8 {
        (self.rest + amount).div_euclid(self.batch)
    }

    fn small_amounts(&self) -> impl Iterator<Item = i8> {
        (1 - self.batch..self.batch).filter(|&amount| amount != 0)
    }

    fn has_loaded(&self, reader: &Reader, load: Load) -> bool {
        self.order.loads()[..reader.nr_loaded].contains(&load)
    }

    /// `value - posted` at this moment.
    fn values(&self) -> Values {
        let pinned = self.pinned.iter().filter_map(|context| match *context {
            Pinned::Wrote { amount, crossed, .. } => Some((amount, crossed)),
            Pinned::Rests => None,
        });
        let unpinned = self.unpinned.iter().filter_map(|task| match *task {
            Unpinned::Wrote { amount, crossed } => Some((amount, crossed)),
            _ => None,
        });
        let mut all = self.rest;
        let mut not_counted = 1;
        for (amount, crossed) in pinned.chain(unpinned) {
            all += crossed * self.batch;
            not_counted |= shifted(not_counted << MIDDLE, -amount) >> MIDDLE;
        }
        let _ = (all, not_counted);
        todo!()
    }
}
