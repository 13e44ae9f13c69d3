//! Where the memory of further chunks comes from.

use core::mem::MaybeUninit;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

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
    /// [`AllocFlags::GROW`](crate::AllocFlags::GROW). It may itself allocate per-CPU objects, with flags without
    /// `GROW`: else it would be called again for that.
    fn allocate(&self, chunk: &AreaLayout) -> Option<NonNull<u8>>;

    /// Takes a chunk's memory back.
    ///
    /// # Safety
    ///
    /// It came from `allocate` with the same layout, and nobody uses it any more.
    unsafe fn release(&self, memory: NonNull<u8>, chunk: &AreaLayout);
}

/// Chunks from a buffer of the embedder's: for kernels without a heap. All chunks have one layout; the first one decides.
///
/// ```
/// use core::mem::MaybeUninit;
/// use pcpu::alloc::{Buffer, set_source};
///
/// static SOURCE: Buffer = Buffer::new();
/// static mut MEMORY: [MaybeUninit<u8>; 1 << 20] = [MaybeUninit::uninit(); 1 << 20];
///
/// // SAFETY: the only reference ever.
/// SOURCE.give(unsafe { &mut *(&raw mut MEMORY) });
/// set_source(&SOURCE);
/// ```
#[derive(Debug)]
pub struct Buffer {
    start: AtomicPtr<u8>,
    size_bytes: AtomicU64,
    /// The layout that the buffer is cut into pieces for, from the first allocation on; 0 before.
    cut_for: AtomicU64,
    /// A bit for each piece of a chunk's size that is handed out.
    taken: [AtomicU64; Buffer::MAX_CHUNKS / 64],
}

impl Buffer {
    /// The most chunks that one buffer is cut into.
    pub const MAX_CHUNKS: usize = 1024;

    /// A source without memory yet.
    pub const fn new() -> Self {
        Buffer {
            start: AtomicPtr::new(core::ptr::null_mut()),
            size_bytes: AtomicU64::new(0),
            cut_for: AtomicU64::new(0),
            taken: [const { AtomicU64::new(0) }; Self::MAX_CHUNKS / 64],
        }
    }

    /// Gives it its memory, once.
    ///
    /// # Panics
    /// If it has some already.
    pub fn give(&self, memory: &'static mut [MaybeUninit<u8>]) {
        let given = self.start.compare_exchange(core::ptr::null_mut(), memory.as_mut_ptr().cast(), Ordering::AcqRel, Ordering::Relaxed);
        assert!(given.is_ok(), "the buffer has its memory already");
        self.size_bytes.store(memory.len() as u64, Ordering::Release);
    }

    /// The first piece's address, and how many pieces of a chunk's size there are.
    fn pieces(&self, chunk: &AreaLayout) -> (*mut u8, usize) {
        let size_bytes = self.size_bytes.load(Ordering::Acquire) as usize;
        let start = self.start.load(Ordering::Acquire);
        let padding = start.align_offset(chunk.align_bytes());
        let nr = size_bytes.saturating_sub(padding) / Self::piece_bytes(chunk);
        (start.wrapping_add(padding), nr.min(Self::MAX_CHUNKS))
    }

    fn piece_bytes(chunk: &AreaLayout) -> usize {
        chunk.size_bytes().next_multiple_of(chunk.align_bytes())
    }

    /// Whether the pieces are for chunks of that layout; those of another one would overlap them. The first layout decides.
    fn is_cut_for(&self, chunk: &AreaLayout) -> bool {
        // A piece is a multiple of a line, so the alignment's logarithm fits below.
        let wanted = Self::piece_bytes(chunk) as u64 | u64::from(chunk.align_bytes().trailing_zeros());
        match self.cut_for.compare_exchange(0, wanted, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => true,
            Err(there) => there == wanted,
        }
    }
}

impl Default for Buffer {
    fn default() -> Self {
        Self::new()
    }
}

// SAFETY: pieces of the buffer, which is static; each is handed out to one at a time.
unsafe impl Source for Buffer {
    fn allocate(&self, chunk: &AreaLayout) -> Option<NonNull<u8>> {
        if !self.is_cut_for(chunk) {
            return None;
        }
        let (start, nr_pieces) = self.pieces(chunk);
        let piece = (0..nr_pieces).find(|&piece| {
            let bit = 1 << (piece % 64);
            self.taken[piece / 64].fetch_or(bit, Ordering::Acquire) & bit == 0
        })?;
        NonNull::new(start.wrapping_add(piece * Self::piece_bytes(chunk)))
    }

    unsafe fn release(&self, memory: NonNull<u8>, chunk: &AreaLayout) {
        let (start, _) = self.pieces(chunk);
        let piece = (memory.as_ptr() as usize - start as usize) / Self::piece_bytes(chunk);
        self.taken[piece / 64].fetch_and(!(1 << (piece % 64)), Ordering::Release);
    }
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
