//! Chunks that are mapped page by page, each CPU's unit from frames near to it.
//!
//! The range of virtual addresses is divided into slots, one for each chunk; all chunks have one layout. A slot's pages are mapped when
//! a chunk is asked for and unmapped when it is given back:
//!
//! ```text
//!   frame source, page tables  --map-->  in use  --unmap-->  maybe still in TLBs  --flush everywhere-->  nobody's  -->  frame source
//! ```
//!
//! # Invariants
//!
//! * A slot's bit is set while any of its pages is mapped, or may be in a TLB.
//! * A frame goes back to the frame source only when no CPU can reach it: it was never mapped, or was unmapped and flushed everywhere
//!   after that.
//! * Inside [`Paging::with_mapper`] nothing but the mapper is called: no frame source, no flush, no lock of this module's.

use core::fmt;
use core::num::NonZeroUsize;
use core::ptr::NonNull;

use x86_64::structures::paging::mapper::{MapToError, MapperFlush};
use x86_64::structures::paging::page::PageRangeInclusive;
use x86_64::structures::paging::{FrameAllocator, Mapper, Page, PageTableFlags, PhysFrame, Size4KiB};
use x86_64::{PhysAddr, VirtAddr};

use super::source::Source;
use crate::area::AreaLayout;
use crate::cpu::CpuId;
use crate::lock::IrqLock;

const PAGE_BYTES: usize = 4096;

/// How many pages are unmapped, flushed and freed together. Between the unmapping and the flush the frames' numbers have to be kept
/// somewhere: here on the stack, half a KiB of it, because kernel stacks are small and there may be no heap. Each flush interrupts every
/// CPU, so one for each page would be slow.
const BATCH_PAGES: usize = 64;

/// The most chunks that one [`Paged`] has room for, however large its range.
const MAX_CHUNKS: usize = 4096;

/// Flags that a page of a chunk must not have: user space would reach it, or the entry would choose another memory type.
const FORBIDDEN_FLAGS: PageTableFlags = PageTableFlags::USER_ACCESSIBLE.union(PageTableFlags::HUGE_PAGE);

/// What [`Paged`] needs from a kernel: its page tables, frames, and a way to flush all TLBs.
///
/// Everything is called in process context with the caller's interrupt state, by several CPUs at once.
///
/// # Safety
///
/// * `with_mapper` gives access to the page tables that are in use on every CPU. In kernels with several address spaces: to entries
///   that all of them share, so the level 4 entries of the range exist before address spaces copy them. While `f` runs nobody else
///   changes these tables.
/// * The two functions that allocate return frames that nobody else uses until they are given back.
/// * When `flush_everywhere` returns, no CPU uses a translation of these pages that is older than the call, not even one that is
///   `GLOBAL` or tagged with a process-context identifier. A CPU that was offline during the call flushes everything before it comes
///   online.
pub unsafe trait Paging: Sync {
    /// How page tables are changed, such as [`OffsetPageTable`](x86_64::structures::paging::OffsetPageTable).
    type Mapper: Mapper<Size4KiB>;

    /// Runs `f` with the mapper, alone: behind the lock of the kernel's page tables.
    ///
    /// `f` changes at most 64 entries, and calls nothing else of this trait. If interrupt handlers take the same lock, turn interrupts
    /// off while it is held; `flush_everywhere` is never called inside.
    fn with_mapper<R>(&self, f: impl FnOnce(&mut Self::Mapper) -> R) -> R;

    /// A frame for a page of `near`'s unit, best in that CPU's memory node; of no unit in particular if `None`. Its contents do not matter.
    fn allocate_frame(&self, near: Option<CpuId>) -> Option<PhysFrame>;

    /// A frame for a page table, likewise. Filled with zeros: the `x86_64` crate's mappers link a table first and clear it then, while
    /// other CPUs may already walk it. Page tables are not given back; the next chunk at that place uses them.
    fn allocate_table_frame(&self, near: Option<CpuId>) -> Option<PhysFrame>;

    /// Takes a frame back.
    ///
    /// # Safety
    ///
    /// It came from one of the functions above, and no CPU can reach it any more.
    unsafe fn free_frame(&self, frame: PhysFrame);

    /// Makes every CPU, this one included, forget its translations of these pages, and waits until all have: usually an interrupt to
    /// all others whose handler executes `invlpg` for each page. At most 64 pages.
    ///
    /// Called without any lock of this crate's or of `with_mapper`'s, so CPUs that flush at the same time answer each other as long as
    /// interrupts are on.
    fn flush_everywhere(&self, pages: PageRangeInclusive);
}

