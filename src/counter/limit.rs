//! A counter that never exceeds its limit.
//!
//! # Protocol
//!
//! What may still be added is in one of three places: the pool, a CPU's credit, or the hands of a call. A call takes from its CPU's
//! credit, else from the pool, with a little more for its CPU's credit; else it *sweeps*: takes, under a lock, what is missing from all
//! credits. Nothing is ever in two places, so what was added never exceeds the limit; and a sweep misses only what other calls have in
//! their hands, since no two sweep at the same time.
//!
//! Credits are changed by LOCKed instructions, since a sweep takes them from other CPUs. On its own line that costs no transfer.

use core::fmt;
use core::sync::atomic::{AtomicI64, Ordering};

use super::group::SlotsAddress;
use super::shared::{Batch, Down, Line};
use super::slots::Slots;
use crate::alloc::{AllocError, AllocFlags};
use crate::cpu::CpuId;
use crate::cpu_mask::CpuMask;
use crate::lock::IrqLock;

/// An amount would have taken a [`LimitCounter`] past its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct LimitExceeded {
    /// The amount.
    pub amount: u64,
    /// The limit. [`value`](LimitCounter::value) tells how much of it is in use.
    pub limit: u64,
}

impl fmt::Display for LimitExceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} more would exceed the limit of {}", self.amount, self.limit)
    }
}

impl core::error::Error for LimitExceeded {}

/// A counter that any number of CPUs add to at the same time and that never exceeds its limit: a quota, blocks that are free, a
/// cgroup's pages.
///
/// | operation | context | cost |
/// |---|---|---|
/// | `try_add`, `sub` | process, interrupt | one LOCKed compare-exchange on this CPU's line; once in a batch one more on a shared line |
/// | `try_add` near the limit | process, interrupt | a lock, interrupts off, an access for each CPU that has credit |
/// | `value` | any | a load for each CPU that has credit |
/// | `new`, `drop` | process, interrupt with the right flags | an allocation; a store for each CPU that had credit |
///
/// Its credits are allocated, so there is no static one.
///
/// From McKenney's limit counters ("Is Parallel Programming Hard, And, If So, What Can You Do About It?", section 5.4), without the
/// false refusals.
///
/// ```
/// # // SAFETY: only threads of the machine's touch per-CPU data.
/// # let machine = unsafe { pcpu::host::Machine::boot(2) }.unwrap();
/// # machine.run(1, |_| {
/// let pages = pcpu::LimitCounter::new(100)?;
/// assert!(pages.try_add(70).is_ok());
/// assert!(pages.try_add(70).is_err());
/// pages.sub(50);
/// assert!(pages.try_add(70).is_ok());
/// assert_eq!(pages.value(), 90);
/// # Ok::<(), pcpu::AllocError>(()) }).into_iter().collect::<Result<(), _>>().unwrap();
/// ```
pub struct LimitCounter {
    /// What may be added on each CPU without looking elsewhere; never negative.
    credits: SlotsAddress,
    /// The CPUs that ever had credit.
    touched: CpuMask,
    limit: u64,
    batch: Batch,
    pool: Line<AtomicI64>,
    sweep: IrqLock<()>,
}

impl LimitCounter {
    /// The largest limit, 2^62.
    pub const MAX_LIMIT: u64 = 1 << 62;

    /// A counter at 0 with that limit; one over [`MAX_LIMIT`](Self::MAX_LIMIT) is taken for it. Context: process.
    ///
    /// # Errors
    /// See [`AllocError`].
    #[cfg_attr(feature = "robust", track_caller)]
    pub fn new(limit: u64) -> Result<Self, AllocError> {
        Self::with(limit, Batch::DEFAULT, AllocFlags::PROCESS)
    }

    /// The same with a batch, which is about what a CPU keeps for itself, made in the context that the flags tell.
    ///
    /// # Errors
    /// See [`AllocError`].
    #[cfg_attr(feature = "robust", track_caller)]
    pub fn with(limit: u64, batch: Batch, flags: AllocFlags) -> Result<Self, AllocError> {
        let limit = limit.min(Self::MAX_LIMIT);
        Ok(LimitCounter {
            credits: SlotsAddress::allocate(1, flags)?,
            touched: CpuMask::new(),
            limit,
            batch,
            pool: Line(AtomicI64::new(limit as i64)),
            sweep: IrqLock::new(()),
        })
    }

