//! The per-CPU part of a group of counters: adjacent slots, and which CPUs wrote to them.
//!
//! # Protocol
//!
//! * A slot is its CPU's running total, shifted left by one; it never moves anywhere, so a sum is the base plus the slots, without a lock.
//! * Bit 0 of a slot, the *tag*, means "this CPU is in the mask". An add first puts its CPU into the mask, then sets the tag with a
//!   LOCKed compare-exchange of 0 at that CPU's absolute address; tagged values change only by unlocked instructions through GS. So a
//!   value is only ever written to a slot whose CPU is in the mask, wherever the adder migrates in between.
//! * Only the CPUs in the mask are visited by a sum and by the clean-up.

use core::num::NonZeroUsize;
use core::ptr;
use core::sync::atomic::{AtomicI64, Ordering};

use crate::alloc::{self, AllocError, AllocFlags};
use crate::area;
use crate::cpu::{CpuId, CpuMask};
use crate::handle::Handle;
use crate::pin::Pinned;
use crate::var::Var;

const TAG: i64 = 1;

/// `N` adjacent slots on every possible CPU.
pub(super) struct Slots<const N: usize> {
    address: NonZeroUsize,
    touched: CpuMask,
}

impl<const N: usize> Slots<N> {
    /// A power of two, so that up to eight slots lie in one line.
    const SIZE_BYTES: usize = N * size_of::<i64>();
    const ALIGN_BYTES: usize = {
        let wanted = Self::SIZE_BYTES.next_power_of_two();
        if wanted < area::LINE_BYTES { wanted } else { area::LINE_BYTES }
    };

    #[cfg_attr(feature = "robust", track_caller)]
    pub(super) fn new(flags: AllocFlags) -> Result<Self, AllocError> {
        let address = alloc::allocate(Self::SIZE_BYTES, Self::ALIGN_BYTES, flags)?;
        Ok(Slots { address, touched: CpuMask::new() })
    }

    #[inline(always)]
    fn slot(&self, index: usize) -> Var<Handle<i64>> {
        debug_assert!(index < N);
        // SAFETY: the object has `N` slots, `index` is checked by the callers, and an allocated object does not reach address 0.
        Var::new(unsafe { Handle::new(NonZeroUsize::new_unchecked(self.address.get().wrapping_add(index * size_of::<i64>()))) })
    }

    fn slot_on(&self, cpu: CpuId, index: usize) -> &AtomicI64 {
        let address = self.address.get().wrapping_add(index * size_of::<i64>()).wrapping_add(area::delta(cpu));
        // SAFETY: a slot of a live object; everybody else uses single instructions or atomics of that size.
        unsafe { AtomicI64::from_ptr(ptr::with_exposed_provenance_mut(address)) }
    }

    /// Puts the CPU that executes this into the mask, and tags its slot. Out of line: once for each counter and CPU.
    #[cold]
    fn touch(&self, index: usize) {
        let cpu = CpuId::current();
        self.touched.insert(cpu);
        // If the caller moved to another CPU by now, this tags the slot of the one that is in the mask.
        let _ = self.slot_on(cpu, index).compare_exchange(0, TAG, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Adds to this CPU's slot and returns its running total before and after. The caller may move to another CPU at any point.
    #[inline(always)]
    pub(super) fn add(&self, index: usize, amount: i64) -> (i64, i64) {
        let slot = self.slot(index);
        let mut old = slot.get();
        loop {
            if old & TAG == 0 {
                self.touch(index);
                old = slot.get();
                continue;
            }
            let new = old.wrapping_add(amount << 1);
            match slot.compare_exchange(old, new) {
                Ok(_) => return (old >> 1, new >> 1),
                Err(_) => old = slot.get(),
            }
        }
    }

    /// The same for a caller that stays on its CPU: an unlocked exchange-and-add, which cannot fail.
    #[inline(always)]
    pub(super) fn add_pinned(&self, _pin: Pinned<'_>, index: usize, amount: i64) -> (i64, i64) {
        let slot = self.slot(index);
        while slot.get() & TAG == 0 {
            self.touch(index);
        }
        let new = slot.add_return(amount << 1);
        (new.wrapping_sub(amount << 1) >> 1, new >> 1)
    }

    /// The total of all CPUs' slots. O(CPUs touched).
    pub(super) fn sum(&self, index: usize) -> i64 {
        self.touched.iter().fold(0i64, |sum, cpu| sum.wrapping_add(self.slot_on(cpu, index).load(Ordering::Relaxed) >> 1))
    }

    /// The totals of all slots, one pass over the CPUs touched.
    pub(super) fn sum_all(&self) -> [i64; N] {
        self.touched.iter().fold([0; N], |sums, cpu| {
            core::array::from_fn(|index| sums[index].wrapping_add(self.slot_on(cpu, index).load(Ordering::Relaxed) >> 1))
        })
    }
}

impl<const N: usize> Drop for Slots<N> {
    fn drop(&mut self) {
        for cpu in self.touched.iter() {
            for index in 0..N {
                self.slot_on(cpu, index).store(0, Ordering::Relaxed);
            }
        }
        self.touched.clear();
        // SAFETY: allocated with that size, owned by this alone, and zero on the CPUs that wrote, so on all.
        unsafe { alloc::free_clean(self.address, Self::SIZE_BYTES, Self::ALIGN_BYTES) };
    }
}