/// Why a range of addresses or flags cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum PagedError {
    /// A range of no bytes.
    Empty,
    /// Its start or its size is not a multiple of 4 KiB.
    Misaligned {
        /// Where the range begins.
        start: usize,
        /// Its size, in bytes.
        bytes: usize,
    },
    /// Not all of the range lies in one half of the canonical addresses.
    NotCanonical {
        /// Where the range begins.
        start: usize,
        /// Its size, in bytes.
        bytes: usize,
    },
    /// The range begins at the null pointer.
    Null,
    /// The range has no room for a chunk.
    TooSmall {
        /// What there is from the first address that has a chunk's alignment, in bytes.
        bytes: usize,
        /// What a chunk needs, in bytes.
        chunk_bytes: usize,
    },
    /// Pages of per-CPU data are present, writable, for the kernel only, and 4 KiB large; a frame's address is no flag.
    BadFlags {
        /// The flags' bits.
        bits: u64,
    },
}

impl fmt::Display for PagedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PagedError::Empty => f.write_str("a range of no bytes"),
            PagedError::Misaligned { start, bytes } => write!(f, "a range of {bytes:#x} B at {start:#x}, not of whole pages"),
            PagedError::NotCanonical { start, bytes } => {
                write!(f, "a range of {bytes:#x} B at {start:#x}, not in one half of the canonical addresses")
            }
            PagedError::Null => f.write_str("a range that begins at the null pointer"),
            PagedError::TooSmall { bytes, chunk_bytes } => write!(f, "a range with room for {bytes} B, a chunk needs {chunk_bytes} B"),
            PagedError::BadFlags { bits } => {
                write!(f, "page flags {bits:#x}, not just flags, present, writable, for the kernel only, and of a 4 KiB page")
            }
        }
    }
}

impl core::error::Error for PagedError {}

/// What kept [`Paged`] from mapping a chunk, or from giving its place back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum PagedFailure {
    /// The range is full.
    RangeFull,
    /// A chunk of another layout than the one that the range was divided for.
    OtherLayout,
    /// [`Paging::allocate_frame`] had none.
    NoFrame,
    /// [`Paging::allocate_table_frame`] had none.
    NoTableFrame,
    /// The mapper refused: somebody else mapped something there.
    NotMapped,
    /// The mapper did not let a page go: somebody else unmapped it. Its place in the range is not used again.
    NotUnmapped,
}

impl fmt::Display for PagedFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PagedFailure::RangeFull => "the range of addresses for chunks is full",
            PagedFailure::OtherLayout => "a chunk of another layout",
            PagedFailure::NoFrame => "no frame for a page",
            PagedFailure::NoTableFrame => "no frame for a page table",
            PagedFailure::NotMapped => "the mapper refused a page: something else is mapped there",
            PagedFailure::NotUnmapped => "the mapper did not let a page go: somebody else unmapped it",
        })
    }
}

impl core::error::Error for PagedFailure {}

