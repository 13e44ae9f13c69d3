//! One round: a strategy does a workload for a while, on every CPU of a stage, and says what came of it.

mod drift;
mod replay;

use crate::clock;
use crate::crew::{Crew, Orders, Tally};
use crate::strategy::{Atomic, Each, Grouped, Lazy, LinuxEach, LinuxGrouped, LinuxLazy, SoleUser, Split, Strategy};
use alloc::string::{String, ToString};
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};
use drift::Drift;
use pcpu::{CpuId, Pinned};
pub use replay::replay_exec;
use spin::mutex::SpinMutex;

/// CPUs to work on: a kernel's, or native threads.
pub trait Stage: Sync {
    /// How many CPUs run.
    fn nr_cpus(&self) -> usize;

    /// Whether they are threads of the host's.
    fn is_native(&self) -> bool;

    /// Runs `work` on one CPU.
    fn on_one(&self, work: &mut (dyn FnMut(Pinned<'_>) + Send));

    /// Runs `work` on all CPUs at once, with a number below [`nr_cpus`](Self::nr_cpus) for each.
    fn on_all(&self, work: &(dyn Fn(usize, Pinned<'_>) + Sync));

    /// Runs what is measured of a strategy, on each CPU, for who wants to know.
    fn measure(&self, _strategy: &str, work: &mut dyn FnMut()) {
        work();
    }
}

/// How much of the work is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Processes with spaces, pages and counters.
    Whole,
    /// What an exec's counters go through, and nothing else: made, 59 updates, summed, freed.
    Counters,
    /// The same without the updates.
    Lifecycle,
}

impl Part {
    /// Its name on command lines and in result rows.
    pub const fn name(self) -> &'static str {
        match self {
            Part::Whole => "whole",
            Part::Counters => "counters",
            Part::Lifecycle => "lifecycle",
        }
    }

    /// The part of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Part::Whole, Part::Counters, Part::Lifecycle].into_iter().find(|part| part.name() == name)
    }
}

/// What a round is to do.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The work and its measures.
    pub orders: Orders,
    /// How much of it.
    pub part: Part,
    /// For how long, in seconds.
    pub seconds: f64,
}

/// What a round came to. Displays as a result row: words with values.
#[derive(Clone, Debug)]
pub struct Round {
    strategy: &'static str,
    plan: Plan,
    nr_cpus: usize,
    is_native: bool,
    seconds: f64,
    ticks: u64,
    tally: Tally,
    drift: Drift,
    leaked_objects: i64,
}

impl Round {
    /// Whether every counter ended at zero and nothing leaked. Forks may have failed.
    pub fn is_clean(&self) -> bool {
        self.tally.nonzero_counters == 0 && self.leaked_objects == 0
    }

    /// What the workers counted.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }
}

/// A part of the whole, which may be nothing.
fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (tally, orders) = (&self.tally, &self.plan.orders);
        let cpu_ticks = self.ticks * self.nr_cpus as u64;
        write!(
            f,
            "workload={} part={} strategy={} cpus={} possible_cpus={} native={} live={} folio_order={} shares={}",
            orders.workload,
            self.plan.part.name(),
            self.strategy,
            self.nr_cpus,
            CpuId::possible().len(),
            self.is_native,
            orders.live,
            orders.folio_order,
            orders.shares
        )?;
        write!(
            f,
            " lifetimes={} seconds={} per_second={} nonzero_counters={} leaked_objects={} failed_forks={} pool_misses={}",
            tally.lifetimes,
            self.seconds,
            tally.lifetimes as f64 / self.seconds,
            tally.nonzero_counters,
            self.leaked_objects,
            tally.failed_forks,
            tally.pool_misses
        )?;
        write!(
            f,
            " peak_live={} bytes_per_space={} worst_read_error={} guaranteed_error={} scanned_per_second={} exact_sums_share={}",
            tally.peak_live,
            share(tally.sampled_bytes, tally.sampled_spaces),
            self.drift.worst_read_error,
            self.drift.guaranteed_error,
            tally.scanned as f64 / self.seconds,
            share(tally.exact_sums, tally.scanned)
        )?;
        write!(f, " counter_share={} lru_share={}", share(tally.counter_ticks, cpu_ticks), share(tally.lru_ticks, cpu_ticks))
    }
}

