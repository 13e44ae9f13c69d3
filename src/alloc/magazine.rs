//! Magazines: each CPU's stock of free objects, in slot cells.
//!
//! A magazine is an array of cells, each 0 or the handle of a free object, and a hint where to look first. Taking is one unlocked
//! compare-exchange of the handle with 0, putting one of 0 with the handle.
//!
//! # Why it is right
//!
//! A handle is in at most one place in the world. If a compare-exchange finds the handle in the cell, the object is free there, and
//! taking it is right, on whatever CPU and however often it went away and came back in between; so an interrupt, an NMI or a migration
//! at any instruction is harmless. The hint only says where a search begins: a wrong one costs a miss, at worst.
//!
//! # Invariants
//!
//! * A cell is changed by its own CPU only, through GS; another CPU touches it only while the owner executes nothing at all.
//! * `1 <= capacity <= CELLS`; cells beyond the capacity may hold handles, and are found by a search.

use core::num::NonZeroUsize;
use core::sync::atomic::{AtomicUsize, Ordering};

use super::class::{Class, NR_CLASSES};
use crate::cpu::CpuId;
use crate::handle::Handle;
use crate::var::Var;

/// Cells of a magazine. With them a refill or flush of half a magazine takes the lock once in 16 operations.
pub(super) const CELLS: usize = 32;

/// What a magazine's objects may pin on all possible CPUs together, in bytes, so that stocks of large objects stay short on large
/// machines.
const MAX_PINNED_BYTES: usize = 1 << 20;

/// What a magazine starts with; each miss doubles it.
const FIRST_CAPACITY: usize = 8;

#[repr(C)]
pub(super) struct Magazine {
    /// The cell after the last one that was filled: where to put next; the one below is where to take next.
    hint: usize,
    /// How many cells are in use; 0 until the first miss.
    capacity: usize,
    /// Objects that were taken, put or given to somebody by other means, on this CPU, since the start.
    allocated: u64,
    freed: u64,
    misses: u64,
    flushes: u64,
    cells: [usize; CELLS],
}

const EMPTY: Magazine = Magazine { hint: 0, capacity: 0, allocated: 0, freed: 0, misses: 0, flushes: 0, cells: [0; CELLS] };

crate::per_cpu! {
    static MAGAZINES: [Magazine; NR_CLASSES] = [EMPTY; NR_CLASSES];
}

/// This CPU's magazine of a class, whichever CPU that is at each instruction.
#[derive(Clone, Copy)]
pub(super) struct ThisCpu(usize);

/// A magazine's counts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) allocated: u64,
    pub(super) freed: u64,
    pub(super) misses: u64,
    pub(super) flushes: u64,
    pub(super) stocked: u64,
}

impl Counts {
    pub(super) fn plus(self, other: Counts) -> Counts {
        Counts {
            allocated: self.allocated.wrapping_add(other.allocated),
            freed: self.freed.wrapping_add(other.freed),
            misses: self.misses + other.misses,
            flushes: self.flushes + other.flushes,
            stocked: self.stocked + other.stocked,
        }
    }
}

macro_rules! magazine_field {
    ($this:ident, $field:ident) => {
        crate::field!($this.var() => Magazine, $field)
    };
}

impl ThisCpu {
    #[inline(always)]
    pub(super) fn of(class: Class) -> Self {
        ThisCpu(MAGAZINES.template_address() + class.index() * size_of::<Magazine>())
    }

    #[inline(always)]
    fn var(&self) -> &Var<Handle<Magazine>> {
        // SAFETY: `Var<Handle<_>>` is transparent over a non-zero address; a magazine of the static array lies there on every CPU.
        unsafe { &*(&raw const self.0).cast() }
    }

    #[inline(always)]
    fn cell(&self, index: usize) -> Var<Handle<usize>> {
        debug_assert!(index < CELLS);
        let address = self.0 + core::mem::offset_of!(Magazine, cells) + index * size_of::<usize>();
        // SAFETY: `index` is a cell's; statics lie above address 0.
        Var::new(unsafe { Handle::new(NonZeroUsize::new_unchecked(address)) })
    }

    /// Takes the object under the hint, if there is one and nobody changes the cell meanwhile.
    #[inline(always)]
    fn take_under_hint(self) -> Option<NonZeroUsize> {
        let index = magazine_field!(self, hint).get().wrapping_sub(1);
        if index >= CELLS {
            return None;
        }
        let cell = self.cell(index);
        let handle = NonZeroUsize::new(cell.get())?;
        if cell.compare_exchange(handle.get(), 0).is_err() {
            return None;
        }
        magazine_field!(self, hint).set(index);
        Some(handle)
    }

    /// Puts a free object under the hint, if there is room and nobody changes the cell meanwhile.
    #[inline(always)]
    fn put_under_hint(self, handle: NonZeroUsize) -> bool {
        let index = magazine_field!(self, hint).get();
        if index >= magazine_field!(self, capacity).get() || self.cell(index).compare_exchange(0, handle.get()).is_err() {
            return false;
        }
        magazine_field!(self, hint).set(index + 1);
        true
    }

    /// Takes an object for a user: the hit path.
    #[inline(always)]
    pub(super) fn take(self) -> Option<NonZeroUsize> {
        let handle = self.take_under_hint()?;
        magazine_field!(self, allocated).inc();
        Some(handle)
    }

