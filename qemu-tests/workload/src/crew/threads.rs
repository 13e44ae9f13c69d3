//! Threads of one process, one on each CPU, which all update the counters of its one space.

use super::{Meter, Tally};
use crate::lifetime::THREAD_RUN;
use crate::strategy::Strategy;
use pcpu::Pinned;

/// Runs as one thread until `time_is_up`.
pub(super) fn work<S: Strategy>(counters: &S, pin: Pinned<'_>, shares: bool, mut time_is_up: impl FnMut() -> bool) -> Tally {
    let mut tally = Tally { sampled_spaces: 1, peak_live: 1, ..Tally::default() };
    let mut meter = Meter::new(shares);
    while !time_is_up() {
        let mut task = S::Task::default();
        meter.counters(|| {
            for &update in THREAD_RUN {
                // SAFETY: shared, if there is another thread.
                unsafe { counters.add_current(pin, &mut task, update) };
            }
            counters.leave(&mut task);
            counters.settle();
        });
        tally.lifetimes += 1;
    }
    tally.sampled_bytes = counters.bytes() as u64;
    tally.counter_ticks = meter.counter_ticks;
    tally
}
