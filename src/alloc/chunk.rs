//! A chunk: its blocks, and which of their objects are free. All of it lies behind the units, so that a wild write to per-CPU data does
//! not reach it and it is not there once for each CPU.
//!
//! A unit is divided into *blocks* of 4 KiB. A block is free, holds objects of one class, or belongs to a run, which is one large object.
//!
//! # Invariants
//!
//! * An object's bit in its block is set iff the object is free *in the block*: not live, in no magazine, and not covered by the static
//!   variables or by handle 0.
//! * `nr_free` is the number of set bits, `nr_usable` what it is when nothing of the block is in use.
//! * `nr_free_blocks` is the number of blocks in state `Free`; none lies before `first_free`.
//! * Every byte of what is free is zero on every CPU.

use core::num::NonZeroUsize;
use core::ptr::NonNull;

use super::class::{Class, MAX_CLASS_BYTES, MIN_BYTES};
use super::list::Linked;
use super::source::Source;
use crate::area::AreaLayout;

/// A block: a page, so that what is counted as populated is what a page table would say.
pub(super) const BLOCK_BYTES: usize = 4096;

/// The most objects that a block holds.
pub(super) const MAX_OBJECTS: usize = BLOCK_BYTES / MIN_BYTES;

const WORDS: usize = MAX_OBJECTS / u64::BITS as usize;

// An object of a class never straddles blocks.
const _: () = assert!(BLOCK_BYTES.is_multiple_of(MAX_CLASS_BYTES));

/// What a block is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    Free,
    /// Full of static variables.
    Static,
    Objects(Class),
    /// The first block of a run of that many.
    RunHead(u32),
    RunTail,
}

/// One block of a chunk.
pub(super) struct Block {
    /// Neighbours on its class's list of blocks with free objects.
    pub(super) previous: Option<NonNull<Block>>,
    pub(super) next: Option<NonNull<Block>>,
    /// The handle of an object at the block's start.
    first_handle: usize,
    pub(super) usage: Use,
    pub(super) nr_free: u32,
    nr_usable: u32,
    free: [u64; WORDS],
    #[cfg(feature = "robust")]
    pub(super) record: super::robust::Record,
}

impl Block {
    /// The objects of a class that the block can hold, as a bitmap, and how many they are.
    fn usable(&self, chunk: &Chunk, class: Class) -> ([u64; WORDS], u32) {
        let start = self.first_handle.wrapping_sub(chunk.first_handle);
        let nr_objects = BLOCK_BYTES / class.bytes();
        let mut bits = [0; WORDS];
        if start >= chunk.static_bytes && start + BLOCK_BYTES <= chunk.unit_bytes && !chunk.covers_zero(start, BLOCK_BYTES) {
            // The usual case, and not worth a loop over the objects.
            for (index, word) in bits.iter_mut().enumerate().take(nr_objects.div_ceil(64)) {
                *word = u64::MAX >> (64 - (nr_objects - index * 64).min(64));
            }
            return (bits, nr_objects as u32);
        }
        let mut nr = 0;
        for index in 0..nr_objects {
            let from = start + index * class.bytes();
            if from >= chunk.static_bytes && from + class.bytes() <= chunk.unit_bytes && !chunk.covers_zero(from, class.bytes()) {
                bits[index / 64] |= 1 << (index % 64);
                nr += 1;
            }
        }
        (bits, nr)
    }

    /// Turns a free block into one of that class, unless it can hold no object of it. The chunk counts it.
    fn assign(&mut self, chunk: &Chunk, class: Class) -> bool {
        debug_assert_eq!(self.usage, Use::Free);
        let (bits, nr) = self.usable(chunk, class);
        if nr == 0 {
            return false;
        }
        self.usage = Use::Objects(class);
        self.free = bits;
        self.nr_free = nr;
        self.nr_usable = nr;
        #[cfg(feature = "robust")]
        self.record.begin(class.bytes());
        true
    }

    /// The handle of an object at that offset in the block.
    #[cfg(feature = "robust")]
    pub(super) fn handle_at(&self, offset: usize) -> usize {
        self.first_handle.wrapping_add(offset)
    }

    /// Whether nothing of the block is in use.
    pub(super) fn is_empty(&self) -> bool {
        self.nr_free == self.nr_usable
    }

