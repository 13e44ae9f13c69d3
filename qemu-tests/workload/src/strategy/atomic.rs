//! Four atomic words: what Linux had before its conversion to per-CPU counters, and what its reverts go back to.

use super::Strategy;
use crate::lifetime::{Member, Update};
use core::convert::Infallible;
use core::sync::atomic::{AtomicI64, Ordering};
use pcpu::Pinned;

/// A word for each member.
#[derive(Debug, Default)]
pub struct Atomic([AtomicI64; Member::COUNT]);

impl Strategy for Atomic {
    type Error = Infallible;
    type Task = ();
    const NAME: &'static str = "atomic";

    #[inline]
    fn new() -> Result<Self, Infallible> {
        Ok(Self::default())
    }

    #[inline(always)]
    unsafe fn add(&self, _: Pinned<'_>, update: Update) {
        self.0[update.member.index()].fetch_add(update.pages, Ordering::Relaxed);
    }

    fn read(&self, member: Member) -> i64 {
        self.0[member.index()].load(Ordering::Relaxed)
    }

    fn max_error(&self, _: Member, _: usize) -> u64 {
        0
    }

    #[inline]
    fn sums(&self) -> [i64; Member::COUNT] {
        self.0.each_ref().map(|word| word.load(Ordering::Relaxed))
    }

    fn bytes(&self) -> usize {
        size_of::<Self>()
    }

    fn live_objects() -> i64 {
        0
    }
}
