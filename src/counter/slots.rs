//! The per-CPU part of a group of counters: adjacent slots, and which CPUs wrote to them.
//!
//! # Protocol
//!
//! * A slot is its CPU's running total, shifted left by one; it never moves anywhere, so a sum is the base plus the slots, without a lock.
//! * Bit 0 of a slot, the *tag*, means "this CPU is in the mask". Whoever finds a slot without it puts its CPU into the mask and then sets
//!   that CPU's tag, by a LOCKed `or` at its absolute address, which changes no value wherever the caller is by then. All else that
//!   writes to a slot is an unlocked instruction through GS, also the tags of a caller that is pinned; one that meets the LOCKed `or` may
//!   undo the tag, and then the next add sets it once more.
//! * An add that may be preempted writes to tagged slots only, by a compare-exchange. So what it adds is in a slot of a CPU in the mask,
//!   wherever it is moved in between.
//! * An add that is pinned writes first, by an exchange-and-add, and looks at the tag that it found: its CPU cannot change in between. Until it
//!   has finished, a sum may miss it.
//! * Only the CPUs in the mask are visited by a sum and by the clean-up.

use core::marker::PhantomData;
use core::num::NonZeroUsize;
use core::ptr;
use core::slice;
use core::sync::atomic::{AtomicI64, Ordering};

use super::shared::{Batch, Rounding, Shared};
use crate::area;
use crate::cpu::CpuId;
use crate::cpu_mask::CpuMask;
use crate::handle::Handle;
use crate::pin::Pinned;
use crate::var::Var;

const TAG: i64 = 1;

const SLOTS_IN_LINE: usize = area::LINE_BYTES / size_of::<i64>();

/// What `nr` slots need on each CPU, in bytes, and their alignment: up to eight lie in one line.
pub(super) const fn layout(nr: usize) -> (usize, usize) {
    let size_bytes = nr * size_of::<i64>();
    let wanted = size_bytes.next_power_of_two();
    (size_bytes, if wanted < area::LINE_BYTES { wanted } else { area::LINE_BYTES })
}

/// The slots of a static set, from the start of a line.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct SlotLines<const N: usize>([i64; N]);

impl<const N: usize> SlotLines<N> {
    /// What they start from.
    pub const ZERO: Self = SlotLines([0; N]);
}

/// Adjacent slots on every possible CPU, the CPUs that wrote to them, and how their totals are rounded.
#[derive(Clone, Copy)]
pub(super) struct Slots<'a, R> {
    /// In template space.
    address: usize,
    touched: &'a CpuMask,
    rounding: PhantomData<R>,
}

impl<'a, R: Rounding> Slots<'a, R> {
    /// # Safety
    ///
    /// Slots lie at that address on every possible CPU for as long as this lives, all of whose users have the same mask; they were zero
    /// when the mask was empty.
    #[inline(always)]
    pub(super) unsafe fn new(address: NonZeroUsize, touched: &'a CpuMask) -> Self {
        Slots { address: address.get(), touched, rounding: PhantomData }
    }

    /// # Safety
    ///
    /// There is such a slot.
    #[inline(always)]
    unsafe fn slot(self, index: usize) -> Var<Handle<i64>> {
        let address = self.address.wrapping_add(index * size_of::<i64>());
        // SAFETY: the caller's promise, and neither objects nor statics reach address 0.
        Var::new(unsafe { Handle::new(NonZeroUsize::new_unchecked(address)) })
    }

