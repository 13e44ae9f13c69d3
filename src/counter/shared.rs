//! What all CPUs share of a counter, and the batch that says how often it is written.
//!
//! # Protocol
//!
//! The slots' running totals are what counts; the words here serve reads that do not visit the CPUs. When an add takes its slot's total to
//! where it is rounded to another multiple of the batch, the difference is *posted*: added to `posted`. So, once all adds have finished,
//! `posted` is the sum of the slots, each [rounded](Rounding) to the batch.
//!
//! An add that is about to cross and may be preempted, for how long nobody knows, says so before and after: `begun` is stepped before
//! it writes to the slot and `done` after it has posted. A reader that reads `done` first and `begun` last knows how many postings it may
//! be ahead of or behind. An add that is pinned needs not: how many of them nest on a CPU is known. `docs/safety.md` has the proof.

use core::fmt;
use core::ops::RangeInclusive;
use core::sync::atomic::{AtomicI64, AtomicU32, Ordering};

/// A counter's batch: how far a CPU's running total goes before a multiple of it is posted. A power of two.
///
/// ```
/// let batch = pcpu::Batch::new(64).unwrap();
/// assert_eq!(batch.get(), 64);
/// assert_eq!(pcpu::Batch::new(48), None);
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Batch {
    /// Twice the batch, less one: the bits of a slot, with its tag, that differ between running totals of the same multiple.
    low_bits: u64,
}

impl Batch {
    /// 32, as Linux uses on up to 16 CPUs: at most one posting in 32 adds of one. When no add is under way, an approximate value is within 31 for
    /// each CPU that wrote; what may be under way is in the [bounds](crate::Counter::bounds).
    pub const DEFAULT: Batch = Batch { low_bits: 63 };

    /// The largest batch, 2^32.
    pub const MAX: Batch = Batch { low_bits: (1 << 33) - 1 };

    /// A batch of that size, if it is a power of two from 2 to 2^32.
    pub const fn new(batch: u64) -> Option<Batch> {
        if batch.is_power_of_two() && batch >= 2 && batch <= Self::MAX.get() { Some(Batch { low_bits: 2 * batch - 1 }) } else { None }
    }

    /// Its size.
    pub const fn get(self) -> u64 {
        self.low_bits.div_ceil(2)
    }

    /// Whether an add of that amount goes to the base: it would be posted anyway, and must not fill a slot's 63 bits.
    #[inline(always)]
    pub(super) fn is_large(self, amount: i64) -> bool {
        // From 1 - batch to batch - 1, the only amounts that are not.
        (amount as u64).wrapping_add(self.low_bits >> 1) >= self.low_bits
    }

    /// Whether a slot's change takes its running total to another multiple.
    #[inline(always)]
    pub(super) fn is_crossed<R: Rounding>(self, before: i64, after: i64) -> bool {
        let raised = |slot: i64| slot.wrapping_add(R::below(self) << 1);
        (raised(before) ^ raised(after)) as u64 > self.low_bits
    }

    /// The multiples that lie between a slot's running totals.
    pub(super) fn crossed<R: Rounding>(self, before: i64, after: i64) -> i64 {
        let rounded = |slot: i64| slot.wrapping_add(R::below(self) << 1) & !self.low_bits as i64;
        rounded(after).wrapping_sub(rounded(before)) >> 1
    }
}

impl Default for Batch {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Batch({})", self.get())
    }
}

#[cfg(feature = "defmt")]
impl defmt::Format for Batch {
    fn format(&self, f: defmt::Formatter<'_>) {
        defmt::write!(f, "Batch({=u64})", self.get());
    }
}

/// Which running totals are rounded to which multiple of the batch.
pub(super) trait Rounding: Copy {
    /// How far below a multiple the totals begin that are rounded to it: less than the batch.
    fn below(batch: Batch) -> i64;
}

/// Down: for counters that are used from their beginning. Most of them are never below zero on the CPU that made them, and a total that goes up
/// from zero and comes back is posted least.
#[derive(Clone, Copy)]
pub(super) enum Down {}