/// Chunks from a range of virtual addresses, mapped page by page.
///
/// Each page's frame, and that of a page table that it needs, is asked for the CPU to whose unit most of the page belongs. Pages are
/// present, writable, not executable; see [`with_flags`](Self::with_flags).
///
/// Context: process, with interrupts on if [`Paging::flush_everywhere`] waits for other CPUs. Cost of a chunk: a frame and an entry for
/// each page; when it is given back, or when its frames run out half-way, also a flush on all CPUs for every 64 pages. Page tables that
/// were made stay.
///
/// ```no_run
/// use pcpu::alloc::{Paged, Paging, set_source};
/// use pcpu::{AreaLayout, CpuId};
/// use spin::{Mutex, Once};
/// use x86_64::structures::paging::{OffsetPageTable, PhysFrame, page::PageRangeInclusive};
/// # mod frames {
/// #     use x86_64::structures::paging::PhysFrame;
/// #     pub fn take(_node: Option<u32>) -> Option<PhysFrame> { None }
/// #     pub fn take_zeroed(_node: Option<u32>) -> Option<PhysFrame> { None }
/// #     pub unsafe fn give(_frame: PhysFrame) {}
/// # }
/// # fn node_of(cpu: CpuId) -> u32 { cpu.as_u32() / 8 }
/// # fn shoot_down(_pages: PageRangeInclusive) {}
///
/// struct Kernel {
///     tables: Mutex<OffsetPageTable<'static>>,
/// }
///
/// // SAFETY: the lock guards the kernel's page tables, which all address spaces share; frames are handed out once; `shoot_down`
/// // returns when all CPUs have executed `invlpg` for each of the pages.
/// unsafe impl Paging for Kernel {
///     type Mapper = OffsetPageTable<'static>;
///
///     fn with_mapper<R>(&self, f: impl FnOnce(&mut Self::Mapper) -> R) -> R {
///         f(&mut self.tables.lock())
///     }
///     fn allocate_frame(&self, near: Option<CpuId>) -> Option<PhysFrame> {
///         frames::take(near.map(node_of))
///     }
///     fn allocate_table_frame(&self, near: Option<CpuId>) -> Option<PhysFrame> {
///         frames::take_zeroed(near.map(node_of))
///     }
///     unsafe fn free_frame(&self, frame: PhysFrame) {
///         // SAFETY: the caller's promise.
///         unsafe { frames::give(frame) }
///     }
///     fn flush_everywhere(&self, pages: PageRangeInclusive) {
///         shoot_down(pages)
///     }
/// }
///
/// fn after_init(kernel: Kernel, layout: &AreaLayout) -> Result<(), pcpu::alloc::PagedError> {
///     static CHUNKS: Once<Paged<Kernel>> = Once::new();
///     // SAFETY: the kernel keeps these 16 GiB for chunks, under one entry of the level 4 table that every address space has.
///     let chunks = unsafe { Paged::new(0xffff_c000_0000_0000, 16 << 30, layout, kernel) }?;
///     set_source(CHUNKS.call_once(|| chunks));
///     Ok(())
/// }
/// ```
pub struct Paged<P> {
    paging: P,
    /// Where the first slot begins.
    start: usize,
    /// From one slot to the next.
    slot_bytes: usize,
    nr_slots: usize,
    layout: AreaLayout,
    flags: PageTableFlags,
    state: IrqLock<State>,
}

struct State {
    /// A bit for each slot.
    taken: [u64; MAX_CHUNKS / 64],
    last_failure: Option<PagedFailure>,
}

impl<P> fmt::Debug for Paged<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Paged({} chunks of {:#x} B at {:#x})", self.nr_slots, self.slot_bytes, self.start)
    }
}

impl<P: Paging> Paged<P> {
    /// Divides `bytes` from `start` on into as many chunks as there is room for, at most 4096. Maps nothing yet.
    ///
    /// # Errors
    /// A range that is empty, not of whole pages, not canonical, or too small for a chunk.
    ///
    /// # Safety
    ///
    /// Nothing else is mapped in the range, and nobody else uses it, for as long as a chunk from it exists. What is mapped there is
    /// mapped in every address space that a CPU can be in while it touches per-CPU data: in kernels with several, the range belongs to the
    /// half that they share. `EFER.NXE` is set on every CPU, unless [`with_flags`](Self::with_flags) takes `NO_EXECUTE` away.
    pub unsafe fn new(start: usize, bytes: usize, layout: &AreaLayout, paging: P) -> Result<Self, PagedError> {
        if bytes == 0 {
            return Err(PagedError::Empty);
        }
        if !start.is_multiple_of(PAGE_BYTES) || !bytes.is_multiple_of(PAGE_BYTES) {
            return Err(PagedError::Misaligned { start, bytes });
        }
        let canonical = |address: usize| VirtAddr::try_new(address as u64).is_ok();
        let upper_half = |address: usize| address >> (usize::BITS - 1) != 0;
        // The end itself may lie behind the last address.
        let last = start.checked_add(bytes - 1);
        let last = last.filter(|&last| canonical(start) && canonical(last) && upper_half(start) == upper_half(last));
        let Some(last) = last else { return Err(PagedError::NotCanonical { start, bytes }) };
        if start == 0 {
            return Err(PagedError::Null);
        }
        // A chunk's alignment may be more than a page.
        let align_bytes = layout.align_bytes().max(PAGE_BYTES);
        let slot_bytes = layout.size_bytes().next_multiple_of(align_bytes);
        let first = start.checked_next_multiple_of(align_bytes).filter(|&first| first <= last);
        // Not the whole address space, since the range does not begin at null.
        let room_bytes = first.map_or(0, |first| last - first + 1);
        let Some(first) = first.filter(|_| room_bytes >= slot_bytes) else {
            return Err(PagedError::TooSmall { bytes: room_bytes, chunk_bytes: slot_bytes });
        };
        Ok(Paged {
            paging,
            start: first,
            slot_bytes,
            nr_slots: (room_bytes / slot_bytes).min(MAX_CHUNKS),
            layout: *layout,
            flags: PageTableFlags::PRESENT | PageTableFlags::WRITABLE | PageTableFlags::NO_EXECUTE,
            state: IrqLock::new(State { taken: [0; MAX_CHUNKS / 64], last_failure: None }),
        })
    }