    /// Takes up to `nr` objects of the first word that has any, and hands each to `give` until it refuses one.
    pub(super) fn take_word(&mut self, class: Class, nr: usize, mut give: impl FnMut(NonZeroUsize) -> bool) {
        let Some(index) = self.free.iter().position(|&word| word != 0) else { return };
        for _ in 0..nr {
            let word = self.free[index];
            if word == 0 {
                return;
            }
            let bit = word.trailing_zeros() as usize;
            let address = self.first_handle.wrapping_add((index * 64 + bit) * class.bytes());
            let Some(handle) = NonZeroUsize::new(address) else {
                debug_assert!(false, "handle 0 is never usable");
                return;
            };
            if !give(handle) {
                return;
            }
            self.free[index] &= word - 1;
            self.nr_free -= 1;
        }
    }

    /// Gives an object back to its block. `false` if it is free already, or not an object of the block's class.
    pub(super) fn put(&mut self, class: Class, handle: NonZeroUsize) -> bool {
        let offset = handle.get().wrapping_sub(self.first_handle);
        let index = offset / class.bytes();
        let bit = 1 << (index % 64);
        if self.usage != Use::Objects(class) || !offset.is_multiple_of(class.bytes()) || self.free[index / 64] & bit != 0 {
            return false;
        }
        self.free[index / 64] |= bit;
        self.nr_free += 1;
        true
    }

    /// Whether the bitmap, the counts and the use agree.
    #[cfg(any(debug_assertions, feature = "host"))]
    fn check(&self, chunk: &Chunk) {
        match self.usage {
            Use::Objects(class) => {
                let (usable, nr_usable) = self.usable(chunk, class);
                let nr_free: u32 = self.free.iter().map(|word| word.count_ones()).sum();
                assert_eq!((self.nr_free, self.nr_usable), (nr_free, nr_usable), "counts follow the bitmap");
                assert!(self.free.iter().zip(usable).all(|(free, usable)| free & !usable == 0), "what is free is usable");
                assert!(self.nr_free < self.nr_usable, "a block without objects in use is free");
            }
            Use::Free | Use::Static | Use::RunHead(_) | Use::RunTail => {}
        }
    }
}

/// One chunk.
pub(super) struct Chunk {
    /// Neighbours on the list of chunks with free blocks.
    pub(super) previous: Option<NonNull<Chunk>>,
    pub(super) next: Option<NonNull<Chunk>>,
    /// Children in the directory.
    pub(super) children: [Option<NonNull<Chunk>>; 2],
    /// Where the source's memory begins.
    memory: NonNull<u8>,
    /// The handle of an object at the unit's start.
    pub(super) first_handle: usize,
    unit_bytes: usize,
    static_bytes: usize,
    nr_blocks: usize,
    pub(super) nr_free_blocks: usize,
    first_free: usize,
    /// Where the memory goes when the chunk is empty; `None` for the first chunk, which stays.
    pub(super) source: Option<&'static dyn Source>,
}

/// What a chunk needs behind its units, in bytes.
pub(crate) const fn metadata_bytes(unit_bytes: usize) -> usize {
    size_of::<Chunk>() + unit_bytes.div_ceil(BLOCK_BYTES) * size_of::<Block>()
}

impl Chunk {
    /// Makes a chunk of `memory`, whose units are all zero, but for `static_bytes` at their start.
    ///
    /// # Safety
    ///
    /// `memory` is laid out by `layout`, and nobody else uses what lies behind the units.
    pub(super) unsafe fn create(
        memory: NonNull<u8>,
        layout: &AreaLayout,
        first_delta: usize,
        static_bytes: usize,
        source: Option<&'static dyn Source>,
    ) -> NonNull<Chunk> {
        let unit_bytes = layout.unit_bytes();
        let first_handle = (memory.as_ptr() as usize).wrapping_sub(first_delta);
        let nr_blocks = unit_bytes.div_ceil(BLOCK_BYTES);
        let nr_static_blocks = if static_bytes == unit_bytes { nr_blocks } else { static_bytes / BLOCK_BYTES };
        // SAFETY: the layout keeps `metadata_bytes` behind the units; the units' size is a multiple of a line.
        unsafe {
            let this = memory.add(layout.units_bytes()).cast::<Chunk>();
            this.write(Chunk {
                previous: None,
                next: None,
                children: [None; 2],
                memory,
                first_handle,
                unit_bytes,
                static_bytes,
                nr_blocks,
                nr_free_blocks: nr_blocks - nr_static_blocks,
                first_free: nr_static_blocks,
                source,
            });
            for index in 0..nr_blocks {
                this.add(1).cast::<Block>().add(index).write(Block {
                    previous: None,
                    next: None,
                    first_handle: first_handle.wrapping_add(index * BLOCK_BYTES),
                    usage: if index < nr_static_blocks { Use::Static } else { Use::Free },
                    nr_free: 0,
                    nr_usable: 0,
                    free: [0; WORDS],
                    #[cfg(feature = "robust")]
                    record: super::robust::Record::new(),
                });
            }
            this
        }
    }

