//! Predictions for one and two threads beside what was measured.

use super::counts::Counts;
use super::measure::{Measured, operation, strategies};
use super::model::{Costs, predict};
use crate::bench_rows;
use anyhow::{Context, Result};
use serde::Serialize;

/// A prediction that is no further from the measurement than this part of it is close.
pub const CLOSE: f64 = 0.25;

/// As many predictions on two threads should be close.
pub const WANTED: usize = 8;

/// An operation that both the bench times and the plugin counts.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    /// The bench's name for it on one thread, from which its cost is taken.
    pub one_thread: &'static str,
    /// On two.
    pub two_threads: &'static str,
    /// The name of what is counted.
    pub counted: &'static str,
}

const fn same(name: &'static str) -> Operation {
    Operation { one_thread: name, two_threads: name, counted: name }
}

/// What is compared. All adds leave the shared words alone, which is what the bench does too.
pub const OPERATIONS: [Operation; 15] = [
    same("static_add"),
    Operation { one_thread: "atomic_add_shared", two_threads: "atomic_add_shared", counted: "atomic_add" },
    Operation { one_thread: "atomic_add", two_threads: "atomic_add", counted: "sharded_atomic_add" },
    same("event_add"),
    same("counter_add"),
    same("counter_add_pinned"),
    same("set4_add"),
    same("set4_add_pinned"),
    same("lazy4_add_inline"),
    same("lazy4_add_promoted"),
    same("limit_add"),
    same("alloc_free/16"),
    Operation { one_thread: "alloc_free/16", two_threads: "alloc_here_free_there/16", counted: "alloc_here_free_there/16" },
    same("set4_new_drop"),
    Operation { one_thread: "linux_like_alloc_free/16", two_threads: "linux_like_alloc_free/16", counted: "linux_like_alloc_free" },
];

/// A prediction and a measurement. Times are of one execution on each thread.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Check {
    pub op: String,
    pub threads: u32,
    /// How often a line changes hands in it.
    pub transfers_per_op: f64,
    /// `ns`, or `gs_adds`: additions through GS that were timed in the same round.
    pub unit: &'static str,
    pub predicted: f64,
    pub measured: f64,
    /// The prediction's, as a part of the measurement.
    pub error: f64,
}

impl Check {
    fn new(op: String, threads: u32, unit: &'static str, costs: Costs, counts: &Counts, measured: f64) -> Self {
        let predicted = predict(threads, costs, counts).time;
        Self { op, threads, transfers_per_op: counts.transfers, unit, predicted, measured, error: predicted / measured - 1.0 }
    }

    /// Whether the prediction is good.
    pub fn is_close(&self) -> bool {
        self.error.abs() <= CLOSE
    }
}

/// All comparisons, those of single operations first.
pub fn checks(measured: &Measured, is_native: bool) -> Result<Vec<Check>> {
    let mut checks = Vec::new();
    let [costs, compared] = &measured.bench;
    let transfer = measured.line_transfer()?.ratio_to_gs_add;
    for operation in &OPERATIONS {
        let one_thread = row(costs, operation.one_thread, 1)?.ratio_to_gs_add;
        let counts = |threads| {
            let counts = measured.growths.get(operation.counted).and_then(|growth| growth.at(threads));
            counts.with_context(|| format!("`{}` was not counted on {threads} CPUs", operation.counted))
        };
        let costs = Costs { one_thread, instruction: one_thread / counts(1)?.instructions, transfer };
        for (threads, name) in [(1, operation.one_thread), (2, operation.two_threads)] {
            // The cost of one operation may be that of two predictions.
            if checks.iter().all(|check: &Check| (check.op.as_str(), check.threads) != (name, threads)) {
                let of = row(compared, name, threads)?.ratio_to_gs_add;
                checks.push(Check::new(name.to_owned(), threads, "gs_adds", costs, &counts(threads)?, of));
            }
        }
    }
    let transfer = measured.line_transfer_ns()?;
    for strategy in strategies() {
        for threads in [1, 2] {
            // A kernel's CPUs are no threads of this machine's.
            let Some(of) = measured.threads_ns(&strategy, threads).filter(|_| is_native) else { continue };
            let one_thread = measured.one_thread_ns(&strategy, threads).context("a strategy was not measured on one thread")?;
            let instruction = measured.instruction_ns(&strategy).context("a strategy was not counted on one CPU")?;
            let counts = measured.counts(&strategy, threads).context("a strategy was not counted")?;
            checks.push(Check::new(operation(&strategy), threads, "ns", Costs { one_thread, instruction, transfer }, &counts, of));
        }
    }
    Ok(checks)
}

