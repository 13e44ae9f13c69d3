//! Tagged slots: what is added is in a slot whose CPU is in the mask, once the add has finished and wherever the adder is moved to.
//!
//! An instruction that changes memory without LOCK is one step to its own CPU, and a load and a store to the other one, which may act in
//! between. Every add is of another power of two, so that a sum tells which ones it has seen.
//!
//! Tasks are interleaved in every order, those that are pinned too, though no other task runs on their CPU: that is more than can
//! happen. An interrupt ends before what it interrupted goes on.

use crate::checker::{Fault, Model, explore};

const TAG: u8 = 1;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Protocol {
    /// The library's: the tag is set by a LOCKed `or` at the address of the CPU that was put into the mask, or, by who is pinned, through GS without LOCK.
    Tagged,
    /// The CPU goes into the mask before each add, without a tag.
    MaskThenWrite,
    /// The CPU goes into the mask after each add, without a tag.
    WriteThenMask,
    /// Tagged, but the tag is set through GS.
    TagThroughGs,
    /// Tagged, but before the CPU is in the mask.
    TagThenMask,
    /// Tagged, but by an instruction without LOCK.
    TagWithoutLock,
    /// Tagged, but by a LOCKed compare-exchange of 0 with the tag, as if nobody wrote to a slot before it has one.
    TagByCompareExchange,
}

/// Who adds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Context {
    /// A task that may be moved before each instruction. Adds by a compare-exchange.
    Task,
    /// A task that stays on its CPU during each add. Adds by an exchange-and-add.
    PinnedTask,
    /// A task that adds like a pinned one, and is moved all the same.
    TaskThatIsNotPinned,
    /// An interrupt on either CPU, with a compare-exchange.
    Interrupt,
    /// An interrupt on either CPU, with an exchange-and-add.
    PinnedInterrupt,
}
use Context::{Interrupt, PinnedInterrupt, PinnedTask, Task, TaskThatIsNotPinned};

impl Context {
    fn adds_first(self) -> bool {
        matches!(self, PinnedTask | PinnedInterrupt | TaskThatIsNotPinned)
    }

    fn interrupts(self) -> bool {
        matches!(self, Interrupt | PinnedInterrupt)
    }

    /// Whether it stays on its CPU in the middle of an add.
    fn stays(self) -> bool {
        matches!(self, PinnedTask | PinnedInterrupt | Interrupt)
    }
}