    pub(super) fn memory(&self) -> NonNull<u8> {
        self.memory
    }

    /// Whether the chunk came from a source and nothing of it is in use.
    pub(super) fn is_empty(&self) -> bool {
        self.source.is_some() && self.nr_free_blocks == self.nr_blocks
    }

    /// All blocks.
    #[cfg(feature = "robust")]
    pub(super) fn blocks(&self) -> impl Iterator<Item = NonNull<Block>> {
        (0..self.nr_blocks).map(|index| self.block(index))
    }

    /// How many blocks hold objects or belong to a run.
    #[cfg(any(debug_assertions, feature = "host"))]
    pub(super) fn nr_used_blocks(&self) -> usize {
        let uses = (0..self.nr_blocks).map(|index| {
            // SAFETY: a block of this chunk; the caller holds the lock.
            unsafe { self.block(index).as_ref() }.usage
        });
        uses.filter(|usage| !matches!(usage, Use::Free | Use::Static)).count()
    }

    pub(super) fn contains(&self, handle: NonZeroUsize) -> bool {
        handle.get().wrapping_sub(self.first_handle) < self.unit_bytes
    }

    /// Whether the object at that offset would have handle 0 inside.
    fn covers_zero(&self, offset: usize, size_bytes: usize) -> bool {
        let zero = self.first_handle.wrapping_neg();
        zero.wrapping_sub(offset) < size_bytes
    }

    /// The block at that index, as a pointer that does not borrow the chunk.
    fn block(&self, index: usize) -> NonNull<Block> {
        debug_assert!(index < self.nr_blocks);
        // SAFETY: `create` put that many blocks behind the chunk. From the memory's own pointer, which may reach them.
        unsafe {
            let this = NonNull::from(self);
            let offset = this.addr().get() - self.memory.addr().get() + size_of::<Chunk>();
            self.memory.add(offset).cast::<Block>().add(index)
        }
    }

    /// The block that a handle lies in.
    pub(super) fn block_of(&self, handle: NonZeroUsize) -> NonNull<Block> {
        self.block(handle.get().wrapping_sub(self.first_handle) / BLOCK_BYTES)
    }

    /// The first free block that can hold objects of that class, turned into one.
    pub(super) fn assign_block(&mut self, class: Class) -> Option<NonNull<Block>> {
        let mut skipped = None;
        for index in self.first_free..self.nr_blocks {
            let mut block = self.block(index);
            // SAFETY: a block of this chunk; the caller holds the lock.
            let this = unsafe { block.as_mut() };
            if this.usage != Use::Free {
                continue;
            }
            if this.assign(self, class) {
                self.nr_free_blocks -= 1;
                self.first_free = skipped.unwrap_or(index + 1);
                return Some(block);
            }
            skipped = skipped.or(Some(index));
        }
        self.first_free = skipped.unwrap_or(self.nr_blocks);
        None
    }

    /// Takes a block whose objects are all free back as a free one.
    pub(super) fn release_block(&mut self, block: &mut Block) {
        debug_assert!(block.is_empty());
        block.usage = Use::Free;
        self.nr_free_blocks += 1;
        self.first_free = self.first_free.min(block.first_handle.wrapping_sub(self.first_handle) / BLOCK_BYTES);
    }

