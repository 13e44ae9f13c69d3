//! What single counters, sets and lazy sets have in common: slots, the words that all CPUs share, a batch.

use core::cmp::Ordering;
use core::num::NonZeroUsize;
use core::ops::RangeInclusive;
use core::ptr::NonNull;

use super::shared::{Batch, Down, Line, NESTING, Rounding, Shared};
use super::slots::{self, Slots};
use crate::alloc::{self, AllocError, AllocFlags};
use crate::cpu_mask::CpuMask;
use crate::pin::Pinned;
use crate::var::TemplateCell;

/// Where slots lie in template space.
///
/// A pointer, since the address of a static variable is not a number before the image is linked; not null, which leaves room for the error
/// in the result of a constructor.
#[derive(Clone, Copy)]
pub(super) struct SlotsAddress(NonNull<()>);

// SAFETY: an address, which is used through GS and with other CPUs' deltas.
unsafe impl Send for SlotsAddress {}
// SAFETY: as above.
unsafe impl Sync for SlotsAddress {}

impl SlotsAddress {
    /// That of a static variable.
    pub(super) const fn of_static<S>(slots: &'static TemplateCell<S>) -> Self {
        // SAFETY: of a static.
        SlotsAddress(unsafe { NonNull::new_unchecked((&raw const *slots).cast_mut().cast()) })
    }

    /// That of an object which is all zero.
    #[inline]
    #[cfg_attr(feature = "robust", track_caller)]
    pub(super) fn allocate(nr: usize, flags: AllocFlags) -> Result<Self, AllocError> {
        let (size_bytes, align_bytes) = slots::layout(nr);
        let address = alloc::allocate(size_bytes, align_bytes, flags)?;
        Ok(SlotsAddress(NonNull::without_provenance(address)))
    }

    /// From what [`as_ptr`](Self::as_ptr) returned.
    ///
    /// # Safety
    ///
    /// It is not null.
    pub(super) const unsafe fn from_ptr(address: *mut ()) -> Self {
        // SAFETY: the caller's promise.
        SlotsAddress(unsafe { NonNull::new_unchecked(address) })
    }

    pub(super) fn as_ptr(self) -> *mut () {
        self.0.as_ptr()
    }

    #[inline(always)]
    fn get(self) -> NonZeroUsize {
        // Not `addr`, which is for pointers to memory: this one is used with other CPUs' deltas.
        // SAFETY: not null.
        unsafe { NonZeroUsize::new_unchecked(self.0.as_ptr() as usize) }
    }

    /// The slots that lie there.
    ///
    /// # Safety
    ///
    /// As for [`Slots::new`].
    #[inline(always)]
    pub(super) unsafe fn slots<R: Rounding>(self, touched: &CpuMask) -> Slots<'_, R> {
        // SAFETY: the caller's promise.
        unsafe { Slots::new(self.get(), touched) }
    }

    /// Frees an object that is all zero.
    ///
    /// # Safety
    ///
    /// It came from `allocate` with that number, and nobody uses it any more.
    #[inline]
    pub(super) unsafe fn free_clean(self, nr: usize) {
        let (size_bytes, align_bytes) = slots::layout(nr);
        // SAFETY: the caller's promise.
        unsafe { alloc::free_clean(self.get(), size_bytes, align_bytes) };
    }

    /// Tells the trace hook of values that are lost with their counters.
    #[cfg(feature = "robust")]
    pub(super) fn report_values(self, values: impl Iterator<Item = i64>) {
        alloc::report_dropped_values(Some(self.get()), values);
    }
}

/// Counters; `S` is an array or a slice of what they share, as many as there are slots.
pub(super) struct Group<S> {
    address: SlotsAddress,
    touched: CpuMask,
    batch: Batch,
    shared: Line<S>,
}

impl<S> Group<S> {
    /// Counters whose slots lie at `address`.
    ///
    /// # Safety
    ///
    /// There are as many slots as `shared` has elements, all zero; this is their only user.
    #[inline(always)]
    pub(super) const unsafe fn new(address: SlotsAddress, shared: S, batch: Batch) -> Self {
        Group { address, touched: CpuMask::new(), batch, shared: Line(shared) }
    }
}

impl<S: AsRef<[Shared]>> Group<S> {
    #[inline(always)]
    fn slots(&self) -> Slots<'_, Down> {
        // SAFETY: the object or static is this group's alone, and so is the mask.
        unsafe { self.address.slots(&self.touched) }
    }

    fn shared(&self) -> &[Shared] {
        self.shared.0.as_ref()
    }

    pub(super) fn len(&self) -> usize {
        self.shared().len()
    }

    pub(super) fn batch(&self) -> Batch {
        self.batch
    }

    #[inline(always)]
    pub(super) fn add(&self, index: usize, amount: i64) {
        let shared = &self.shared()[index];
        if self.batch.is_large(amount) {
            return shared.add_to_base(amount);
        }
        // SAFETY: there is a slot for each element of `shared`.
        unsafe { self.slots().add(index, amount, self.batch, shared) };
    }

    #[inline(always)]
    pub(super) fn add_pinned(&self, pin: Pinned<'_>, index: usize, amount: i64) {
        let shared = self.shared();
        let own = &shared[index];
        if self.batch.is_large(amount) {
            return own.add_to_base(amount);
        }
        // SAFETY: there is a slot for each element of `shared`.
        unsafe { self.slots().add_pinned(pin, index, amount, self.batch, shared) };
    }

    #[inline]
    pub(super) fn read(&self, index: usize) -> i64 {
        self.shared()[index].read()
    }

    #[inline]
    pub(super) fn sum(&self, index: usize) -> i64 {
        let shared = &self.shared()[index];
        let base = shared.base();
        // SAFETY: there is a slot for each element of `shared`.
        base.wrapping_add(shared.total_of_slots(unsafe { self.slots().sum(index) }))
    }

    /// Fills `sums`, as many as there are counters.
    #[inline]
    pub(super) fn sum_into(&self, sums: &mut [i64]) {
        assert_eq!(sums.len(), self.len(), "a sum for each counter");
        sums.fill(0);
        // SAFETY: there is a slot for each element of `shared`.
        unsafe { self.slots().sum_each(sums) };
        for (sum, shared) in sums.iter_mut().zip(self.shared()) {
            *sum = shared.base().wrapping_add(shared.total_of_slots(*sum));
        }
    }

    pub(super) fn bounds(&self, index: usize, nesting: u32) -> RangeInclusive<i64> {
        self.shared()[index].bounds::<Down>(self.batch, nesting, || 0, || self.touched.nr_cpus())
    }

    pub(super) fn set(&self, index: usize, value: i64) {
        self.shared()[index].add_to_base(value.wrapping_sub(self.sum(index)));
    }
}

