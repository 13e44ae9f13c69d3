//! Counters as in Overstreet's `lazy_percpu_counter`, which was proposed for Linux, written from a description of its algorithm.
//!
//! A word that counts its changes in its top byte. When 256 changes took less than a second it becomes the address of a word on each CPU. There is no way
//! back, and no approximate read: a sum visits all possible CPUs.

use super::Strategy;
use super::linux_world::{World, add_local, world};
use crate::clock;
use crate::lifetime::{Member, Update};
use core::convert::Infallible;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use pcpu::Pinned;

const CHANGES_SHIFT: u32 = 56;
const VALUE_MASK: u64 = (1 << CHANGES_SHIFT) - 1;
/// The word is an address.
const IS_PERCPU: u64 = 1;

#[derive(Debug, Default)]
struct LazyPercpuCounter {
    word: AtomicU64,
    /// When the count of changes was at 0 the last time.
    last_wrap: AtomicU64,
}

enum State {
    Inline(i64),
    Percpu(NonNull<u8>),
}

fn state(word: u64) -> State {
    if word & IS_PERCPU != 0 {
        let address = ptr::with_exposed_provenance_mut((word & !IS_PERCPU) as usize);
        State::Percpu(NonNull::new(address).expect("objects do not lie at 0"))
    } else {
        // The value's sign is in bit 55.
        State::Inline((word << (u64::BITS - CHANGES_SHIFT)) as i64 >> (u64::BITS - CHANGES_SHIFT + 1))
    }
}

impl LazyPercpuCounter {
    #[inline(always)]
    fn add(&self, world: &World, pin: Pinned<'_>, amount: i64) {
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            if word & IS_PERCPU != 0 {
                return self.add_percpu(world, pin, word, amount);
            }
            let changes = (word >> CHANGES_SHIFT).wrapping_add(1) << CHANGES_SHIFT;
            let value = word.wrapping_add((amount << 1) as u64) & VALUE_MASK;
            match self.word.compare_exchange_weak(word, changes | value, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) if word >> CHANGES_SHIFT == 0 => return self.wrapped(world, pin),
                Ok(_) => return,
                Err(found) => word = found,
            }
        }
    }

    #[inline(always)]
    fn add_percpu(&self, world: &World, pin: Pinned<'_>, word: u64, amount: i64) {
        if let State::Percpu(object) = state(word) {
            let copy = world.this_copy(pin, object).cast();
            // SAFETY: this CPU's word of this counter's.
            unsafe { add_local(pin, copy.as_ref(), amount) };
        }
    }

    #[cold]
    fn wrapped(&self, world: &World, pin: Pinned<'_>) {
        let now = clock::ticks();
        let before = self.last_wrap.swap(now, Ordering::Relaxed);
        if before != 0 && now.wrapping_sub(before) < clock::ticks_per_second() {
            self.switch(world, pin);
        }
    }

    /// Without memory it stays as it is.
    fn switch(&self, world: &World, pin: Pinned<'_>) {
        let Some(object) = world.allocator.allocate(size_of::<i64>(), align_of::<i64>()) else { return };
        let copy = world.this_copy(pin, object).cast();
        // SAFETY: this CPU's word of a new object.
        let copy: &AtomicI64 = unsafe { copy.as_ref() };
        let address = object.as_ptr().expose_provenance() as u64 | IS_PERCPU;
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            let State::Inline(value) = state(word) else {
                // SAFETY: allocated above and seen by nobody.
                return unsafe { world.allocator.free(object) };
            };
            copy.store(value, Ordering::Relaxed);
            match self.word.compare_exchange(word, address, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => break,
                Err(found) => word = found,
            }
        }
        world.nr_unlisted_objects.fetch_add(1, Ordering::Relaxed);
    }

    fn sum(&self) -> i64 {
        match state(self.word.load(Ordering::Acquire)) {
            State::Inline(value) => value,
            State::Percpu(object) => {
                // SAFETY: the counter's words.
                let value = |copy: NonNull<u8>| unsafe { copy.cast::<AtomicI64>().as_ref() }.load(Ordering::Relaxed);
                world().copies(object).map(value).sum()
            }
        }
    }

    fn is_percpu(&self) -> bool {
        self.word.load(Ordering::Relaxed) & IS_PERCPU != 0
    }
}

impl Drop for LazyPercpuCounter {
    fn drop(&mut self) {
        if let State::Percpu(object) = state(*self.word.get_mut()) {
            let world = world();
            // SAFETY: allocated by `switch`, and nobody uses the counter any more.
            unsafe { world.allocator.free(object) };
            world.nr_unlisted_objects.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Four of them, each switched by itself.
#[derive(Debug, Default)]
pub struct LinuxLazy([LazyPercpuCounter; Member::COUNT]);

impl Strategy for LinuxLazy {
    type Error = Infallible;
    type Task = ();
    const NAME: &'static str = "linux-lazy";

    #[inline]
    fn new() -> Result<Self, Infallible> {
        Ok(Self::default())
    }

    #[inline(always)]
    unsafe fn add(&self, pin: Pinned<'_>, update: Update) {
        self.0[update.member.index()].add(world(), pin, update.pages);
    }

    fn read(&self, member: Member) -> i64 {
        self.0[member.index()].sum()
    }

    fn max_error(&self, _: Member, _: usize) -> u64 {
        0
    }

    #[inline]
    fn sums(&self) -> [i64; Member::COUNT] {
        self.0.each_ref().map(LazyPercpuCounter::sum)
    }

    fn bytes(&self) -> usize {
        let nr_percpu = self.0.iter().filter(|counter| counter.is_percpu()).count();
        size_of::<Self>() + nr_percpu * world().nr_possible * size_of::<i64>()
    }

    fn live_objects() -> i64 {
        world().live_objects()
    }
}