    /// The first run of free blocks for an object of that size and alignment, marked as one.
    pub(super) fn allocate_run(&mut self, size_bytes: usize, align_bytes: usize) -> Option<NonZeroUsize> {
        let nr = size_bytes.div_ceil(BLOCK_BYTES);
        let mut start = self.first_free;
        'search: while start + nr <= self.nr_blocks {
            let offset = start * BLOCK_BYTES;
            let handle = self.first_handle.wrapping_add(offset);
            let fits = offset >= self.static_bytes
                && offset + size_bytes <= self.unit_bytes
                && handle & (align_bytes - 1) == 0
                && !self.covers_zero(offset, size_bytes);
            if !fits {
                start += 1;
                continue;
            }
            for index in (start..start + nr).rev() {
                // SAFETY: a block of this chunk; the caller holds the lock.
                if unsafe { self.block(index).as_ref() }.usage != Use::Free {
                    start = index + 1;
                    continue 'search;
                }
            }
            for index in start..start + nr {
                let usage = if index == start { Use::RunHead(nr as u32) } else { Use::RunTail };
                // SAFETY: as above.
                let block = unsafe { self.block(index).as_mut() };
                block.usage = usage;
                #[cfg(feature = "robust")]
                block.record.begin(if index == start { (nr * BLOCK_BYTES).min(self.unit_bytes - offset) } else { 0 });
            }
            self.nr_free_blocks -= nr;
            return NonZeroUsize::new(handle);
        }
        None
    }

    /// Frees a run. `false` if no run of that size begins there.
    pub(super) fn free_run(&mut self, handle: NonZeroUsize, size_bytes: usize) -> bool {
        let offset = handle.get().wrapping_sub(self.first_handle);
        let (start, nr) = (offset / BLOCK_BYTES, size_bytes.div_ceil(BLOCK_BYTES));
        // SAFETY: a block of this chunk; the caller holds the lock.
        let usage = unsafe { self.block(start).as_ref() }.usage;
        if !offset.is_multiple_of(BLOCK_BYTES) || usage != Use::RunHead(nr as u32) {
            return false;
        }
        for index in start..start + nr {
            // SAFETY: as above.
            unsafe { self.block(index).as_mut() }.usage = Use::Free;
        }
        self.nr_free_blocks += nr;
        self.first_free = self.first_free.min(start);
        true
    }

    /// Whether the blocks agree with the chunk, and nothing that is free is dirty.
    #[cfg(any(debug_assertions, feature = "host"))]
    pub(super) fn check(&self) {
        let mut nr_free_blocks = 0;
        let mut index = 0;
        while index < self.nr_blocks {
            // SAFETY: a block of this chunk; the caller holds the lock.
            let block = unsafe { self.block(index).as_ref() };
            block.check(self);
            match block.usage {
                Use::Free => {
                    assert!(index >= self.first_free, "no free block lies before `first_free`");
                    nr_free_blocks += 1;
                }
                Use::RunHead(nr) => {
                    for tail in index + 1..index + nr as usize {
                        // SAFETY: as above.
                        assert_eq!(unsafe { self.block(tail).as_ref() }.usage, Use::RunTail);
                    }
                    index += nr as usize - 1;
                }
                Use::RunTail => panic!("a run's tail without its head"),
                Use::Objects(_) | Use::Static => {}
            }
            index += 1;
        }
        assert_eq!(self.nr_free_blocks, nr_free_blocks, "free blocks are counted");
    }

    /// The pieces of the unit that are free in their blocks, for a check that they are zero.
    #[cfg(any(debug_assertions, feature = "host"))]
    pub(super) fn for_each_free(&self, mut visit: impl FnMut(usize, usize)) {
        for index in 0..self.nr_blocks {
            // SAFETY: a block of this chunk; the caller holds the lock.
            let block = unsafe { self.block(index).as_ref() };
            let start = index * BLOCK_BYTES;
            match block.usage {
                Use::Free => {
                    let from = start.max(self.static_bytes);
                    let end = (start + BLOCK_BYTES).min(self.unit_bytes);
                    if from < end {
                        visit(block.first_handle.wrapping_add(from - start), end - from);
                    }
                }
                Use::Objects(class) => {
                    for object in 0..BLOCK_BYTES / class.bytes() {
                        if block.free[object / 64] >> (object % 64) & 1 == 1 {
                            visit(block.first_handle.wrapping_add(object * class.bytes()), class.bytes());
                        }
                    }
                }
                Use::Static | Use::RunHead(_) | Use::RunTail => {}
            }
        }
    }
}

impl Linked for Block {
    fn links(&mut self) -> (&mut Option<NonNull<Self>>, &mut Option<NonNull<Self>>) {
        (&mut self.previous, &mut self.next)
    }
}

impl Linked for Chunk {
    fn links(&mut self) -> (&mut Option<NonNull<Self>>, &mut Option<NonNull<Self>>) {
        (&mut self.previous, &mut self.next)
    }
}
