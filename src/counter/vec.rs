//! A group of counters whose number is known at run time only.

use core::cmp::Ordering;
use core::fmt;
use core::ops::RangeInclusive;

use alloc_crate::boxed::Box;
use alloc_crate::vec::Vec;

use super::group::{self, Group, SlotsAddress};
use super::shared::{Batch, Shared};
use crate::alloc::{AllocError, AllocFlags};
use crate::pin::Pinned;

/// As many counters as it takes, allocated and freed in one go: a [`CounterSet`](crate::CounterSet) whose length is not known when the
/// kernel is built, one for each memory node, say. The words that all CPUs share are on the global heap: feature `alloc`.
///
/// Operations cost what they do in a [`Counter`](crate::Counter), in the same contexts; `new` and `drop` are for process context, since the heap
/// is asked.
///
/// ```
/// # // SAFETY: only threads of the machine's touch per-CPU data.
/// # let machine = unsafe { pcpu::host::Machine::boot(2) }.unwrap();
/// # machine.run(1, |_| {
/// let nr_nodes = 3;
/// let faults = pcpu::CounterVec::new(&vec![0; nr_nodes])?;
/// faults.inc(2);
/// assert_eq!(faults.sum(2), 1);
/// assert_eq!(faults.len(), 3);
/// # Ok::<(), pcpu::AllocError>(()) }).into_iter().collect::<Result<(), _>>().unwrap();
/// ```
pub struct CounterVec(Group<Box<[Shared]>>);

impl CounterVec {
    /// Counters with these initial values and the default batch. Context: process.
    ///
    /// # Errors
    /// See [`AllocError`]; no initial values at all are [`AllocError::ZeroSize`].
    #[cfg_attr(feature = "robust", track_caller)]
    pub fn new(initial: &[i64]) -> Result<Self, AllocError> {
        Self::with(initial, Batch::DEFAULT, AllocFlags::PROCESS)
    }

    /// The same with a batch. The flags are for the per-CPU object; the heap is asked in any case.
    ///
    /// # Errors
    /// See [`AllocError`]; [`AllocError::HeapExhausted`] if the heap has no room.
    #[cfg_attr(feature = "robust", track_caller)]
    pub fn with(initial: &[i64], batch: Batch, flags: AllocFlags) -> Result<Self, AllocError> {
        let mut shared = Vec::new();
        shared.try_reserve_exact(initial.len()).map_err(|_| AllocError::HeapExhausted)?;
        shared.extend(initial.iter().map(|&value| Shared::new(value)));
        let address = SlotsAddress::allocate(shared.len(), flags)?;
        // SAFETY: that many new slots.
        Ok(CounterVec(unsafe { Group::new(address, shared.into_boxed_slice(), batch) }))
    }

