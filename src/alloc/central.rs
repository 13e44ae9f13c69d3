//! What is behind the lock: all chunks, and the blocks that have free objects.
//!
//! # Invariants
//!
//! * A block is on its class's list iff it is of that class and has free objects. So a refill looks at one block, however many full ones
//!   there are, and holes are filled before a free block is taken, and free blocks before a chunk is added.
//! * A chunk is on the list iff it has free blocks; empty ones come last.
//! * Every chunk is in the directory.

use core::cmp::Ordering;
use core::num::NonZeroUsize;
use core::ptr::NonNull;

use super::chunk::{BLOCK_BYTES, Block, Chunk};
use super::class::{Class, NR_CLASSES};
use super::depot::Depot;
use super::directory::Directory;
use super::list::List;
use super::magazine::ThisCpu;
use super::overflow::Overflow;
use super::source::Source;
use super::stats::Stats;
use crate::area;
use crate::cpu::CpuId;

/// Objects that were freed while somebody held the lock; taken in by whoever holds it next.
pub(super) struct Overflows {
    pub(super) classes: [Overflow; NR_CLASSES],
    pub(super) runs: Overflow,
}

pub(super) static OVERFLOWS: Overflows = Overflows { classes: [const { Overflow::new() }; NR_CLASSES], runs: Overflow::new() };

/// What an exchange needs lies first, in the lock's line.
#[repr(C)]
pub(super) struct Central {
    pub(super) depot: Depot,
    nr_empty_chunks: usize,
    source: Option<&'static dyn Source>,
    partial: [List<Block>; NR_CLASSES],
    chunks: List<Chunk>,
    directory: Directory,
    nr_chunks: usize,
    nr_used_blocks: usize,
    nr_runs: u64,
    run_bytes: u64,
}

// SAFETY: the chunks it points to are its own.
unsafe impl Send for Central {}

/// Empty chunks that are on no list any more, for their sources to have once the lock is released.
#[must_use]
pub(super) struct Released(List<Chunk>);

impl Released {
    /// Gives the chunks back. Not under the lock.
    pub(super) fn give_back(self) {
        let Some(layout) = area::layout() else { return };
        for chunk in self.0.iter() {
            // SAFETY: the chunk is this list's alone.
            let (source, memory) = unsafe { (chunk.as_ref().source, chunk.as_ref().memory()) };
            if let Some(source) = source {
                // SAFETY: it came from there, with that layout; nothing of it is in use.
                unsafe { source.release(memory, &layout) };
            }
        }
    }
}

impl Central {
    pub(super) const fn new() -> Self {
        Central {
            depot: Depot::new(),
            nr_empty_chunks: 0,
            source: None,
            partial: [const { List::new() }; NR_CLASSES],
            chunks: List::new(),
            directory: Directory::new(),
            nr_chunks: 0,
            nr_used_blocks: 0,
            nr_runs: 0,
            run_bytes: 0,
        }
    }

    /// What the lock guards of a snapshot.
    pub(super) fn stats(&self) -> Stats {
        let mut stats = Stats {
            live_objects: self.nr_runs,
            live_bytes: self.run_bytes,
            live_runs: self.nr_runs,
            populated_bytes: (self.nr_used_blocks * BLOCK_BYTES) as u64,
            chunks: self.nr_chunks as u64,
            empty_chunks: self.nr_empty_chunks as u64,
            ..Stats::default()
        };
        for class in Class::all() {
            stats.classes[class.index()].stocked = self.depot.stocked(class);
        }
        stats
    }

