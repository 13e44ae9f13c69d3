//! A limit on the memory for per-CPU objects, of the library's allocator and of the one that it is compared with.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering};
use pcpu::AreaLayout;
use pcpu::alloc::{Heap, Source};

/// The heap, up to so many chunks.
#[derive(Debug)]
pub struct ChunkLimit {
    nr_left: AtomicUsize,
}

/// Of the library's allocator. Without a limit until one is set.
pub static CHUNK_LIMIT: ChunkLimit = ChunkLimit { nr_left: AtomicUsize::new(usize::MAX) };

/// Of the other one: what one allocator holds is not missing where the other's strategy has its turn.
pub(crate) static LINUX_CHUNK_LIMIT: ChunkLimit = ChunkLimit { nr_left: AtomicUsize::new(usize::MAX) };

impl ChunkLimit {
    /// Limits each allocator to so many chunks besides its first, before one is asked for.
    pub fn set_all(nr_chunks: usize) {
        // The library's first chunk does not come from the heap.
        CHUNK_LIMIT.nr_left.store(nr_chunks, Ordering::Relaxed);
        LINUX_CHUNK_LIMIT.nr_left.store(nr_chunks + 1, Ordering::Relaxed);
    }

    /// Makes a chunk, if one more is allowed.
    pub(crate) fn make<T>(&self, make: impl FnOnce() -> Option<T>) -> Option<T> {
        self.nr_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |nr| nr.checked_sub(1)).ok()?;
        let made = make();
        if made.is_none() {
            self.give_back();
        }
        made
    }

    /// A chunk is there no more.
    pub(crate) fn give_back(&self) {
        self.nr_left.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: the heap's chunks.
unsafe impl Source for ChunkLimit {
    fn allocate(&self, chunk: &AreaLayout) -> Option<NonNull<u8>> {
        self.make(|| Heap.allocate(chunk))
    }

    unsafe fn release(&self, memory: NonNull<u8>, chunk: &AreaLayout) {
        // SAFETY: the caller's promise.
        unsafe { Heap.release(memory, chunk) };
        self.give_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_chunks_are_there_as_allowed() {
        let limit = ChunkLimit { nr_left: AtomicUsize::new(2) };
        assert_eq!(
            [limit.make(|| Some(1)), limit.make(|| None), limit.make(|| Some(2)), limit.make(|| Some(3))],
            [Some(1), None, Some(2), None]
        );
        limit.give_back();
        assert_eq!([limit.make(|| Some(4)), limit.make(|| Some(5))], [Some(4), None]);
    }
}
