//! Tagged slots: an add writes only to a slot whose CPU is in the mask, wherever the adder is moved to.
//!
//! An instruction that changes memory without LOCK is one step to its own CPU, and a load and a store to the other one, which may act in
//! between. Every add is of another power of two, so that a sum tells which ones it has seen.

use crate::checker::{Fault, Model, explore};

const TAG: u8 = 1;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Protocol {
    /// The library's.
    Tagged,
    /// The CPU goes into the mask before each add, without a tag.
    MaskThenWrite,
    /// The CPU goes into the mask after each add, without a tag.
    WriteThenMask,
    /// Tagged, but the tag is set through GS.
    TagThroughGs,
    /// Tagged, but before the CPU is in the mask.
    TagThenMask,
}

/// The next instruction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum At {
    LoadSlot,
    LoadCpu,
    Mask,
    Tag,
    ExchangeLoad,
    ExchangeStore,
    End,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Adder {
    at: At,
    cpu: usize,
    /// Twice what it adds; what it still has to add comes after in the same way.
    amount: u8,
    nr_left: u8,
    old: u8,
    found: u8,
    named: usize,
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
    fn new(protocol: Protocol, nr_adds: u8) -> Self {
        let mut amount = 1;
        let adders = core::array::from_fn(|_| {
            let adder = Adder { at: first(protocol), cpu: 0, amount, nr_left: nr_adds, old: 0, found: 0, named: 0 };
            amount <<= nr_adds;
            adder
        });
        let reader = Reader { nr_loaded: 0, mask: 0, sum: 0, finished_before: 0 };
        Slots { protocol, slots: [0; 2], mask: 0, adders, reader, begun: 0, finished: 0 }
    }

    /// Whether a thread is in the middle of an instruction of that CPU's.
    fn is_busy(&self, cpu: usize, but: usize) -> bool {
        self.adders.iter().enumerate().any(|(index, adder)| index != but && adder.cpu == cpu && adder.at == At::ExchangeStore)
    }

    fn step_adder(&mut self, index: usize) {
        let protocol = self.protocol;
        let adder = &mut self.adders[index];
        let slot = &mut self.slots[adder.cpu];
        self.begun |= adder.amount;
        adder.at = match adder.at {
            At::LoadSlot => {
                adder.old = *slot;
                let must_touch = matches!(protocol, Protocol::Tagged | Protocol::TagThroughGs | Protocol::TagThenMask) && *slot & TAG == 0;
                if must_touch { At::LoadCpu } else { At::ExchangeLoad }
            }
            At::LoadCpu => {
                adder.named = adder.cpu;
                if protocol == Protocol::TagThenMask { At::Tag } else { At::Mask }
            }
            At::Mask => {
                self.mask |= 1 << adder.named;
                match protocol {
                    Protocol::Tagged | Protocol::TagThroughGs => At::Tag,
                    Protocol::MaskThenWrite | Protocol::TagThenMask => At::LoadSlot,
                    Protocol::WriteThenMask => {
                        self.finished |= adder.amount;
                        adder.next(protocol)
                    }
                }
            }
            At::Tag => {
                let tagged = if protocol == Protocol::TagThroughGs { adder.cpu } else { adder.named };
                if self.slots[tagged] == 0 {
                    self.slots[tagged] = TAG;
                }
                if protocol == Protocol::TagThenMask { At::Mask } else { At::LoadSlot }
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
                if protocol == Protocol::WriteThenMask {
                    At::LoadCpu
                } else {
                    self.finished |= adder.amount;
                    adder.next(protocol)
                }
            }
            At::End => At::End,
        };
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

fn first(protocol: Protocol) -> At {
    if protocol == Protocol::MaskThenWrite { At::LoadCpu } else { At::LoadSlot }
}

impl Adder {
    /// Clears the registers that the next instructions do not read, so that states differ only where it matters.
    fn forget(&mut self) {
        if !matches!(self.at, At::ExchangeLoad | At::ExchangeStore) {
            self.old = 0;
        }
        if self.at != At::ExchangeStore {
            self.found = 0;
        }
        if !matches!(self.at, At::Mask | At::Tag) {
            self.named = 0;
        }
        if self.at == At::End {
            self.cpu = 0;
        }
    }

    fn next(&mut self, protocol: Protocol) -> At {
        self.nr_left -= 1;
        if self.nr_left == 0 {
            return At::End;
        }
        self.amount <<= 1;
        first(protocol)
    }
}

impl<const ADDERS: usize> Model for Slots<ADDERS> {
    const NR_THREADS: usize = ADDERS + 1;

    fn steps(&self, thread: usize) -> Vec<Result<Self, Fault>> {
        let mut next = self.clone();
        if thread == ADDERS {
            return if self.reader.nr_loaded < 3 { vec![next.step_reader().map(|()| next)] } else { Vec::new() };
        }
        if self.has_ended(thread) || self.is_busy(self.adders[thread].cpu, thread) {
            return Vec::new();
        }
        next.step_adder(thread);
        next.adders[thread].forget();
        vec![Ok(next)]
    }

    fn moved(&self, thread: usize) -> Option<Self> {
        let mut next = self.clone();
        let adder = next.adders.get_mut(thread).filter(|adder| adder.at != At::ExchangeStore)?;
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

#[test]
fn tagged_slots_lose_nothing_with_2_adders_and_a_racing_sum() {
    let nr_states = explore(Slots::<2>::new(Protocol::Tagged, 2)).expect("no fault");
    println!("{nr_states} states");
    assert!(nr_states > 1000);
}

#[test]
fn tagged_slots_lose_nothing_with_3_adders_and_a_racing_sum() {
    let nr_states = explore(Slots::<3>::new(Protocol::Tagged, 1)).expect("no fault");
    println!("{nr_states} states");
    assert!(nr_states > 1000);
}

#[test]
fn without_the_tag_the_mask_can_name_the_wrong_cpu() {
    let mask_first = explore(Slots::<1>::new(Protocol::MaskThenWrite, 1));
    assert_eq!(mask_first, Err("a value is in a slot whose CPU is not in the mask"));
    let write_first = explore(Slots::<1>::new(Protocol::WriteThenMask, 1));
    assert!(write_first.is_err(), "{write_first:?}");
}

#[test]
fn a_tag_that_is_set_through_gs_can_be_on_another_cpu_than_the_mask_says() {
    assert!(explore(Slots::<1>::new(Protocol::TagThroughGs, 1)).is_err());
}

#[test]
fn a_tag_that_is_set_before_the_mask_hides_an_add_from_a_sum() {
    assert_eq!(explore(Slots::<2>::new(Protocol::TagThenMask, 1)), Err("a sum misses an add that finished before"));
}
