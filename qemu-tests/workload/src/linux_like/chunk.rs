//! A chunk: a unit for each possible CPU, and the bitmaps and hints that all units share.

use super::bitmap::Bitmap;
use super::hints::{Hints, Run};
use super::index::{Id, Links};
use alloc::alloc::{alloc, dealloc};
use alloc::vec;
use alloc::vec::Vec;
use core::alloc::Layout;
use core::ptr::NonNull;

/// What a bit of the bitmaps stands for.
pub(super) const GRANULE_BYTES: usize = 4;

/// Granules in a block.
pub(super) const BLOCK: usize = 4096 / GRANULE_BYTES;

/// The units, and behind them the chunk's id, where a free finds it. Aligned to the unit, so that an address leads to it.
#[derive(Debug)]
struct Units {
    memory: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the memory is owned.
unsafe impl Send for Units {}

impl Units {
    fn new(nr_possible_cpus: usize, unit_bytes: usize) -> Option<Self> {
        let layout = Layout::from_size_align(nr_possible_cpus * unit_bytes + size_of::<Id>(), unit_bytes).ok()?;
        // SAFETY: the size is not 0.
        let memory = NonNull::new(unsafe { alloc(layout) })?;
        Some(Units { memory, layout })
    }

    fn id(&self) -> NonNull<Id> {
        // SAFETY: the layout has room for it behind the units, whose size is a multiple of its alignment.
        unsafe { self.memory.add(self.layout.size() - size_of::<Id>()).cast() }
    }
}

impl Drop for Units {
    fn drop(&mut self) {
        // SAFETY: allocated with that layout.
        unsafe { dealloc(self.memory.as_ptr(), self.layout) };
    }
}

/// The chunk that an object lies in.
///
/// # Safety
/// The object is in use, of a chunk with those measures.
pub(super) unsafe fn id_of(object: NonNull<u8>, nr_possible_cpus: usize, unit_bytes: usize) -> Id {
    let offset_bytes = object.addr().get() & (unit_bytes - 1);
    // SAFETY: the chunk's memory is aligned to the unit, and the id lies behind the units.
    unsafe { object.sub(offset_bytes).add(nr_possible_cpus * unit_bytes).cast::<Id>().read() }
}

#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) links: Links,
    units: Units,
    /// Granules in a unit.
    pub(super) len: usize,
    pub(super) nr_free: usize,
    /// Set: in use.
    pub(super) in_use: Bitmap,
    /// Set: an object begins or ends here. One bit more than granules.
    bounds: Bitmap,
    pub(super) blocks: Vec<Hints>,
    pub(super) hints: Hints,
}

/// The parts of a run, block by block: the block, and the part as seen from its start.
fn parts(run: Run) -> impl Iterator<Item = (usize, Run)> {
    (run.start / BLOCK..run.end().div_ceil(BLOCK)).map(move |block| {
        let (start, end) = (block * BLOCK, (block + 1) * BLOCK);
        (block, Run::between(run.start.max(start) - start, run.end().min(end) - start))
    })
}

impl Chunk {
    /// An empty chunk, or `None` if the heap has no memory for it.
    pub(super) fn new(nr_possible_cpus: usize, unit_bytes: usize) -> Option<Self> {
        let len = unit_bytes / GRANULE_BYTES;
        Some(Chunk {
            links: Links::default(),
            units: Units::new(nr_possible_cpus, unit_bytes)?,
            len,
            nr_free: len,
            in_use: Bitmap::new(len),
            bounds: Bitmap::new(len + 1),
            blocks: vec![Hints::all_free(BLOCK); len / BLOCK],
            hints: Hints::all_free(len),
        })
    }

    /// Writes the chunk's id where a free finds it.
    pub(super) fn set_id(&mut self, id: Id) {
        // SAFETY: inside the chunk's memory, which is owned.
        unsafe { self.units.id().write(id) };
    }

    pub(super) fn is_empty(&self) -> bool {
        self.nr_free == self.len
    }

    /// The address of CPU 0's copy of a granule.
    pub(super) fn object_at(&self, start: usize) -> NonNull<u8> {
        debug_assert!(start < self.len);
        // SAFETY: inside the first unit.
        unsafe { self.units.memory.add(start * GRANULE_BYTES) }
    }

    /// Where a search that will find `nr` granules with that alignment begins. Looks at hints only.
    pub(super) fn find_fit(&self, nr: usize, align: usize) -> Option<usize> {
        if !self.hints.contig.fits(nr, align) {
            return None;
        }
        // A run that reaches the end of the block before.
        let mut open = Run::NONE;
        for index in self.hints.search_start(nr) / BLOCK..self.blocks.len() {
            let (block, start) = (&self.blocks[index], index * BLOCK);
            if open.len > 0 {
                open.len += block.left_free;
                if open.fits(nr, align) {
                    return Some(open.start);
                }
                if block.left_free == BLOCK {
                    continue;
                }
            }
            if block.contig.fits(nr, align) {
                return Some(start + block.search_start(nr));
            }
            open = Run { start: start + BLOCK - block.right_free, len: block.right_free };
        }
        None
    }

