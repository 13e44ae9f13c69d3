//! One chunk: a bitmap of the granules of its unit, kept behind the units.
//!
//! # Invariants
//!
//! * A granule's bit is set iff it belongs to a live object, to the static variables, or would have handle 0.
//! * Every byte of a granule whose bit is clear is zero on every CPU.
//! * `nr_free` is the number of clear bits.

use core::num::NonZeroUsize;
use core::ptr::{self, NonNull};
use core::slice;

use crate::area::AreaLayout;

/// The smallest piece that is handed out, and the smallest alignment.
pub(super) const GRANULE_BYTES: usize = 8;

const WORD_BITS: usize = u64::BITS as usize;

const fn nr_words(unit_bytes: usize) -> usize {
    (unit_bytes / GRANULE_BYTES).div_ceil(WORD_BITS)
}

/// What a chunk needs behind its units, in bytes.
pub(crate) const fn metadata_bytes(unit_bytes: usize) -> usize {
    size_of::<Chunk>() + nr_words(unit_bytes) * size_of::<u64>()
}

pub(super) struct Chunk {
    /// The next chunk of the allocator's list.
    pub(super) next: Option<NonNull<Chunk>>,
    /// Where the source's memory begins.
    memory: NonNull<u8>,
    /// The handle of an object at the unit's start.
    first_handle: usize,
    nr_granules: usize,
    pub(super) nr_free: usize,
    /// `nr_free` when no object is live.
    nr_free_when_empty: usize,
}

impl Chunk {
    /// Makes a chunk of `memory`, whose units are all zero, but for `static_bytes` at their start.
    ///
    /// # Safety
    ///
    /// `memory` is laid out by `layout`, and nobody else uses what lies behind the units.
    pub(super) unsafe fn create(memory: NonNull<u8>, layout: &AreaLayout, first_delta: usize, static_bytes: usize) -> NonNull<Chunk> {
        let nr_granules = layout.unit_bytes() / GRANULE_BYTES;
        let first_handle = (memory.as_ptr() as usize).wrapping_sub(first_delta);
        // SAFETY: the layout keeps `metadata_bytes` behind the units; the units' size is a multiple of a line.
        unsafe {
            let chunk = memory.add(layout.units_bytes()).cast::<Chunk>();
            chunk.write(Chunk { next: None, memory, first_handle, nr_granules, nr_free: nr_granules, nr_free_when_empty: 0 });
            ptr::write_bytes(chunk.add(1).cast::<u64>().as_ptr(), 0, nr_words(layout.unit_bytes()));
            let this = &mut *chunk.as_ptr();
            this.mark(0, static_bytes.div_ceil(GRANULE_BYTES));
            // Handle 0 must be free to mean "none"; in a far chunk it may fall on a granule.
            let zero = first_handle.wrapping_neg();
            if zero < layout.unit_bytes() && zero >= static_bytes {
                this.mark(zero / GRANULE_BYTES, 1);
            }
            this.nr_free_when_empty = this.nr_free;
            chunk
        }
    }

    fn words(&mut self) -> &mut [u64] {
        // SAFETY: `create` put that many words behind the chunk, and `&mut self` is alone.
        unsafe { slice::from_raw_parts_mut((&raw mut *self).add(1).cast(), self.nr_granules.div_ceil(WORD_BITS)) }
    }

    pub(super) fn memory(&self) -> NonNull<u8> {
        self.memory
    }

    pub(super) fn is_empty(&self) -> bool {
        self.nr_free == self.nr_free_when_empty
    }

    pub(super) fn contains(&self, handle: NonZeroUsize) -> bool {
        handle.get().wrapping_sub(self.first_handle) < self.nr_granules * GRANULE_BYTES
    }

    /// The first free granule at or after `from`, or the end.
    fn next_free(&mut self, from: usize) -> usize {
        let nr_granules = self.nr_granules;
        let words = self.words();
        let mut index = from;
        while index < nr_granules {
            let free = !words[index / WORD_BITS] >> (index % WORD_BITS);
            if free != 0 {
                return (index + free.trailing_zeros() as usize).min(nr_granules);
            }
            index = (index / WORD_BITS + 1) * WORD_BITS;
        }
        nr_granules
    }

    /// The first granule in use at or after `from` and before `end`, or `end`.
    fn next_used(&mut self, from: usize, end: usize) -> usize {
        let words = self.words();
        let mut index = from;
        while index < end {
            let used = words[index / WORD_BITS] >> (index % WORD_BITS);
            if used != 0 {
                return (index + used.trailing_zeros() as usize).min(end);
            }
            index = (index / WORD_BITS + 1) * WORD_BITS;
        }
        end
    }

    /// Sets the bits of a run that is clear.
    fn mark(&mut self, start: usize, nr: usize) {
        for index in start..start + nr {
            debug_assert!(self.words()[index / WORD_BITS] >> (index % WORD_BITS) & 1 == 0);
            self.words()[index / WORD_BITS] |= 1 << (index % WORD_BITS);
        }
        self.nr_free -= nr;
    }

    /// First fit: the lowest run of that size whose handle has that alignment.
    pub(super) fn allocate(&mut self, size_bytes: usize, align_bytes: usize) -> Option<NonZeroUsize> {
        let nr = size_bytes.div_ceil(GRANULE_BYTES);
        if self.nr_free < nr {
            return None;
        }
        let mut start = 0;
        loop {
            start = self.next_free(start);
            let handle = self.first_handle.wrapping_add(start * GRANULE_BYTES);
            let padding = handle.wrapping_neg() & (align_bytes.max(GRANULE_BYTES) - 1);
            start += padding / GRANULE_BYTES;
            if start.checked_add(nr)? > self.nr_granules {
                return None;
            }
            let used = self.next_used(start, start + nr);
            if used == start + nr {
                self.mark(start, nr);
                return NonZeroUsize::new(self.first_handle.wrapping_add(start * GRANULE_BYTES));
            }
            start = used;
        }
    }

    /// Clears an object's bits.
    pub(super) fn free(&mut self, handle: NonZeroUsize, size_bytes: usize) {
        let start = handle.get().wrapping_sub(self.first_handle) / GRANULE_BYTES;
        let nr = size_bytes.div_ceil(GRANULE_BYTES);
        for index in start..start + nr {
            debug_assert!(self.words()[index / WORD_BITS] >> (index % WORD_BITS) & 1 == 1, "freed twice, or with another size");
            self.words()[index / WORD_BITS] &= !(1 << (index % WORD_BITS));
        }
        self.nr_free += nr;
    }
}