    /// The same with other page flags, such as `PRESENT | WRITABLE | NO_EXECUTE | GLOBAL`.
    ///
    /// # Errors
    /// [`PagedError::BadFlags`] without `PRESENT` or `WRITABLE`, with `USER_ACCESSIBLE` or `HUGE_PAGE`, or with a bit that is no flag: it
    /// would change the frame's address.
    pub fn with_flags(self, flags: PageTableFlags) -> Result<Self, PagedError> {
        let are_flags = PageTableFlags::from_bits(flags.bits()).is_some();
        if !are_flags || !flags.contains(PageTableFlags::PRESENT | PageTableFlags::WRITABLE) || flags.intersects(FORBIDDEN_FLAGS) {
            return Err(PagedError::BadFlags { bits: flags.bits() });
        }
        Ok(Paged { flags, ..self })
    }

    /// How many chunks the range has room for.
    pub fn capacity(&self) -> usize {
        self.nr_slots
    }

    /// What went wrong last, if anything ever did: the reason behind
    /// [`AllocError::SourceExhausted`](crate::AllocError::SourceExhausted).
    pub fn last_failure(&self) -> Option<PagedFailure> {
        self.state.with(|state| state.last_failure)
    }

    fn note_failure(&self, failure: PagedFailure) {
        self.state.with(|state| state.last_failure = Some(failure));
    }

    /// Takes the first free slot and returns its address.
    fn take_slot(&self) -> Option<NonZeroUsize> {
        let index = self.state.with(|state| {
            let word = state.taken.iter().position(|&word| word != u64::MAX)?;
            let bit = state.taken[word].trailing_ones() as usize;
            let index = word * 64 + bit;
            (index < self.nr_slots).then(|| {
                state.taken[word] |= 1 << bit;
                index
            })
        })?;
        NonZeroUsize::new(self.start + index * self.slot_bytes)
    }

    fn give_slot(&self, address: usize) {
        let index = (address - self.start) / self.slot_bytes;
        self.state.with(|state| state.taken[index / 64] &= !(1 << (index % 64)));
    }

    fn map_chunk(&self, chunk: &AreaLayout) -> Result<NonNull<u8>, PagedFailure> {
        if *chunk != self.layout {
            return Err(PagedFailure::OtherLayout);
        }
        let slot = self.take_slot().ok_or(PagedFailure::RangeFull)?;
        for index in 0..chunk.size_bytes().div_ceil(PAGE_BYTES) {
            // The middle of a page that two units share tells which one has more of it.
            let near = chunk.cpu_index_at(index * PAGE_BYTES + PAGE_BYTES / 2).and_then(|cpu| CpuId::new(cpu as u32));
            if let Err(failure) = self.map_page(page_at(slot.get(), index), near) {
                self.unmap_and_give_slot(slot.get(), index);
                return Err(failure);
            }
        }
        Ok(NonNull::with_exposed_provenance(slot))
    }

    /// Maps a page of a slot that was taken. On failure both frames are back.
    fn map_page(&self, page: Page, near: Option<CpuId>) -> Result<(), PagedFailure> {
        let frame = self.paging.allocate_frame(near).ok_or(PagedFailure::NoFrame)?;
        // The mapper gets no access to the frame source, whose locks would then be taken inside the mapper's. It fails where it needs a
        // table, and is called again with one.
        let mut table = TableFrame(None);
        let outcome = loop {
            let attempt = self.paging.with_mapper(|mapper| {
                // SAFETY: the page is this slot's, where nobody else maps or uses anything, and the frame is nobody else's.
                unsafe { mapper.map_to(page, frame, self.flags, &mut table) }.map(MapperFlush::ignore)
            });
            match attempt {
                // What was not present is in no TLB, so there is nothing to flush.
                Ok(()) => break Ok(()),
                Err(MapToError::FrameAllocationFailed) if table.0.is_none() => match self.paging.allocate_table_frame(near) {
                    Some(frame) => table.0 = Some(frame),
                    None => break Err(PagedFailure::NoTableFrame),
                },
                Err(_) => break Err(PagedFailure::NotMapped),
            }
        };
        let unused = outcome.is_err().then_some(frame).into_iter().chain(table.0);
        for frame in unused {
            // SAFETY: allocated above; no entry ever had it.
            unsafe { self.paging.free_frame(frame) };
        }
        outcome
    }

