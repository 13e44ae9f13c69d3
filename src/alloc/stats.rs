//! What the allocator says about itself.

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

use super::class::{Class, NR_CLASSES};
use super::error::AllocError;
use super::magazine::{self, Counts};
use crate::cpu::CpuId;

/// What is known of one size class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub struct ClassStats {
    /// What an object takes on one CPU, in bytes.
    pub object_bytes: u64,
    /// Allocations since the start.
    pub allocated: u64,
    /// Frees since the start.
    pub freed: u64,
    /// Allocations that did not find an object in the CPU's magazine.
    pub misses: u64,
    /// Frees that did not find room in the CPU's magazine.
    pub flushes: u64,
    /// Free objects in magazines, and in trays on the way from one to another.
    pub stocked: u64,
}

impl ClassStats {
    /// Objects in use.
    pub fn live_objects(&self) -> u64 {
        self.allocated.wrapping_sub(self.freed)
    }

    /// Allocations that the CPU's magazine served.
    pub fn hits(&self) -> u64 {
        self.allocated.saturating_sub(self.misses)
    }
}

/// A snapshot of the allocator. Exact when nothing runs meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub struct Stats {
    /// Possible CPUs: what one CPU's bytes are to be multiplied with.
    pub nr_cpus: u64,
    /// Objects in use, large ones included.
    pub live_objects: u64,
    /// What they take on one CPU, in bytes, as their classes round it up.
    pub live_bytes: u64,
    /// Large objects in use: runs of blocks.
    pub live_runs: u64,
    /// What free objects in magazines and trays take on one CPU, in bytes: pinned, since their blocks cannot become free.
    pub pinned_bytes: u64,
    /// What blocks with objects in use or in magazines take on one CPU, in bytes.
    pub populated_bytes: u64,
    /// Chunks, the first one included.
    pub chunks: u64,
    /// Chunks from a source of which nothing is in use.
    pub empty_chunks: u64,
    /// Each size class, the smallest first.
    pub classes: [ClassStats; NR_CLASSES],
    /// Allocations that failed.
    pub failures: FailureStats,
}

/// Allocations that failed, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub struct FailureStats {
    /// The flags forbade to ask the source for a chunk.
    pub chunks_full: u64,
    /// There was no source.
    pub no_source: u64,
    /// The source had no memory.
    pub source_exhausted: u64,
    /// The flags forbade to wait for the lock.
    pub would_wait: u64,
    /// The request made no sense.
    pub bad_request: u64,
}

struct Failures {
    chunks_full: AtomicU64,
    no_source: AtomicU64,
    source_exhausted: AtomicU64,
    would_wait: AtomicU64,
    bad_request: AtomicU64,
}

static FAILURES: Failures = Failures {
    chunks_full: AtomicU64::new(0),
    no_source: AtomicU64::new(0),
    source_exhausted: AtomicU64::new(0),
    would_wait: AtomicU64::new(0),
    bad_request: AtomicU64::new(0),
};

/// Counts a failure and passes it on.
#[cold]
pub(super) fn failed(error: AllocError) -> AllocError {
    let counter = match error {
        AllocError::ChunksFull => &FAILURES.chunks_full,
        AllocError::NoSource => &FAILURES.no_source,
        AllocError::SourceExhausted { .. } => &FAILURES.source_exhausted,
        AllocError::WouldWait => &FAILURES.would_wait,
        _ => &FAILURES.bad_request,
    };
    counter.fetch_add(1, Ordering::Relaxed);
    error
}

/// Completes what the lock guards with what each CPU counted.
pub(super) fn with_magazines(of_central: Stats) -> Stats {
    let mut stats = Stats {
        nr_cpus: CpuId::possible().len() as u64,
        failures: FailureStats {
            chunks_full: FAILURES.chunks_full.load(Ordering::Relaxed),
            no_source: FAILURES.no_source.load(Ordering::Relaxed),
            source_exhausted: FAILURES.source_exhausted.load(Ordering::Relaxed),
            would_wait: FAILURES.would_wait.load(Ordering::Relaxed),
            bad_request: FAILURES.bad_request.load(Ordering::Relaxed),
        },
        ..of_central
    };
    for class in Class::all() {
        let total = CpuId::possible().map(|cpu| magazine::counts_on(class, cpu)).fold(Counts::default(), Counts::plus);
        let of_class = ClassStats {
            object_bytes: class.bytes() as u64,
            allocated: total.allocated,
            freed: total.freed,
            misses: total.misses,
            flushes: total.flushes,
            stocked: stats.classes[class.index()].stocked + total.stocked,
        };
        stats.live_objects = stats.live_objects.wrapping_add(of_class.live_objects());
        stats.live_bytes = stats.live_bytes.wrapping_add(of_class.live_objects().wrapping_mul(of_class.object_bytes));
        stats.pinned_bytes += of_class.stocked * of_class.object_bytes;
        stats.classes[class.index()] = of_class;
    }
    stats
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "per-CPU objects: {} live, {} of them runs; {} B on each of {} CPUs",
            self.live_objects, self.live_runs, self.live_bytes, self.nr_cpus
        )?;
        writeln!(
            f,
            "memory on each CPU: {} B populated, {} B of it pinned by magazines; chunks: {}, of which {} from a source are empty",
            self.populated_bytes, self.pinned_bytes, self.chunks, self.empty_chunks
        )?;
        writeln!(f, "{:>8} {:>10} {:>10} {:>12} {:>10} {:>10}", "size/B", "live", "stocked", "allocated", "misses", "flushes")?;
        for class in self.classes.iter().filter(|class| class.allocated > 0 || class.stocked > 0) {
            writeln!(
                f,
                "{:>8} {:>10} {:>10} {:>12} {:>10} {:>10}",
                class.object_bytes,
                class.live_objects(),
                class.stocked,
                class.allocated,
                class.misses,
                class.flushes
            )?;
        }
        let failures = &self.failures;
        write!(
            f,
            "failures: {} chunks full, {} no source, {} source exhausted, {} would wait, {} bad requests",
            failures.chunks_full, failures.no_source, failures.source_exhausted, failures.would_wait, failures.bad_request
        )
    }
}