    /// How many counters there are.
    #[expect(clippy::len_without_is_empty, reason = "it never is")]
    pub fn len(&self) -> usize {
        self.0.len()
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
    pub fn add(&self, index: usize, amount: i64) {
        self.0.add(index, amount);
    }

    /// Adds to one counter, for a caller that stays on its CPU.
    ///
    /// # Panics
    /// If there is no such counter.
    #[inline]
    pub fn add_pinned(&self, pin: Pinned<'_>, index: usize, amount: i64) {
        self.0.add_pinned(pin, index, amount);
    }

    /// Subtracts from one counter; `i64::MIN` wraps.
    ///
    /// # Panics
    /// If there is no such counter.
    #[inline]
    pub fn sub(&self, index: usize, amount: i64) {
        self.add(index, amount.wrapping_neg());
    }

    /// Adds one to one counter.
    ///
    /// # Panics
    /// If there is no such counter.
    #[inline]
    pub fn inc(&self, index: usize) {
        self.add(index, 1);
    }

    /// Subtracts one from one counter.
    ///
    /// # Panics
    /// If there is no such counter.
    #[inline]
    pub fn dec(&self, index: usize) {
        self.add(index, -1);
    }

    /// Adds to all counters, as [`CounterSet::add_all`](crate::CounterSet::add_all).
    ///
    /// # Panics
    /// If there are not as many amounts as counters.
    #[inline]
    pub fn add_all(&self, amounts: &[i64]) {
        assert_eq!(amounts.len(), self.len(), "an amount for each counter");
        for (index, &amount) in amounts.iter().enumerate().filter(|&(_, &amount)| amount != 0) {
            self.add(index, amount);
        }
    }

    /// Adds to all counters, for a caller that stays on its CPU.
    ///
    /// # Panics
    /// If there are not as many amounts as counters.
    #[inline]
    pub fn add_all_pinned(&self, pin: Pinned<'_>, amounts: &[i64]) {
        assert_eq!(amounts.len(), self.len(), "an amount for each counter");
        for (index, &amount) in amounts.iter().enumerate().filter(|&(_, &amount)| amount != 0) {
            self.add_pinned(pin, index, amount);
        }
    }

    /// One counter's value as far as it was posted. As [`Counter::read`](crate::Counter::read).
    ///
    /// # Panics
    /// If there is no such counter.
    #[inline]
    pub fn read(&self, index: usize) -> i64 {
        self.0.read(index)
    }

    /// [`read`](Self::read), but never below zero.
    ///
    /// # Panics
    /// If there is no such counter.
    #[inline]
    pub fn read_positive(&self, index: usize) -> i64 {
        self.read(index).max(0)
    }

    /// One counter's exact value, as [`Counter::sum`](crate::Counter::sum).
    ///
    /// # Panics
    /// If there is no such counter.
    #[inline]
    pub fn sum(&self, index: usize) -> i64 {
        self.0.sum(index)
    }

    /// [`sum`](Self::sum), but never below zero.
    ///
    /// # Panics
    /// If there is no such counter.
    pub fn sum_positive(&self, index: usize) -> i64 {
        self.sum(index).max(0)
    }

    /// All exact values, with one pass over the CPUs that wrote, into `sums`.
    ///
    /// # Panics
    /// If `sums` is not as long as this.
    pub fn sum_into(&self, sums: &mut [i64]) {
        self.0.sum_into(sums);
    }

    /// Between which numbers one counter's value is, as [`Counter::bounds`](crate::Counter::bounds). O(1).
    ///
    /// # Panics
    /// If there is no such counter.
    pub fn bounds(&self, index: usize) -> RangeInclusive<i64> {
        self.bounds_nested(index, group::DEFAULT_NESTING)
    }

    /// The same for up to `nesting` contexts on a CPU.
    ///
    /// # Panics
    /// If there is no such counter.
    pub fn bounds_nested(&self, index: usize, nesting: u32) -> RangeInclusive<i64> {
        self.0.bounds(index, nesting)
    }

    /// How far [`read`](Self::read) can be off, by [`bounds`](Self::bounds).
    ///
    /// # Panics
    /// If there is no such counter.
    pub fn max_error(&self, index: usize) -> u64 {
        group::max_error(self.bounds(index), self.read(index))
    }

    /// Compares one counter's value: at once when the bounds decide, else by an exact sum.
    ///
    /// # Panics
    /// If there is no such counter.
    pub fn compare(&self, index: usize, other: i64) -> Ordering {
        group::compare(self.bounds(index), other, || self.sum(index))
    }

    /// Makes one counter's exact value `value`, as [`Counter::set`](crate::Counter::set).
    ///
    /// # Panics
    /// If there is no such counter.
    pub fn set(&self, index: usize, value: i64) {
        self.0.set(index, value);
    }
}

impl Drop for CounterVec {
    fn drop(&mut self) {
        // SAFETY: dropped once.
        unsafe { self.0.free() };
    }
}

impl fmt::Debug for CounterVec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries((0..self.len()).map(|index| (self.read(index), self.sum(index)))).finish()
    }
}