    /// Puts an object that a user freed: the hit path. `false` if there is no room under the hint.
    #[inline(always)]
    pub(super) fn put(self, handle: NonZeroUsize) -> bool {
        let put = self.put_under_hint(handle);
        if put {
            magazine_field!(self, freed).inc();
        }
        put
    }

    /// Takes an object wherever there is one: the hint may be wrong. Does not count.
    pub(super) fn unstock(self) -> Option<NonZeroUsize> {
        self.take_under_hint().or_else(|| {
            (0..CELLS).rev().find_map(|index| {
                let cell = self.cell(index);
                let handle = NonZeroUsize::new(cell.get())?;
                cell.compare_exchange(handle.get(), 0).ok()?;
                magazine_field!(self, hint).set(index);
                Some(handle)
            })
        })
    }

    /// Puts a free object wherever there is room: the hint may be wrong. Does not count.
    pub(super) fn stock(self, handle: NonZeroUsize) -> bool {
        self.put_under_hint(handle)
            || (0..self.capacity()).any(|index| {
                let cell = self.cell(index);
                let put = cell.get() == 0 && cell.compare_exchange(0, handle.get()).is_ok();
                if put {
                    magazine_field!(self, hint).set(index + 1);
                }
                put
            })
    }

    /// Counts an object that was given to a user by other means than `take`.
    pub(super) fn count_allocated(self) {
        magazine_field!(self, allocated).inc();
    }

    /// Counts an object that a user gave back by other means than `put`.
    pub(super) fn count_freed(self) {
        magazine_field!(self, freed).inc();
    }

    /// Counts a refill and makes the magazine longer.
    pub(super) fn count_miss(self, class: Class, nr_possible: usize) {
        magazine_field!(self, misses).inc();
        self.lengthen(class, nr_possible);
    }

    /// Counts a flush and makes the magazine longer.
    pub(super) fn count_flush(self, class: Class, nr_possible: usize) {
        magazine_field!(self, flushes).inc();
        self.lengthen(class, nr_possible);
    }

    fn lengthen(self, class: Class, nr_possible: usize) {
        let capacity = magazine_field!(self, capacity).get();
        let longer = (2 * capacity).max(FIRST_CAPACITY).min(max_capacity(class, nr_possible));
        if longer > capacity {
            magazine_field!(self, capacity).set(longer);
        }
    }

    /// Makes room for at least `nr` objects.
    pub(super) fn reserve(self, nr: usize) {
        if magazine_field!(self, capacity).get() < nr {
            magazine_field!(self, capacity).set(nr.min(CELLS));
        }
    }

    /// How many cells are in use.
    pub(super) fn capacity(self) -> usize {
        magazine_field!(self, capacity).get().min(CELLS)
    }

    /// How many objects are there.
    pub(super) fn stocked(self) -> usize {
        (0..CELLS).filter(|&index| self.cell(index).get() != 0).count()
    }
}

/// The longest that a class's magazines get.
fn max_capacity(class: Class, nr_possible: usize) -> usize {
    (MAX_PINNED_BYTES / (class.bytes() * nr_possible)).clamp(2, CELLS)
}

fn on(class: Class, cpu: CpuId) -> *mut Magazine {
    MAGAZINES.ptr_on(cpu).cast::<Magazine>().wrapping_add(class.index())
}

/// Takes an object from an offline CPU's magazine.
///
/// # Safety
///
/// `cpu` executes nothing, and what it executed last happened before this.
pub(super) unsafe fn take_from_offline(class: Class, cpu: CpuId) -> Option<NonZeroUsize> {
    (0..CELLS).find_map(|index| {
        // SAFETY: a cell of a possible CPU; its owner does not run, so atomics of its size are all that touches it.
        let cell = unsafe { AtomicUsize::from_ptr(&raw mut (*on(class, cpu)).cells[index]) };
        NonZeroUsize::new(cell.swap(0, Ordering::AcqRel))
    })
}

/// The counts of a CPU's magazine of a class, as a racing reader sees them.
pub(super) fn counts_on(class: Class, cpu: CpuId) -> Counts {
    let magazine = on(class, cpu);
    let load = |word: *mut u64| {
        // SAFETY: a word of a possible CPU's magazine; its owner writes it with single instructions.
        unsafe { core::sync::atomic::AtomicU64::from_ptr(word) }.load(Ordering::Relaxed)
    };
    // SAFETY: field addresses of a possible CPU's magazine.
    unsafe {
        Counts {
            allocated: load(&raw mut (*magazine).allocated),
            freed: load(&raw mut (*magazine).freed),
            misses: load(&raw mut (*magazine).misses),
            flushes: load(&raw mut (*magazine).flushes),
            stocked: (0..CELLS).filter(|&index| load((&raw mut (*magazine).cells[index]).cast()) != 0).count() as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn magazines_of_large_objects_on_large_machines_are_short() {
        assert_eq!(max_capacity(Class::of(8, 8).unwrap(), 2), CELLS);
        assert_eq!(max_capacity(Class::of(64, 8).unwrap(), 256), CELLS);
        assert_eq!(max_capacity(Class::of(2048, 8).unwrap(), 64), 8);
        assert_eq!(max_capacity(Class::of(2048, 8).unwrap(), 4096), 2);
    }
}
