//! A memory source that uses no heap, since a schedule must not.

use core::cell::UnsafeCell;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering};
use pcpu::AreaLayout;
use pcpu::alloc::Source;

const NR_CHUNKS: usize = 4;
const CHUNK_BYTES: usize = 128 << 10;

#[repr(align(4096))]
struct Memory(UnsafeCell<[[u8; CHUNK_BYTES]; NR_CHUNKS]>);

/// Room for a few chunks.
pub struct Pool {
    memory: Memory,
    is_used: [AtomicBool; NR_CHUNKS],
}

// SAFETY: each chunk is whose who set its flag.
unsafe impl Sync for Pool {}

pub static POOL: Pool =
    Pool { memory: Memory(UnsafeCell::new([[0; CHUNK_BYTES]; NR_CHUNKS])), is_used: [const { AtomicBool::new(false) }; NR_CHUNKS] };

impl Pool {
    fn chunk(&self, index: usize) -> NonNull<u8> {
        // SAFETY: a static is not null, and the chunk is inside.
        unsafe { NonNull::new_unchecked(self.memory.0.get().cast::<u8>().add(index * CHUNK_BYTES)) }
    }
}

// SAFETY: each chunk is given to one user at a time, aligned to a page.
unsafe impl Source for Pool {
    fn allocate(&self, chunk: &AreaLayout) -> Option<NonNull<u8>> {
        assert!(chunk.size_bytes() <= CHUNK_BYTES && chunk.align_bytes() <= 4096);
        (0..NR_CHUNKS).find(|&index| !self.is_used[index].swap(true, Ordering::Acquire)).map(|index| self.chunk(index))
    }

    unsafe fn release(&self, memory: NonNull<u8>, _: &AreaLayout) {
        let index = (0..NR_CHUNKS).find(|&index| self.chunk(index) == memory).expect("a chunk of this pool");
        assert!(self.is_used[index].swap(false, Ordering::Release), "given back twice");
    }
}