    pub(super) fn source(&self) -> Option<&'static dyn Source> {
        self.source
    }

    pub(super) fn set_source(&mut self, source: &'static dyn Source) {
        self.source = Some(source);
    }

    /// Takes a new chunk in.
    ///
    /// # Safety
    /// It is valid and nobody else's.
    pub(super) unsafe fn insert(&mut self, chunk: NonNull<Chunk>) {
        // SAFETY: the chunk is ours from now on; no reference to any is held.
        unsafe {
            self.directory.insert(chunk);
            if chunk.as_ref().nr_free_blocks > 0 {
                self.chunks.push_last(chunk);
            }
            self.nr_empty_chunks += usize::from(chunk.as_ref().is_empty());
        }
        self.nr_chunks += 1;
    }

    /// Keeps the list of chunks in order when blocks of one on it were taken: empty ones come last, full ones are not on it.
    fn chunk_lost_free(&mut self, chunk: NonNull<Chunk>, was_empty: bool) {
        // SAFETY: chunks are ours; no reference to this one is held.
        let is_full = unsafe { chunk.as_ref() }.nr_free_blocks == 0;
        // SAFETY: it is on the list; no reference is held.
        unsafe {
            if was_empty || is_full {
                self.chunks.remove(chunk);
            }
            // Not every request fits every empty chunk, so it may have stood behind others that stay empty.
            if was_empty && !is_full {
                self.chunks.push_first(chunk);
            }
        }
        self.nr_empty_chunks -= usize::from(was_empty);
    }

    /// A block of that class with free objects.
    fn block_with_free(&mut self, class: Class) -> Option<NonNull<Block>> {
        if let Some(block) = self.partial[class.index()].first() {
            return Some(block);
        }
        for mut chunk in self.chunks.iter() {
            // SAFETY: chunks on the list are ours; no other reference to this one is held.
            let this = unsafe { chunk.as_mut() };
            let was_empty = this.is_empty();
            let Some(block) = this.assign_block(class) else { continue };
            self.chunk_lost_free(chunk, was_empty);
            self.nr_used_blocks += 1;
            // SAFETY: the block is ours and on no list; no reference to it is held.
            unsafe { self.partial[class.index()].push_first(block) };
            return Some(block);
        }
        None
    }

    /// Takes an object for the caller, and what else is in a tray for its magazine, which `make_room` makes longer.
    pub(super) fn exchange(&mut self, class: Class, magazine: ThisCpu, make_room: impl FnOnce()) -> Option<NonZeroUsize> {
        let mut handles = self.depot.empty(class)?;
        make_room();
        let taken = handles.next();
        for handle in handles {
            if !magazine.stock(handle) {
                self.put_freed(class, handle);
            }
        }
        taken
    }

    /// Gives what is in trays back to its blocks. `false` if there was none.
    pub(super) fn empty_depot(&mut self) -> bool {
        let mut was_stocked = false;
        for class in Class::all() {
            while let Some(handles) = self.depot.empty(class) {
                handles.for_each(|handle| self.put_freed(class, handle));
                was_stocked = true;
            }
        }
        was_stocked
    }

    /// Takes an object for the caller, and up to `nr_stock` more of the same word for its magazine; asks for that number if there are
    /// free objects at all.
    pub(super) fn refill(&mut self, class: Class, magazine: ThisCpu, nr_stock: impl FnOnce() -> usize) -> Option<NonZeroUsize> {
        let mut taken = None;
        let mut block = self.block_with_free(class)?;
        let nr_stock = nr_stock();
        // SAFETY: a block on a list is ours; no other reference to it is held.
        let this = unsafe { block.as_mut() };
        this.take_word(class, nr_stock + 1, |handle| match taken {
            None => {
                taken = Some(handle);
                true
            }
            Some(_) => magazine.stock(handle),
        });
        if this.nr_free == 0 {
            // SAFETY: it is on the list as long as it has free objects; no reference is held.
            unsafe { self.partial[class.index()].remove(block) };
        }
        taken
    }

    fn chunk_of(&mut self, handle: NonZeroUsize) -> Option<NonNull<Chunk>> {
        let address = handle.get().wrapping_add(area::delta(CpuId::BOOT));
        self.directory.find(|chunk| if chunk.contains(handle) { Ordering::Equal } else { address.cmp(&chunk.memory().addr().get()) })
    }

    /// Keeps the list of chunks in order when a chunk got free blocks.
    fn chunk_got_free(&mut self, mut chunk: NonNull<Chunk>, nr_before: usize) {
        // SAFETY: chunks are ours; no other reference to this one is held.
        let is_empty = unsafe { chunk.as_mut() }.is_empty();
        // SAFETY: it was on the list iff it had free blocks; no reference is held.
        unsafe {
            if is_empty {
                if nr_before > 0 {
                    self.chunks.remove(chunk);
                }
                self.chunks.push_last(chunk);
                self.nr_empty_chunks += 1;
            } else if nr_before == 0 {
                self.chunks.push_first(chunk);
            }
        }
    }

    /// Gives an object back to its block. `false` if it is none of ours, or free already.
    pub(super) fn put(&mut self, class: Class, handle: NonZeroUsize) -> bool {
        let Some(mut chunk) = self.chunk_of(handle) else { return false };
        // SAFETY: chunks are ours.
        let mut block = unsafe { chunk.as_ref() }.block_of(handle);
        // SAFETY: so are their blocks; no other reference to this one is held.
        let this = unsafe { block.as_mut() };
        let nr_before = this.nr_free;
        if !this.put(class, handle) {
            return false;
        }
        let is_empty = this.is_empty();
        // SAFETY: a block is on the list iff it has free objects; no reference is held.
        unsafe {
            match (nr_before > 0, is_empty) {
                (false, false) => self.partial[class.index()].push_first(block),
                (true, true) => self.partial[class.index()].remove(block),
                _ => {}
            }
        }
        if is_empty {
            // SAFETY: chunk and block are ours and apart; no other reference to them is held.
            let nr_before = unsafe {
                let chunk = chunk.as_mut();
                let nr_before = chunk.nr_free_blocks;
                chunk.release_block(block.as_mut());
                nr_before
            };
            self.nr_used_blocks -= 1;
            self.chunk_got_free(chunk, nr_before);
        }
        true
    }

    /// A large object.
    pub(super) fn allocate_run(&mut self, size_bytes: usize, align_bytes: usize) -> Option<NonZeroUsize> {
        for mut chunk in self.chunks.iter() {
            // SAFETY: chunks on the list are ours; no other reference to this one is held.
            let this = unsafe { chunk.as_mut() };
            let (was_empty, nr_before) = (this.is_empty(), this.nr_free_blocks);
            let Some(handle) = this.allocate_run(size_bytes, align_bytes) else { continue };
            self.nr_used_blocks += nr_before - this.nr_free_blocks;
            self.chunk_lost_free(chunk, was_empty);
            self.nr_runs += 1;
            self.run_bytes += size_bytes as u64;
            return Some(handle);
        }
        None
    }

    /// Frees a large object. `false` if it is none.
    pub(super) fn free_run(&mut self, handle: NonZeroUsize, size_bytes: usize) -> bool {
        let Some(mut chunk) = self.chunk_of(handle) else { return false };
        // SAFETY: chunks are ours; no other reference to this one is held.
        let this = unsafe { chunk.as_mut() };
        let nr_before = this.nr_free_blocks;
        if !this.free_run(handle, size_bytes) {
            return false;
        }
        self.nr_used_blocks -= this.nr_free_blocks - nr_before;
        self.nr_runs -= 1;
        self.run_bytes -= size_bytes as u64;
        self.chunk_got_free(chunk, nr_before);
        true
    }

    /// Takes in what was freed while somebody held the lock.
    pub(super) fn take_overflows(&mut self) {
        for class in Class::all() {
            let overflow = &OVERFLOWS.classes[class.index()];
            if !overflow.is_empty() {
                overflow.take_all(|handle| self.put_freed(class, handle));
            }
        }
        if !OVERFLOWS.runs.is_empty() {
            OVERFLOWS.runs.take_all_sized(|handle, size_bytes| self.free_run_freed(handle, size_bytes));
        }
    }

    /// `put` for what a caller promised to be an object of that class.
    pub(super) fn put_freed(&mut self, class: Class, handle: NonZeroUsize) {
        let put = self.put(class, handle);
        debug_assert!(put, "freed twice, with another size, or never allocated: {handle:#x} of {} B", class.bytes());
    }

    /// `free_run` for what a caller promised to be one.
    pub(super) fn free_run_freed(&mut self, handle: NonZeroUsize, size_bytes: usize) {
        let freed = self.free_run(handle, size_bytes);
        debug_assert!(freed, "freed twice, with another size, or never allocated: {handle:#x} of {size_bytes} B");
    }

    /// Takes empty chunks out, all but `nr_kept`.
    pub(super) fn take_empty(&mut self, nr_kept: usize) -> Released {
        let mut released = List::new();
        while self.nr_empty_chunks > nr_kept {
            let Some(chunk) = self.chunks.last() else { break };
            // SAFETY: chunks are ours.
            if !unsafe { chunk.as_ref() }.is_empty() {
                debug_assert!(false, "empty chunks come last");
                break;
            }
            // SAFETY: no reference to a chunk is held, and nothing of this one is in use.
            unsafe {
                self.chunks.remove(chunk);
                self.directory.remove(chunk);
                released.push_first(chunk);
            }
            self.nr_empty_chunks -= 1;
            self.nr_chunks -= 1;
        }
        Released(released)
    }

    /// Calls `f` with the block that a handle lies in, if it lies in a chunk.
    #[cfg(feature = "robust")]
    pub(super) fn with_block_of<R>(&mut self, handle: NonZeroUsize, f: impl FnOnce(&mut Block) -> R) -> Option<R> {
        // SAFETY: chunks are ours, and so are their blocks; no other reference to this one is held.
        unsafe { Some(f(self.chunk_of(handle)?.as_ref().block_of(handle).as_mut())) }
    }

    /// Calls `visit` with every block.
    #[cfg(feature = "robust")]
    pub(super) fn for_each_block(&self, mut visit: impl FnMut(&Block)) {
        // SAFETY: as in `with_block_of`.
        self.directory.for_each(&mut |chunk| chunk.blocks().for_each(|block| visit(unsafe { block.as_ref() })));
    }

    /// Walks over everything and panics where an invariant does not hold.
    #[cfg(any(debug_assertions, feature = "host"))]
    pub(super) fn check(&self) {
        let (mut nr_chunks, mut nr_empty, mut nr_with_free, mut nr_used) = (0, 0, 0, 0);
        let mut last_address = 0;
        self.directory.for_each(&mut |chunk| {
            let address = chunk.memory().addr().get();
            assert!(address > last_address, "chunks do not overlap and are in order");
            last_address = address;
            chunk.check();
            nr_chunks += 1;
            nr_empty += usize::from(chunk.is_empty());
            nr_with_free += usize::from(chunk.nr_free_blocks > 0);
            nr_used += chunk.nr_used_blocks();
            chunk.for_each_free(|handle, size_bytes| {
                for cpu in CpuId::possible() {
                    let copy = core::ptr::with_exposed_provenance::<u8>(handle.wrapping_add(area::delta(cpu)));
                    // SAFETY: free memory of a chunk of ours.
                    let bytes = unsafe { core::slice::from_raw_parts(copy, size_bytes) };
                    assert!(bytes.iter().all(|&byte| byte == 0), "what is free is zero on every CPU: {handle:#x} on {cpu:?}");
                }
            });
        });
        assert_eq!((self.nr_chunks, self.nr_empty_chunks, self.nr_used_blocks), (nr_chunks, nr_empty, nr_used));
        let mut seen_empty = false;
        let mut nr_listed = 0;
        for chunk in self.chunks.iter() {
            // SAFETY: chunks on the list are ours.
            let chunk = unsafe { chunk.as_ref() };
            assert!(chunk.nr_free_blocks > 0 && (chunk.is_empty() || !seen_empty), "empty chunks come last");
            seen_empty |= chunk.is_empty();
            nr_listed += 1;
        }
        assert_eq!(nr_listed, nr_with_free, "chunks with free blocks are listed");
        for class in Class::all() {
            for block in self.partial[class.index()].iter() {
                // SAFETY: blocks on a list are ours.
                let block = unsafe { block.as_ref() };
                assert!(block.usage == super::chunk::Use::Objects(class) && block.nr_free > 0);
            }
        }
    }
}
