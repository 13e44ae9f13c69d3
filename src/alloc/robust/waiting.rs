//! Frees that could not be recorded, because the lock was taken.
//!
//! Each place has a lock of its own, which is only ever tried: whoever finds it taken, in an NMI that interrupted its holder say, goes on to
//! the next place.

use core::sync::atomic::{AtomicUsize, Ordering};

use spin::mutex::SpinMutex;

use super::misuse::{Call, Misuse};
use crate::alloc::central::Central;

/// How many can wait. Each is a free that tried for [`MOMENT_CYCLES`](super::MOMENT_CYCLES), so this is some hundredths of a second of one CPU.
const NR_PLACES: usize = 512;

static PLACES: [SpinMutex<Option<Call>>; NR_PLACES] = [const { SpinMutex::new(None) }; NR_PLACES];

/// How many places are taken, or about to be.
static NR_WAITING: AtomicUsize = AtomicUsize::new(0);

pub(super) fn is_empty() -> bool {
    NR_WAITING.load(Ordering::Relaxed) == 0
}

/// Takes a place for the free of an object that is clean. `false` if there is none.
pub(super) fn push(call: Call) -> bool {
    NR_WAITING.fetch_add(1, Ordering::Relaxed);
    let taken = PLACES.iter().any(|place| {
        let mut place = place.try_lock();
        let free = place.as_deref_mut().filter(|place| place.is_none());
        free.map(|place| *place = Some(call)).is_some()
    });
    if !taken {
        NR_WAITING.fetch_sub(1, Ordering::Relaxed);
    }
    taken
}

/// Empties the places: checks what waits and frees it. At the first misuse it stops, and the rest go on waiting.
pub(super) fn take_in(central: &mut Central) -> Result<(), Misuse> {
    if is_empty() {
        return Ok(());
    }
    PLACES.iter().filter_map(|place| place.try_lock()?.take()).try_for_each(|call| {
        NR_WAITING.fetch_sub(1, Ordering::Relaxed);
        super::free_waiting(central, call)
    })
}
