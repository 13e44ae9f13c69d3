//! Rounds: in each, every case has its turn.

use crate::case::{Case, Combine, Operations};
use crate::message::{Message, Row};
use crate::turn::{Meeting, Sample, Turn};
use core::sync::atomic::{AtomicUsize, Ordering};
use core_affinity::CoreId;
use pcpu::PerCpuBox;
use pcpu::host::Machine;
use std::sync::{Barrier, Mutex, PoisonError};

/// Nanoseconds that the operations which are timed at once take, about.
const WINDOW_NS: f64 = 200_000.0;

/// Operations that are timed at once before it is known how long they take.
const FIRST_OPERATIONS: usize = 16;

/// Turns from one line about the progress to the next.
const PROGRESS_STEPS: usize = 64;

/// How often each case is measured. A case whose turns are long has fewer.
struct Plan {
    calibrated: usize,
    fixed: usize,
    /// Of a fixed one's baseline, which takes longer still.
    fixed_baseline: usize,
}

const FULL: Plan = Plan { calibrated: 61, fixed: 31, fixed_baseline: 3 };
const QUICK: Plan = Plan { calibrated: 5, fixed: 1, fixed_baseline: 1 };

impl Plan {
    fn rounds(&self, case: &Case) -> usize {
        match case.operations {
            Operations::Calibrated => self.calibrated,
            Operations::Fixed => self.fixed,
        }
    }

    fn has_baseline(&self, case: &Case, round: usize) -> bool {
        match case.operations {
            Operations::Calibrated => true,
            Operations::Fixed => round < self.fixed_baseline,
        }
    }
}

/// All that was measured for one row, round by round.
#[derive(Default)]
struct Series {
    ns: Vec<f64>,
    ratios: Vec<f64>,
}

/// A row's series and its baseline's.
type Pair = [Series; 2];

/// Where the threads of all cases take their turns.
struct Floor<'a> {
    cases: &'a [Case],
    /// For each case, of the measurement and of its baseline.
    nr_operations: Vec<[AtomicUsize; 2]>,
    /// Begins and ends turns of all threads. Here a thread sleeps while the others have their turns.
    door: Barrier,
    meeting: Meeting,
    /// What the threads measured in this turn.
    samples: Mutex<Vec<Vec<Sample>>>,
    word: &'a PerCpuBox<u64>,
}

impl Floor<'_> {
    fn nr_operations(&self, index: usize, of_baseline: bool) -> &AtomicUsize {
        &self.nr_operations[index][usize::from(of_baseline)]
    }

    /// A case's turn on each of its threads: a sample for each row, all threads' together on the first one.
    fn turn(&self, thread: usize, index: usize, of_baseline: bool) -> Option<Vec<Sample>> {
        let case = &self.cases[index];
        let measure = if of_baseline { case.baseline.as_ref()? } else { &case.measure };
        if thread >= case.threads {
            return None;
        }
        let wait = || {
            if case.threads > 1 {
                self.door.wait();
            }
        };
        let samples = || self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        wait();
        let nr_operations = self.nr_operations(index, of_baseline).load(Ordering::Relaxed);
        let measured = measure(&Turn { thread, nr_threads: case.threads, nr_operations, meeting: &self.meeting, word: self.word });
        samples().push(measured);
        wait();
        (thread == 0).then(|| {
            let threads = core::mem::take(&mut *samples());
            let combined = (0..threads[0].len()).map(|row| Sample {
                ns: case.combine.values(threads.iter().map(|samples| samples[row].ns)),
                gs_add_ns: Combine::Same.values(threads.iter().map(|samples| samples[row].gs_add_ns)),
            });
            combined.collect()
        })
    }

    /// Finds out how many operations are to be timed at once. The first time is also the first touch of much that is cold.
    fn calibrate(&self, thread: usize) {
        for (index, case) in self.cases.iter().enumerate() {
            if let Operations::Fixed = case.operations {
                continue;
            }
            for of_baseline in [false, true] {
                for _ in 0..2 {
                    if let Some(samples) = self.turn(thread, index, of_baseline) {
                        let nr = (WINDOW_NS / samples[0].ns).clamp(FIRST_OPERATIONS as f64, WINDOW_NS);
                        self.nr_operations(index, of_baseline).store(nr as usize, Ordering::Relaxed);
                    }
                }
            }
        }
    }

    /// All rounds, as one of the threads sees them. The first thread has the results.
    fn rounds(&self, thread: usize, plan: &Plan) -> Vec<Vec<Pair>> {
        let mut series: Vec<Vec<_>> = self.cases.iter().map(|case| case.rows.iter().map(|_| Pair::default()).collect()).collect();
        let total = self.cases.iter().map(|case| plan.rounds(case)).sum();
        let mut done = 0;
        for round in 0..plan.calibrated.max(plan.fixed) {
            for (index, case) in self.cases.iter().enumerate().filter(|(_, case)| round < plan.rounds(case)) {
                if thread == 0 && (done % PROGRESS_STEPS == 0 || matches!(case.operations, Operations::Fixed)) {
                    Message::Progress { done, total, label: &case.rows[0] }.print();
                }
                done += 1;
                let samples = self.turn(thread, index, false);
                let baseline = if plan.has_baseline(case, round) { self.turn(thread, index, true) } else { None };
                for (which, samples) in [samples, baseline].into_iter().enumerate() {
                    for (row, sample) in samples.into_iter().flatten().enumerate() {
                        series[index][row][which].push(sample);
                    }
                }
            }
        }
        series
    }
}