    /// Unmaps the first `nr_pages` pages of a slot, flushes them, frees their frames, and gives the slot back.
    fn unmap_and_give_slot(&self, slot: usize, nr_pages: usize) {
        let mut nr_unmapped = 0;
        for first in (0..nr_pages).step_by(BATCH_PAGES) {
            let pages = first..nr_pages.min(first + BATCH_PAGES);
            let mut frames = [PhysFrame::containing_address(PhysAddr::zero()); BATCH_PAGES];
            let mut nr_frames = 0;
            self.paging.with_mapper(|mapper| {
                for index in pages.clone() {
                    if let Ok((frame, flush)) = mapper.unmap(page_at(slot, index)) {
                        flush.ignore();
                        frames[nr_frames] = frame;
                        nr_frames += 1;
                    }
                }
            });
            self.paging.flush_everywhere(Page::range_inclusive(page_at(slot, pages.start), page_at(slot, pages.end - 1)));
            for &frame in &frames[..nr_frames] {
                // SAFETY: it was mapped from `allocate_frame`'s, its page is unmapped, and no TLB has it any more.
                unsafe { self.paging.free_frame(frame) };
            }
            nr_unmapped += nr_frames;
        }
        if nr_unmapped == nr_pages {
            self.give_slot(slot);
        } else {
            self.note_failure(PagedFailure::NotUnmapped);
        }
    }
}

// SAFETY: a slot is one chunk's at a time, large and aligned enough for the layout that was checked; its pages are mapped to frames of its
// own, writable, in every address space, by the contracts of `Paged::new` and `Paging`.
unsafe impl<P: Paging> Source for Paged<P> {
    fn allocate(&self, chunk: &AreaLayout) -> Option<NonNull<u8>> {
        self.map_chunk(chunk).inspect_err(|&failure| self.note_failure(failure)).ok()
    }

    unsafe fn release(&self, memory: NonNull<u8>, chunk: &AreaLayout) {
        self.unmap_and_give_slot(memory.as_ptr().addr(), chunk.size_bytes().div_ceil(PAGE_BYTES));
    }
}

/// The page of that number in a slot.
fn page_at(slot: usize, index: usize) -> Page {
    // The constructor checked that the whole range is canonical.
    Page::containing_address(VirtAddr::new((slot + index * PAGE_BYTES) as u64))
}

/// At most one frame for the mapper's tables.
struct TableFrame(Option<PhysFrame>);

// SAFETY: hands the frame out once; `Paging` promises that it is nobody else's.
unsafe impl FrameAllocator<Size4KiB> for TableFrame {
    fn allocate_frame(&mut self) -> Option<PhysFrame> {
        self.0.take()
    }
}

#[cfg(test)]
mod tests {
    use x86_64::structures::paging::OffsetPageTable;

    use super::*;

    /// Page tables that nobody asks.
    struct NoPaging;

    // SAFETY: nothing is ever mapped.
    unsafe impl Paging for NoPaging {
        type Mapper = OffsetPageTable<'static>;

        fn with_mapper<R>(&self, _: impl FnOnce(&mut Self::Mapper) -> R) -> R {
            unreachable!()
        }

        fn allocate_frame(&self, _: Option<CpuId>) -> Option<PhysFrame> {
            unreachable!()
        }

        fn allocate_table_frame(&self, _: Option<CpuId>) -> Option<PhysFrame> {
            unreachable!()
        }

        unsafe fn free_frame(&self, _: PhysFrame) {
            unreachable!()
        }

        fn flush_everywhere(&self, _: PageRangeInclusive) {
            unreachable!()
        }
    }

    #[test]
    fn slots_of_a_large_alignment_fit_up_to_the_last_address() {
        const MIB: usize = 1 << 20;
        let layout = AreaLayout::for_statics(2, 4 * MIB, 0, 2 * MIB).unwrap();
        let slot_bytes = layout.size_bytes().next_multiple_of(2 * MIB);
        let new = |bytes: usize| {
            // SAFETY: nothing is allocated from it.
            unsafe { Paged::new(usize::MAX - (bytes - 1), bytes, &layout, NoPaging) }.map(|paged| (paged.start, paged.capacity()))
        };
        let too_small = |bytes| Err(PagedError::TooSmall { bytes, chunk_bytes: slot_bytes });
        // No address behind its start has the alignment.
        assert_eq!(new(MIB), too_small(0));
        assert_eq!(new(2 * MIB), too_small(2 * MIB));
        assert_eq!(new(3 * MIB), too_small(2 * MIB));
        assert_eq!(new(slot_bytes + MIB), Ok((usize::MAX - (slot_bytes - 1), 1)));
        assert_eq!(new(2 * slot_bytes), Ok((usize::MAX - (2 * slot_bytes - 1), 2)));
    }
}