    /// Its limit.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    #[inline(always)]
    fn slots(&self) -> Slots<'_, Down> {
        // SAFETY: the object is this counter's alone, and so is the mask.
        unsafe { self.credits.slots(&self.touched) }
    }

    #[inline]
    fn credit_on(&self, cpu: CpuId) -> &AtomicI64 {
        // SAFETY: a live object of one slot.
        unsafe { self.slots().slot_on(cpu, 0) }
    }

    /// Takes `amount` from a word that holds as much.
    #[inline(always)]
    fn take(word: &AtomicI64, amount: i64) -> bool {
        let mut held = word.load(Ordering::Relaxed);
        while held >= amount {
            match word.compare_exchange_weak(held, held - amount, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => held = now,
            }
        }
        false
    }

    /// Takes up to `amount` from a word.
    fn take_some(word: &AtomicI64, amount: i64) -> i64 {
        let mut held = word.load(Ordering::Relaxed);
        loop {
            let part = held.min(amount);
            if part <= 0 {
                return 0;
            }
            match word.compare_exchange_weak(held, held - part, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return part,
                Err(now) => held = now,
            }
        }
    }

    /// Adds, unless that would exceed the limit: on any number of CPUs, the value never does.
    ///
    /// Context: process and interrupt; the caller may be preempted and moved at any point.
    ///
    /// # Errors
    /// What is left, and not in the hands of a call that overlaps this one, is less than `amount`. Nothing changed.
    #[inline]
    pub fn try_add(&self, amount: u64) -> Result<(), LimitExceeded> {
        let error = LimitExceeded { amount, limit: self.limit };
        if amount > self.limit {
            return Err(error);
        }
        let amount = amount as i64;
        if Self::take(self.credit_on(CpuId::current()), amount) || self.refill(amount) || self.sweep(amount) { Ok(()) } else { Err(error) }
    }

    /// Takes `amount` from the pool, and a batch for this CPU's credit if there is one.
    #[cold]
    fn refill(&self, amount: i64) -> bool {
        let batch = self.batch.get() as i64;
        if Self::take(&self.pool.0, amount + batch) {
            self.give(batch);
            return true;
        }
        Self::take(&self.pool.0, amount)
    }

    /// Gives to this CPU's credit.
    fn give(&self, amount: i64) {
        let cpu = CpuId::current();
        self.touched.insert(cpu);
        self.credit_on(cpu).fetch_add(amount, Ordering::AcqRel);
    }

    /// Takes `amount` from wherever there is some.
    #[cold]
    fn sweep(&self, amount: i64) -> bool {
        self.sweep.with(|()| {
            let mut taken = Self::take_some(&self.pool.0, amount);
            for cpu in self.touched.iter() {
                if taken == amount {
                    break;
                }
                taken += Self::take_some(self.credit_on(cpu), amount - taken);
            }
            // What came back to the pool meanwhile.
            taken += Self::take_some(&self.pool.0, amount - taken);
            let is_enough = taken == amount;
            if !is_enough {
                // To what `value` reads first: given back to the pool, it could be seen twice.
                let first = self.touched.iter().next().map_or(&self.pool.0, |cpu| self.credit_on(cpu));
                first.fetch_add(taken, Ordering::AcqRel);
            }
            is_enough
        })
    }

    /// Takes back what was added before. Context: process and interrupt.
    ///
    /// What was not added before must not be taken back: the counter would let so much more pass, and with limits near
    /// [`MAX_LIMIT`](Self::MAX_LIMIT) its arithmetic would wrap, so that it refuses what it should grant.
    ///
    /// # Panics
    /// If it is more than the limit.
    #[inline]
    #[track_caller]
    pub fn sub(&self, amount: u64) {
        assert!(amount <= self.limit, "{amount} was never added: the limit is {}", self.limit);
        let amount = amount as i64;
        let keeps = 2 * self.batch.get() as i64;
        let cpu = CpuId::current();
        let credit = self.credit_on(cpu);
        // A CPU keeps up to two batches; a word that never had credit has no bit in the mask yet.
        if amount <= keeps {
            let mut held = credit.load(Ordering::Relaxed);
            while held > 0 && held + amount <= keeps {
                match credit.compare_exchange_weak(held, held + amount, Ordering::AcqRel, Ordering::Relaxed) {
                    Ok(_) => return,
                    Err(now) => held = now,
                }
            }
        }
        self.pool.0.fetch_add(amount, Ordering::AcqRel);
    }

    /// The value: every call that finished before this began counts, none that began after it ended. What calls that overlap it have in
    /// their hands may count as added. Never over the limit.
    pub fn value(&self) -> u64 {
        let credits = self.touched.iter().map(|cpu| self.credit_on(cpu).load(Ordering::Acquire)).fold(0, i64::saturating_add);
        let left = credits.saturating_add(self.pool.0.load(Ordering::Acquire)).max(0);
        self.limit.saturating_sub(left as u64)
    }
}

impl Drop for LimitCounter {
    fn drop(&mut self) {
        #[cfg(feature = "robust")]
        self.credits.report_values(core::iter::once(self.value() as i64));
        // SAFETY: nobody uses the object any more; zero on the CPUs that had credit, so on all.
        unsafe {
            self.slots().clean(1);
            self.touched.clear();
            self.credits.free_clean(1);
        }
    }
}

impl fmt::Debug for LimitCounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimitCounter").field("value", &self.value()).field("limit", &self.limit).finish()
    }
}

#[cfg(feature = "defmt")]
impl defmt::Format for LimitCounter {
    fn format(&self, f: defmt::Formatter<'_>) {
        defmt::write!(f, "LimitCounter {{ value: {=u64}, limit: {=u64} }}", self.value(), self.limit);
    }
}