impl Series {
    fn push(&mut self, sample: Sample) {
        self.ns.push(sample.ns);
        self.ratios.push(sample.ns / sample.gs_add_ns);
    }

    /// The row, or `None` if nothing was measured.
    fn row(&self, name: &str, threads: usize, baseline: Option<&Series>) -> Option<Row> {
        let ns = best(&self.ns)?;
        let baseline_ns = baseline.and_then(|baseline| best(&baseline.ns));
        Some(Row {
            name: name.to_owned(),
            threads,
            possible_cpus: pcpu::CpuId::possible().len(),
            ns,
            median_ns: median(&self.ns)?,
            ratio_to_gs_add: median(&self.ratios)?,
            baseline_ns,
            speedup: baseline_ns.map(|baseline_ns| baseline_ns / ns),
        })
    }
}

/// Runs all cases and returns their rows.
pub fn run(machine: &Machine, cores: &[CoreId], cases: &[Case], quick: bool) -> Vec<Row> {
    let plan = if quick { QUICK } else { FULL };
    let nr_threads = cases.iter().map(|case| case.threads).max().unwrap_or(1);
    let floor = Floor {
        cases,
        nr_operations: cases.iter().map(|_| [const { AtomicUsize::new(FIRST_OPERATIONS) }; 2]).collect(),
        door: Barrier::new(nr_threads),
        meeting: Meeting::default(),
        samples: Mutex::default(),
        word: word(machine),
    };
    let mut measured = machine.run(nr_threads, |cpu| {
        core_affinity::set_for_current(cores[cpu.index()]);
        floor.calibrate(cpu.index());
        floor.rounds(cpu.index(), &plan)
    });
    let mut rows = Vec::new();
    for (case, pairs) in cases.iter().zip(measured.swap_remove(0)) {
        for (name, [series, baseline]) in case.rows.iter().zip(&pairs) {
            rows.extend(series.row(name, case.threads, Some(baseline)));
            rows.extend(case.baseline_row.as_ref().and_then(|name| baseline.row(name, case.threads, None)));
        }
    }
    rows
}

/// The word that `gs_add` adds to. Never freed.
fn word(machine: &Machine) -> &'static PerCpuBox<u64> {
    let word = machine.run(1, |_| PerCpuBox::zeroed().expect("memory for a word")).swap_remove(0);
    Box::leak(Box::new(word))
}

fn best(values: &[f64]) -> Option<f64> {
    values.iter().copied().min_by(f64::total_cmp)
}

fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}
