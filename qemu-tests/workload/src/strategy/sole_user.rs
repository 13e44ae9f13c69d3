//! Lazy counters of a kernel that knows how many threads a process has: plain words for one thread, per-CPU slots from the second on.

use super::Strategy;
use super::pcpu_counters::{live_objects, set_bytes};
use crate::lifetime::{Member, Update};
use core::convert::Infallible;
use core::sync::atomic::{AtomicBool, Ordering};
use pcpu::{AllocFlags, Batch, Explicit, LazyCounterSet, Pinned};

/// A lazy set and whether there is a second thread.
#[derive(Debug)]
pub struct SoleUser {
    counters: LazyCounterSet<{ Member::COUNT }, Explicit>,
    is_shared: AtomicBool,
}

impl Strategy for SoleUser {
    type Error = Infallible;
    type Task = ();
    const NAME: &'static str = "sole-user";

    #[inline]
    fn new() -> Result<Self, Infallible> {
        Ok(Self { counters: LazyCounterSet::with([0; Member::COUNT], Batch::DEFAULT, Explicit), is_shared: AtomicBool::new(false) })
    }

    #[inline(always)]
    unsafe fn add(&self, pin: Pinned<'_>, update: Update) {
        let index = update.member.index();
        // Relaxed: who runs in the space because of `share` began after it.
        if self.is_shared.load(Ordering::Relaxed) {
            self.counters.add_pinned(pin, index, update.pages);
        } else {
            // SAFETY: not shared, so that no other update is under way: the caller's promise.
            unsafe { self.counters.add_sole_user(index, update.pages) };
        }
    }

    fn share(&self) {
        // Without memory the words stay inline, and adds to them become atomic.
        let _ = self.counters.promote(AllocFlags::PROCESS);
        self.is_shared.store(true, Ordering::Relaxed);
    }

    fn read(&self, member: Member) -> i64 {
        self.counters.read(member.index())
    }

    fn max_error(&self, member: Member, _: usize) -> u64 {
        self.counters.max_error(member.index())
    }

    #[inline]
    fn sums(&self) -> [i64; Member::COUNT] {
        self.counters.sum_all()
    }

    fn bytes(&self) -> usize {
        size_of::<Self>() + if self.counters.is_promoted() { set_bytes() } else { 0 }
    }

    fn live_objects() -> i64 {
        live_objects()
    }
}
