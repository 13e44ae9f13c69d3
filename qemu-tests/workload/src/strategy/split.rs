//! A cache in each task, as Linux had with `SPLIT_RSS_COUNTING`: page faults are counted in the task, and moved to the space's atomic
//! words every so often.

use super::{Atomic, Strategy};
use crate::lifetime::{Member, Update};
use core::convert::Infallible;
use pcpu::{Pinned, assume_pinned};

/// How many faults a task counts by itself.
pub const EVENTS_PER_FLUSH: u32 = 64;

/// What a task counted and its space does not know yet.
#[derive(Debug, Default)]
pub struct TaskCache {
    pages: [i64; Member::COUNT],
    events: u32,
}

/// A word for each member, behind the tasks' caches.
#[derive(Debug, Default)]
pub struct Split(Atomic);

impl Split {
    fn flush(&self, pin: Pinned<'_>, task: &mut TaskCache) {
        for member in Member::ALL {
            let pages = core::mem::take(&mut task.pages[member.index()]);
            if pages != 0 {
                // SAFETY: atomic words may be added to at any time.
                unsafe { self.0.add(pin, Update { member, pages }) };
            }
        }
        task.events = 0;
    }
}

impl Strategy for Split {
    type Error = Infallible;
    type Task = TaskCache;
    const NAME: &'static str = "split";

    #[inline]
    fn new() -> Result<Self, Infallible> {
        Ok(Self::default())
    }

    #[inline(always)]
    unsafe fn add(&self, pin: Pinned<'_>, update: Update) {
        // SAFETY: the caller's promise.
        unsafe { self.0.add(pin, update) }
    }

    #[inline(always)]
    unsafe fn add_current(&self, pin: Pinned<'_>, task: &mut TaskCache, update: Update) {
        task.pages[update.member.index()] += update.pages;
        task.events += 1;
        if task.events >= EVENTS_PER_FLUSH {
            self.flush(pin, task);
        }
    }

    fn leave(&self, task: &mut TaskCache) {
        // SAFETY: a flush touches nothing that is a CPU's.
        unsafe { assume_pinned(|pin| self.flush(pin, task)) }
    }

    fn read(&self, member: Member) -> i64 {
        self.0.read(member)
    }

    /// For faults of one page each; a fault that maps a file's neighbourhood counts as one.
    fn max_error(&self, _: Member, nr_tasks: usize) -> u64 {
        nr_tasks as u64 * u64::from(EVENTS_PER_FLUSH - 1)
    }

    #[inline]
    fn sums(&self) -> [i64; Member::COUNT] {
        self.0.sums()
    }

    /// Without the tasks' caches.
    fn bytes(&self) -> usize {
        self.0.bytes()
    }

    fn live_objects() -> i64 {
        0
    }
}
