//! A group of counters that is one object.

use core::cmp::Ordering;
use core::fmt;
use core::ops::RangeInclusive;

use super::group::{self, Group, SlotsAddress};
use super::index::CounterIndex;
use super::shared::{Batch, Shared};
use super::slots::SlotLines;
use crate::alloc::{AllocError, AllocFlags};
use crate::pin::Pinned;
use crate::var::TemplateCell;

/// `N` counters that are allocated and freed in one go; on each CPU their slots are adjacent, up to eight in one line.
///
/// Each is used like a [`Counter`](crate::Counter), by its index or by the variant of an enum; costs and contexts are the same. The idea is
/// `percpu_counter_init_many` of Linux (commit 14ef95be6f55). [`counters!`](crate::counters) declares enums, and static sets.
///
/// ```
/// # // SAFETY: only threads of the machine's touch per-CPU data.
/// # let machine = unsafe { pcpu::host::Machine::boot(2) }.unwrap();
/// # machine.run(1, |_| {
/// pcpu::counters! {
///     /// What an address space has in memory, in pages.
///     pub enum Rss { File, Anon, Swap, Shmem }
/// }
///
/// let resident = pcpu::CounterSet::new([0; Rss::COUNT])?;
/// resident.add(Rss::File, 16);
/// resident.add(1, 1);
/// resident.add_all([0, 2, 0, 5]);
/// assert_eq!(resident.sum(Rss::Anon), 3);
/// assert_eq!(resident.sum_all(), [16, 3, 0, 5]);
/// # Ok::<(), pcpu::AllocError>(()) }).into_iter().collect::<Result<(), _>>().unwrap();
/// ```
///
/// Whoever owns a set decides when it ends, and nobody uses it afterwards:
///
/// ```compile_fail,E0382
/// let resident = pcpu::CounterSet::new([0; 4]).unwrap();
/// drop(resident);
/// resident.add(0, 1);
/// ```
pub struct CounterSet<const N: usize>(Group<[Shared; N]>);

impl<const N: usize> CounterSet<N> {
    /// A group with these initial values and the default batch. Context: process.
    ///
    /// # Errors
    /// See [`AllocError`].
    #[inline]
    #[cfg_attr(feature = "robust", track_caller)]
    pub fn new(initial: [i64; N]) -> Result<Self, AllocError> {
        Self::with(initial, Batch::DEFAULT, AllocFlags::PROCESS)
    }

    /// The same with a batch, made in the context that the flags tell.
    ///
    /// # Errors
    /// See [`AllocError`].
    #[inline]
    #[cfg_attr(feature = "robust", track_caller)]
    pub fn with(initial: [i64; N], batch: Batch, flags: AllocFlags) -> Result<Self, AllocError> {
        const { assert!(N > 0, "a set has counters") };
        let address = SlotsAddress::allocate(N, flags)?;
        // SAFETY: `N` new slots.
        Ok(CounterSet(unsafe { Group::new(address, initial.map(Shared::new), batch) }))
    }

    /// A static set; for [`counters!`](crate::counters).
    ///
    /// # Safety
    ///
    /// It becomes a static, and is the slots' only user.
    #[doc(hidden)]
    pub const unsafe fn of_static(slots: &'static TemplateCell<SlotLines<N>>, initial: [i64; N], batch: Batch) -> Self {
        const { assert!(N > 0, "a set has counters") };
        // SAFETY: the caller's promise.
        CounterSet(unsafe { Group::new(SlotsAddress::of_static(slots), Shared::new_each(initial), batch) })
    }

    /// The batch that it was made with.
    pub fn batch(&self) -> Batch {
        self.0.batch()
    }

    /// Adds to one counter. As [`Counter::add`](crate::Counter::add).
    ///
    /// # Panics
    /// If there is no such counter.
    #[inline]
    pub fn add(&self, index: impl CounterIndex<N>, amount: i64) {
        self.0.add(index.index(), amount);
    }

    /// Adds to one counter, for a caller that stays on its CPU.
    ///
    /// # Panics
    /// If there is no such counter.
    #[inline]
    pub fn add_pinned(&self, pin: Pinned<'_>, index: impl CounterIndex<N>, amount: i64) {
        self.0.add_pinned(pin, index.index(), amount);
    }

    /// Subtracts from one counter; `i64::MIN` wraps.
    ///
    /// # Panics
    /// If there is no such counter.
    #[inline]
    pub fn sub(&self, index: impl CounterIndex<N>, amount: i64) {
        self.add(index, amount.wrapping_neg());
    }

