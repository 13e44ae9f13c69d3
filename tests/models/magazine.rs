//! Magazines of slot cells: hits, refills, flushes, the overflow, and the drain of an offline CPU.
//!
//! Two CPUs with two cells each, and two or three threads, each of which may be moved to the other CPU before every instruction unless
//! it has interrupts off. An interrupt or NMI is the special case of a thread that stays and finishes first. A hint may have any value,
//! so a hit may try any cell.

use crate::checker::{Fault, Model, explore};

const CELLS: usize = 2;
const NR_OBJECTS: u8 = 4;

/// `1..=NR_OBJECTS`; 0 is none.
type Object = u8;
/// A set of objects.
type Objects = u8;

/// How a cell is written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Write {
    CompareExchange,
    PlainStore,
}

/// Who takes the objects of CPU 1.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Drain {
    Nobody,
    /// The last thread, by a remote exchange, once CPU 1 is offline.
    Offline,
    /// The same while CPU 1 runs.
    Online,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Operation {
    Allocate,
    /// Does not wait for the lock.
    NmiAllocate,
    /// Never waits for the lock.
    Free,
    Drain,
}
use Operation::{Allocate, Free, NmiAllocate};

/// The next instruction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum At {
    Begin,
    // The hit paths.
    TakeLoad(usize),
    TakeWrite(usize),
    PutWrite(usize),
    // The searches of all cells.
    AnyLoad(usize),
    AnyWrite(usize),
    AnyPut(usize),
    // The miss paths; with interrupts off and the lock held from `TakeOverflow` on.
    Lock,
    TakeOverflow,
    Refill,
    RefillPut(usize),
    FlushLoad(usize),
    FlushWrite(usize),
    FlushPut(usize),
    DrainCell(usize),
    Unlock,
    /// A free when there is nothing to free.
    Nothing,
    End,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Thread {
    at: At,
    cpu: usize,
    script: &'static [Operation],
    /// What it has allocated and not freed.
    held: Objects,
    /// The object that it frees or is about to get.
    mine: Object,
    /// What it found in a cell or in the block.
    found: Object,
    irqs_off: bool,
    /// The value that the second half of a compare-exchange on the cell of `at` will store, where halves matter.
    storing: Option<(Object, bool)>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Magazines<const THREADS: usize> {
    write: Write,
    drain: Drain,
    cells: [[Object; CELLS]; 2],
    /// The objects that are free in their block, which the lock guards.
    block: Objects,
    locked: bool,
    overflow: Objects,
    offline: bool,
    threads: [Thread; THREADS],
}

const fn bit(object: Object) -> Objects {
    1 << object
}

/// One of a set, or 0.
fn any_of(objects: Objects) -> Object {
    (1..=NR_OBJECTS).find(|&object| objects & bit(object) != 0).unwrap_or(0)
}

impl<const THREADS: usize> Magazines<THREADS> {
    /// Each thread holds one object; CPU 0 has `stock`; the block has the rest.
    fn new(write: Write, drain: Drain, stock: [Object; CELLS], scripts: [&'static [Operation]; THREADS]) -> Self {
        let mut block =
            (1..=NR_OBJECTS).map(bit).sum::<Objects>() - stock.into_iter().filter(|&object| object > 0).map(bit).sum::<Objects>();
        let threads = scripts.map(|script| {
            let held = if script.first() == Some(&Free) { bit(any_of(block)) } else { 0 };
            block -= held;
            Thread { at: At::Begin, cpu: 0, script, held, mine: 0, found: 0, irqs_off: false, storing: None }
        });
        Magazines { write, drain, cells: [stock, [0; CELLS]], block, locked: false, overflow: 0, offline: false, threads }
    }

    /// An unlocked compare-exchange on a cell of this CPU's, or what stands in for it; `None` while it is half done.
    fn exchange(&mut self, thread: usize, index: usize, old: Object, new: Object) -> Option<bool> {
        let this = &mut self.threads[thread];
        let cell = &mut self.cells[this.cpu][index];
        let (value, stored) = match this.storing.take() {
            Some(second_half) => second_half,
            None => {
                let stored = self.write == Write::PlainStore || *cell == old;
                let value = if stored { new } else { *cell };
                if self.drain != Drain::Nobody {
                    this.storing = Some((value, stored));
                    return None;
                }
                (value, stored)
            }
        };
        *cell = value;
        Some(stored)
    }

    fn put_into_block(&mut self, object: Object) -> Result<(), Fault> {
        if self.block & bit(object) != 0 {
            return Err("an object was freed twice");
        }
        self.block |= bit(object);
        Ok(())
    }

    /// Ends the thread's operation, with an object for an allocation.
    fn finish(&mut self, thread: usize, got: Object) -> Result<At, Fault> {
        let is_used = |other: &Thread| other.held & bit(got) != 0;
        if got > 0 && self.threads.iter().any(is_used) {
            return Err("an object was handed out twice");
        }
        let this = &mut self.threads[thread];
        this.held |= if got > 0 { bit(got) } else { 0 };
        (this.mine, this.found) = (0, 0);
        this.script = &this.script[1..];
        if this.script.is_empty() {
            this.cpu = 0;
            return Ok(At::End);
        }
        Ok(At::Begin)
    }

    /// Executes the thread's next instruction. `Ok(None)`: it has to wait.
    fn execute(&mut self, thread: usize) -> Result<Option<At>, Fault> {
        let Thread { at, cpu, script, mine, found, .. } = self.threads[thread];
        let below = |index: usize, otherwise: At, next: fn(usize) -> At| if index == 0 { otherwise } else { next(index - 1) };
        let above = |index: usize, otherwise: At, next: fn(usize) -> At| if index + 1 == CELLS { otherwise } else { next(index + 1) };
        Ok(Some(match at {
            At::Begin | At::End => return Ok(None),
            At::TakeLoad(index) | At::AnyLoad(index) | At::FlushLoad(index) => {
                let found = self.cells[cpu][index];
                self.threads[thread].found = found;
                match (at, found) {
                    (At::TakeLoad(_), 0) => At::AnyLoad(CELLS - 1),
                    (At::TakeLoad(_), _) => At::TakeWrite(index),
                    (At::AnyLoad(_), 0) => below(index, At::Lock, At::AnyLoad),
                    (At::AnyLoad(_), _) => At::AnyWrite(index),
                    (_, 0) => below(index, At::FlushPut(0), At::FlushLoad),
                    _ => At::FlushWrite(index),
                }
            }
            At::TakeWrite(index) | At::AnyWrite(index) => match (self.exchange(thread, index, found, 0), at) {
                (None, _) => at,
                (Some(true), _) => self.finish(thread, found)?,
                (Some(false), At::TakeWrite(_)) => At::AnyLoad(CELLS - 1),
                (Some(false), _) => below(index, At::Lock, At::AnyLoad),
            },
            At::PutWrite(index) | At::AnyPut(index) => match (self.exchange(thread, index, 0, mine), at) {
                (None, _) => at,
                (Some(true), _) => self.finish(thread, 0)?,
                (Some(false), At::PutWrite(_)) => At::AnyPut(0),
                (Some(false), _) => above(index, At::Lock, At::AnyPut),
            },
            At::Lock if self.locked => match script[0] {
                Free => {
                    self.overflow |= bit(mine);
                    self.finish(thread, 0)?
                }
                NmiAllocate => self.finish(thread, 0)?,
                Allocate | Operation::Drain => return Ok(None),
            },
            At::Lock => {
                self.locked = true;
                self.threads[thread].irqs_off = true;
                At::TakeOverflow
            }
            At::TakeOverflow => {
                let overflow = core::mem::take(&mut self.overflow);
                for object in (1..=NR_OBJECTS).filter(|&object| overflow & bit(object) != 0) {
                    self.put_into_block(object)?;
                }
                match script[0] {
                    Allocate | NmiAllocate => At::Refill,
                    Free => At::FlushLoad(CELLS - 1),
                    Operation::Drain => At::DrainCell(0),
                }
            }
            At::Refill => {
                let this = &mut self.threads[thread];
                this.mine = any_of(self.block);
                self.block &= !bit(this.mine);
                this.found = any_of(self.block);
                if this.found > 0 { At::RefillPut(0) } else { At::Unlock }
            }
            At::RefillPut(index) => match self.exchange(thread, index, 0, found) {
                None => at,
                Some(true) => {
                    self.block &= !bit(found);
                    At::Unlock
                }
                Some(false) => above(index, At::Unlock, At::RefillPut),
            },
            At::FlushWrite(index) => match self.exchange(thread, index, found, 0) {
                None => at,
                Some(true) => {
                    self.put_into_block(found)?;
                    At::FlushPut(0)
                }
                Some(false) => below(index, At::FlushPut(0), At::FlushLoad),
            },
            At::FlushPut(index) => match self.exchange(thread, index, 0, mine) {
                None => at,
                Some(true) => {
                    self.threads[thread].mine = 0;
                    At::Unlock
                }
                Some(false) if index + 1 < CELLS => At::FlushPut(index + 1),
                Some(false) => {
                    self.put_into_block(mine)?;
                    self.threads[thread].mine = 0;
                    At::Unlock
                }
            },
            At::DrainCell(index) => {
                match core::mem::take(&mut self.cells[1][index]) {
                    0 => {}
                    object => self.put_into_block(object)?,
                }
                above(index, At::Unlock, At::DrainCell)
            }
            At::Nothing => self.finish(thread, 0)?,
            At::Unlock => {
                self.locked = false;
                self.threads[thread].irqs_off = false;
                self.finish(thread, mine)?
            }
        }))
    }

    /// Where an operation can begin: a hint may name any cell, or none.
    fn begin(&mut self, thread: usize) -> Vec<At> {
        let this = &mut self.threads[thread];
        match this.script[0] {
            Allocate | NmiAllocate => (0..CELLS).map(At::TakeLoad).chain([At::AnyLoad(CELLS - 1)]).collect(),
            Free => {
                this.mine = any_of(this.held);
                if this.mine == 0 {
                    return vec![At::Nothing];
                }
                this.held &= !bit(this.mine);
                (0..CELLS).map(At::PutWrite).chain([At::AnyPut(0)]).collect()
            }
            Operation::Drain => {
                if self.drain == Drain::Offline {
                    let stays = |thread: &Thread| thread.cpu == 1 && (thread.irqs_off || thread.storing.is_some());
                    if self.threads.iter().any(stays) {
                        return Vec::new();
                    }
                    self.threads.iter_mut().for_each(|thread| thread.cpu = 0);
                    self.offline = true;
                }
                vec![At::Lock]
            }
        }
    }
}

impl<const THREADS: usize> Model for Magazines<THREADS> {
    const NR_THREADS: usize = THREADS;

    fn steps(&self, thread: usize) -> Vec<Result<Self, Fault>> {
        let this = &self.threads[thread];
        // The other thread's instruction is one step to its own CPU.
        let is_busy = |other: usize| other != thread && self.threads[other].cpu == this.cpu && self.threads[other].storing.is_some();
        if self.has_ended(thread) || (0..THREADS).any(is_busy) {
            return Vec::new();
        }
        let mut next = self.clone();
        let outcomes = match this.at {
            At::Begin => next.begin(thread),
            _ => match next.execute(thread) {
                Ok(at) => at.into_iter().collect(),
                Err(fault) => return vec![Err(fault)],
            },
        };
        let with_at = |at| {
            let mut next = next.clone();
            next.threads[thread].at = at;
            Ok(next)
        };
        outcomes.into_iter().map(with_at).collect()
    }

    fn moved(&self, thread: usize) -> Option<Self> {
        let this = &self.threads[thread];
        if this.irqs_off || this.storing.is_some() || self.offline {
            return None;
        }
        let mut next = self.clone();
        next.threads[thread].cpu = 1 - this.cpu;
        Some(next)
    }

    fn has_ended(&self, thread: usize) -> bool {
        self.threads[thread].at == At::End
    }

    fn check_end(&self) -> Result<(), Fault> {
        let sets = self.threads.iter().map(|thread| thread.held).chain([self.block, self.overflow]);
        let places = sets.chain(self.cells.as_flattened().iter().filter(|&&object| object > 0).map(|&object| bit(object)));
        let mut nr_seen = [0; NR_OBJECTS as usize + 1];
        for place in places {
            (1..=NR_OBJECTS).for_each(|object| nr_seen[object as usize] += u8::from(place & bit(object) != 0));
        }
        match nr_seen[1..].iter().find(|&&nr| nr != 1) {
            None => Ok(()),
            Some(0) => Err("an object was lost"),
            Some(_) => Err("an object is in two places"),
        }
    }
}

/// The number of states, if nothing goes wrong.
fn passes<const THREADS: usize>(drain: Drain, stock: [Object; CELLS], scripts: [&'static [Operation]; THREADS]) {
    let nr_states = explore(Magazines::new(Write::CompareExchange, drain, stock, scripts)).expect("no fault");
    println!("{nr_states} states");
    assert!(nr_states > 1000);
}

#[test]
fn hits_refills_and_flushes_of_2_threads_lose_nothing() {
    passes(Drain::Nobody, [0, 0], [&[Allocate, Free, Allocate], &[Allocate, Allocate]]);
    passes(Drain::Nobody, [1, 2], [&[Free, Allocate, Free], &[Free, NmiAllocate]]);
    passes(Drain::Nobody, [1, 0], [&[Allocate, Free], &[NmiAllocate, Free, Allocate]]);
}

#[test]
fn hits_refills_and_flushes_of_3_threads_lose_nothing() {
    passes(Drain::Nobody, [1, 2], [&[Allocate], &[Free], &[NmiAllocate]]);
    passes(Drain::Nobody, [1, 2], [&[Free], &[Free], &[Allocate]]);
}

#[test]
fn an_offline_cpu_can_be_drained() {
    passes(Drain::Offline, [1, 0], [&[Allocate, Free], &[Free], &[Operation::Drain]]);
}

#[test]
fn a_drain_of_an_online_cpu_is_found_out() {
    let outcome = explore(Magazines::new(Write::CompareExchange, Drain::Online, [1, 0], [&[Allocate, Free], &[Free], &[Operation::Drain]]));
    assert!(outcome.is_err(), "{outcome:?}");
}

#[test]
fn cells_that_are_written_by_plain_stores_are_found_out() {
    let takes = explore(Magazines::new(Write::PlainStore, Drain::Nobody, [1, 0], [&[Allocate], &[Allocate]]));
    assert!(takes.is_err(), "{takes:?}");
    let puts = explore(Magazines::new(Write::PlainStore, Drain::Nobody, [0, 0], [&[Free], &[Free]]));
    assert!(puts.is_err(), "{puts:?}");
}
