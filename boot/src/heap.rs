//! The kernel's heap: all RAM between the image and 4 GiB, first fit, under one spin lock.

use core::{
    alloc::{GlobalAlloc, Layout},
    ops::Range,
    ptr::NonNull,
};

use linked_list_allocator::Heap;
use spin::mutex::SpinMutex;
use x86_64::instructions::interrupts::without_interrupts;

use crate::pvh::Pvh;

const IDENTITY_MAPPED_BYTES: usize = 4 << 30;

struct KernelHeap(SpinMutex<Heap>);

#[cfg_attr(pcpu_kernel, global_allocator)]
static HEAP: KernelHeap = KernelHeap(SpinMutex::new(Heap::empty()));

unsafe extern "C" {
    /// First byte after the image, from the linker script.
    static kernel_end: u8;
}

/// The memory that can become the heap.
pub(crate) fn usable(pvh: Pvh) -> Range<usize> {
    pvh.largest_ram((&raw const kernel_end).addr()..IDENTITY_MAPPED_BYTES)
}

/// Gives the heap its memory.
///
/// # Safety
///
/// Called once; nothing else uses the memory, ever.
pub(crate) unsafe fn init(memory: Range<usize>) {
    assert!(!memory.is_empty(), "no RAM between the image and 4 GiB");
    let start = core::ptr::with_exposed_provenance_mut(memory.start);
    // SAFETY: mapped, and unused by the caller's promise.
    without_interrupts(|| unsafe { HEAP.0.lock().init(start, memory.len()) });
}

// SAFETY: the allocator under the lock hands out disjoint, aligned memory. Interrupts are off while it is locked, so that a handler
// that allocates does not wait for the code that it interrupted.
unsafe impl GlobalAlloc for KernelHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        without_interrupts(|| self.0.lock().allocate_first_fit(layout)).map_or(core::ptr::null_mut(), NonNull::as_ptr)
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        let Some(memory) = NonNull::new(memory) else { return };
        // SAFETY: it came from `alloc` with this layout, by the caller's promise.
        without_interrupts(|| unsafe { self.0.lock().deallocate(memory, layout) });
    }
}