fn row<'a>(rows: &'a [bench_rows::Row], name: &str, threads: u32) -> Result<&'a bench_rows::Row> {
    let row = rows.iter().find(|row| row.name == name && row.threads == threads);
    row.with_context(|| format!("the bench did not time `{name}` on {threads} threads"))
}

/// How many predictions for two threads are close, and, if those are too few, why that may be.
pub fn verdict(checks: &[Check], is_busy: bool) -> String {
    let two: Vec<_> = checks.iter().filter(|check| check.threads == 2).collect();
    let (close, far): (Vec<&Check>, Vec<&Check>) = two.iter().partition(|check| check.is_close());
    let percent = CLOSE * 100.0;
    let mut text = format!("{} of {} predictions for two threads are within {percent:.0} % of the measurement", close.len(), two.len());
    if !far.is_empty() {
        let names: Vec<_> = far.iter().map(|check| check.op.as_str()).collect();
        text += &format!("; not: {}", names.join(", "));
    }
    let one_thread_error = checks.iter().filter(|check| check.threads == 1).map(|check| check.error.abs()).fold(0.0, f64::max);
    text += &format!(". Two measurements of the same on one thread are up to {:.0} % apart", one_thread_error * 100.0);
    let is_noisy = is_busy || one_thread_error > CLOSE;
    if close.len() < WANTED && !is_noisy {
        text += ". These are too few, for other reasons than a busy machine: this processor overlaps transfers, or its cores keep a line for \
                 longer than one operation";
    }
    if is_noisy {
        text += ". The machine was not idle: throughputs of several threads, and errors of their predictions, are not to be trusted";
    }
    text + "."
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn check(op: &str, threads: u32, predicted: f64, measured: f64) -> Check {
        Check { op: op.into(), threads, transfers_per_op: 0.0, unit: "ns", predicted, measured, error: predicted / measured - 1.0 }
    }

    #[test]
    fn an_error_is_a_part_of_what_was_measured() {
        let counts = Counts { instructions: 1.0, transfers: 1.0, hottest_line: 1.0, locks: Vec::new() };
        let costs = Costs { one_thread: 2.0, instruction: 2.0, transfer: 10.0 };
        let check = Check::new("a".into(), 2, "ns", costs, &counts, 16.0);
        assert_eq!((check.predicted, check.error, check.is_close()), (20.0, 0.25, true));
        assert!(!Check::new("a".into(), 2, "ns", costs, &counts, 15.0).is_close());
    }

    #[test]
    fn the_verdict_counts_predictions_for_two_threads_and_names_the_others() {
        let good = ["a", "b", "c", "d", "e", "f", "g", "h"].map(|op| check(op, 2, 10.0, 9.0));
        let text = verdict(&[&good[..], &[check("far", 2, 10.0, 5.0), check("a", 1, 10.0, 10.0)]].concat(), false);
        assert!(text.starts_with("8 of 9 predictions") && text.contains("not: far"), "{text}");
        assert!(!text.contains("too few") && !text.contains("not idle"), "{text}");
    }

    #[test]
    fn too_few_close_predictions_have_a_reason() {
        let noisy = verdict(&[check("a", 2, 10.0, 9.0), check("a", 1, 10.0, 5.0)], false);
        assert!(noisy.contains("not idle") && !noisy.contains("too few"), "{noisy}");
        let quiet = [check("a", 2, 10.0, 9.0), check("a", 1, 10.0, 10.0)];
        assert!(verdict(&quiet, false).contains("too few") && !verdict(&quiet, false).contains("not idle"));
        assert!(verdict(&quiet, true).contains("not idle"));
    }
}
