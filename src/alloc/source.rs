//! Where the memory of further chunks comes from.

use core::ptr::NonNull;

use crate::area::AreaLayout;

/// A source of memory for chunks.
///
/// # Safety
///
/// What `allocate` returns is mapped and writable on every CPU, `chunk.size_bytes()` long, aligned to `chunk.align_bytes()`, and used by
/// nobody else until it is given back.
pub unsafe trait Source: Sync {
    /// Memory for a chunk, or `None`. Its contents do not matter.
    ///
    /// Called without any lock held and with the caller's interrupt state, only for allocations whose flags contain
    /// [`AllocFlags::GROW`](crate::AllocFlags::GROW). It may itself allocate per-CPU objects.
    fn allocate(&self, chunk: &AreaLayout) -> Option<NonNull<u8>>;

    /// Takes a chunk's memory back.
    ///
    /// # Safety
    ///
    /// It came from `allocate` with the same layout, and nobody uses it any more.
    unsafe fn release(&self, memory: NonNull<u8>, chunk: &AreaLayout);
}

/// Chunks from the global heap.
#[cfg(feature = "alloc")]
#[derive(Clone, Copy, Debug, Default)]
pub struct Heap;

#[cfg(feature = "alloc")]
impl Heap {
    fn layout(chunk: &AreaLayout) -> Option<core::alloc::Layout> {
        core::alloc::Layout::from_size_align(chunk.size_bytes(), chunk.align_bytes()).ok()
    }
}

// SAFETY: the global allocator's promise is the trait's; kernel heaps are mapped on every CPU.
#[cfg(feature = "alloc")]
unsafe impl Source for Heap {
    fn allocate(&self, chunk: &AreaLayout) -> Option<NonNull<u8>> {
        // SAFETY: a chunk is never empty.
        NonNull::new(unsafe { alloc_crate::alloc::alloc(Self::layout(chunk)?) })
    }

    unsafe fn release(&self, memory: NonNull<u8>, chunk: &AreaLayout) {
        if let Some(layout) = Self::layout(chunk) {
            // SAFETY: allocated above with the same layout, by the caller's promise.
            unsafe { alloc_crate::alloc::dealloc(memory.as_ptr(), layout) };
        }
    }
}
