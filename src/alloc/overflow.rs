//! Where frees go that may not wait for the lock: a stack that is pushed to by a compare-exchange and taken as a whole.
//!
//! The link to the next object lies in the object itself, in the boot CPU's copy, and is cleaned by whoever takes the stack. Since
//! nothing is ever popped alone, an object that comes back in between does no harm (no ABA).

use core::num::NonZeroUsize;
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::area;
use crate::cpu::CpuId;

/// Objects of one kind.
pub(super) struct Overflow(AtomicUsize);

/// The boot CPU's copy of the first words of an object.
fn link(handle: NonZeroUsize) -> *mut [usize; 2] {
    ptr::with_exposed_provenance_mut(handle.get().wrapping_add(area::delta(CpuId::BOOT)))
}

impl Overflow {
    pub(super) const fn new() -> Self {
        Overflow(AtomicUsize::new(0))
    }

    /// Pushes an object of which the caller knows the size. In any context.
    ///
    /// # Safety
    /// The object is the caller's alone and clean, and at least 8 B.
    pub(super) unsafe fn push(&self, handle: NonZeroUsize) {
        let mut first = self.0.load(Ordering::Relaxed);
        loop {
            // SAFETY: the object is the caller's.
            unsafe { link(handle).cast::<usize>().write(first) };
            match self.0.compare_exchange_weak(first, handle.get(), Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(changed) => first = changed,
            }
        }
    }

    /// Pushes a large object with its size.
    ///
    /// # Safety
    /// The object is the caller's alone and clean, and at least 16 B.
    pub(super) unsafe fn push_sized(&self, handle: NonZeroUsize, size_bytes: usize) {
        // SAFETY: the object is the caller's.
        unsafe {
            (*link(handle))[1] = size_bytes;
            self.push(handle);
        }
    }

    /// Whether there is something to take, at the moment.
    pub(super) fn is_empty(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    /// Takes everything and hands it out, clean, one by one.
    pub(super) fn take_all(&self, mut visit: impl FnMut(NonZeroUsize)) {
        let mut next = NonZeroUsize::new(self.0.swap(0, Ordering::Acquire));
        while let Some(handle) = next {
            // SAFETY: what was on the stack is the caller's alone now.
            next = NonZeroUsize::new(unsafe { link(handle).cast::<usize>().replace(0) });
            visit(handle);
        }
    }

    /// The same for large objects, with their sizes.
    pub(super) fn take_all_sized(&self, mut visit: impl FnMut(NonZeroUsize, usize)) {
        self.take_all(|handle| {
            // SAFETY: as above.
            let size_bytes = unsafe { core::mem::take(&mut (*link(handle))[1]) };
            visit(handle, size_bytes);
        });
    }
}
