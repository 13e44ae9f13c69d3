//! A single approximate counter.

use core::cmp::Ordering;
use core::fmt;
use core::iter::Sum;
use core::ops::RangeInclusive;

use super::group::{self, Group, SlotsAddress};
use super::shared::{Batch, Shared};
use crate::alloc::{AllocError, AllocFlags};
use crate::pin::Pinned;
use crate::var::TemplateCell;

/// A counter that many CPUs add to without sharing a line: Linux's `percpu_counter`, without its lock, its list and its walk over all
/// CPUs.
///
/// | operation | context | cost |
/// |---|---|---|
/// | `add`, `sub`, `inc`, `dec` | process, interrupt, NMI; may be preempted | one unlocked compare-exchange; once a batch three atomic adds |
/// | `add_pinned` | the same, with a token | one unlocked exchange-and-add; once a batch an atomic add |
/// | `read` | any | two loads |
/// | `bounds`, `max_error` | any | five loads |
/// | `compare` | any | `bounds`, and `sum` if they do not decide |
/// | `sum`, `set` | any | a load for each CPU that wrote |
/// | `new`, `drop` | process, interrupt with the right flags | an allocation; a store for each CPU that wrote |
///
/// Values are `i64` and wrap. Adds of any size are legal and cannot fail; from a batch on they go to a word that all CPUs share.
///
/// [`counters!`](crate::counters) declares static ones, which work before [`init`](crate::init).
///
/// ```
/// # // SAFETY: only threads of the machine's touch per-CPU data.
/// # let machine = unsafe { pcpu::host::Machine::boot(2) }.unwrap();
/// # machine.run(1, |_| {
/// let pages = pcpu::Counter::new(0)?;
/// pages.add(16);
/// pages.dec();
/// assert_eq!(pages.sum(), 15);
/// assert!(pages.bounds().contains(&15));
/// assert!(pages.read().abs_diff(15) <= pages.max_error());
/// assert!(pages.compare(1000).is_lt());
/// # Ok::<(), pcpu::AllocError>(()) }).into_iter().collect::<Result<(), _>>().unwrap();
/// ```
///
/// A counter ends where its owner drops it:
///
/// ```compile_fail,E0382
/// let pages = pcpu::Counter::new(0).unwrap();
/// drop(pages);
/// pages.add(1);
/// ```
pub struct Counter(Group<[Shared; 1]>);

impl Counter {
    /// A counter with the default batch. Context: process.
    ///
    /// # Errors
    /// See [`AllocError`].
    #[inline]
    #[cfg_attr(feature = "robust", track_caller)]
    pub fn new(initial: i64) -> Result<Self, AllocError> {
        Self::with(initial, Batch::DEFAULT, AllocFlags::PROCESS)
    }

    /// A counter with a batch, made in the context that the flags tell. The batch never changes: bounds would break if it shrank.
    ///
    /// # Errors
    /// See [`AllocError`].
    #[inline]
    #[cfg_attr(feature = "robust", track_caller)]
    pub fn with(initial: i64, batch: Batch, flags: AllocFlags) -> Result<Self, AllocError> {
        let address = SlotsAddress::allocate(1, flags)?;
        // SAFETY: a new slot.
        Ok(Counter(unsafe { Group::new(address, [Shared::new(initial)], batch) }))
    }

    /// A static counter; for [`counters!`](crate::counters).
    ///
    /// # Safety
    ///
    /// It becomes a static, and is the slots' only user.
    #[doc(hidden)]
    pub const unsafe fn of_static(slots: &'static TemplateCell<[i64; 1]>, initial: i64, batch: Batch) -> Self {
        // SAFETY: the caller's promise.
        Counter(unsafe { Group::new(SlotsAddress::of_static(slots), [Shared::new(initial)], batch) })
    }

    /// The batch that it was made with.
    pub fn batch(&self) -> Batch {
        self.0.batch()
    }

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

    /// The value as far as it was posted: at most [`max_error`](Self::max_error) away.
    #[inline]
    pub fn read(&self) -> i64 {
        self.0.read(0)
    }

    /// [`read`](Self::read), but never below zero, for what cannot be negative.
    #[inline]
    pub fn read_positive(&self) -> i64 {
        self.read().max(0)
    }

    /// The exact value: every add that finished before the call, none that began after it, each overlapping one wholly or not at all.
    #[inline]
    pub fn sum(&self) -> i64 {
        self.0.sum(0)
    }

    /// [`sum`](Self::sum), but never below zero: a sum that races with adds may see the later of two and not the earlier.
    pub fn sum_positive(&self) -> i64 {
        self.sum().max(0)
    }

    /// Between which numbers the value is, without visiting a CPU: some choice of the adds that overlap the call makes it so. O(1).
    ///
    /// The width is `2 * NESTING - 1` times the batch less one for each CPU that wrote, and two batches more for each add without a pin
    /// that is about to post, for however long it has been preempted, or began to during the call. If there are more than 64 possible CPUs and
    /// more than 4 wrote, then CPUs are in groups, as few in each as make 63 groups, and a group of which one wrote counts wholly. That assumes
    /// that at most [`NESTING`](crate::NESTING) contexts nest on a CPU, and that the value is not within the width of the ends of `i64`.
    ///
    /// With a batch of 32, and 4 CPUs that wrote, the width is 5 * 31 * 4 = 620; with [`bounds_nested(1)`](Self::bounds_nested) 124.
    pub fn bounds(&self) -> RangeInclusive<i64> {
        self.bounds_nested(group::DEFAULT_NESTING)
    }

    /// The same for kernels in which up to `nesting` contexts nest on a CPU and add: 1 if only tasks add, which cannot be preempted.
    pub fn bounds_nested(&self, nesting: u32) -> RangeInclusive<i64> {
        self.0.bounds(0, nesting)
    }

    /// How far [`read`](Self::read) can be off, by [`bounds`](Self::bounds). The two are asked one after the other, so what is added in between
    /// is in it too.
    pub fn max_error(&self) -> u64 {
        group::max_error(self.bounds(), self.read())
    }

    /// Compares the value: at once when the bounds decide, else by an exact sum.
    pub fn compare(&self, other: i64) -> Ordering {
        group::compare(self.bounds(), other, || self.sum())
    }

    /// Makes the exact value `value`: adds what is missing. An add that overlaps this counts, before or after; of two calls that overlap, both
    /// count.
    pub fn set(&self, value: i64) {
        self.0.set(0, value);
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        // SAFETY: dropped once, and a static never.
        unsafe { self.0.free() };
    }
}

impl fmt::Debug for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counter").field("read", &self.read()).field("sum", &self.sum()).finish()
    }
}

/// The exact values' sum.
impl<'a> Sum<&'a Counter> for i64 {
    fn sum<I: Iterator<Item = &'a Counter>>(counters: I) -> i64 {
        counters.map(Counter::sum).fold(0, i64::wrapping_add)
    }
}

#[cfg(feature = "defmt")]
impl defmt::Format for Counter {
    fn format(&self, f: defmt::Formatter<'_>) {
        defmt::write!(f, "Counter {{ read: {=i64}, sum: {=i64} }}", self.read(), self.sum());
    }
}
