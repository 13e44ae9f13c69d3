//! A single lazy counter.

use core::cmp::Ordering;
use core::fmt;
use core::iter::Sum;
use core::ops::RangeInclusive;

use super::lazy_set::LazyCounterSet;
use super::policy::{CpuChanges, PromotionPolicy};
use super::shared::Batch;
use crate::alloc::{AllocError, AllocFlags};
use crate::pin::Pinned;

/// A counter that has no per-CPU memory until it needs it: a [`LazyCounterSet`] of one, with the same methods, contexts and costs.
///
/// ```
/// # // SAFETY: only threads of the machine's touch per-CPU data.
/// # let machine = unsafe { pcpu::host::Machine::boot(2) }.unwrap();
/// # machine.run(1, |_| {
/// static OPEN_FILES: pcpu::LazyCounter = pcpu::LazyCounter::new(0);
/// OPEN_FILES.inc();
/// assert_eq!(OPEN_FILES.bounds(), 1..=1);
/// OPEN_FILES.promote(pcpu::AllocFlags::PROCESS)?;
/// OPEN_FILES.inc();
/// assert_eq!(OPEN_FILES.sum(), 2);
/// # Ok::<(), pcpu::AllocError>(()) }).into_iter().collect::<Result<(), _>>().unwrap();
/// ```
pub struct LazyCounter<P = CpuChanges>(LazyCounterSet<1, P>);

impl LazyCounter {
    /// A counter with the default batch and the default policy. Cannot fail; good for statics.
    pub const fn new(initial: i64) -> Self {
        LazyCounter(LazyCounterSet::new([initial]))
    }
}

impl<P> LazyCounter<P> {
    /// The same with a batch, for when it is promoted, and a policy.
    pub const fn with(initial: i64, batch: Batch, policy: P) -> Self {
        LazyCounter(LazyCounterSet::with([initial], batch, policy))
    }

    /// Whether it has a slot on every CPU.
    pub fn is_promoted(&self) -> bool {
        self.0.is_promoted()
    }

    /// The batch that it was made with, for when it is promoted.
    pub fn batch(&self) -> Batch {
        self.0.batch()
    }

    /// Whether somebody should call [`promote`](Self::promote), as [`LazyCounterSet::wants_promotion`].
    pub fn wants_promotion(&self) -> bool {
        self.0.wants_promotion()
    }

    /// Gives it a slot on every CPU. As [`LazyCounterSet::promote`].
    ///
    /// # Errors
    /// See [`AllocError`]; the counter is as before.
    #[cfg_attr(feature = "robust", track_caller)]
    pub fn promote(&self, flags: AllocFlags) -> Result<(), AllocError> {
        self.0.promote(flags)
    }

    /// Takes the value back inline, exactly, and gives the slots away. O(CPUs that wrote).
    pub fn demote(&mut self) {
        self.0.demote();
    }

    /// Adds, for who owns the counter alone: one add, not atomic, in any state.
    #[inline(always)]
    pub fn add_exclusive(&mut self, amount: i64) {
        self.0.add_exclusive(0, amount);
    }

    /// The same by a shared reference.
    ///
    /// # Safety
    ///
    /// As for [`LazyCounterSet::add_sole_user`].
    #[inline(always)]
    pub unsafe fn add_sole_user(&self, amount: i64) {
        // SAFETY: the caller's promise.
        unsafe { self.0.add_sole_user(0, amount) };
    }

    /// The value: exact while inline, and as far as it was posted when promoted.
    #[inline]
    pub fn read(&self) -> i64 {
        self.0.read(0)
    }

    /// [`read`](Self::read), but never below zero.
    #[inline]
    pub fn read_positive(&self) -> i64 {
        self.0.read_positive(0)
    }

    /// The exact value, as [`Counter::sum`](crate::Counter::sum).
    pub fn sum(&self) -> i64 {
        self.0.sum(0)
    }

    /// [`sum`](Self::sum), but never below zero.
    pub fn sum_positive(&self) -> i64 {
        self.0.sum_positive(0)
    }

    /// Between which numbers the value is: exactly one while inline. As [`Counter::bounds`](crate::Counter::bounds).
    pub fn bounds(&self) -> RangeInclusive<i64> {
        self.0.bounds(0)
    }

    /// The same for up to `nesting` contexts on a CPU.
    pub fn bounds_nested(&self, nesting: u32) -> RangeInclusive<i64> {
        self.0.bounds_nested(0, nesting)
    }

    /// How far [`read`](Self::read) can be off, by [`bounds`](Self::bounds).
    pub fn max_error(&self) -> u64 {
        self.0.max_error(0)
    }

    /// Compares the value: at once when the bounds decide, else by an exact sum.
    pub fn compare(&self, other: i64) -> Ordering {
        self.0.compare(0, other)
    }

    /// Makes the exact value `value`, as [`Counter::set`](crate::Counter::set).
    pub fn set(&self, value: i64) {
        self.0.set(0, value);
    }
}

impl<P: PromotionPolicy> LazyCounter<P> {
    /// Adds. The caller may be preempted, interrupted and moved to another CPU at any point.
    #[inline]
    pub fn add(&self, amount: i64) {
        self.0.add(0, amount);
    }

    /// Adds, for a caller that stays on its CPU.
    #[inline]
    pub fn add_pinned(&self, pin: Pinned<'_>, amount: i64) {
        self.0.add_pinned(pin, 0, amount);
    }

    /// Subtracts; `i64::MIN` wraps.
    #[inline]
    pub fn sub(&self, amount: i64) {
        self.0.sub(0, amount);
    }

    /// Adds one.
    #[inline]
    pub fn inc(&self) {
        self.0.inc(0);
    }

    /// Subtracts one.
    #[inline]
    pub fn dec(&self) {
        self.0.dec(0);
    }
}

/// Zero, with the policy's first state.
impl<P: PromotionPolicy> Default for LazyCounter<P> {
    fn default() -> Self {
        LazyCounter(LazyCounterSet::default())
    }
}

impl From<i64> for LazyCounter {
    fn from(initial: i64) -> Self {
        Self::new(initial)
    }
}

/// The exact values' sum.
impl<'a, P: 'a> Sum<&'a LazyCounter<P>> for i64 {
    fn sum<I: Iterator<Item = &'a LazyCounter<P>>>(counters: I) -> i64 {
        counters.map(LazyCounter::sum).fold(0, i64::wrapping_add)
    }
}

impl<P> fmt::Debug for LazyCounter<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LazyCounter")
            .field("is_promoted", &self.is_promoted())
            .field("read", &self.read())
            .field("sum", &self.sum())
            .finish()
    }
}

#[cfg(feature = "defmt")]
impl<P> defmt::Format for LazyCounter<P> {
    fn format(&self, f: defmt::Formatter<'_>) {
        defmt::write!(f, "LazyCounter {{ is_promoted: {=bool}, read: {=i64}, sum: {=i64} }}", self.is_promoted(), self.read(), self.sum());
    }
}
