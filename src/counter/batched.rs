//! A single approximate counter.

use core::fmt;

use super::posted::{Batch, Posted};
use super::slots::Slots;
use crate::alloc::{AllocError, AllocFlags};
use crate::pin::Pinned;

/// A counter that many CPUs add to without sharing a line: Linux's `percpu_counter`, without its lock, its list and its walk over all
/// CPUs.
///
/// | operation | context | cost |
/// |---|---|---|
/// | `add`, `sub`, `inc`, `dec` | process, interrupt, NMI; may be preempted | one unlocked compare-exchange; once a batch an atomic add |
/// | `add_pinned` | the same, with a token | one unlocked exchange-and-add; once a batch an atomic add |
/// | `read` | any | two loads |
/// | `sum` | any | a load for each CPU that wrote |
/// | `new`, `drop` | process, interrupt with the right flags | an allocation; a store for each CPU that wrote |
///
/// Values are `i64` and wrap. Adds cannot fail.
///
/// ```
/// # // SAFETY: only threads of the machine's touch per-CPU data.
/// # let machine = unsafe { pcpu::host::Machine::boot(2) }.unwrap();
/// # machine.run(1, |_| {
/// let pages = pcpu::Counter::new(0)?;
/// pages.add(16);
/// pages.dec();
/// assert_eq!(pages.sum(), 15);
/// assert!(pages.read().abs_diff(15) < pcpu::Batch::DEFAULT.get());
/// # Ok::<(), pcpu::AllocError>(()) }).into_iter().collect::<Result<(), _>>().unwrap();
/// ```
pub struct Counter {
    slots: Slots<1>,
    batch: Batch,
    shared: Line<Posted>,
}

/// Keeps the words that postings write out of the line that every add reads.
#[repr(align(64))]
pub(super) struct Line<T>(pub(super) T);

impl Counter {
    /// A counter with the default batch. Context: process.
    ///
    /// # Errors
    /// See [`AllocError`].
    #[cfg_attr(feature = "robust", track_caller)]
    pub fn new(initial: i64) -> Result<Self, AllocError> {
        Self::with(initial, Batch::DEFAULT, AllocFlags::PROCESS)
    }

    /// A counter with a batch, made in the context that the flags tell. The batch never changes.
    ///
    /// # Errors
    /// See [`AllocError`].
    #[cfg_attr(feature = "robust", track_caller)]
    pub fn with(initial: i64, batch: Batch, flags: AllocFlags) -> Result<Self, AllocError> {
        Ok(Counter { slots: Slots::new(flags)?, batch, shared: Line(Posted::new(initial)) })
    }

    /// Adds. The caller may be preempted, interrupted and moved to another CPU at any point.
    #[inline]
    pub fn add(&self, amount: i64) {
        if Posted::is_large(self.batch, amount) {
            return self.shared.0.add_large(amount);
        }
        self.shared.0.post(self.batch, self.slots.add(0, amount));
    }

    /// Adds, for a caller that stays on its CPU.
    #[inline]
    pub fn add_pinned(&self, pin: Pinned<'_>, amount: i64) {
        if Posted::is_large(self.batch, amount) {
            return self.shared.0.add_large(amount);
        }
        self.shared.0.post(self.batch, self.slots.add_pinned(pin, 0, amount));
    }

    /// Subtracts; `i64::MIN` wraps.
    #[inline]
    pub fn sub(&self, amount: i64) {
        self.add(amount.wrapping_neg());
    }

    /// Adds one.
    #[inline]
    pub fn inc(&self) {
        self.add(1);
    }

    /// Subtracts one.
    #[inline]
    pub fn dec(&self) {
        self.add(-1);
    }

    /// The value as far as it was posted: for each CPU that wrote and each context on it, less than a batch away.
    #[inline]
    pub fn read(&self) -> i64 {
        self.shared.0.read()
    }

    /// [`read`](Self::read), but never below zero, for what cannot be negative.
    #[inline]
    pub fn read_positive(&self) -> i64 {
        self.read().max(0)
    }

    /// The exact value: every add that finished before the call, none that began after it, each overlapping one wholly or not at all.
    pub fn sum(&self) -> i64 {
        self.shared.0.base().wrapping_add(self.slots.sum(0))
    }

    /// [`sum`](Self::sum), but never below zero: a sum that races with adds may see the later of two and not the earlier.
    pub fn sum_positive(&self) -> i64 {
        self.sum().max(0)
    }
}

impl fmt::Debug for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counter").field("read", &self.read()).field("sum", &self.sum()).finish()
    }
}
