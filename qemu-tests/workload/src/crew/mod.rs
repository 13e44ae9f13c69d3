//! The workers of one round, a CPU each, and what they share.
//!
//! * Each CPU works through a queue of its own, which no other CPU touches: what is measured is the counters, not the queues. A
//!   child that starts on another CPU, or a process that moves there, gets there through that CPU's mailbox.
//! * Everything but the counters comes from pools that each worker fills at its start.
//! * Queue and mailbox of a CPU together hold its share of the live limit at most.
//! * A fork that fails ends nothing: the worker lets what is alive exit, and goes on.
//! * When time is up, no more forks: what is alive runs to its end, so that every counter can be seen at 0.

mod mailbox;
mod meter;
mod process;
mod registry;
mod tally;
mod threads;
mod worker;

pub(crate) use meter::Meter;
pub(crate) use registry::Registry;
pub use tally::Tally;

use crate::memory::Lru;
use crate::space::nonzero;
use crate::strategy::Strategy;
use crate::workloads::Workload;
use alloc::boxed::Box;
use core::fmt;
use core::sync::atomic::AtomicUsize;
use mailbox::Mailbox;
use pcpu::Pinned;
use worker::Worker;

/// The least live limit for one CPU: room for a parent, two children and a mailbox.
pub const MIN_LIVE_PER_CPU: usize = 4;

/// The most processes on their way to one CPU.
const MAX_MAILBOX: usize = 16;

/// Folios for each space that may live, at the smallest order.
const FOLIOS_PER_SPACE: usize = 16;

/// A round's measures.
#[derive(Clone, Copy, Debug)]
pub struct Orders {
    /// What the workers do.
    pub workload: Workload,
    /// The most processes that are alive at any time, on all CPUs together.
    pub live: usize,
    /// The logarithm of how many pages a folio has.
    pub folio_order: u32,
    /// Whether the shares of counters and of the list's lock are timed, which itself takes some time.
    pub shares: bool,
}

/// Why there is no crew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrewError {
    /// The live limit is less than [`MIN_LIVE_PER_CPU`] for each CPU.
    LiveLimitTooSmall,
    /// There is no memory for the counters of the one space that all share.
    NoMemory,
}

impl fmt::Display for CrewError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CrewError::LiveLimitTooSmall => write!(f, "the live limit is less than {MIN_LIVE_PER_CPU} for each CPU"),
            CrewError::NoMemory => f.write_str("no memory for one space's counters"),
        }
    }
}

/// One round of one strategy. Every CPU calls [`work`](Self::work) once, with a seat of its own.
#[derive(Debug)]
pub struct Crew<S: Strategy> {
    orders: Orders,
    lru: Lru,
    mailboxes: Box<[Mailbox<S>]>,
    mailbox_capacity: usize,
    queue_capacity: usize,
    /// Workers that may still put a process into a mailbox.
    senders: AtomicUsize,
    /// All live spaces, for a reader.
    registry: Option<Registry<S>>,
    /// The counters of the one space that all threads run in.
    shared: Option<S>,
}

impl<S: Strategy> Crew<S> {
    /// A crew of `nr_cpus` workers. To be called on a CPU, as everything that makes counters.
    pub fn new(nr_cpus: usize, orders: Orders) -> Result<Self, CrewError> {
        let share = orders.live.checked_div(nr_cpus).unwrap_or(0);
        if share < MIN_LIVE_PER_CPU {
            return Err(CrewError::LiveLimitTooSmall);
        }
        let shared = match orders.workload {
            Workload::Threads => Some(S::new().map_err(|_| CrewError::NoMemory)?),
            _ => None,
        };
        if nr_cpus > 1 {
            shared.iter().for_each(S::share);
        }
        let mailbox_capacity = (share / 4).min(MAX_MAILBOX);
        // A process has two spaces while it is in exec, and a shell's child two more.
        let nr_spaces = share + MIN_LIVE_PER_CPU;
        Ok(Self {
            orders,
            // Live spaces may have a part, and the workers' pools twice as much: there is always one for who needs it.
            lru: Lru::new(3 * nr_cpus * nr_spaces * FOLIOS_PER_SPACE),
            mailboxes: (0..nr_cpus).map(|_| Mailbox::new(mailbox_capacity)).collect(),
            mailbox_capacity,
            queue_capacity: share - mailbox_capacity,
            senders: AtomicUsize::new(nr_cpus),
            registry: (orders.workload == Workload::OomScan).then(|| Registry::new(nr_cpus * nr_spaces)),
            shared,
        })
    }

    /// Works as CPU number `seat` until `time_is_up`, then until nothing is left alive in this seat and nothing can arrive any more.
    ///
    /// # Panics
    /// When `seat` is not below the number of CPUs.
    pub fn work(&self, pin: Pinned<'_>, seat: usize, mut time_is_up: impl FnMut() -> bool) -> Tally {
        match &self.shared {
            Some(counters) => threads::work(counters, pin, self.orders.shares, time_is_up),
            None => Worker::new(self, pin, seat).work(&mut time_is_up),
        }
    }

    /// Ends the round, when all workers have ended: how many counters of what all shared are not at 0, and how many folios are on
    /// the list though no space is left.
    pub fn finish(self) -> (u64, usize) {
        (self.shared.as_ref().map_or(0, nonzero), self.lru.nr_listed())
    }
}
