//! A group of counters that is one object.

use core::fmt;

use super::batched::Line;
use super::posted::{Batch, Posted};
use super::slots::Slots;
use crate::alloc::{AllocError, AllocFlags};
use crate::pin::Pinned;

/// `N` counters that are allocated and freed in one go; on each CPU their slots are adjacent, up to eight in one line.
///
/// Each is used like a [`Counter`](crate::Counter), by its index. The idea is `percpu_counter_init_many` of Linux (commit 14ef95be6f55).
///
/// ```
/// # // SAFETY: only threads of the machine's touch per-CPU data.
/// # let machine = unsafe { pcpu::host::Machine::boot(2) }.unwrap();
/// # machine.run(1, |_| {
/// let resident = pcpu::CounterSet::new([0; 4])?;
/// resident.add(0, 16);
/// resident.add(1, 1);
/// assert_eq!(resident.sum_all(), [16, 1, 0, 0]);
/// # Ok::<(), pcpu::AllocError>(()) }).into_iter().collect::<Result<(), _>>().unwrap();
/// ```
pub struct CounterSet<const N: usize> {
    slots: Slots<N>,
    batch: Batch,
    shared: Line<[Posted; N]>,
}

impl<const N: usize> CounterSet<N> {
    /// A group with these initial values and the default batch. Context: process.
    ///
    /// # Errors
    /// See [`AllocError`].
    #[cfg_attr(feature = "robust", track_caller)]
    pub fn new(initial: [i64; N]) -> Result<Self, AllocError> {
        Self::with(initial, Batch::DEFAULT, AllocFlags::PROCESS)
    }

    /// The same with a batch, made in the context that the flags tell.
    ///
    /// # Errors
    /// See [`AllocError`].
    #[cfg_attr(feature = "robust", track_caller)]
    pub fn with(initial: [i64; N], batch: Batch, flags: AllocFlags) -> Result<Self, AllocError> {
        Ok(CounterSet { slots: Slots::new(flags)?, batch, shared: Line(initial.map(Posted::new)) })
    }

    /// Adds to one counter. As [`Counter::add`](crate::Counter::add).
    ///
    /// # Panics
    /// If there is no such counter.
    #[inline]
    pub fn add(&self, index: usize, amount: i64) {
        let shared = &self.shared.0[index];
        if Posted::is_large(self.batch, amount) {
            return shared.add_large(amount);
        }
        shared.post(self.batch, self.slots.add(index, amount));
    }

    /// Adds to one counter, for a caller that stays on its CPU.
    ///
    /// # Panics
    /// If there is no such counter.
    #[inline]
    pub fn add_pinned(&self, pin: Pinned<'_>, index: usize, amount: i64) {
        let shared = &self.shared.0[index];
        if Posted::is_large(self.batch, amount) {
            return shared.add_large(amount);
        }
        shared.post(self.batch, self.slots.add_pinned(pin, index, amount));
    }

    /// One counter's value as far as it was posted.
    ///
    /// # Panics
    /// If there is no such counter.
    #[inline]
    pub fn read(&self, index: usize) -> i64 {
        self.shared.0[index].read()
    }

    /// One counter's exact value, as [`Counter::sum`](crate::Counter::sum).
    ///
    /// # Panics
    /// If there is no such counter.
    pub fn sum(&self, index: usize) -> i64 {
        self.shared.0[index].base().wrapping_add(self.slots.sum(index))
    }

    /// All exact values, with one pass over the CPUs that wrote.
    pub fn sum_all(&self) -> [i64; N] {
        let bases = self.shared.0.each_ref().map(Posted::base);
        let slots = self.slots.sum_all();
        core::array::from_fn(|index| bases[index].wrapping_add(slots[index]))
    }
}

impl<const N: usize> fmt::Debug for CounterSet<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CounterSet").field(&self.sum_all()).finish()
    }
}