    /// # Safety
    ///
    /// There is such a slot.
    #[inline]
    pub(super) unsafe fn slot_on(self, cpu: CpuId, index: usize) -> &'a AtomicI64 {
        // SAFETY: the caller's promise.
        unsafe { &self.all_on(cpu, index + 1)[index] }
    }

    /// A CPU's slots.
    ///
    /// # Safety
    ///
    /// There are that many.
    #[inline]
    unsafe fn all_on(self, cpu: CpuId, nr: usize) -> &'a [AtomicI64] {
        let address = self.address.wrapping_add(area::delta(cpu));
        // SAFETY: slots that live long enough; everybody else uses single instructions or atomics of that size.
        unsafe { slice::from_raw_parts(ptr::with_exposed_provenance(address), nr) }
    }

    /// Puts the CPU that executes this into the mask, and tags its slot. Once for each counter and CPU, or a few times more.
    ///
    /// # Safety
    ///
    /// There is such a slot.
    unsafe fn touch(self, index: usize) {
        let cpu = CpuId::current();
        self.touched.insert(cpu);
        // If the caller moved to another CPU by now, this tags the slot of the one that is in the mask.
        // SAFETY: the caller's promise.
        unsafe { self.slot_on(cpu, index) }.fetch_or(TAG, Ordering::AcqRel);
    }

    /// Adds to this CPU's slot, and posts what that crosses. The caller may move to another CPU at any point.
    ///
    /// # Safety
    ///
    /// There is such a slot.
    #[inline(always)]
    pub(super) unsafe fn add(self, index: usize, amount: i64, batch: Batch, shared: &Shared) {
        // SAFETY: the caller's promise.
        let slot = unsafe { self.slot(index) };
        let old = slot.get();
        let new = old.wrapping_add(amount << 1);
        if old & TAG == 0 || batch.is_crossed::<R>(old, new) || slot.compare_exchange(old, new).is_err() {
            // SAFETY: the caller's promise.
            unsafe { self.add_slowly(index, amount, batch, shared) };
        }
    }

    /// # Safety
    ///
    /// There is such a slot.
    #[cold]
    #[inline(never)]
    unsafe fn add_slowly(self, index: usize, amount: i64, batch: Batch, shared: &Shared) {
        // SAFETY: the caller's promise.
        let slot = unsafe { self.slot(index) };
        loop {
            let old = slot.get();
            if old & TAG == 0 {
                // SAFETY: the caller's promise.
                unsafe { self.touch(index) };
                continue;
            }
            let new = old.wrapping_add(amount << 1);
            let write = || slot.compare_exchange(old, new).is_ok();
            let added = match batch.is_crossed::<R>(old, new) {
                true => shared.post_announced(|| write().then(|| batch.crossed::<R>(old, new))),
                false => write(),
            };
            if added {
                return;
            }
        }
    }

    /// The same for a caller that stays on its CPU: an unlocked exchange-and-add, which cannot fail.
    ///
    /// # Safety
    ///
    /// There is such a slot, of as many as `shared` has elements.
    #[inline(always)]
    pub(super) unsafe fn add_pinned(self, _: Pinned<'_>, index: usize, amount: i64, batch: Batch, shared: &[Shared]) {
        // SAFETY: the caller's promise.
        let new = unsafe { self.slot(index) }.add_return(amount << 1);
        let old = new.wrapping_sub(amount << 1);
        if old & TAG == 0 {
            // SAFETY: the caller's promise.
            return unsafe { self.finish_first(index, (old, new), batch, shared) };
        }
        if batch.is_crossed::<R>(old, new) {
            shared[index].post(batch.crossed::<R>(old, new));
        }
    }

    /// The same for a caller that stays on its CPU, which tags all slots of the line: who adds to one counter of a set soon adds to others.
    ///
    /// # Safety
    ///
    /// There are `nr` slots, and this is one of them.
    unsafe fn touch_pinned(self, index: usize, nr: usize) {
        self.touched.insert(CpuId::current());
        let first = index - index % SLOTS_IN_LINE;
        for index in first..nr.min(first + SLOTS_IN_LINE) {
            // SAFETY: one of `nr`.
            unsafe { self.slot(index) }.or(TAG);
        }
    }

    /// Finishes a pinned add that found no tag. As a tail call, so that a hit has no registers to save.
    ///
    /// # Safety
    ///
    /// As for [`add_pinned`](Self::add_pinned).
    #[cold]
    #[inline(never)]
    unsafe fn finish_first(self, index: usize, (old, new): (i64, i64), batch: Batch, shared: &[Shared]) {
        // First into the mask, so that whoever sees what is posted sees the CPU too.
        // SAFETY: the caller's promise.
        unsafe { self.touch_pinned(index, shared.len()) };
        if batch.is_crossed::<R>(old, new) {
            shared[index].post(batch.crossed::<R>(old, new));
        }
    }

    /// The total of all CPUs' slots. O(CPUs touched).
    ///
    /// # Safety
    ///
    /// There is such a slot.
    #[inline]
    pub(super) unsafe fn sum(self, index: usize) -> i64 {
        let mut sum = 0i64;
        for cpu in self.touched.iter() {
            // SAFETY: the caller's promise.
            sum = sum.wrapping_add(unsafe { self.slot_on(cpu, index) }.load(Ordering::Relaxed) >> 1);
        }
        sum
    }

    /// The total of each of `N` slots, with one pass over the CPUs touched.
    ///
    /// # Safety
    ///
    /// There are that many slots.
    #[inline]
    pub(super) unsafe fn sum_all<const N: usize>(self) -> [i64; N] {
        let mut sums = [0i64; N];
        for cpu in self.touched.iter() {
            // SAFETY: the caller's promise.
            let slots = unsafe { self.all_on(cpu, N) };
            for (sum, slot) in sums.iter_mut().zip(slots) {
                *sum = sum.wrapping_add(slot.load(Ordering::Relaxed) >> 1);
            }
        }
        sums
    }

    /// Adds each slot's total to `sums`, with one pass over the CPUs touched.
    ///
    /// # Safety
    ///
    /// There are that many slots.
    #[inline]
    pub(super) unsafe fn sum_each(self, sums: &mut [i64]) {
        for cpu in self.touched.iter() {
            // SAFETY: the caller's promise.
            let slots = unsafe { self.all_on(cpu, sums.len()) };
            for (sum, slot) in sums.iter_mut().zip(slots) {
                *sum = sum.wrapping_add(slot.load(Ordering::Relaxed) >> 1);
            }
        }
    }

    /// Makes all slots zero on the CPUs that wrote, and so on all.
    ///
    /// # Safety
    ///
    /// There are that many slots; nobody else uses them, and the mask is cleared before anybody does.
    #[inline]
    pub(super) unsafe fn clean(self, nr: usize) {
        for cpu in self.touched.iter() {
            // SAFETY: the caller's promise.
            for slot in unsafe { self.all_on(cpu, nr) } {
                // Where CPUs are in groups, a neighbour that wrote nothing is visited too, whose line is better left alone.
                if slot.load(Ordering::Relaxed) != 0 {
                    slot.store(0, Ordering::Relaxed);
                }
            }
        }
    }
}
