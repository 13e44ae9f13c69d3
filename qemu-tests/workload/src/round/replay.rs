//! What an exec's counters go through, without the processes around them.

use super::Part;
use crate::crew::Tally;
use crate::lifetime::{CHILD_RUN, EXEC_NEW, EXEC_TEARDOWN, EXIT_TEARDOWN, FORK_COPY, PROGRAM_RUN, Update};
use crate::space::nonzero;
use crate::strategy::Strategy;
use core::hint::black_box;
use pcpu::Pinned;

/// Lifetimes between two looks at the clock.
const BURST: u64 = 16;

/// Replays lifetimes until `time_is_up`.
pub(super) fn work<S: Strategy>(pin: Pinned<'_>, part: Part, mut time_is_up: impl FnMut() -> bool) -> Tally {
    let mut tally = Tally::default();
    while !time_is_up() {
        for _ in 0..BURST {
            match lifetime::<S>(pin, part == Part::Counters) {
                Ok(nonzero_counters) => tally.nonzero_counters += nonzero_counters,
                Err(_) => tally.failed_forks += 1,
            }
        }
        tally.lifetimes += BURST;
    }
    tally
}

/// What the counters of one fork, exec and exit go through: [`Part::Counters`] once. Counts those that did not end at 0.
///
/// # Errors
/// There is no memory for counters.
pub fn replay_exec<S: Strategy>(pin: Pinned<'_>) -> Result<u64, S::Error> {
    lifetime::<S>(pin, true)
}

/// Two spaces' counters: those of the copy, and the program's.
fn lifetime<S: Strategy>(pin: Pinned<'_>, updates: bool) -> Result<u64, S::Error> {
    let mut task = S::Task::default();
    let copy = S::new()?;
    let copy = black_box(&copy);
    if updates {
        add(copy, pin, FORK_COPY);
        add_current(copy, pin, &mut task, CHILD_RUN);
    }
    let own = S::new()?;
    let own = black_box(&own);
    if updates {
        add(own, pin, EXEC_NEW);
        copy.leave(&mut task);
        add(copy, pin, EXEC_TEARDOWN);
    }
    let nonzero_of_copy = nonzero(copy);
    if updates {
        add_current(own, pin, &mut task, PROGRAM_RUN);
        own.leave(&mut task);
        add(own, pin, EXIT_TEARDOWN);
    }
    Ok(nonzero_of_copy + nonzero(own))
}

#[inline(always)]
fn add<S: Strategy>(counters: &S, pin: Pinned<'_>, updates: &[Update]) {
    for &update in updates {
        // SAFETY: the counters of `lifetime`, which nobody else knows.
        unsafe { counters.add(pin, update) };
    }
}

#[inline(always)]
fn add_current<S: Strategy>(counters: &S, pin: Pinned<'_>, task: &mut S::Task, updates: &[Update]) {
    for &update in updates {
        // SAFETY: as above.
        unsafe { counters.add_current(pin, task, update) };
    }
}
