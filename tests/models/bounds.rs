//! Between which numbers a value is, as told by the words that all CPUs share: `value - posted`, at every moment of every schedule.
//!
//! One CPU's slot is enough: `posted` is a sum over the CPUs, each CPU's share of it changes by itself, and adds that are in flight are
//! counted whichever CPU's slot they wrote to. The state is what the slot is over a multiple of the batch and what was not posted yet, not
//! the totals, so adds go on for ever and the states are finite.
//!
//! "The value" is a choice: adds that overlap the reader's call count or do not. A reader that loads all words at one moment is what
//! the proof looks at, so it is tried with more contexts; one that loads them one by one is tried with fewer.

use crate::checker::{Fault, Model, explore};

/// To which multiple of the batch totals are rounded: to those that are up to `below` higher.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Rounding {
    batch: i8,
    below: i8,
}

/// The library's: down, for counters and sets, and to the nearest, for lazy ones.
const ROUNDINGS: [Rounding; 4] =
    [Rounding { batch: 2, below: 0 }, Rounding { batch: 4, below: 0 }, Rounding { batch: 2, below: 1 }, Rounding { batch: 4, below: 2 }];

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
    const fn of(Rounding { batch, below }: Rounding, nesting: i8) -> Self {
        let nested = (nesting - 1) * (batch - 1);
        Claim { below: nested + below, above: nested + batch - 1 - below, in_flight: batch }
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

    /// Whether the choice is among all adds that overlap the call. For the library's order it is only among those that were in flight when
    /// `posted` was loaded, which is less than is allowed, and is what the proof chooses from; the wrong ones must fail by any choice.
    fn lets_all_be_chosen(self) -> bool {
        !matches!(self, Order::AllAtOnce | Order::DoneFirst)
    }

    fn has_loaded(self, reader: &Reader, load: Load) -> bool {
        self.loads()[..reader.nr_loaded].contains(&load)
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
    rounding: Rounding,
    claim: Claim,
    order: Order,
    announces: bool,
    /// The slot's total, over what it is rounded to.
    rest: i8,
    /// Whether the CPU is in the mask.
    touched: bool,
    pinned: [Pinned; NESTING],
    unpinned: [Unpinned; TASKS],
    reader: Option<Reader>,
}

impl<const NESTING: usize, const TASKS: usize> OneCpu<NESTING, TASKS> {
    fn new(rounding: Rounding, claim: Claim, order: Order) -> Self {
        OneCpu {
            rounding,
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

    /// How many multiples of the batch an add crosses.
    fn crossed(&self, amount: i8) -> i8 {
        (self.rest + amount + self.rounding.below).div_euclid(self.rounding.batch)
    }

    fn small_amounts(&self) -> impl Iterator<Item = i8> {
        (1 - self.rounding.batch..self.rounding.batch).filter(|&amount| amount != 0)
    }

    /// The adds that wrote to the slot and did not post yet what they crossed.
    fn unposted(&self) -> impl Iterator<Item = (i8, i8)> {
        let pinned = self.pinned.iter().filter_map(|context| match *context {
            Pinned::Wrote { amount, crossed, .. } => Some((amount, crossed)),
            Pinned::Rests => None,
        });
        let unpinned = self.unpinned.iter().filter_map(|task| match *task {
            Unpinned::Wrote { amount, crossed } => Some((amount, crossed)),
            _ => None,
        });
        pinned.chain(unpinned)
    }

    /// `value - posted` at this moment, by the choice of the adds in flight.
    fn values(&self) -> Values {
        let written = self.rest + self.unposted().map(|(_, crossed)| crossed * self.rounding.batch).sum::<i8>();
        self.unposted().fold(1 << (MIDDLE + written), |values, (amount, _)| values | shifted(values, -amount))
    }

    fn nr_in_flight(&self) -> i8 {
        if self.announces { self.unpinned.iter().filter(|&&task| task != Unpinned::Rests).count() as i8 } else { 0 }
    }

    fn check(&self, Reader { nr_in_flight, has_touched, values, .. }: Reader) -> Result<(), Fault> {
        // The difference of two words that wrap.
        if nr_in_flight < 0 {
            return Ok(());
        }
        let off = |touched: i8| if has_touched { touched } else { 0 } + nr_in_flight * self.claim.in_flight;
        let (below, above) = (off(self.claim.below), off(self.claim.above));
        if (-below..=above).any(|difference| values >> (MIDDLE + difference) & 1 == 1) { Ok(()) } else { Err(OUTSIDE) }
    }

    /// Whether somebody can write to the slot: all contexts that can nest would otherwise be in the middle of a pinned add.
    fn has_room(&self) -> bool {
        self.pinned.last() == Some(&Pinned::Rests)
    }

    /// Writes to the slot.
    fn write(&mut self, amount: i8) {
        self.rest = (self.rest + amount + self.rounding.below).rem_euclid(self.rounding.batch) - self.rounding.below;
        if let Some(reader) = &mut self.reader
            && self.order.lets_all_be_chosen()
        {
            reader.values |= shifted(reader.values, amount);
        }
    }

    fn post(&mut self, crossed: i8) {
        let by = -crossed * self.rounding.batch;
        if let Some(reader) = &mut self.reader
            && self.order.lets_all_be_chosen()
            && !self.order.has_loaded(reader, Load::Posted)
        {
            reader.values = shifted(reader.values, by);
        }
    }

    /// Steps `begun` or `done`.
    fn announce(&mut self, word: Load) {
        let (other, change) = if word == Load::Begun { (Load::Done, 1) } else { (Load::Begun, -1) };
        if let Some(reader) = &mut self.reader
            && self.order.has_loaded(reader, other)
            && !self.order.has_loaded(reader, word)
        {
            // One more than there are tasks is as good as any more.
            reader.nr_in_flight = (reader.nr_in_flight + change).clamp(-1, TASKS as i8 + 1);
        }
    }

    fn step_pinned(&self, context: usize) -> Vec<Self> {
        if self.pinned[context + 1..].iter().any(|&above| above != Pinned::Rests) {
            return Vec::new();
        }
        let with = |pinned| {
            let mut next = self.clone();
            next.pinned[context] = pinned;
            next
        };
        match self.pinned[context] {
            Pinned::Rests => {
                let written = |amount| {
                    let (crossed, must_touch) = (self.crossed(amount), !self.touched);
                    let mut next =
                        with(if crossed == 0 && !must_touch { Pinned::Rests } else { Pinned::Wrote { amount, crossed, must_touch } });
                    next.write(amount);
                    next
                };
                self.small_amounts().map(written).collect()
            }
            Pinned::Wrote { amount, crossed, must_touch: true } => {
                let mut next = with(if crossed == 0 { Pinned::Rests } else { Pinned::Wrote { amount, crossed, must_touch: false } });
                next.touched = true;
                vec![next]
            }
            Pinned::Wrote { crossed, .. } => {
                let mut next = with(Pinned::Rests);
                next.post(crossed);
                vec![next]
            }
        }
    }

    fn step_unpinned(&self, task: usize) -> Vec<Self> {
        let with = |unpinned| {
            let mut next = self.clone();
            next.unpinned[task] = unpinned;
            next
        };
        match self.unpinned[task] {
            Unpinned::Rests if !self.touched => vec![OneCpu { touched: true, ..self.clone() }],
            Unpinned::Rests => {
                let mut next = with(Unpinned::Announced);
                next.announce(Load::Begun);
                vec![next]
            }
            Unpinned::Announced => {
                let written = |amount| {
                    let mut next = with(Unpinned::Wrote { amount, crossed: self.crossed(amount) });
                    next.write(amount);
                    next
                };
                let amounts = self.small_amounts().filter(|&amount| self.has_room() && self.crossed(amount) != 0);
                // The compare-exchange may fail.
                amounts.map(written).chain([with(Unpinned::Posted)]).collect()
            }
            Unpinned::Wrote { crossed, .. } => {
                let mut next = with(Unpinned::Posted);
                next.post(crossed);
                vec![next]
            }
            Unpinned::Posted => {
                let mut next = with(Unpinned::Rests);
                next.announce(Load::Done);
                vec![next]
            }
        }
    }

    fn step_reader(&self) -> Result<Option<Self>, Fault> {
        if self.order == Order::AllAtOnce {
            let reader = Reader { nr_loaded: 4, nr_in_flight: self.nr_in_flight(), has_touched: self.touched, values: self.values() };
            return self.check(reader).map(|()| None);
        }
        let begin = || Reader {
            nr_loaded: 0,
            nr_in_flight: 0,
            has_touched: false,
            values: if self.order.lets_all_be_chosen() { self.values() } else { 0 },
        };
        let mut reader = self.reader.unwrap_or_else(begin);
        match self.order.loads()[reader.nr_loaded] {
            Load::Done if !self.order.has_loaded(&reader, Load::Begun) => reader.nr_in_flight = self.nr_in_flight(),
            Load::Begun if !self.order.has_loaded(&reader, Load::Done) => reader.nr_in_flight = self.nr_in_flight(),
            Load::Posted if !self.order.lets_all_be_chosen() => reader.values = self.values(),
            Load::Touched => reader.has_touched = self.touched,
            _ => {}
        }
        reader.nr_loaded += 1;
        if reader.nr_loaded == 4 {
            self.check(reader)?;
        }
        Ok(Some(OneCpu { reader: Some(reader).filter(|reader| reader.nr_loaded < 4), ..self.clone() }))
    }
}

impl<const NESTING: usize, const TASKS: usize> Model for OneCpu<NESTING, TASKS> {
    const NR_THREADS: usize = NESTING + TASKS + 1;

    fn steps(&self, thread: usize) -> Vec<Result<Self, Fault>> {
        if thread < NESTING {
            self.step_pinned(thread).into_iter().map(Ok).collect()
        } else if thread < NESTING + TASKS {
            self.step_unpinned(thread - NESTING).into_iter().map(Ok).collect()
        } else {
            self.step_reader().transpose().into_iter().collect()
        }
    }

    /// An add that is moved after it wrote posts to the same word.
    fn moved(&self, _: usize) -> Option<Self> {
        None
    }

    fn has_ended(&self, thread: usize) -> bool {
        if thread < NESTING {
            self.pinned[thread] == Pinned::Rests
        } else if thread < NESTING + TASKS {
            self.unpinned[thread - NESTING] == Unpinned::Rests
        } else {
            self.reader.is_none()
        }
    }

    fn check_end(&self) -> Result<(), Fault> {
        Ok(())
    }
}

const OUTSIDE: Fault = "the value is not within its bounds, whichever adds are counted";

/// By the library's claim.
fn passes<const NESTING: usize, const TASKS: usize>(rounding: Rounding, order: Order) {
    let nr_states = explore(OneCpu::<NESTING, TASKS>::new(rounding, Claim::of(rounding, NESTING as i8), order)).expect("no fault");
    println!("{rounding:?}, {NESTING} contexts, {TASKS} tasks, {order:?}: {nr_states} states");
}

/// By another claim, made of the library's.
fn outcome<const NESTING: usize, const TASKS: usize>(rounding: Rounding, claim: impl Fn(Claim) -> Claim) -> Result<usize, Fault> {
    explore(OneCpu::<NESTING, TASKS>::new(rounding, claim(Claim::of(rounding, NESTING as i8)), Order::AllAtOnce))
}

#[test]
fn the_value_is_within_its_bounds_with_pinned_adds_that_nest() {
    for rounding in ROUNDINGS {
        passes::<1, 0>(rounding, Order::AllAtOnce);
        passes::<2, 0>(rounding, Order::AllAtOnce);
        passes::<3, 0>(rounding, Order::AllAtOnce);
    }
}

#[test]
fn the_value_is_within_its_bounds_with_adds_that_are_preempted_for_ever() {
    for rounding in ROUNDINGS {
        passes::<1, 2>(rounding, Order::AllAtOnce);
        passes::<2, 2>(rounding, Order::AllAtOnce);
        passes::<3, 1>(rounding, Order::AllAtOnce);
    }
}

#[test]
fn words_that_are_loaded_one_by_one_bound_the_value() {
    for rounding in ROUNDINGS {
        if rounding.batch == 4 {
            passes::<1, 1>(rounding, Order::DoneFirst);
            passes::<2, 0>(rounding, Order::DoneFirst);
        } else {
            passes::<1, 2>(rounding, Order::DoneFirst);
            passes::<2, 2>(rounding, Order::DoneFirst);
            passes::<3, 1>(rounding, Order::DoneFirst);
        }
    }
}

#[test]
fn the_bounds_of_pinned_adds_are_2d_less_1_times_b_less_1_wide_and_no_narrower_ones_hold() {
    fn is_tight<const NESTING: usize>(rounding: Rounding) {
        let claim = Claim::of(rounding, NESTING as i8);
        assert_eq!(claim.below + claim.above, (2 * NESTING as i8 - 1) * (rounding.batch - 1));
        assert_eq!(outcome::<NESTING, 0>(rounding, |claim| Claim { below: claim.below - 1, ..claim }), Err(OUTSIDE));
        assert_eq!(outcome::<NESTING, 0>(rounding, |claim| Claim { above: claim.above - 1, ..claim }), Err(OUTSIDE));
    }
    for rounding in ROUNDINGS {
        is_tight::<1>(rounding);
        is_tight::<2>(rounding);
        is_tight::<3>(rounding);
    }
}

/// The library takes the batch itself, one more.
#[test]
fn an_add_in_flight_takes_the_batch_less_1_both_ways_and_no_less() {
    for rounding in ROUNDINGS {
        let narrower = |by: i8| move |claim: Claim| Claim { in_flight: claim.in_flight - by, ..claim };
        assert!(outcome::<1, 2>(rounding, narrower(1)).is_ok());
        assert!(outcome::<2, 2>(rounding, narrower(1)).is_ok());
        assert_eq!(outcome::<1, 1>(rounding, narrower(2)), Err(OUTSIDE));
        assert_eq!(outcome::<2, 1>(rounding, narrower(2)), Err(OUTSIDE));
    }
}

#[test]
fn a_nesting_depth_that_is_one_too_small_is_found_out() {
    for rounding in ROUNDINGS {
        assert_eq!(outcome::<2, 0>(rounding, |_| Claim::of(rounding, 1)), Err(OUTSIDE));
        assert_eq!(outcome::<3, 0>(rounding, |_| Claim::of(rounding, 2)), Err(OUTSIDE));
    }
}

#[test]
fn an_add_that_may_be_preempted_and_is_not_announced_is_found_out() {
    for rounding in ROUNDINGS {
        let mut model = OneCpu::<1, 1>::new(rounding, Claim::of(rounding, 1), Order::AllAtOnce);
        model.announces = false;
        assert_eq!(explore(model), Err(OUTSIDE));
    }
}

#[test]
fn a_reader_that_loads_in_another_order_is_found_out() {
    for order in [Order::BegunBeforePosted, Order::DoneAfterPosted, Order::TouchedBeforePosted] {
        for rounding in ROUNDINGS {
            let outcome = explore(OneCpu::<1, 1>::new(rounding, Claim::of(rounding, 1), order));
            assert_eq!(outcome, Err(OUTSIDE), "{order:?}, {rounding:?}");
        }
    }
}