/// The next instruction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum At {
    /// The first one of an add.
    Begin,
    LoadSlot,
    LoadCpu,
    Mask,
    Tag,
    TagStore,
    ExchangeLoad,
    ExchangeStore,
    AddLoad,
    AddStore,
    End,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Adder {
    context: Context,
    at: At,
    cpu: u8,
    /// What it adds; what it still has to add comes after in the same way.
    amount: u8,
    nr_left: u8,
    old: u8,
    found: u8,
    named: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Reader {
    nr_loaded: usize,
    mask: u8,
    sum: u8,
    finished_before: u8,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Slots<const ADDERS: usize> {
    protocol: Protocol,
    slots: [u8; 2],
    mask: u8,
    adders: [Adder; ADDERS],
    reader: Reader,
    /// The amounts whose adds have begun, and those that have finished.
    begun: u8,
    finished: u8,
}

impl<const ADDERS: usize> Slots<ADDERS> {
    fn new(protocol: Protocol, contexts: [Context; ADDERS], nr_adds: u8) -> Self {
        let mut amount = 1;
        let adders = contexts.map(|context| {
            let adder = Adder { context, at: At::Begin, cpu: 0, amount, nr_left: nr_adds, old: 0, found: 0, named: 0 };
            amount <<= nr_adds;
            adder
        });
        let reader = Reader { nr_loaded: 0, mask: 0, sum: 0, finished_before: 0 };
        Slots { protocol, slots: [0; 2], mask: 0, adders, reader, begun: 0, finished: 0 }
    }

    /// Whether somebody else on the adder's CPU has to come first: one in the middle of an instruction, or an interrupt.
    fn is_held_up(&self, adder: usize) -> bool {
        let this = &self.adders[adder];
        self.adders.iter().enumerate().any(|(other, that)| {
            let interrupts = that.context.interrupts() && !this.context.interrupts() && !that.is_between_adds();
            other != adder && that.cpu == this.cpu && (interrupts || that.is_in_an_instruction())
        })
    }

    fn step_adder(&mut self, index: usize) {
        let protocol = self.protocol;
        let adder = &mut self.adders[index];
        let slot = &mut self.slots[adder.cpu as usize];
        self.begun |= adder.amount;
        let mut ends = false;
        if adder.at == At::Begin {
            adder.at = adder.first(protocol);
        }
        adder.at = match adder.at {
            At::Begin | At::LoadSlot => {
                adder.old = *slot;
                let has_tags = !matches!(protocol, Protocol::MaskThenWrite | Protocol::WriteThenMask);
                if has_tags && *slot & TAG == 0 { At::LoadCpu } else { At::ExchangeLoad }
            }
            At::LoadCpu => {
                adder.named = adder.cpu;
                if protocol == Protocol::TagThenMask { At::Tag } else { At::Mask }
            }
            At::Mask => {
                self.mask |= 1 << adder.named;
                ends = protocol == Protocol::WriteThenMask;
                if matches!(protocol, Protocol::MaskThenWrite | Protocol::TagThenMask) { At::LoadSlot } else { At::Tag }
            }
            At::Tag => {
                let is_locked = adder.tags_locked(protocol);
                if protocol == Protocol::TagThroughGs || (protocol == Protocol::Tagged && !is_locked) {
                    adder.named = adder.cpu;
                }
                let tagged = &mut self.slots[adder.named as usize];
                adder.found = *tagged;
                if is_locked && !(protocol == Protocol::TagByCompareExchange && *tagged > 0) {
                    *tagged |= TAG;
                }
                ends = adder.context.adds_first() && is_locked;
                match protocol {
                    _ if !is_locked => At::TagStore,
                    Protocol::TagThenMask => At::Mask,
                    _ => At::LoadSlot,
                }
            }
            At::TagStore => {
                self.slots[adder.named as usize] = adder.found | TAG;
                ends = adder.context.adds_first();
                At::LoadSlot
            }
            At::ExchangeLoad => {
                adder.found = *slot;
                At::ExchangeStore
            }
            // A failing compare-exchange writes back what it found.
            At::ExchangeStore if adder.found != adder.old => {
                *slot = adder.found;
                At::LoadSlot
            }
            At::ExchangeStore => {
                *slot = adder.old + (adder.amount << 1);
                ends = protocol != Protocol::WriteThenMask;
                At::LoadCpu
            }
            At::AddLoad => {
                adder.found = *slot;
                At::AddStore
            }
            At::AddStore => {
                *slot = adder.found + (adder.amount << 1);
                ends = adder.found & TAG > 0;
                At::LoadCpu
            }
            At::End => At::End,
        };
        if ends {
            self.finished |= adder.amount;
            adder.nr_left -= 1;
            adder.amount <<= 1;
            adder.at = if adder.nr_left > 0 { At::Begin } else { At::End };
        }
    }

    /// A sum, which may run at any time; the mask first.
    fn step_reader(&mut self) -> Result<(), Fault> {
        let reader = &mut self.reader;
        match reader.nr_loaded {
            0 => (reader.mask, reader.finished_before) = (self.mask, self.finished),
            nr if reader.mask & (1 << (nr - 1)) != 0 => reader.sum += self.slots[nr - 1] >> 1,
            _ => {}
        }
        reader.nr_loaded += 1;
        if reader.nr_loaded < 3 {
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

impl Adder {
    fn first(&self, protocol: Protocol) -> At {
        match protocol {
            _ if self.context.adds_first() => At::AddLoad,
            Protocol::MaskThenWrite => At::LoadCpu,
            _ => At::LoadSlot,
        }
    }

    fn tags_locked(&self, protocol: Protocol) -> bool {
        match protocol {
            Protocol::Tagged => !self.context.adds_first(),
            _ => protocol != Protocol::TagWithoutLock,
        }
    }

    fn is_between_adds(&self) -> bool {
        matches!(self.at, At::Begin | At::End)
    }

    fn is_in_an_instruction(&self) -> bool {
        matches!(self.at, At::ExchangeStore | At::AddStore | At::TagStore)
    }

    /// Clears the registers that the next instructions do not read, so that states differ only where it matters.
    fn forget(&mut self) {
        if !matches!(self.at, At::ExchangeLoad | At::ExchangeStore) {
            self.old = 0;
        }
        if !self.is_in_an_instruction() {
            self.found = 0;
        }
        if !matches!(self.at, At::Mask | At::Tag | At::TagStore) {
            self.named = 0;
        }
        if self.at == At::End {
            self.cpu = 0;
        }
    }
}

impl<const ADDERS: usize> Model for Slots<ADDERS> {
    const NR_THREADS: usize = ADDERS + 1;

    fn steps(&self, thread: usize) -> Vec<Result<Self, Fault>> {
        let mut next = self.clone();
        if thread == ADDERS {
            return if self.reader.nr_loaded < 3 { vec![next.step_reader().map(|()| next)] } else { Vec::new() };
        }
        if self.has_ended(thread) || self.is_held_up(thread) {
            return Vec::new();
        }
        next.step_adder(thread);
        next.adders[thread].forget();
        vec![Ok(next)]
    }

    fn moved(&self, thread: usize) -> Option<Self> {
        let mut next = self.clone();
        let adder = next.adders.get_mut(thread)?;
        if adder.is_in_an_instruction() || (adder.context.stays() && !adder.is_between_adds()) || self.is_held_up(thread) {
            return None;
        }
        adder.cpu = 1 - adder.cpu;
        Some(next)
    }

    fn has_ended(&self, thread: usize) -> bool {
        self.adders.get(thread).map_or(self.reader.nr_loaded == 3, |adder| adder.at == At::End)
    }

    fn check_end(&self) -> Result<(), Fault> {
        let visited = (0..2).filter(|cpu| self.mask & (1 << cpu) != 0).map(|cpu| self.slots[cpu] >> 1).sum::<u8>();
        if visited == self.finished { Ok(()) } else { Err("a value is in a slot whose CPU is not in the mask") }
    }
}

/// Each context adds so many times beside a racing sum.
fn passes<const ADDERS: usize>(contexts: [Context; ADDERS], nr_adds: u8) {
    let nr_states = explore(Slots::new(Protocol::Tagged, contexts, nr_adds)).expect("no fault");
    println!("{contexts:?}, {nr_adds} adds each: {nr_states} states");
    assert!(nr_states > 1000);
}

const MISSED: Result<usize, Fault> = Err("a sum misses an add that finished before");

#[test]
fn tagged_slots_lose_nothing_with_2_tasks_and_a_racing_sum() {
    passes([Task, Task], 2);
}

#[test]
fn tagged_slots_lose_nothing_with_3_tasks_and_a_racing_sum() {
    passes([Task, Task, Task], 1);
}

#[test]
fn tagged_slots_lose_nothing_with_pinned_adds_among_the_others() {
    passes([Task, PinnedTask], 2);
    passes([PinnedTask, PinnedTask], 2);
    passes([Task, Task, PinnedTask], 1);
}

#[test]
fn tagged_slots_lose_nothing_with_nested_contexts() {
    passes([Task, Interrupt], 2);
    passes([PinnedTask, Interrupt], 2);
    passes([PinnedTask, PinnedInterrupt], 2);
    passes([Task, PinnedTask, Interrupt], 1);
    passes([Task, PinnedTask, PinnedInterrupt], 1);
}

#[test]
fn without_the_tag_the_mask_can_name_the_wrong_cpu() {
    assert_eq!(explore(Slots::new(Protocol::MaskThenWrite, [Task], 1)), MISSED);
    assert_eq!(explore(Slots::new(Protocol::WriteThenMask, [Task], 1)), MISSED);
}

#[test]
fn a_pinned_add_of_a_task_that_is_not_pinned_can_be_lost() {
    assert_eq!(explore(Slots::new(Protocol::Tagged, [TaskThatIsNotPinned], 1)), MISSED);
}

#[test]
fn a_tag_that_is_set_through_gs_can_be_on_another_cpu_than_the_mask_says() {
    assert_eq!(explore(Slots::new(Protocol::TagThroughGs, [Task], 1)), MISSED);
}

#[test]
fn a_tag_that_is_set_before_the_mask_hides_an_add_from_a_sum() {
    assert_eq!(explore(Slots::new(Protocol::TagThenMask, [Task, Task], 1)), MISSED);
}

#[test]
fn a_tag_that_is_set_without_lock_can_undo_an_add() {
    assert_eq!(explore(Slots::new(Protocol::TagWithoutLock, [Task, Task], 1)), MISSED);
}

/// An add that is pinned has written before there is a tag; the compare-exchange does not find 0 any more, neither for it nor for the
/// interrupt, whose add waits for the tag.
#[test]
fn a_tag_that_is_set_by_a_compare_exchange_can_let_a_nested_add_loop_for_ever() {
    assert_eq!(explore(Slots::new(Protocol::TagByCompareExchange, [PinnedTask, Interrupt], 1)), Err("a thread loops for ever on its own"));
    assert!(explore(Slots::new(Protocol::TagByCompareExchange, [Task, Interrupt], 1)).is_ok(), "it takes a pinned add");
}
