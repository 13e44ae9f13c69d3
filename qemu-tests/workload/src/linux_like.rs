//! The allocator to compare with: one that works as Linux's does (mm/percpu.c in version 6.12), written from a description of its
//! algorithm.
//!
//! * A mutex covers a whole allocation up to the zeroing, and a spin lock the index; a free takes the spin lock alone.
//! * A chunk's memory is a bitmap of 4 B granules. A first-fit search is shortened by hints for each 4 KiB block and for the chunk, and
//!   chunks are filed by their longest free run, so that the fullest one that may do is tried first.
//! * A second bitmap has the boundaries of objects, so that a free needs only the address.
//! * An allocation clears the copies of all possible CPUs, with no lock held.
//! * A unit is a power of two, so all copies of an object fall into one set of the cache.
//! * Of the empty chunks one is kept.
//!
//! What is left out costs Linux time, so the comparison is in its favour: the interrupt flag, the mapping and unmapping of single pages,
//! accounting, and deferred work. Both locks spin. Not for interrupt context.

mod bitmap;
mod chunk;
mod hints;
mod index;
#[cfg(test)]
mod tests;

use crate::limit::ChunkLimit;
use chunk::{Chunk, GRANULE_BYTES};
use core::ptr::NonNull;
use index::Index;
use spin::mutex::SpinMutex;

/// The smallest unit, and the largest object.
const MIN_UNIT_BYTES: usize = 32 << 10;

/// The largest alignment: a page.
const MAX_ALIGN_BYTES: usize = 4096;

/// An instance of the allocator, for a number of possible CPUs.
#[derive(Debug)]
pub struct LinuxLike {
    nr_possible_cpus: usize,
    unit_bytes: usize,
    limit: Option<&'static ChunkLimit>,
    /// Held by an allocation while it searches and while it makes a chunk.
    allocation: SpinMutex<()>,
    index: SpinMutex<Index>,
}

impl LinuxLike {
    /// An allocator without chunks, whose units have that size, rounded up to a power of two and to 32 KiB. Chunks are taken from the heap.
    ///
    /// # Panics
    /// If the units of a chunk are larger than the address space.
    pub fn new(nr_possible_cpus: usize, unit_bytes: usize) -> Self {
        let unit_bytes = unit_bytes.max(MIN_UNIT_BYTES).next_power_of_two();
        assert!(nr_possible_cpus.checked_mul(unit_bytes).is_some_and(|bytes| bytes <= isize::MAX as usize / 2), "a chunk is too large");
        let index = SpinMutex::new(Index::new(unit_bytes));
        Self { nr_possible_cpus, unit_bytes, limit: None, allocation: SpinMutex::new(()), index }
    }

    /// The same with a limit on its chunks.
    #[must_use]
    pub fn limited(self, limit: &'static ChunkLimit) -> Self {
        Self { limit: Some(limit), ..self }
    }

    /// Allocates an object, zero on every possible CPU, and returns the address of CPU 0's copy. `None` if there is no memory, or for a
    /// size of 0 or above 32 KiB, or an alignment that is no power of two or above 4 KiB. O(possible CPUs).
    pub fn allocate(&self, size_bytes: usize, align_bytes: usize) -> Option<NonNull<u8>> {
        if size_bytes == 0 || size_bytes > MIN_UNIT_BYTES || !align_bytes.is_power_of_two() || align_bytes > MAX_ALIGN_BYTES {
            return None;
        }
        let (nr, align) = (size_bytes.div_ceil(GRANULE_BYTES), align_bytes.div_ceil(GRANULE_BYTES));
        let object = {
            let _alone = self.allocation.lock();
            loop {
                if let Some(object) = self.index.lock().take(nr, align) {
                    break object;
                }
                let make = || Chunk::new(self.nr_possible_cpus, self.unit_bytes);
                let chunk = self.limit.map_or_else(make, |limit| limit.make(make))?;
                self.index.lock().insert(chunk);
            }
        };
        for cpu in 0..self.nr_possible_cpus {
            // SAFETY: the object was free, so its copies are nobody else's.
            unsafe { self.copy_on(object, cpu).write_bytes(0, size_bytes) };
        }
        Some(object)
    }

    /// Frees an object.
    ///
    /// # Safety
    /// It came from this instance, is freed once, and nobody uses it any more.
    pub unsafe fn free(&self, object: NonNull<u8>) {
        // SAFETY: the caller's promise.
        let id = unsafe { chunk::id_of(object, self.nr_possible_cpus, self.unit_bytes) };
        let offset_bytes = object.addr().get() & (self.unit_bytes - 1);
        let surplus = self.index.lock().give_back(id, offset_bytes / GRANULE_BYTES);
        // Back to the heap when the lock is released.
        if surplus.is_some()
            && let Some(limit) = self.limit
        {
            limit.give_back();
        }
    }

    /// The address of a CPU's copy of an object of this instance.
    ///
    /// # Panics
    /// If there is no such CPU.
    pub fn copy_on(&self, object: NonNull<u8>, cpu: usize) -> NonNull<u8> {
        assert!(cpu < self.nr_possible_cpus, "CPU {cpu} of {}", self.nr_possible_cpus);
        // SAFETY: the chunk has a unit for each possible CPU, one behind the other.
        unsafe { object.add(cpu * self.unit_bytes) }
    }

    /// How many chunks there are.
    pub fn nr_chunks(&self) -> usize {
        self.index.lock().nr_chunks()
    }
}
