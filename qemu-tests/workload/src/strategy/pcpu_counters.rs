//! This crate's counters: one by one, as a set, and lazy.

use super::Strategy;
use crate::lifetime::{Member, Update};
use core::convert::Infallible;
use pcpu::{AllocError, AllocFlags, Counter, CounterSet, CpuId, LazyCounterSet, Pinned};

/// A counter's slot on all possible CPUs, in bytes.
const fn slot_bytes(nr_possible: usize) -> usize {
    nr_possible * size_of::<i64>()
}

/// Objects of the library's allocator that are in use.
pub(super) fn live_objects() -> i64 {
    pcpu::alloc::stats().live_objects as i64
}

/// What the slots of a set take on all possible CPUs, in bytes.
pub(super) fn set_bytes() -> usize {
    Member::COUNT * slot_bytes(CpuId::possible().len())
}

/// Four counters, each an allocation of its own.
#[derive(Debug)]
pub struct Each([Counter; Member::COUNT]);

impl Strategy for Each {
    type Error = AllocError;
    type Task = ();
    const NAME: &'static str = "each";

    #[inline]
    fn new() -> Result<Self, AllocError> {
        Ok(Self([Counter::new(0)?, Counter::new(0)?, Counter::new(0)?, Counter::new(0)?]))
    }

    #[inline(always)]
    unsafe fn add(&self, pin: Pinned<'_>, update: Update) {
        self.0[update.member.index()].add_pinned(pin, update.pages);
    }

    fn read(&self, member: Member) -> i64 {
        self.0[member.index()].read()
    }

    fn max_error(&self, member: Member, _: usize) -> u64 {
        self.0[member.index()].max_error()
    }

    #[inline]
    fn sums(&self) -> [i64; Member::COUNT] {
        self.0.each_ref().map(Counter::sum)
    }

    fn bytes(&self) -> usize {
        size_of::<Self>() + set_bytes()
    }

    fn live_objects() -> i64 {
        live_objects()
    }
}

/// One set of four counters, allocated in one go.
#[derive(Debug)]
pub struct Grouped(CounterSet<{ Member::COUNT }>);

impl Strategy for Grouped {
    type Error = AllocError;
    type Task = ();
    const NAME: &'static str = "grouped";

    #[inline]
    fn new() -> Result<Self, AllocError> {
        CounterSet::new([0; Member::COUNT]).map(Self)
    }

    #[inline(always)]
    unsafe fn add(&self, pin: Pinned<'_>, update: Update) {
        self.0.add_pinned(pin, update.member.index(), update.pages);
    }

    fn read(&self, member: Member) -> i64 {
        self.0.read(member.index())
    }

    fn max_error(&self, member: Member, _: usize) -> u64 {
        self.0.max_error(member.index())
    }

    #[inline]
    fn sums(&self) -> [i64; Member::COUNT] {
        self.0.sum_all()
    }

    fn bytes(&self) -> usize {
        size_of::<Self>() + set_bytes()
    }

    fn live_objects() -> i64 {
        live_objects()
    }
}

/// A set that is four atomic words until several CPUs add to it in turns.
#[derive(Debug)]
pub struct Lazy(LazyCounterSet<{ Member::COUNT }>);

impl Strategy for Lazy {
    type Error = Infallible;
    type Task = ();
    const NAME: &'static str = "lazy";

    #[inline]
    fn new() -> Result<Self, Infallible> {
        Ok(Self(LazyCounterSet::new([0; Member::COUNT])))
    }

    #[inline(always)]
    unsafe fn add(&self, pin: Pinned<'_>, update: Update) {
        self.0.add_pinned(pin, update.member.index(), update.pages);
    }

    /// An add promotes only with what its CPU has in stock; without, it asks.
    #[inline(always)]
    fn settle(&self) {
        if self.0.wants_promotion() {
            // Without memory the words stay inline, and it is tried again.
            let _ = self.0.promote(AllocFlags::PROCESS);
        }
    }

    fn read(&self, member: Member) -> i64 {
        self.0.read(member.index())
    }

    fn max_error(&self, member: Member, _: usize) -> u64 {
        self.0.max_error(member.index())
    }

    #[inline]
    fn sums(&self) -> [i64; Member::COUNT] {
        self.0.sum_all()
    }

    fn bytes(&self) -> usize {
        size_of::<Self>() + if self.0.is_promoted() { set_bytes() } else { 0 }
    }

    fn live_objects() -> i64 {
        live_objects()
    }
}
