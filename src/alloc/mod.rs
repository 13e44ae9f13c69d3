//! Allocation of per-CPU objects at run time.
//!
//! A *chunk* is one unit of memory for each possible CPU, at one stride. An object is the same range in each of them; its *handle* is an
//! address in template space, a number just like a static variable's address, so `gs:[handle]` is this CPU's copy:
//!
//! ```text
//!            | static variables | objects ...        |   the first chunk, made by `init`
//!   cpu 0    |                  |   [o]              |   at delta(0) + template
//!   cpu 1    |                  |   [o]              |   one stride further
//!   ...
//!            | objects ...                           |   further chunks, from the memory source, may lie anywhere
//!   cpu 0    |        [p]                            |   handle(p) = address of CPU 0's copy - delta(0)
//!   cpu 1    |        [p]                            |
//! ```
//!
//! What is free is zero on every CPU, so an allocation touches no CPU's memory: whoever frees has cleaned.

mod chunk;
mod error;
mod source;

use core::num::NonZeroUsize;
use core::ptr::{self, NonNull};

pub(crate) use chunk::metadata_bytes;
pub use error::{AllocError, AllocFlags};
#[cfg(feature = "alloc")]
pub use source::Heap;
pub use source::Source;

use crate::area::{self, AreaLayout};
use crate::cpu::CpuId;
use crate::lock::IrqLock;
use chunk::Chunk;

/// A snapshot of the allocator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub struct Stats {
    /// Objects that are allocated.
    pub live_objects: u64,
    /// Their size on one CPU, in bytes.
    pub live_bytes: u64,
    /// Chunks, the first one included.
    pub chunks: u64,
}

struct Allocator {
    layout: Option<AreaLayout>,
    chunks: Option<NonNull<Chunk>>,
    source: Option<&'static dyn Source>,
    stats: Stats,
}

// SAFETY: the chunks it points to are its own.
unsafe impl Send for Allocator {}

static ALLOCATOR: IrqLock<Allocator> =
    IrqLock::new(Allocator { layout: None, chunks: None, source: None, stats: Stats { live_objects: 0, live_bytes: 0, chunks: 0 } });

/// Makes the rest of the areas available for objects. Called by `init`, once, with memory laid out by `layout`.
pub(crate) fn adopt_first_chunk(memory: NonNull<u8>, layout: &AreaLayout, template_start: usize, static_bytes: usize) {
    let first_delta = (memory.as_ptr() as usize).wrapping_sub(template_start);
    // SAFETY: `init` checked the memory against the layout and cleared the units behind the static variables.
    let chunk = unsafe { Chunk::create(memory, layout, first_delta, static_bytes) };
    ALLOCATOR.with(|allocator| {
        allocator.layout = Some(*layout);
        allocator.insert(chunk);
    });
}

/// Names the source of further chunks. Without one, only the first chunk is there.
pub fn set_source(source: &'static dyn Source) {
    ALLOCATOR.with(|allocator| allocator.source = Some(source));
}

/// A snapshot of the allocator. Takes its lock.
pub fn stats() -> Stats {
    ALLOCATOR.with(|allocator| allocator.stats)
}

/// Allocates an object on every possible CPU, all zero, and returns its handle.
///
/// Context: process with [`AllocFlags::PROCESS`], interrupt with [`AllocFlags::INTERRUPT`], NMI with [`AllocFlags::NMI`]. Typed objects are
/// made with [`PerCpuBox`](crate::PerCpuBox) and the counters; this is what they stand on.
///
/// # Errors
/// Says what ran out or what was wrong; nothing changed.
pub fn allocate(size_bytes: usize, align_bytes: usize, flags: AllocFlags) -> Result<NonZeroUsize, AllocError> {
    let layout = loop {
        let attempt = |allocator: &mut Allocator| allocator.allocate(size_bytes, align_bytes, flags);
        let outcome = if flags.contains(AllocFlags::LOCK) {
            ALLOCATOR.with(attempt)
        } else {
            ALLOCATOR.try_with(attempt).ok_or(AllocError::WouldWait)?
        };
        match outcome? {
            Attempt::Allocated(handle) => return Ok(handle),
            Attempt::NeedsChunk(layout) => break layout,
        }
    };
    grow_and_allocate(&layout, size_bytes, align_bytes, flags)
}

/// Adds a chunk, without holding the lock while the source is asked, and allocates from it or from whatever became free meanwhile.
fn grow_and_allocate(layout: &AreaLayout, size_bytes: usize, align_bytes: usize, flags: AllocFlags) -> Result<NonZeroUsize, AllocError> {
    let source = ALLOCATOR.with(|allocator| allocator.source).ok_or(AllocError::NoSource)?;
    loop {
        let memory = source.allocate(layout).ok_or(AllocError::SourceExhausted { chunk_bytes: layout.size_bytes() })?;
        memory.as_ptr().expose_provenance();
        // SAFETY: the source promises memory of that layout, which nobody else uses yet.
        let chunk = unsafe {
            memory.write_bytes(0, layout.units_bytes());
            Chunk::create(memory, layout, area::delta(CpuId::BOOT), 0)
        };
        let outcome = ALLOCATOR.with(|allocator| {
            allocator.insert(chunk);
            allocator.allocate(size_bytes, align_bytes, flags)
        });
        if let Attempt::Allocated(handle) = outcome? {
            return Ok(handle);
        }
    }
}

