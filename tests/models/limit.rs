//! Limit counters: what may still be added is in one place at a time, and a call is refused only for want of it.
//!
//! Two CPUs, and threads that may be moved to the other one before every instruction, but not with interrupts off. An instruction that
//! takes, gives or looks is one step, since all are LOCKed or single loads; a loop around a compare-exchange ends with one that succeeds or
//! a load that decides.

use crate::checker::{Fault, Model, explore};

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Protocol {
    /// The library's.
    OneSweepAtATime,
    /// Sweeps take no lock.
    SweepsTogether,
    /// A call takes from its CPU's credit by an instruction without LOCK.
    CreditWithoutLock,
    /// A call that is refused gives back to the pool, which is read after what it came from.
    GivesBackToPool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Operation {
    Add(u8),
    /// The same until it is refused.
    Push(u8),
    /// Takes back, if so much was added.
    Sub(u8),
}
use Operation::{Add, Push, Sub};

/// How the value is read.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Reading {
    Not,
    WithoutLock,
    /// With the lock that sweeps take.
    Locked,
}

/// The next instruction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum At {
    Begin,
    TakeCredit,
    /// The second half of an instruction without LOCK, with what the first one found.
    TakeCreditStore(u8),
    TakeFromPoolWithBatch,
    TakeFromPool,
    Touch,
    Give,
    // A sweep, with interrupts off and the lock held from `SweepPool` on.
    Lock,
    SweepPool,
    SweepTouched,
    SweepCredit(u8),
    SweepPoolAgain,
    GiveBack,
    Unlock {
        is_refused: bool,
    },
    SubFromCredit,
    SubFromPool,
    End,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Thread {
    at: At,
    cpu: u8,
    script: &'static [Operation],
    /// The CPU whose credit it is about to change.
    named: u8,
    /// What it took and neither gave nor added.
    hand: u8,
    /// What it added and did not take back.
    added: u8,
    /// The mask, as a sweep read it.
    touched: u8,
    /// What was in the pool and the credits when its sweep began, less what calls other than sweeps took since.
    to_be_found: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Reader {
    nr_loaded: u8,
    touched: u8,
    left: u8,
    added_before: u8,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Limit<const THREADS: usize> {
    protocol: Protocol,
    reading: Reading,
    /// By how much all threads push until they are refused, if they do.
    pushed: Option<u8>,
    limit: u8,
    pool: u8,
    credits: [u8; 2],
    touched: u8,
    locked: bool,
    threads: [Thread; THREADS],
    reader: Reader,
}

const BATCH: u8 = 2;
const READER_ENDED: u8 = 5;

const EXCEEDED: Fault = "more was added than the limit, or some was lost";
const REFUSED: Fault = "a call was refused though there was room, in nobody's hands";

/// Takes up to `amount` from a word.
fn take_some(word: &mut u8, amount: u8) -> u8 {
    let taken = amount.min(*word);
    *word -= taken;
    taken
}

impl<const THREADS: usize> Limit<THREADS> {
    /// With so much in the pool and as credits.
    fn new(protocol: Protocol, pool: u8, credits: [u8; 2], scripts: [&'static [Operation]; THREADS]) -> Self {
        let thread = |script| Thread { at: At::Begin, cpu: 0, script, named: 0, hand: 0, added: 0, touched: 0, to_be_found: 0 };
        Limit {
            protocol,
            reading: Reading::Not,
            pushed: None,
            limit: pool + credits[0] + credits[1],
            pool,
            credits,
            touched: (0..2).map(|cpu| u8::from(credits[cpu] > 0) << cpu).sum(),
            locked: false,
            threads: scripts.map(thread),
            reader: Reader { nr_loaded: 0, touched: 0, left: 0, added_before: 0 },
        }
    }

    fn free(&self) -> u8 {
        self.pool + self.credits[0] + self.credits[1]
    }

    fn added(&self) -> u8 {
        self.threads.iter().map(|thread| thread.added).sum()
    }

    /// Notes that a call took so much from under the eyes of those that sweep.
    fn took(&mut self, thread: usize, amount: u8) {
        for (other, that) in self.threads.iter_mut().enumerate() {
            if other != thread {
                that.to_be_found = that.to_be_found.saturating_sub(amount);
            }
        }
    }

    /// Ends the thread's operation with so much more added.
    fn finish(&mut self, thread: usize, added: u8, goes_on: bool) -> At {
        let this = &mut self.threads[thread];
        this.added += added;
        (this.hand, this.named, this.touched, this.to_be_found) = (0, 0, 0, 0);
        if !goes_on {
            this.script = &this.script[1..];
        }
        if this.script.is_empty() {
            this.cpu = 0;
            return At::End;
        }
        At::Begin
    }

    /// Executes the thread's next instruction. `Ok(None)`: it has to wait.
    fn execute(&mut self, thread: usize) -> Result<Option<At>, Fault> {
        let Thread { at, cpu, script, named, hand, touched, .. } = self.threads[thread];
        let Some(&operation) = script.first() else { return Ok(None) };
        let (Add(amount) | Push(amount) | Sub(amount)) = operation;
        let goes_on = matches!(operation, Push(_));
        let credit = &mut self.credits[named as usize];
        let this = &mut self.threads[thread];
        Ok(Some(match at {
            At::Begin => {
                this.named = cpu;
                match operation {
                    Sub(_) if this.added < amount => self.finish(thread, 0, false),
                    Sub(_) => {
                        this.added -= amount;
                        this.hand = amount;
                        At::SubFromCredit
                    }
                    Add(_) | Push(_) => At::TakeCredit,
                }
            }
            At::TakeCredit if *credit < amount => At::TakeFromPoolWithBatch,
            At::TakeCredit if self.protocol == Protocol::CreditWithoutLock => At::TakeCreditStore(*credit),
            At::TakeCredit => {
                *credit -= amount;
                self.took(thread, amount);
                self.finish(thread, amount, goes_on)
            }
            At::TakeCreditStore(found) => {
                *credit = found - amount;
                self.finish(thread, amount, goes_on)
            }
            At::TakeFromPoolWithBatch if self.pool < amount + BATCH => At::TakeFromPool,
            At::TakeFromPoolWithBatch => {
                self.pool -= amount + BATCH;
                this.hand = amount + BATCH;
                this.named = cpu;
                self.took(thread, amount + BATCH);
                At::Touch
            }
            At::TakeFromPool if self.pool < amount => At::Lock,
            At::TakeFromPool => {
                self.pool -= amount;
                self.took(thread, amount);
                self.finish(thread, amount, goes_on)
            }
            At::Touch => {
                self.touched |= 1 << named;
                At::Give
            }
            At::Give => {
                *credit += hand - amount;
                self.finish(thread, amount, goes_on)
            }
            At::Lock if self.locked => return Ok(None),
            At::Lock => {
                self.locked = self.protocol != Protocol::SweepsTogether;
                self.threads[thread].to_be_found = self.free();
                At::SweepPool
            }
            At::SweepPool => {
                this.hand = take_some(&mut self.pool, amount);
                At::SweepTouched
            }
            At::SweepTouched => {
                this.touched = self.touched;
                At::SweepCredit(0)
            }
            At::SweepCredit(cpu) => {
                if touched & (1 << cpu) != 0 {
                    this.hand += take_some(&mut self.credits[cpu as usize], amount - hand);
                }
                if cpu == 0 { At::SweepCredit(1) } else { At::SweepPoolAgain }
            }
            At::SweepPoolAgain => {
                this.hand += take_some(&mut self.pool, amount - hand);
                if this.hand == amount { At::Unlock { is_refused: false } } else { At::GiveBack }
            }
            At::GiveBack => {
                if this.to_be_found >= amount {
                    return Err(REFUSED);
                }
                let hand = core::mem::take(&mut this.hand);
                match (0..2).find(|cpu| self.protocol != Protocol::GivesBackToPool && touched & (1 << cpu) != 0) {
                    Some(first) => self.credits[first] += hand,
                    None => self.pool += hand,
                }
                At::Unlock { is_refused: true }
            }
            At::Unlock { is_refused } => {
                self.locked = false;
                self.finish(thread, hand, goes_on && !is_refused)
            }
            At::SubFromCredit if *credit > 0 && *credit + amount <= 2 * BATCH => {
                *credit += amount;
                self.finish(thread, 0, false)
            }
            At::SubFromCredit => At::SubFromPool,
            At::SubFromPool => {
                self.pool += amount;
                self.finish(thread, 0, false)
            }
            At::End => return Ok(None),
        }))
    }

    /// The value, which may be read at any time: the credits of the CPUs in the mask, then the pool. `Ok(false)`: it has to wait.
    fn step_reader(&mut self) -> Result<bool, Fault> {
        let added = self.added();
        let reader = &mut self.reader;
        match reader.nr_loaded {
            0 if self.reading == Reading::Locked && self.locked => return Ok(false),
            0 => {
                self.locked |= self.reading == Reading::Locked;
                reader.added_before = added;
            }
            1 => reader.touched = self.touched,
            4 => {
                reader.left += self.pool;
                self.locked &= self.reading != Reading::Locked;
                if self.limit.saturating_sub(reader.left) < reader.added_before {
                    return Err("the value misses an add that finished before");
                }
            }
            nr if reader.touched & (1 << (nr - 2)) != 0 => reader.left += self.credits[nr as usize - 2],
            _ => {}
        }
        reader.nr_loaded += 1;
        Ok(true)
    }

    fn check(self) -> Result<Self, Fault> {
        let hands = self.threads.iter().map(|thread| thread.hand).sum::<u8>();
        if self.free() + hands + self.added() == self.limit { Ok(self) } else { Err(EXCEEDED) }
    }
}

impl<const THREADS: usize> Model for Limit<THREADS> {
    const NR_THREADS: usize = THREADS + 1;

    fn steps(&self, thread: usize) -> Vec<Result<Self, Fault>> {
        let mut next = self.clone();
        if thread == THREADS {
            return match self.has_ended(thread) {
                true => Vec::new(),
                false => next.step_reader().map(|went_on| went_on.then_some(next)).transpose().into_iter().collect(),
            };
        }
        match next.execute(thread) {
            Err(fault) => vec![Err(fault)],
            Ok(None) => Vec::new(),
            Ok(Some(at)) => {
                next.threads[thread].at = at;
                vec![next.check()]
            }
        }
    }

    fn moved(&self, thread: usize) -> Option<Self> {
        let mut next = self.clone();
        let this = next.threads.get_mut(thread)?;
        // Only these look at the CPU that the thread is on.
        if !matches!(this.at, At::Begin | At::TakeFromPoolWithBatch) {
            return None;
        }
        this.cpu = 1 - this.cpu;
        Some(next)
    }

    fn has_ended(&self, thread: usize) -> bool {
        let reader_ended = self.reading == Reading::Not || self.reader.nr_loaded == READER_ENDED;
        self.threads.get(thread).map_or(reader_ended, |thread| thread.at == At::End)
    }

    fn check_end(&self) -> Result<(), Fault> {
        if self.pushed.is_some_and(|amount| self.free() >= amount) { Err("all were refused below the limit") } else { Ok(()) }
    }
}

fn outcome<const THREADS: usize>(
    protocol: Protocol,
    pool: u8,
    credits: [u8; 2],
    scripts: [&'static [Operation]; THREADS],
) -> Result<usize, Fault> {
    explore(Limit::new(protocol, pool, credits, scripts))
}

fn passes<const THREADS: usize>(pool: u8, credits: [u8; 2], scripts: [&'static [Operation]; THREADS]) {
    let nr_states = outcome(Protocol::OneSweepAtATime, pool, credits, scripts).expect("no fault");
    println!("pool {pool}, credits {credits:?}, {scripts:?}: {nr_states} states");
    assert!(nr_states > 1000);
}

fn value(protocol: Protocol, reading: Reading) -> Result<usize, Fault> {
    let mut model = Limit::new(protocol, 2, [1, 1], [&[Add(1), Add(1)], &[Add(1), Add(3)]]);
    model.reading = reading;
    explore(model)
}

#[test]
fn the_limit_is_never_exceeded_and_nobody_is_refused_what_is_there() {
    passes(5, [0, 0], [&[Add(1), Sub(1), Add(2)], &[Add(2), Add(1), Sub(2)]]);
    passes(3, [1, 2], [&[Add(1), Sub(1), Add(2)], &[Add(2), Add(1), Sub(2)]]);
    passes(3, [1, 0], [&[Add(1), Sub(1)], &[Add(2)], &[Add(2)]]);
    passes(1, [2, 1], [&[Add(1), Sub(1)], &[Add(2)], &[Add(3)]]);
}

#[test]
fn threads_that_push_until_they_are_refused_end_at_the_limit() {
    for (amount, pool, credits, script) in [(1, 5, [1, 0], &[Push(1)]), (2, 5, [1, 1], &[Push(2)])] {
        let mut model = Limit::new(Protocol::OneSweepAtATime, pool, credits, [script, script]);
        model.pushed = Some(amount);
        let nr_states = explore(model).expect("no fault");
        println!("pool {pool}, credits {credits:?}, by {amount}: {nr_states} states");
    }
}

/// Each holds half of what is left, and is refused for want of the other half.
#[test]
fn sweeps_that_run_together_refuse_each_other_what_is_there() {
    assert_eq!(outcome(Protocol::SweepsTogether, 1, [1, 0], [&[Add(2)], &[Add(2)]]), Err(REFUSED));
}

#[test]
fn a_credit_that_is_changed_without_lock_can_be_taken_twice() {
    assert_eq!(outcome(Protocol::CreditWithoutLock, 1, [1, 0], [&[Add(1)], &[Add(2)]]), Err(EXCEEDED));
}

/// What a refused call took from a credit that was read, and gave back to the pool that is read later, is seen twice.
#[test]
fn a_refused_call_that_gives_back_to_the_pool_is_found_out() {
    assert_eq!(value(Protocol::GivesBackToPool, Reading::WithoutLock), Err("the value misses an add that finished before"));
}

#[test]
fn a_value_misses_nothing_that_was_added_before() {
    assert!(value(Protocol::OneSweepAtATime, Reading::WithoutLock).is_ok());
    assert!(value(Protocol::GivesBackToPool, Reading::Locked).is_ok(), "only a refusal that overlaps the reading is seen");
}