    /// Takes the first `nr` free granules with that alignment behind a start that `find_fit` returned.
    pub(super) fn take(&mut self, search_start: usize, nr: usize, align: usize) -> Option<usize> {
        // What `find_fit` saw begins within a block, unless it is at the end of the bitmap.
        let limit = (search_start + nr + BLOCK).min(self.len);
        let mut skipped = Run::NONE;
        let mut next = search_start;
        let start = loop {
            let free = self.in_use.next_clear(next..limit);
            let start = free.next_multiple_of(align);
            if start + nr > limit {
                return None;
            }
            let end = self.in_use.next_set(free..start + nr);
            if end == start + nr {
                break start;
            }
            if end - free > skipped.len {
                skipped = Run::between(free, end);
            }
            next = end + 1;
        };
        let taken = Run { start, len: nr };
        self.nr_free -= nr;
        self.in_use.set_all(start..taken.end());
        self.bounds.set(start);
        self.bounds.clear_all(start + 1..taken.end());
        self.bounds.set(taken.end());
        self.hints_after_take(taken, skipped);
        Some(start)
    }

    fn hints_after_take(&mut self, taken: Run, skipped: Run) {
        for (index, part) in parts(taken) {
            let contig_is_gone = self.blocks[index].taken(part);
            if self.blocks[index].first_free == part.start {
                let next = self.in_use.next_clear(index * BLOCK + part.end()..(index + 1) * BLOCK);
                self.blocks[index].first_free = next - index * BLOCK;
            }
            if contig_is_gone {
                self.find_contig_in_block(index);
            } else if skipped.len > 0 && skipped.start / BLOCK == index && (skipped.end() - 1) / BLOCK == index {
                self.blocks[index].skipped(Run { start: skipped.start % BLOCK, ..skipped });
            }
        }
        if self.hints.first_free == taken.start {
            self.hints.first_free = self.in_use.next_clear(taken.end()..self.len);
        }
        if self.hints.taken(taken) {
            let from = self.hints.forget_contig();
            self.find_contig(from);
        }
    }

    /// Frees the object that begins there.
    pub(super) fn give_back(&mut self, start: usize) {
        let end = self.bounds.next_set(start + 1..self.len + 1);
        self.in_use.clear_all(start..end);
        self.nr_free += end - start;
        let freed = self.extended(Run::between(start, end));
        let mut block_got_empty = false;
        for (index, part) in parts(freed) {
            self.blocks[index].consider(part);
            block_got_empty |= part.len == BLOCK;
        }
        if block_got_empty || freed.start / BLOCK != (freed.end() - 1) / BLOCK {
            self.hints.first_free = self.hints.first_free.min(freed.start);
            let from = self.hints.forget_runs();
            self.find_contig(from);
        } else {
            self.hints.consider(freed);
        }
    }

    /// A free run with the free granules before and behind it, as far as its first and last block reach.
    fn extended(&self, run: Run) -> Run {
        let first_block = run.start / BLOCK;
        let last_block = (run.end() - 1) / BLOCK;
        let contig_of = |index: usize| {
            let contig = self.blocks[index].contig;
            Run { start: contig.start + index * BLOCK, ..contig }
        };
        // Most often the longest run is the neighbour.
        let before = contig_of(first_block);
        let start = if before.end() == run.start { before.start } else { self.in_use.after_last_set(first_block * BLOCK..run.start) };
        let behind = contig_of(last_block);
        let end = if behind.start == run.end() { behind.end() } else { self.in_use.next_set(run.end()..(last_block + 1) * BLOCK) };
        Run::between(start, end)
    }

    /// Finds a block's longest run again, in its part of the bitmap.
    fn find_contig_in_block(&mut self, index: usize) {
        let hints = &mut self.blocks[index];
        let (first, end) = (index * BLOCK, (index + 1) * BLOCK);
        let mut next = first + hints.forget_contig();
        loop {
            let start = self.in_use.next_clear(next..end);
            if start == end {
                return;
            }
            next = self.in_use.next_set(start..end);
            hints.consider(Run::between(start - first, next - first));
        }
    }

    /// Finds the chunk's longest run again, behind `from`, in the hints of its blocks.
    fn find_contig(&mut self, from: usize) {
        let mut open = Run::NONE;
        for index in from / BLOCK..self.blocks.len() {
            let (block, first) = (&self.blocks[index], index * BLOCK);
            if open.len > 0 {
                open.len += block.left_free;
                if block.left_free == BLOCK {
                    continue;
                }
                self.hints.consider(open);
            }
            if block.contig.len > 0 && block.contig.end() < BLOCK {
                self.hints.consider(Run { start: first + block.contig.start, ..block.contig });
            }
            open = Run { start: first + BLOCK - block.right_free, len: block.right_free };
        }
        if open.len > 0 {
            self.hints.consider(open);
        }
    }
}