impl<const N: usize> Group<[Shared; N]> {
    /// All sums, with one pass over the CPUs that wrote.
    #[inline]
    pub(super) fn sum_all(&self) -> [i64; N] {
        // SAFETY: there is a slot for each element of `shared`.
        let slots = unsafe { self.slots().sum_all::<N>() };
        core::array::from_fn(|index| {
            let shared = &self.shared()[index];
            shared.base().wrapping_add(shared.total_of_slots(slots[index]))
        })
    }
}

impl<S: AsRef<[Shared]>> Group<S> {
    /// Gives the object back.
    ///
    /// # Safety
    ///
    /// The slots were allocated, and the counters are not used any more.
    #[inline]
    pub(super) unsafe fn free(&mut self) {
        let nr = self.len();
        #[cfg(feature = "robust")]
        self.address.report_values((0..nr).map(|index| self.sum(index)));
        // SAFETY: there are that many slots, which nobody else uses; zero on the CPUs that wrote, so on all.
        unsafe {
            self.slots().clean(nr);
            self.touched.clear();
            self.address.free_clean(nr);
        }
    }
}

/// How a value compares, from what is known of it and, if that does not decide, from its sum. Bounds that reach an end of the range decide nothing:
/// the value may have wrapped.
pub(super) fn compare(bounds: RangeInclusive<i64>, other: i64, sum: impl FnOnce() -> i64) -> Ordering {
    if *bounds.start() == i64::MIN || *bounds.end() == i64::MAX {
        sum().cmp(&other)
    } else if *bounds.end() < other {
        Ordering::Less
    } else if *bounds.start() > other {
        Ordering::Greater
    } else {
        sum().cmp(&other)
    }
}

/// How far a value between these bounds can be from what `read` says.
pub(super) fn max_error(bounds: RangeInclusive<i64>, read: i64) -> u64 {
    read.abs_diff(*bounds.start()).max(read.abs_diff(*bounds.end()))
}

/// Bounds for the contexts that nest in most kernels.
pub(super) const DEFAULT_NESTING: u32 = NESTING;

#[cfg(all(test, feature = "host"))]
mod tests {
    use super::*;
    use crate::cpu::CpuId;
    use crate::host::Machine;
    use crate::pin;

    /// A slot keeps 63 bits, which the largest adds fill in 2^30 times.
    #[test]
    fn a_slot_that_wraps_loses_nothing() {
        // SAFETY: the unit tests touch per-CPU data inside `run` only.
        let machine = unsafe { Machine::boot(2) }.expect("the machine boots");
        machine.run(1, |_| {
            let batch = Batch::MAX;
            let amount = batch.get() as i64 - 1;
            for (near_the_end, amount) in [((1 << 62) - 3 * amount, amount), (3 * amount - (1 << 62), -amount)] {
                let address = SlotsAddress::allocate(1, AllocFlags::PROCESS).expect("there is room");
                // SAFETY: a new slot.
                let mut counter = unsafe { Group::new(address, [Shared::new(0)], batch) };
                counter.add(0, 0);
                // As after so many adds.
                // SAFETY: there is such a slot.
                let slot = unsafe { counter.slots().slot_on(CpuId::BOOT, 0) };
                let tagged = slot.load(core::sync::atomic::Ordering::Relaxed);
                slot.store(tagged + (near_the_end << 1), core::sync::atomic::Ordering::Relaxed);
                counter.shared()[0].post(batch.crossed::<Down>(tagged, tagged + (near_the_end << 1)));
                let mut value = near_the_end;
                assert_eq!(counter.sum(0), value);
                for nr in 0..8 {
                    match nr % 2 {
                        0 => counter.add(0, amount),
                        // SAFETY: the thread is this CPU until it ends.
                        _ => unsafe { pin::assume_pinned(|pin| counter.add_pinned(pin, 0, amount)) },
                    }
                    value += amount;
                    assert_eq!(counter.sum(0), value, "after {nr} more adds of {amount}");
                    let mut sums = [0];
                    counter.sum_into(&mut sums);
                    assert_eq!(sums, [value]);
                    assert!(counter.bounds(0, NESTING).contains(&value));
                }
                counter.set(0, 0);
                // SAFETY: it is not used any more.
                unsafe { counter.free() };
            }
        });
    }
}
