//! What workers count.

use core::ops::AddAssign;

/// What a CPU's processes added up to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Operations of the workload: processes that went from fork to exit, execs of a loop, runs of a thread.
    pub lifetimes: u64,
    /// Counters that were not at 0 when their address space was torn down.
    pub nonzero_counters: u64,
    /// Forks and execs that failed for want of memory.
    pub failed_forks: u64,
    /// What did not come from a pool but from the heap.
    pub pool_misses: u64,
    /// The most processes that were alive on this CPU.
    pub peak_live: u64,
    /// What the counters of a sample of spaces took on all CPUs, in bytes, and how many spaces that were.
    pub sampled_bytes: u64,
    /// See `sampled_bytes`.
    pub sampled_spaces: u64,
    /// Spaces that a reader looked at, and those of which it took exact sums.
    pub scanned: u64,
    /// See `scanned`.
    pub exact_sums: u64,
    /// Ticks of the clock that went into counters: made, added to, summed and freed. 0 if that was not timed.
    pub counter_ticks: u64,
    /// Ticks of the clock that went into waiting for the list's lock and holding it.
    pub lru_ticks: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.lifetimes += other.lifetimes;
        self.nonzero_counters += other.nonzero_counters;
        self.failed_forks += other.failed_forks;
        self.pool_misses += other.pool_misses;
        self.peak_live += other.peak_live;
        self.sampled_bytes += other.sampled_bytes;
        self.sampled_spaces += other.sampled_spaces;
        self.scanned += other.scanned;
        self.exact_sums += other.exact_sums;
        self.counter_ticks += other.counter_ticks;
        self.lru_ticks += other.lru_ticks;
    }
}