    /// Adds one to one counter.
    ///
    /// # Panics
    /// If there is no such counter.
    #[inline]
    pub fn inc(&self, index: impl CounterIndex<N>) {
        self.add(index, 1);
    }

    /// Subtracts one from one counter.
    ///
    /// # Panics
    /// If there is no such counter.
    #[inline]
    pub fn dec(&self, index: impl CounterIndex<N>) {
        self.add(index, -1);
    }

    /// Adds to all counters. Costs what the adds that are not zero cost, less the work that they have in common; a sum may see some of them
    /// and not the others.
    #[inline]
    pub fn add_all(&self, amounts: [i64; N]) {
        for (index, &amount) in amounts.iter().enumerate().filter(|&(_, &amount)| amount != 0) {
            self.0.add(index, amount);
        }
    }

    /// Adds to all counters, for a caller that stays on its CPU.
    #[inline]
    pub fn add_all_pinned(&self, pin: Pinned<'_>, amounts: [i64; N]) {
        for (index, &amount) in amounts.iter().enumerate().filter(|&(_, &amount)| amount != 0) {
            self.0.add_pinned(pin, index, amount);
        }
    }

    /// All values as far as they were posted.
    pub fn read_all(&self) -> [i64; N] {
        core::array::from_fn(|index| self.0.read(index))
    }

    /// One counter's value as far as it was posted. As [`Counter::read`](crate::Counter::read).
    ///
    /// # Panics
    /// If there is no such counter.
    #[inline]
    pub fn read(&self, index: impl CounterIndex<N>) -> i64 {
        self.0.read(index.index())
    }

    /// [`read`](Self::read), but never below zero.
    ///
    /// # Panics
    /// If there is no such counter.
    #[inline]
    pub fn read_positive(&self, index: impl CounterIndex<N>) -> i64 {
        self.read(index).max(0)
    }

    /// One counter's exact value, as [`Counter::sum`](crate::Counter::sum).
    ///
    /// # Panics
    /// If there is no such counter.
    #[inline]
    pub fn sum(&self, index: impl CounterIndex<N>) -> i64 {
        self.0.sum(index.index())
    }

    /// [`sum`](Self::sum), but never below zero.
    ///
    /// # Panics
    /// If there is no such counter.
    pub fn sum_positive(&self, index: impl CounterIndex<N>) -> i64 {
        self.sum(index).max(0)
    }

    /// All exact values, with one pass over the CPUs that wrote.
    #[inline]
    pub fn sum_all(&self) -> [i64; N] {
        self.0.sum_all()
    }

    /// Between which numbers one counter's value is, as [`Counter::bounds`](crate::Counter::bounds). O(1).
    ///
    /// # Panics
    /// If there is no such counter.
    pub fn bounds(&self, index: impl CounterIndex<N>) -> RangeInclusive<i64> {
        self.bounds_nested(index, group::DEFAULT_NESTING)
    }

    /// The same for up to `nesting` contexts on a CPU.
    ///
    /// # Panics
    /// If there is no such counter.
    pub fn bounds_nested(&self, index: impl CounterIndex<N>, nesting: u32) -> RangeInclusive<i64> {
        self.0.bounds(index.index(), nesting)
    }

    /// How far [`read`](Self::read) can be off, by [`bounds`](Self::bounds).
    ///
    /// # Panics
    /// If there is no such counter.
    pub fn max_error(&self, index: impl CounterIndex<N>) -> u64 {
        group::max_error(self.bounds(index), self.read(index))
    }

    /// Compares one counter's value: at once when the bounds decide, else by an exact sum.
    ///
    /// # Panics
    /// If there is no such counter.
    pub fn compare(&self, index: impl CounterIndex<N>, other: i64) -> Ordering {
        group::compare(self.bounds(index), other, || self.sum(index))
    }

    /// Makes one counter's exact value `value`, as [`Counter::set`](crate::Counter::set).
    ///
    /// # Panics
    /// If there is no such counter.
    pub fn set(&self, index: impl CounterIndex<N>, value: i64) {
        self.0.set(index.index(), value);
    }
}

impl<const N: usize> Drop for CounterSet<N> {
    fn drop(&mut self) {
        // SAFETY: dropped once, and a static never.
        unsafe { self.0.free() };
    }
}

impl<const N: usize> fmt::Debug for CounterSet<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CounterSet").field("read", &self.read_all()).field("sum", &self.sum_all()).finish()
    }
}

#[cfg(feature = "defmt")]
impl<const N: usize> defmt::Format for CounterSet<N> {
    fn format(&self, f: defmt::Formatter<'_>) {
        defmt::write!(f, "CounterSet {{ read: {=[?]}, sum: {=[?]} }}", self.read_all(), self.sum_all());
    }
}
