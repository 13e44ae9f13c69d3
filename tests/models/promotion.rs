//! Promotion of a lazy counter: whoever adds, promotes or sums meanwhile, no add is lost, counted twice or seen before it began.
//!
//! That an add to a slot is counted on the CPU that it is made on is `slots`' subject; here it is one step. Every add is of another power
//! of two, so that a sum tells which ones it has seen. An interrupt or NMI that adds or promotes is the special case of a thread that finishes
//! first.

use crate::checker::{Fault, Model, explore};

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Protocol {
    /// The library's.
    NothingMoves,
    /// Who has claimed the promotion takes the inline value and puts it into a slot.
    InlineMoves,
    /// The address is published before the shared words are written.
    PublishedEarly,
    /// The shared words are written by whoever wants to publish, and the first one does.
    NotClaimed,
    /// Who comes second keeps the object that it allocated.
    LoserKeeps,
    /// An owner that does not wait for the others demotes.
    NotExclusive,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Operation {
    /// One that fits a slot. The policy may have any verdict on it.
    Add,
    /// One of a batch or more.
    AddLarge,
    Promote,
    /// With exclusive access: when all other threads have ended.
    Demote,
}
use Operation::{Add, AddLarge, Demote, Promote};

const NR_OBJECTS: usize = 2;
/// Of `0..NR_OBJECTS`.
type Object = u8;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Address {
    Inline,
    Wanted,
    Claimed,
    Published(Object),
}

/// The next instruction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum At {
    Begin,
    AddInline,
    /// The policy's verdict on an inline add.
    Observe,
    Stay,
    /// On the CPU that it will have been moved to by then.
    AddToSlot(Object, u8),
    AddToBase,
    // A promotion, explicit or from inside an add.
    LoadState,
    Allocate,
    Claim(Object),
    MoveInline(Object),
    WriteShared(Object),
    Publish(Object),
    GiveBack(Object),
    Want,
    End,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Thread {
    at: At,
    script: &'static [Operation],
    /// What its next add adds.
    amount: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Reader {
    nr_loaded: u8,
    /// Whose slots it looks at.
    object: Option<Object>,
    sum: u8,
    finished_before: u8,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Lazy<const THREADS: usize> {
    protocol: Protocol,
    nr_objects: usize,
    inline: u8,
    address: Address,
    /// The base among the shared words; none before they are written.
    base: Option<u8>,
    /// Each object's slots on each CPU.
    slots: [[u8; 2]; NR_OBJECTS],
    is_free: [bool; NR_OBJECTS],
    threads: [Thread; THREADS],
    reader: Reader,
    /// The amounts whose adds have begun, and those that have finished.
    begun: u8,
    finished: u8,
}

const INITIAL: u8 = 1;
const UNWRITTEN: Fault = "the shared words were used before they were written";
const LOST: Fault = "an add was lost or is there twice";

impl<const THREADS: usize> Lazy<THREADS> {
    fn new(protocol: Protocol, nr_objects: usize, scripts: [&'static [Operation]; THREADS]) -> Self {
        let mut amount = INITIAL << 1;
        let threads = scripts.map(|script| {
            let thread = Thread { at: At::Begin, script, amount };
            amount <<= script.iter().filter(|&operation| matches!(operation, Add | AddLarge)).count();
            thread
        });
        Lazy {
            protocol,
            nr_objects,
            inline: INITIAL,
            address: Address::Inline,
            base: None,
            slots: [[0; 2]; NR_OBJECTS],
            is_free: core::array::from_fn(|object| object < nr_objects),
            threads,
            reader: Reader { nr_loaded: 0, object: None, sum: 0, finished_before: 0 },
            begun: INITIAL,
            finished: INITIAL,
        }
    }

    /// Ends the thread's operation.
    fn finish(&mut self, thread: usize) -> At {
        let this = &mut self.threads[thread];
        if matches!(this.script[0], Add | AddLarge) {
            self.finished |= this.amount;
            this.amount <<= 1;
        }
        this.script = &this.script[1..];
        if this.script.is_empty() { At::End } else { At::Begin }
    }

    fn give_back(&mut self, object: Object) {
        self.is_free[object as usize] = true;
    }

    fn total(&self) -> u8 {
        let of_object = |object: Object| self.slots[object as usize].iter().sum::<u8>() + self.base.unwrap_or(0);
        self.inline + if let Address::Published(object) = self.address { of_object(object) } else { 0 }
    }

    fn demote(&mut self) {
        if let Address::Published(object) = self.address {
            self.inline = self.total();
            self.slots[object as usize] = [0; 2];
            self.give_back(object);
            self.address = Address::Inline;
        }
    }

    /// Executes the thread's next instruction; where it may go on.
    fn execute(&mut self, thread: usize) -> Result<Vec<At>, Fault> {
        let Thread { at, script, amount } = self.threads[thread];
        Ok(vec![match at {
            At::Begin => match script[0] {
                Promote => At::LoadState,
                Demote => {
                    self.demote();
                    self.finish(thread)
                }
                Add | AddLarge => {
                    self.begun |= amount;
                    match self.address {
                        Address::Published(object) if script[0] == Add => {
                            return Ok(vec![At::AddToSlot(object, 0), At::AddToSlot(object, 1)]);
                        }
                        Address::Published(_) => At::AddToBase,
                        _ => At::AddInline,
                    }
                }
            },
            At::AddInline => {
                self.inline += amount;
                At::Observe
            }
            At::Observe => return Ok(vec![At::Stay, At::LoadState, At::Want]),
            At::Stay => self.finish(thread),
            At::AddToSlot(object, cpu) => {
                self.slots[object as usize][cpu as usize] += amount;
                self.finish(thread)
            }
            At::AddToBase => {
                *self.base.as_mut().ok_or(UNWRITTEN)? += amount;
                self.finish(thread)
            }
            At::LoadState => match self.address {
                Address::Inline | Address::Wanted => At::Allocate,
                Address::Claimed | Address::Published(_) => self.finish(thread),
            },
            At::Allocate => match self.is_free.iter().position(|&is_free| is_free) {
                None => At::Want,
                Some(object) => {
                    self.is_free[object] = false;
                    if self.slots[object] != [0; 2] {
                        return Err("an object in stock is not zero");
                    }
                    let object = object as Object;
                    if self.protocol == Protocol::NotClaimed { At::WriteShared(object) } else { At::Claim(object) }
                }
            },
            At::Claim(object) => match (self.address, self.protocol) {
                (Address::Claimed | Address::Published(_), _) => At::GiveBack(object),
                (_, protocol) => {
                    self.address = Address::Claimed;
                    match protocol {
                        Protocol::InlineMoves => At::MoveInline(object),
                        Protocol::PublishedEarly => At::Publish(object),
                        _ => At::WriteShared(object),
                    }
                }
            },
            At::MoveInline(object) => {
                self.slots[object as usize][0] += core::mem::take(&mut self.inline);
                At::WriteShared(object)
            }
            At::WriteShared(object) => {
                self.base = Some(0);
                if self.protocol == Protocol::PublishedEarly { self.finish(thread) } else { At::Publish(object) }
            }
            At::Publish(object) => match (self.address, self.protocol) {
                (Address::Published(_), Protocol::NotClaimed) => At::GiveBack(object),
                (_, protocol) => {
                    self.address = Address::Published(object);
                    if protocol == Protocol::PublishedEarly { At::WriteShared(object) } else { self.finish(thread) }
                }
            },
            At::GiveBack(object) => {
                if self.protocol != Protocol::LoserKeeps {
                    self.give_back(object);
                }
                self.finish(thread)
            }
            At::Want => {
                if self.address == Address::Inline {
                    self.address = Address::Wanted;
                }
                self.finish(thread)
            }
            At::End => At::End,
        }])
    }

    /// A sum, which may run at any time: the inline word, the address, and with one the base and the slots.
    fn step_reader(&mut self) -> Result<(), Fault> {
        let reader = &mut self.reader;
        match (reader.nr_loaded, reader.object) {
            (0, _) => (reader.sum, reader.finished_before) = (self.inline, self.finished),
            (1, _) => {
                if let Address::Published(object) = self.address {
                    reader.object = Some(object);
                }
            }
            (2, Some(_)) => reader.sum += self.base.ok_or(UNWRITTEN)?,
            (nr, Some(object)) => reader.sum += self.slots[object as usize][nr as usize - 3],
            (_, None) => {}
        }
        reader.nr_loaded += 1;
        if reader.nr_loaded == 2 && reader.object.is_none() {
            reader.nr_loaded = READER_ENDED;
        }
        if reader.nr_loaded < READER_ENDED {
            return Ok(());
        }
        if reader.finished_before & !reader.sum != 0 {
            return Err("a sum misses an add that finished before");
        }
        if reader.sum & !self.begun != 0 {
            return Err("a sum has an add twice, or one that did not begin");
        }
        Ok(())
    }
}

const READER_ENDED: u8 = 5;

impl<const THREADS: usize> Model for Lazy<THREADS> {
    const NR_THREADS: usize = THREADS + 1;

    fn steps(&self, thread: usize) -> Vec<Result<Self, Fault>> {
        let mut next = self.clone();
        if self.has_ended(thread) {
            return Vec::new();
        }
        if thread == THREADS {
            return vec![next.step_reader().map(|()| next)];
        }
        let this = &self.threads[thread];
        let is_alone = (0..=THREADS).all(|other| other == thread || self.has_ended(other));
        if this.at == At::Begin && this.script[0] == Demote && !is_alone && self.protocol != Protocol::NotExclusive {
            return Vec::new();
        }
        match next.execute(thread) {
            Err(fault) => vec![Err(fault)],
            Ok(ways) => {
                let at = |at| {
                    let mut next = next.clone();
                    next.threads[thread].at = at;
                    Ok(next)
                };
                ways.into_iter().map(at).collect()
            }
        }
    }

    /// Where an add to a slot is made is chosen when it begins; nothing else depends on the CPU.
    fn moved(&self, _: usize) -> Option<Self> {
        None
    }

    fn has_ended(&self, thread: usize) -> bool {
        self.threads.get(thread).map_or(self.reader.nr_loaded == READER_ENDED, |thread| thread.at == At::End)
    }

    fn check_end(&self) -> Result<(), Fault> {
        if self.total() != self.finished {
            return Err(LOST);
        }
        for object in 0..self.nr_objects {
            let is_free = self.is_free[object];
            if is_free == (self.address == Address::Published(object as Object)) {
                return Err("an object was lost, or is in two places");
            }
            if is_free && self.slots[object] != [0; 2] {
                return Err("an object in stock is not zero");
            }
        }
        Ok(())
    }
}

fn passes<const THREADS: usize>(nr_objects: usize, scripts: [&'static [Operation]; THREADS]) {
    let nr_states = explore(Lazy::new(Protocol::NothingMoves, nr_objects, scripts)).expect("no fault");
    println!("{nr_objects} objects, {scripts:?}: {nr_states} states");
    assert!(nr_states > 1000);
}

#[test]
fn promotions_that_race_with_adds_and_a_sum_lose_nothing() {
    passes(2, [&[Add, AddLarge], &[Add, Add]]);
    passes(2, [&[Promote], &[Add, AddLarge], &[Add]]);
    passes(2, [&[Promote], &[Promote], &[Add, AddLarge]]);
}

#[test]
fn promotions_without_memory_leave_the_value_inline() {
    passes(0, [&[Add, Add], &[Add, AddLarge]]);
    passes(1, [&[Add, Promote], &[Promote, Add], &[Add]]);
}

#[test]
fn an_owner_can_demote_and_promote_again() {
    passes(2, [&[Add, AddLarge], &[Add], &[Demote, Add, Promote, Add, Demote, Promote]]);
}

#[test]
fn an_inline_value_that_is_moved_into_a_slot_is_missed_by_a_sum() {
    let outcome = explore(Lazy::new(Protocol::InlineMoves, 2, [&[Promote], &[Add]]));
    assert_eq!(outcome, Err("a sum misses an add that finished before"));
}

#[test]
fn an_address_that_is_published_before_the_shared_words_are_written_is_found_out() {
    let outcome = explore(Lazy::new(Protocol::PublishedEarly, 2, [&[Promote], &[AddLarge]]));
    assert_eq!(outcome, Err("the shared words were used before they were written"));
}

#[test]
fn a_promoter_that_has_not_claimed_wipes_what_was_added_since_the_other_one_published() {
    let outcome = explore(Lazy::new(Protocol::NotClaimed, 2, [&[Promote], &[Promote], &[AddLarge]]));
    assert_eq!(outcome, Err("a sum misses an add that finished before"));
}

#[test]
fn a_promoter_that_comes_second_and_keeps_its_object_loses_it() {
    let outcome = explore(Lazy::new(Protocol::LoserKeeps, 2, [&[Promote], &[Promote]]));
    assert_eq!(outcome, Err("an object was lost, or is in two places"));
}

#[test]
fn a_demotion_without_exclusive_access_is_found_out() {
    let outcome = explore(Lazy::new(Protocol::NotExclusive, 2, [&[Promote, Demote], &[Add]]));
    assert_eq!(outcome, Err("a sum misses an add that finished before"));
}
