//! The ways in which an address space can keep its counters.

mod atomic;
mod linux_counters;
mod linux_lazy;
mod linux_world;
mod pcpu_counters;
mod sole_user;
mod split;

pub use atomic::Atomic;
pub use linux_counters::{LinuxEach, LinuxGrouped};
pub use linux_lazy::LinuxLazy;
pub use pcpu_counters::{Each, Grouped, Lazy};
pub use sole_user::SoleUser;
pub use split::{EVENTS_PER_FLUSH, Split, TaskCache};

use crate::lifetime::{Member, Update};
use core::fmt::{Debug, Display};
use pcpu::Pinned;

/// One way to keep an address space's counters.
///
/// Whoever updates them is a CPU's only task, and says so by a [`Pinned`] token.
pub trait Strategy: Sized + Send + Sync {
    /// Why counters could not be allocated.
    type Error: Copy + Debug + Display + Send;

    /// What a task carries along for the space that it runs in.
    type Task: Debug + Default + Send;

    /// The strategy's name on command lines and in result rows.
    const NAME: &'static str;

    /// Counters of a new address space, all 0.
    fn new() -> Result<Self, Self::Error>;

    /// Applies one update to a space that is not the caller's current one.
    ///
    /// # Safety
    ///
    /// As long as [`share`](Self::share) was not called, no other update to this space is under way. Reads and sums are allowed.
    unsafe fn add(&self, pin: Pinned<'_>, update: Update);

    /// Applies one update, of a page fault, to the space that `task` runs in.
    ///
    /// # Safety
    ///
    /// As for [`add`](Self::add).
    unsafe fn add_current(&self, pin: Pinned<'_>, _task: &mut Self::Task, update: Update) {
        // SAFETY: the caller's promise.
        unsafe { self.add(pin, update) }
    }

    /// A second thread is about to run in the space. From when this returns, any number of updates may be under way at once.
    fn share(&self) {}

    /// `task` runs in this space no more.
    fn leave(&self, _task: &mut Self::Task) {}

    /// A task is where it may wait for memory, as on its way out of a system call: what had to be put off is done.
    fn settle(&self) {}

    /// A member's value as a reader gets it in passing.
    fn read(&self, member: Member) -> i64;

    /// How far [`read`](Self::read) can be off, with so many tasks in the space.
    fn max_error(&self, member: Member, nr_tasks: usize) -> u64;

    /// The exact value of each member.
    fn sums(&self) -> [i64; Member::COUNT];

    /// Memory that the counters take on all CPUs, in bytes.
    fn bytes(&self) -> usize;

    /// Per-CPU objects in use in the whole system.
    fn live_objects() -> i64;
}