impl Rounding for Down {
    #[inline(always)]
    fn below(_: Batch) -> i64 {
        0
    }
}

/// To the nearest: for counters whose slots come in the middle of a life. Their totals go up and down around zero, which must not be a place
/// where each step is posted.
#[derive(Clone, Copy)]
pub(super) enum Nearest {}

impl Rounding for Nearest {
    #[inline(always)]
    fn below(batch: Batch) -> i64 {
        // Half a batch.
        (batch.low_bits / 4 + 1) as i64
    }
}

/// How many contexts can nest on a CPU in most kernels: a task, an interrupt, an NMI.
pub const NESTING: u32 = 3;

/// The words of one counter that every CPU may write.
#[repr(C)]
pub(super) struct Shared {
    posted: AtomicI64,
    /// Their difference is what counts, so they may wrap.
    begun: AtomicU32,
    done: AtomicU32,
    /// The initial value and the adds that are too large for a slot.
    base: AtomicI64,
}

impl Shared {
    pub(super) const fn new(initial: i64) -> Self {
        Shared { posted: AtomicI64::new(0), begun: AtomicU32::new(0), done: AtomicU32::new(0), base: AtomicI64::new(initial) }
    }

    /// The words of counters with these initial values.
    #[inline(always)]
    pub(super) const fn new_each<const N: usize>(initial: [i64; N]) -> [Self; N] {
        let mut shared = [const { Shared::new(0) }; N];
        let mut index = 0;
        while index < N {
            shared[index] = Shared::new(initial[index]);
            index += 1;
        }
        shared
    }

    #[inline(always)]
    pub(super) fn add_to_base(&self, amount: i64) {
        self.base.fetch_add(amount, Ordering::Relaxed);
    }

    /// Posts, for a context that stays on its CPU from the write to its slot to the end of this.
    pub(super) fn post(&self, multiples: i64) {
        // Release: whoever sees it sees that the CPU is in the mask.
        self.posted.fetch_add(multiples, Ordering::Release);
    }

    /// Posts what `write` crossed, if it did, for a context that may be preempted. `write` writes to a slot.
    pub(super) fn post_announced(&self, write: impl FnOnce() -> Option<i64>) -> bool {
        self.begun.fetch_add(1, Ordering::AcqRel);
        let written = write();
        if let Some(multiples) = written {
            self.posted.fetch_add(multiples, Ordering::AcqRel);
        }
        self.done.fetch_add(1, Ordering::Release);
        written.is_some()
    }

    /// The value as far as it was posted.
    #[inline]
    pub(super) fn read(&self) -> i64 {
        self.base.load(Ordering::Relaxed).wrapping_add(self.posted.load(Ordering::Relaxed))
    }

    /// The total of all slots, from the sum of their 63-bit totals, which is right but for multiples of 2^63: the nearest to what was posted.
    #[inline]
    pub(super) fn total_of_slots(&self, sum: i64) -> i64 {
        nearest(sum, self.posted.load(Ordering::Relaxed))
    }

    /// The value without the slots.
    #[inline]
    pub(super) fn base(&self) -> i64 {
        self.base.load(Ordering::Relaxed)
    }

    /// Between which numbers the value is, where `inline` is a further part of it that is exact.
    ///
    /// `nr_touched` tells how many CPUs wrote, and is asked last.
    pub(super) fn bounds<R: Rounding>(
        &self,
        batch: Batch,
        nesting: u32,
        inline: impl FnOnce() -> i64,
        nr_touched: impl FnOnce() -> usize,
    ) -> RangeInclusive<i64> {
        let done = self.done.load(Ordering::Acquire);
        let base = inline().wrapping_add(self.base.load(Ordering::Acquire));
        let value = base.wrapping_add(self.posted.load(Ordering::Acquire));
        let nr_in_flight = i64::from(self.begun.load(Ordering::Acquire).wrapping_sub(done));
        let nr_touched = nr_touched() as i64;
        let in_flight = nr_in_flight.saturating_mul(batch.get() as i64);
        // Of one CPU: what its total is over what it was rounded to, and for each add that was interrupted the same, up or down.
        let rest_below = R::below(batch);
        let rest_above = batch.get() as i64 - 1 - rest_below;
        let nested = (batch.get() as i64 - 1).saturating_mul(i64::from(nesting.max(1) - 1));
        let of_all = |of_one: i64| nr_touched.saturating_mul(of_one).saturating_add(in_flight);
        value.saturating_sub(of_all(nested.saturating_add(rest_below)))..=value.saturating_add(of_all(nested.saturating_add(rest_above)))
    }
}

