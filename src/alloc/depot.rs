//! Stocks on their way from CPUs that free to CPUs that allocate, guarded by the lock.
//!
//! Without them, an object that is allocated here and freed there goes through its block's bitmap twice, so that lines of many blocks go from CPU to
//! CPU. A *tray* is half a magazine in two lines. Each CPU has some for each class, in its area; who frees too much leaves one full, and who needs
//! objects empties the one that was left last. Where that is stands in the lock's own line.
//!
//! It is the depot of "Magazines and Vmem". Handles are copied, and not magazines exchanged, since a magazine's cells are its CPU's for ever.
//!
//! # Invariants
//!
//! * A tray is on its class's list iff it has handles; they are of free objects of that class, which are nowhere else.
//! * Trays are read and written under the lock only, also another CPU's, and whether that is online or not.

use core::num::NonZeroUsize;
use core::ops::Range;

use super::class::{Class, NR_CLASSES};
use crate::cpu::CpuId;

/// What fits into two lines.
const NR_HANDLES: usize = 15;

/// The classes that may be handed over in numbers, up to 128 B: of each, a CPU can leave two magazines' worth.
const NR_SMALL_CLASSES: usize = 5;
const NR_SMALL_TRAYS: usize = 4;

/// All trays of a CPU: one of each larger class.
const NR_TRAYS: usize = NR_SMALL_CLASSES * NR_SMALL_TRAYS + NR_CLASSES - NR_SMALL_CLASSES;

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Tray {
    next: Link,
    nr: u32,
    handles: [usize; NR_HANDLES],
}

/// A tray's number among all CPUs' and one, or 0 for none.
#[derive(Clone, Copy, Default)]
struct Link(u32);

impl Link {
    fn to(cpu: CpuId, index: usize) -> Self {
        Link((cpu.index() * NR_TRAYS + index) as u32 + 1)
    }

    fn tray(self) -> Option<*mut Tray> {
        let number = self.0.checked_sub(1)?;
        Some(tray_of(CpuId::new(number / NR_TRAYS as u32)?, number as usize % NR_TRAYS))
    }
}

crate::per_cpu! {
    static TRAYS: [Tray; NR_TRAYS] = [Tray { next: Link(0), nr: 0, handles: [0; NR_HANDLES] }; NR_TRAYS];
}

fn tray_of(cpu: CpuId, index: usize) -> *mut Tray {
    TRAYS.ptr_on(cpu).cast::<Tray>().wrapping_add(index)
}

/// Which of a CPU's trays are a class's.
fn trays_of(class: Class) -> Range<usize> {
    let nr_small = class.index().min(NR_SMALL_CLASSES);
    let start = nr_small * NR_SMALL_TRAYS + class.index() - nr_small;
    start..start + if class.index() < NR_SMALL_CLASSES { NR_SMALL_TRAYS } else { 1 }
}

/// The full trays of each class.
pub(super) struct Depot([Link; NR_CLASSES]);

impl Depot {
    pub(super) const fn new() -> Self {
        Depot([Link(0); NR_CLASSES])
    }

    /// Fills an empty tray of this CPU's with what `next` gives. `false` if there is none, or `next` gave nothing. The caller stays on its CPU.
    pub(super) fn fill(&mut self, class: Class, mut next: impl FnMut() -> Option<NonZeroUsize>) -> bool {
        let cpu = CpuId::current();
        // SAFETY: trays of a possible CPU; `&mut self` comes from the lock, which guards them.
        let Some(index) = trays_of(class).find(|&index| unsafe { (*tray_of(cpu, index)).nr } == 0) else { return false };
        // SAFETY: as above, and `next` knows nothing of it.
        let tray = unsafe { &mut *tray_of(cpu, index) };
        for cell in &mut tray.handles {
            let Some(handle) = next() else { break };
            *cell = handle.get();
            tray.nr += 1;
        }
        if tray.nr == 0 {
            return false;
        }
        tray.next = core::mem::replace(&mut self.0[class.index()], Link::to(cpu, index));
        true
    }

    /// What is in the tray that was filled last, if there is one. It counts as empty from now on: the caller reads it before it fills one, and before
    /// it lets the lock go.
    pub(super) fn empty(&mut self, class: Class) -> Option<impl Iterator<Item = NonZeroUsize> + use<>> {
        let first = &mut self.0[class.index()];
        let tray = first.tray()?;
        // SAFETY: a tray of a possible CPU; `&mut self` comes from the lock, which guards it.
        let nr = unsafe {
            *first = (*tray).next;
            core::mem::take(&mut (*tray).nr)
        };
        // SAFETY: as above, for as long as the caller has the lock.
        Some((0..nr as usize).filter_map(move |index| NonZeroUsize::new(unsafe { (*tray).handles[index] })))
    }

    /// How many objects of a class are in trays.
    pub(super) fn stocked(&self, class: Class) -> u64 {
        let mut nr = 0;
        let mut link = self.0[class.index()];
        while let Some(tray) = link.tray() {
            // SAFETY: a tray of a possible CPU; `&self` comes from the lock, which guards it.
            let tray = unsafe { &*tray };
            nr += u64::from(tray.nr);
            link = tray.next;
        }
        nr
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tray_is_of_one_class() {
        let mut next = 0;
        for class in Class::all() {
            let trays = trays_of(class);
            assert_eq!(trays.start, next);
            assert_eq!(trays.len(), if class.bytes() <= 128 { 4 } else { 1 });
            next = trays.end;
        }
        assert_eq!(next, NR_TRAYS);
        assert_eq!(size_of::<Tray>(), 128);
    }

    #[test]
    fn what_an_exchange_needs_of_the_depot_is_in_the_locks_line() {
        assert!(size_of::<usize>() + size_of::<Depot>() + size_of::<usize>() <= 64);
    }
}