/// Cleans an object on every possible CPU and frees it. O(possible CPUs).
///
/// Never fails. Context: process and interrupt.
///
/// # Safety
///
/// The handle came from [`allocate`] with that size, is freed once, and nobody uses the object any more.
pub unsafe fn free(handle: NonZeroUsize, size_bytes: usize) {
    for cpu in CpuId::possible() {
        let copy = ptr::with_exposed_provenance_mut::<u8>(handle.get().wrapping_add(area::delta(cpu)));
        // SAFETY: the object is the caller's alone, on every CPU.
        unsafe { copy.write_bytes(0, size_bytes) };
    }
    // SAFETY: the caller's promise, and it is clean now.
    unsafe { free_clean(handle, size_bytes) };
}

/// Frees an object that is zero on every possible CPU already. The cost does not depend on the number of CPUs.
///
/// Never fails. Context: process and interrupt.
///
/// # Safety
///
/// As for [`free`], and every byte of the object is zero on every possible CPU.
pub unsafe fn free_clean(handle: NonZeroUsize, size_bytes: usize) {
    let released = ALLOCATOR.with(|allocator| allocator.free(handle, size_bytes));
    if let Some((source, memory, layout)) = released {
        // SAFETY: the chunk was empty and is on no list any more; it came from that source, with that layout.
        unsafe { source.release(memory, &layout) };
    }
}

enum Attempt {
    Allocated(NonZeroUsize),
    NeedsChunk(AreaLayout),
}

impl Allocator {
    fn insert(&mut self, mut chunk: NonNull<Chunk>) {
        // SAFETY: chunks on the list, and this new one, are the allocator's own, behind the lock.
        unsafe { chunk.as_mut() }.next = None;
        let mut link = &mut self.chunks;
        while let Some(next) = link {
            // SAFETY: as above.
            link = unsafe { &mut next.as_mut().next };
        }
        // New chunks go last: older ones are filled first, so that younger ones empty.
        *link = Some(chunk);
        self.stats.chunks += 1;
    }

    fn allocate(&mut self, size_bytes: usize, align_bytes: usize, flags: AllocFlags) -> Result<Attempt, AllocError> {
        let layout = self.layout.ok_or(AllocError::NotInitialised)?;
        if size_bytes == 0 {
            return Err(AllocError::ZeroSize);
        }
        if !align_bytes.is_power_of_two() {
            return Err(AllocError::AlignNotPowerOfTwo { align_bytes });
        }
        if align_bytes > layout.align_bytes() {
            return Err(AllocError::AlignTooLarge { align_bytes, max_bytes: layout.align_bytes() });
        }
        if size_bytes > layout.unit_bytes() {
            return Err(AllocError::TooLarge { size_bytes, max_bytes: layout.unit_bytes() });
        }
        let mut link = self.chunks;
        while let Some(mut chunk) = link {
            // SAFETY: chunks on the list are the allocator's own, behind the lock.
            let chunk = unsafe { chunk.as_mut() };
            if let Some(handle) = chunk.allocate(size_bytes, align_bytes) {
                self.stats.live_objects += 1;
                self.stats.live_bytes += size_bytes as u64;
                return Ok(Attempt::Allocated(handle));
            }
            link = chunk.next;
        }
        if flags.contains(AllocFlags::GROW) { Ok(Attempt::NeedsChunk(layout)) } else { Err(AllocError::ChunksFull) }
    }

    /// Frees an object; if that leaves a second chunk empty, takes it off the list for its source to have.
    fn free(&mut self, handle: NonZeroUsize, size_bytes: usize) -> Option<(&'static dyn Source, NonNull<u8>, AreaLayout)> {
        self.stats.live_objects -= 1;
        self.stats.live_bytes -= size_bytes as u64;
        let mut link = &mut self.chunks;
        let mut is_first = true;
        while let Some(chunk) = link {
            // SAFETY: chunks on the list are the allocator's own, behind the lock.
            let chunk = unsafe { chunk.as_mut() };
            if chunk.contains(handle) {
                chunk.free(handle, size_bytes);
                if is_first || !chunk.is_empty() {
                    return None;
                }
                let (source, layout) = (self.source?, self.layout?);
                let memory = chunk.memory();
                *link = chunk.next;
                self.stats.chunks -= 1;
                return Some((source, memory, layout));
            }
            is_first = false;
            link = &mut chunk.next;
        }
        debug_assert!(false, "freed a handle that no chunk contains");
        None
    }
}