/// Of the numbers that are `sum` but for a multiple of 2^63, the nearest to `posted`.
#[inline]
fn nearest(sum: i64, posted: i64) -> i64 {
    // What it is off by has 63 bits, the highest of which is its sign.
    posted.wrapping_add(sum.wrapping_sub(posted) << 1 >> 1)
}

/// Keeps the words that postings write out of the line that every add reads.
#[repr(align(64))]
pub(super) struct Line<T>(pub(super) T);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_posted_is_the_running_total_rounded_to_the_batch() {
        fn is_rounded<R: Rounding>(below: i64) {
            let batch = Batch::new(8).unwrap();
            let slot = |total: i64| total << 1 | 1;
            let (mut total, mut posted) = (0i64, 0i64);
            for amount in [1, 7, -1, -7, -1, 5, 3, 7, 7, -7, -7, -7, -7, 1] {
                let (before, after) = (slot(total), slot(total + amount));
                assert_eq!(batch.is_crossed::<R>(before, after), batch.crossed::<R>(before, after) != 0);
                posted += batch.crossed::<R>(before, after);
                total += amount;
                assert_eq!(posted, (total + below).div_euclid(8) * 8, "after {amount} to {total}");
            }
        }
        is_rounded::<Down>(0);
        is_rounded::<Nearest>(4);
    }

    #[test]
    fn half_a_batch_is_half_a_batch() {
        for batch in [2, 4, 32, 1 << 32] {
            assert_eq!(Nearest::below(Batch::new(batch).unwrap()) as u64, batch / 2);
        }
    }

    #[test]
    fn a_batch_is_a_power_of_two_from_2_to_2_to_the_32() {
        for (batch, ok) in [(0, false), (1, false), (2, true), (3, false), (32, true), (1 << 32, true), (1 << 33, false), (u64::MAX, false)]
        {
            assert_eq!(Batch::new(batch).map(Batch::get), ok.then_some(batch), "{batch}");
        }
    }

    #[test]
    fn a_sum_of_slots_that_have_wrapped_is_right() {
        // Each slot keeps 63 bits, sign-extended.
        let kept = |total: i64| total << 1 >> 1;
        for totals in
            [[5, -7], [1 << 62, 3 - (1 << 62)], [(1 << 62) + 40, -(1 << 62) - 1], [i64::MAX, -5], [i64::MIN, 9], [1 << 61, 1 << 62]]
        {
            let value = totals[0].wrapping_add(totals[1]);
            let posted = value & !31;
            assert_eq!(nearest(kept(totals[0]).wrapping_add(kept(totals[1])), posted), value, "{totals:?}");
        }
    }

    #[test]
    fn amounts_of_a_batch_and_more_are_large() {
        for batch in [2, 32, 1 << 32] {
            let size = batch as i64;
            let batch = Batch::new(batch).unwrap();
            for small in [0, 1, -1, size - 1, 1 - size] {
                assert!(!batch.is_large(small), "{small} with {batch:?}");
            }
            for large in [size, -size, size + 1, i64::MAX, i64::MIN, i64::MIN + 1] {
                assert!(batch.is_large(large), "{large} with {batch:?}");
            }
        }
    }

    #[test]
    fn bounds_at_the_ends_of_i64_do_not_overflow() {
        for initial in [i64::MAX, i64::MIN] {
            let bounds = Shared::new(initial).bounds::<Nearest>(Batch::MAX, u32::MAX, || 0, || 4096);
            assert!(bounds.contains(&initial));
        }
    }
}