type Run = fn(&dyn Stage, &Plan) -> Result<Round, String>;

/// What can be done with a strategy that is known by its name.
struct Named {
    name: &'static str,
    run: Run,
    replay: Replay,
}

/// What the counters of one fork, exec and exit go through. Gives how many of them did not end at 0, and fails without memory.
pub type Replay = fn(Pinned<'_>) -> Result<u64, String>;

const fn named<S: Strategy>() -> Named {
    Named { name: S::NAME, run: run_one::<S>, replay: |pin| replay_exec::<S>(pin).map_err(|error| error.to_string()) }
}

const NAMED: [Named; 9] = [
    named::<Atomic>(),
    named::<Split>(),
    named::<LinuxEach>(),
    named::<LinuxGrouped>(),
    named::<LinuxLazy>(),
    named::<Each>(),
    named::<Grouped>(),
    named::<Lazy>(),
    named::<SoleUser>(),
];

/// The names of all strategies.
pub const STRATEGIES: [&str; NAMED.len()] = {
    let mut names = [""; NAMED.len()];
    let mut index = 0;
    while index < names.len() {
        names[index] = NAMED[index].name;
        index += 1;
    }
    names
};

/// Runs one round of a strategy.
///
/// # Errors
/// There is no such strategy, or the plan cannot be followed: a line that says why.
pub fn run(strategy: &str, stage: &dyn Stage, plan: &Plan) -> Result<Round, String> {
    match NAMED.iter().find(|named| named.name == strategy) {
        Some(named) => (named.run)(stage, plan),
        None => Err(alloc::format!("there is no strategy `{strategy}`")),
    }
}

/// The replay of the strategy of that name.
pub fn replay_of(strategy: &str) -> Option<Replay> {
    NAMED.iter().find(|named| named.name == strategy).map(|named| named.replay)
}

fn run_one<S: Strategy>(stage: &dyn Stage, plan: &Plan) -> Result<Round, String> {
    let nr_cpus = stage.nr_cpus();
    let mut objects_before = 0;
    let mut crew = None;
    stage.on_one(&mut |_| {
        objects_before = S::live_objects();
        crew = Some(Crew::<S>::new(nr_cpus, plan.orders));
    });
    let crew = crew.expect("a stage runs what it is given").map_err(|error| error.to_string())?;

    let (first_start, last_end) = (AtomicU64::new(u64::MAX), AtomicU64::new(0));
    let total: SpinMutex<Tally> = SpinMutex::new(Tally::default());
    let duration = (plan.seconds * clock::ticks_per_second() as f64) as u64;
    stage.on_all(&|seat, pin| {
        // The clock starts when the worker is ready.
        let mut end = None;
        let time_is_up = || {
            let now = clock::ticks();
            now >= *end.get_or_insert_with(|| {
                first_start.fetch_min(now, Ordering::Relaxed);
                now + duration
            })
        };
        let mut time_is_up = Some(time_is_up);
        let mut tally = Tally::default();
        stage.measure(S::NAME, &mut || {
            let Some(time_is_up) = time_is_up.take() else { return };
            tally = match plan.part {
                Part::Whole => crew.work(pin, seat, time_is_up),
                part => replay::work::<S>(pin, part, time_is_up),
            };
        });
        last_end.fetch_max(clock::ticks(), Ordering::Relaxed);
        *total.lock() += tally;
    });
    let ticks = last_end.into_inner() - first_start.into_inner();

    let mut tally = total.into_inner();
    let drift = drift::measure::<S>(stage);
    let mut leaked_objects = 0;
    let mut crew = Some(crew);
    stage.on_one(&mut |_| {
        let (nonzero_counters, nr_folios) = crew.take().map_or((0, 0), Crew::finish);
        tally.nonzero_counters += nonzero_counters;
        leaked_objects = S::live_objects() - objects_before + nr_folios as i64;
    });
    tally.nonzero_counters += drift.nonzero_counters;
    Ok(Round {
        strategy: S::NAME,
        plan: *plan,
        nr_cpus,
        is_native: stage.is_native(),
        seconds: ticks as f64 / clock::ticks_per_second() as f64,
        ticks,
        tally,
        drift,
        leaked_objects,
    })
}
