//! The shared part of a counter: what approximate reads see.

use core::sync::atomic::{AtomicI64, Ordering};

/// A counter's batch: how far a CPU's running total goes before a multiple of it is posted. A power of two.
///
/// ```
/// let batch = pcpu::Batch::new(64).unwrap();
/// assert_eq!(batch.get(), 64);
/// assert_eq!(pcpu::Batch::new(48), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Batch {
    shift: u8,
}

impl Batch {
    /// 32, as Linux uses on up to 16 CPUs: at most one posting in 32 adds of one, and an approximate value within 31 for each CPU.
    pub const DEFAULT: Batch = Batch { shift: 5 };

    /// The largest batch.
    pub const MAX: Batch = Batch { shift: 32 };

    /// A batch of that size, if it is a power of two from 2 to 2^32.
    pub const fn new(batch: u64) -> Option<Batch> {
        if batch.is_power_of_two() && batch >= 2 && batch <= 1 << Self::MAX.shift {
            Some(Batch { shift: batch.trailing_zeros() as u8 })
        } else {
            None
        }
    }

    /// Its size.
    pub const fn get(self) -> u64 {
        1 << self.shift
    }

    /// The multiples of the batch that lie between two running totals.
    #[inline(always)]
    fn crossed(self, before: i64, after: i64) -> i64 {
        ((after >> self.shift).wrapping_sub(before >> self.shift)) << self.shift
    }
}

impl Default for Batch {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// The words of one counter that every CPU may write.
///
/// `base` holds the initial value and the adds that are too large for a slot; `posted` the multiples of the batch that the slots' running
/// totals have crossed, so that `base + posted` is near to `base + slots`.
pub(super) struct Posted {
    base: AtomicI64,
    posted: AtomicI64,
}

impl Posted {
    pub(super) const fn new(initial: i64) -> Self {
        Posted { base: AtomicI64::new(initial), posted: AtomicI64::new(0) }
    }

    /// Whether an add of that amount goes to the base: it would be posted anyway, and must not fill a slot's 63 bits.
    #[inline(always)]
    pub(super) fn is_large(batch: Batch, amount: i64) -> bool {
        amount.unsigned_abs() >= batch.get()
    }

    pub(super) fn add_large(&self, amount: i64) {
        self.base.fetch_add(amount, Ordering::Relaxed);
    }

    /// Posts what a slot's running total crossed.
    #[inline(always)]
    pub(super) fn post(&self, batch: Batch, (before, after): (i64, i64)) {
        let crossed = batch.crossed(before, after);
        if crossed != 0 {
            self.posted.fetch_add(crossed, Ordering::Relaxed);
        }
    }

    /// The value as far as it was posted.
    #[inline]
    pub(super) fn read(&self) -> i64 {
        self.base.load(Ordering::Relaxed).wrapping_add(self.posted.load(Ordering::Relaxed))
    }

    /// The value without the slots.
    #[inline]
    pub(super) fn base(&self) -> i64 {
        self.base.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_posted_is_the_running_total_rounded_down_to_the_batch() {
        let batch = Batch::new(8).unwrap();
        let (mut total, mut posted) = (0i64, 0i64);
        for amount in [1, 7, -1, -7, -1, 5, 3, 7, 7, -7, -7, -7, -7, 1] {
            posted += batch.crossed(total, total + amount);
            total += amount;
            assert_eq!(posted, total.div_euclid(8) * 8, "after {amount} to {total}");
        }
    }

    #[test]
    fn a_batch_is_a_power_of_two_from_2_to_2_to_the_32() {
        for (batch, ok) in [(0, false), (1, false), (2, true), (3, false), (32, true), (1 << 32, true), (1 << 33, false), (u64::MAX, false)]
        {
            assert_eq!(Batch::new(batch).is_some(), ok, "{batch}");
        }
    }
}
