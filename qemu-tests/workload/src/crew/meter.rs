//! Where a worker's time goes.

use crate::clock;

/// Adds up the time of what is wrapped in it, if it is on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meter {
    is_on: bool,
    pub(crate) counter_ticks: u64,
    pub(crate) lru_ticks: u64,
}

impl Meter {
    pub(crate) fn new(is_on: bool) -> Self {
        Meter { is_on, counter_ticks: 0, lru_ticks: 0 }
    }

    #[inline(always)]
    pub(crate) fn counters<R>(&mut self, work: impl FnOnce() -> R) -> R {
        timed(self.is_on, &mut self.counter_ticks, work)
    }

    #[inline(always)]
    pub(crate) fn lru_lock<R>(&mut self, work: impl FnOnce() -> R) -> R {
        timed(self.is_on, &mut self.lru_ticks, work)
    }
}

#[inline(always)]
fn timed<R>(is_on: bool, total: &mut u64, work: impl FnOnce() -> R) -> R {
    if !is_on {
        return work();
    }
    let start = clock::ticks();
    let result = work();
    *total += clock::ticks() - start;
    result
}
