//! How long single execs' counters take, when threads lose their cores at any point.

use crate::threads::Threads;
use anyhow::{Context, Error, Result, bail};
use hdrhistogram::Histogram;
use std::fmt;
use std::sync::{Mutex, OnceLock, PoisonError};
use workload::{Stage, clock, replay_of};

/// Of the time that is measured, what goes by before: chunks are made and threads get going.
const WARM_UP: f64 = 0.25;

/// The longest time that the histogram tells from longer ones, in nanoseconds: ten minutes.
const LONGEST_NS: u64 = 600_000_000_000;

/// An exec that takes longer has lost its core, or waited for one that had, in nanoseconds.
const STALL_NS: u64 = 1_000_000;

/// Decimal digits that the histogram keeps of a time.
const DIGITS: u8 = 2;

/// Points of the curve from one to the next halving of what is above.
const POINTS_PER_HALVING: u32 = 2;

/// The times of a strategy's execs. Displays as words with values.
#[derive(Debug)]
pub struct Latency {
    strategy: String,
    threads: usize,
    seconds: f64,
    /// In nanoseconds.
    times: Histogram<u64>,
    nonzero_counters: u64,
}

/// What one thread saw.
struct Seen {
    times: Histogram<u64>,
    nonzero_counters: u64,
}

/// All threads replay execs for `seconds`, and each is timed, by the wall clock: a time in which the thread had no core counts.
pub fn measure(strategy: &str, stage: &Threads, seconds: f64) -> Result<Latency> {
    let replay = replay_of(strategy).with_context(|| format!("there is no strategy `{strategy}`"))?;
    let per_second = clock::ticks_per_second() as f64;
    let start = OnceLock::new();
    let all: Mutex<Vec<Result<Seen, String>>> = Mutex::default();
    stage.on_all(&|_, pin| {
        let start: u64 = *start.get_or_init(|| clock::ticks() + (WARM_UP * seconds * per_second) as u64);
        let end = start + (seconds * per_second) as u64;
        let work = || {
            let mut seen = Seen { times: histogram().map_err(|error| error.to_string())?, nonzero_counters: 0 };
            loop {
                let before = clock::ticks();
                seen.nonzero_counters += replay(pin)?;
                let after = clock::ticks();
                if before >= start {
                    seen.times.saturating_record(((after - before) as f64 / per_second * 1e9) as u64);
                }
                if after >= end {
                    return Ok(seen);
                }
            }
        };
        let seen = work();
        all.lock().unwrap_or_else(PoisonError::into_inner).push(seen);
    });
    let mut total = Latency { strategy: strategy.to_owned(), threads: stage.nr_cpus(), seconds, times: histogram()?, nonzero_counters: 0 };
    for seen in all.into_inner().unwrap_or_else(PoisonError::into_inner) {
        let seen = seen.map_err(Error::msg)?;
        total.times.add(&seen.times).context("times cannot be added up")?;
        total.nonzero_counters += seen.nonzero_counters;
    }
    if total.times.is_empty() {
        bail!("no exec of `{strategy}` began in {seconds} s");
    }
    Ok(total)
}

fn histogram() -> Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, LONGEST_NS, DIGITS).context("no histogram")
}

impl Latency {
    /// Whether every counter ended at zero.
    pub fn is_clean(&self) -> bool {
        self.nonzero_counters == 0
    }
}

impl fmt::Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let times = &self.times;
        write!(f, "strategy={} workload=exec part=counters threads={} seconds={}", self.strategy, self.threads, self.seconds)?;
        write!(f, " lifetimes={} nonzero_counters={}", times.len(), self.nonzero_counters)?;
        for (key, quantile) in [("p50_ns", 0.5), ("p99_ns", 0.99), ("p999_ns", 0.999)] {
            write!(f, " {key}={}", times.value_at_quantile(quantile))?;
        }
        write!(f, " stalls_over_1ms={} max_ns={} curve=", times.count_between(STALL_NS, LONGEST_NS), times.max())?;
        let mut last = None;
        for value in times.iter_quantiles(POINTS_PER_HALVING) {
            // Quantiles of one step of the histogram are one point.
            if last != Some(value.value_iterated_to()) {
                let separator = if last.is_none() { "" } else { "," };
                write!(f, "{separator}{:.8}:{}", value.quantile(), value.value_iterated_to())?;
            }
            last = Some(value.value_iterated_to());
        }
        Ok(())
    }
}
