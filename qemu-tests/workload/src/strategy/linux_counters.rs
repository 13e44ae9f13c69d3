//! Counters as Linux's `percpu_counter` (lib/percpu_counter.c in version 6.12), written from a description of its algorithm.
//!
//! A slot of 32 bits on each CPU, changed by an unlocked compare-exchange; at the batch it is moved to the count under the counter's lock. An exact
//! sum visits all possible CPUs under the lock. Every counter is on a global list. What is left out costs Linux time: the interrupt flag,
//! and the search for the next CPU in a mask.

use super::Strategy;
use super::linux_world::{Node, OutOfMemory, World, compare_exchange_local, world};
use crate::lifetime::{Member, Update};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicI32, AtomicI64, Ordering};
use pcpu::Pinned;
use spin::mutex::SpinMutex;

const SLOT_BYTES: usize = size_of::<i32>();
/// What a place on the list takes.
const NODE_BYTES: usize = 2 * size_of::<usize>();

#[derive(Debug)]
struct PercpuCounter {
    lock: SpinMutex<()>,
    count: AtomicI64,
    /// CPU 0's slot.
    slots: NonNull<u8>,
    node: Node,
}

// SAFETY: slots are changed by their own CPUs and read by atomic loads; the rest is atomic or behind the lock.
unsafe impl Send for PercpuCounter {}
// SAFETY: as above.
unsafe impl Sync for PercpuCounter {}

impl PercpuCounter {
    fn new(slots: NonNull<u8>, node: Node) -> Self {
        PercpuCounter { lock: SpinMutex::new(()), count: AtomicI64::new(0), slots, node }
    }

    #[inline(always)]
    fn add(&self, world: &World, pin: Pinned<'_>, amount: i64) {
        let slot = world.this_copy(pin, self.slots).cast();
        // SAFETY: a slot of this counter's, which lives as long.
        let slot: &AtomicI32 = unsafe { slot.as_ref() };
        loop {
            let old = slot.load(Ordering::Relaxed);
            let new = i64::from(old) + amount;
            if new.abs() >= world.batch {
                return self.fold(slot, amount);
            }
            // SAFETY: this CPU's slot; below the batch, so that it fits.
            if unsafe { compare_exchange_local(pin, slot, old, new as i32) } {
                return;
            }
        }
    }

    #[cold]
    fn fold(&self, slot: &AtomicI32, amount: i64) {
        let _alone = self.lock.lock();
        let here = slot.load(Ordering::Relaxed);
        self.count.store(self.read() + i64::from(here) + amount, Ordering::Relaxed);
        slot.store(0, Ordering::Relaxed);
    }

    fn read(&self) -> i64 {
        self.count.load(Ordering::Relaxed)
    }

    fn sum(&self, world: &World) -> i64 {
        let _alone = self.lock.lock();
        let slot = |copy: NonNull<u8>| {
            // SAFETY: a slot of this counter's.
            i64::from(unsafe { copy.cast::<AtomicI32>().as_ref() }.load(Ordering::Relaxed))
        };
        self.read() + world.copies(self.slots).map(slot).sum::<i64>()
    }
}

fn max_error(world: &World) -> u64 {
    (world.batch - 1) as u64 * world.nr_possible as u64
}

fn bytes(world: &World) -> usize {
    Member::COUNT * (size_of::<PercpuCounter>() + NODE_BYTES + SLOT_BYTES * world.nr_possible)
}

/// Four counters, each allocated, listed, unlisted and freed by itself.
#[derive(Debug)]
pub struct LinuxEach([PercpuCounter; Member::COUNT]);

impl LinuxEach {
    fn counter() -> Result<PercpuCounter, OutOfMemory> {
        let world = world();
        let slots = world.allocator.allocate(SLOT_BYTES, SLOT_BYTES).ok_or(OutOfMemory)?;
        let mut list = world.list.lock();
        list.nr_objects += 1;
        Ok(PercpuCounter::new(slots, list.insert()))
    }

    fn free(counter: &PercpuCounter) {
        let world = world();
        {
            let mut list = world.list.lock();
            list.remove(counter.node);
            list.nr_objects -= 1;
        }
        // SAFETY: allocated by `counter`, and its owner is being dropped.
        unsafe { world.allocator.free(counter.slots) };
    }
}

impl Strategy for LinuxEach {
    type Error = OutOfMemory;
    type Task = ();
    const NAME: &'static str = "linux-each";

    #[inline]
    fn new() -> Result<Self, OutOfMemory> {
        let mut counters = [const { None }; Member::COUNT];
        for index in 0..Member::COUNT {
            match Self::counter() {
                Ok(counter) => counters[index] = Some(counter),
                Err(error) => {
                    counters[..index].iter().flatten().for_each(Self::free);
                    return Err(error);
                }
            }
        }
        Ok(Self(counters.map(|counter| counter.expect("all were made"))))
    }

    #[inline(always)]
    unsafe fn add(&self, pin: Pinned<'_>, update: Update) {
        self.0[update.member.index()].add(world(), pin, update.pages);
    }

    fn read(&self, member: Member) -> i64 {
        self.0[member.index()].read()
    }

    fn max_error(&self, _: Member, _: usize) -> u64 {
        max_error(world())
    }

    #[inline]
    fn sums(&self) -> [i64; Member::COUNT] {
        self.0.each_ref().map(|counter| counter.sum(world()))
    }

    fn bytes(&self) -> usize {
        bytes(world())
    }

    fn live_objects() -> i64 {
        world().live_objects()
    }
}

impl Drop for LinuxEach {
    fn drop(&mut self) {
        self.0.iter().for_each(Self::free);
    }
}

/// Four counters in one allocation, listed and unlisted under one lock: `percpu_counter_init_many`.
#[derive(Debug)]
pub struct LinuxGrouped([PercpuCounter; Member::COUNT]);

impl Strategy for LinuxGrouped {
    type Error = OutOfMemory;
    type Task = ();
    const NAME: &'static str = "linux-grouped";

    #[inline]
    fn new() -> Result<Self, OutOfMemory> {
        let world = world();
        let slots = world.allocator.allocate(Member::COUNT * SLOT_BYTES, SLOT_BYTES).ok_or(OutOfMemory)?;
        let mut list = world.list.lock();
        list.nr_objects += 1;
        // SAFETY: inside the object.
        let counter = |index| PercpuCounter::new(unsafe { slots.add(index * SLOT_BYTES) }, list.insert());
        Ok(Self([0, 1, 2, 3].map(counter)))
    }

    #[inline(always)]
    unsafe fn add(&self, pin: Pinned<'_>, update: Update) {
        self.0[update.member.index()].add(world(), pin, update.pages);
    }

    fn read(&self, member: Member) -> i64 {
        self.0[member.index()].read()
    }

    fn max_error(&self, _: Member, _: usize) -> u64 {
        max_error(world())
    }

    #[inline]
    fn sums(&self) -> [i64; Member::COUNT] {
        self.0.each_ref().map(|counter| counter.sum(world()))
    }

    fn bytes(&self) -> usize {
        bytes(world())
    }

    fn live_objects() -> i64 {
        world().live_objects()
    }
}

impl Drop for LinuxGrouped {
    fn drop(&mut self) {
        let world = world();
        {
            let mut list = world.list.lock();
            self.0.iter().for_each(|counter| list.remove(counter.node));
            list.nr_objects -= 1;
        }
        // SAFETY: allocated by `new`, whose first counter has the object's address; nobody uses it any more.
        unsafe { world.allocator.free(self.0[0].slots) };
    }
}
