//! What is measured and counted.

use super::counts::{Counts, Growth};
use super::latency::Latency;
use super::validation::OPERATIONS;
use super::{Scale, counted};
use crate::bench::messages;
use crate::bench_rows::{self, Message};
use crate::cli::{Strategy, Target};
use crate::forkbomb::measure::{Benches, native_lines};
use crate::forkbomb::series::Series;
use crate::progress::Progress;
use crate::rows::{Round, Row, summarize};
use crate::table::counted as counted_units;
use crate::workspace;
use ::transfers::{Marks, build_plugin, count};
use anyhow::{Context, Result, bail};
use kernel_runner::{Event, Kernel, Level, Machine};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Rounds that strategies take turns in: short ones, so that some have the machine for themselves. Odd, so that the median is one of them.
const NR_ROUNDS: u32 = 5;

/// Threads for each core where single executions are timed.
const THREADS_PER_CORE: u32 = 4;

/// Processes that the cost on one thread is the lowest of: where a process has its stack and heap may make it slower.
const NR_PROCESSES: u32 = 3;

/// Throughputs of several threads are measured for so many times as long as that of one: threads do not all begin at once.
const TOGETHER_FACTOR: u32 = 3;

/// Single executions are timed for so many times as long as throughputs are.
const LATENCY_FACTOR: u32 = 3;

/// The parts that are measured on several threads; the model is of the first one.
pub const PARTS: [&str; 2] = ["counters", "whole"];

/// What the bench times in this run and the model takes: the same name for any number of threads.
pub const LINE_TRANSFER: &str = "line_transfer";

/// What a boot under the plugin may take, and more for each CPU.
const TIME_LIMIT: Duration = Duration::from_secs(120);
const TIME_LIMIT_PER_CPU: Duration = Duration::from_secs(10);

/// The least number of possible CPUs of the bench.
const BENCH_POSSIBLE_CPUS: u32 = 2;

/// What is to be done.
#[derive(Debug)]
pub struct Plan {
    /// Numbers of CPUs that the model speaks of, in order.
    pub cpus: Vec<u32>,
    /// Those that the plugin counts.
    pub counted: BTreeSet<u32>,
    /// How many cores there are to measure on.
    pub cores: u32,
    pub native: bool,
    seconds: Duration,
}

impl Plan {
    pub fn new(options: &Scale, cores: u32) -> Self {
        let cpus: BTreeSet<_> = options.cpus.iter().copied().collect();
        Self {
            counted: counted(&options.cpus),
            cpus: cpus.into_iter().collect(),
            cores,
            native: options.accel.is_none(),
            seconds: options.seconds,
        }
    }

    /// What an execution takes on one thread, for each number of possible CPUs.
    fn alone(&self) -> Vec<Series> {
        // The prediction for one and two threads needs those.
        let possible: BTreeSet<_> = self.cpus.iter().copied().chain([1, 2]).collect();
        let one = |possible| Series::execs(1, possible, &PARTS[..1], self.seconds / NR_PROCESSES, NR_ROUNDS);
        (0..NR_PROCESSES).flat_map(|_| possible.iter().map(|&possible| one(possible))).collect()
    }

    /// Throughputs on all numbers of cores that this machine has, doubled each time.
    fn together(&self) -> Vec<Series> {
        let doubled = std::iter::successors(Some(1), |cpus| Some(cpus * 2)).take_while(|&cpus| cpus < self.cores);
        let cpus = doubled.chain([self.cores]);
        cpus.map(|cpus| Series { native: self.native, ..Series::execs(cpus, cpus, &PARTS, self.seconds * TOGETHER_FACTOR, NR_ROUNDS) })
            .collect()
    }

    fn latency_arguments(&self) -> Vec<String> {
        let threads = (THREADS_PER_CORE * self.cores).to_string();
        let seconds = (self.seconds * LATENCY_FACTOR).as_secs_f64().to_string();
        ["--latency", "--cpus", &threads, "--possible-cpus", &threads, "--seconds", &seconds].map(str::to_owned).to_vec()
    }
}

/// What came of it.
#[derive(Debug)]
pub struct Measured {
    /// Rounds on one thread, on all numbers of possible CPUs.
    alone: Vec<Round>,
    /// Rounds on all numbers of cores that were measured.
    rounds: Vec<Round>,
    /// On all numbers of cores that were measured.
    pub together: Vec<Row>,
    /// Counts of each operation, by name.
    pub growths: BTreeMap<String, Growth>,
    /// Two runs of the bench: the costs that predictions are made of, and what predictions are compared with.
    pub bench: [Vec<bench_rows::Row>; 2],
    pub latency: Vec<Latency>,
}

impl Measured {
    /// Does all of it: throughputs on `machine`, if not natively; what is counted on `counting`.
    /// What was measured on several threads is in `together` as far as it came, also after a failure.
    pub fn take(plan: &Plan, machine: &Machine, counting: &Machine, measured: &mut Vec<Vec<Round>>) -> Result<Self> {
        let (alone, together) = (plan.alone(), plan.together());
        let kernel = if plan.native { None } else { Some((machine.clone(), workspace::kernel("forkbomb", Target::Host)?)) };
        let benches = Benches { kernel };
        let under_plugin = UnderPlugin::build(counting)?;
        let nr_bench_runs = 2;
        let mut progress = Progress::new(alone.len() + together.len() + plan.counted.len() + nr_bench_runs + 1);

        // First, since this is where a machine is most likely to lack something.
        let mut growths = BTreeMap::new();
        for &cpus in &plan.counted {
            under_plugin.count(cpus, &mut growths, &mut progress)?;
        }
        let costs = bench(&mut progress, "single operations")?;
        let mut rounds = Vec::new();
        benches.run_shown(&alone, &mut rounds, &mut progress)?;
        let alone = rounds.concat();
        benches.run_shown(&together, measured, &mut progress)?;
        let rounds = measured.concat();
        let together = summarize(&rounds);
        let compared = bench(&mut progress, "single operations again")?;
        let latency = latencies(plan, &mut progress)?;
        Ok(Self { alone, rounds, together, growths, bench: [costs, compared], latency })
    }

    /// What a transfer of a line takes between two cores.
    pub fn line_transfer_ns(&self) -> Result<f64> {
        Ok(self.line_transfer()?.median_ns)
    }

    /// The row of it.
    pub fn line_transfer(&self) -> Result<&bench_rows::Row> {
        self.bench[0].iter().find(|row| row.name == LINE_TRANSFER).context("the bench did not time the transfer of a line")
    }

    /// What an execution takes on one thread when so many CPUs are possible, in nanoseconds.
    pub fn one_thread_ns(&self, strategy: &str, possible_cpus: u32) -> Option<f64> {
        fastest_ns(self.alone.iter().filter(|round| round.strategy == strategy && round.setting.possible_cpus == possible_cpus))
    }

    /// What an execution takes on each of so many threads, in nanoseconds.
    pub fn threads_ns(&self, strategy: &str, cpus: u32) -> Option<f64> {
        let of = self.rounds.iter().filter(|round| round.strategy == strategy && round.setting.part == PARTS[0]);
        fastest_ns(of.filter(|round| round.setting.cpus == cpus))
    }

    /// What an instruction of an execution takes on a machine of one CPU, in nanoseconds.
    pub fn instruction_ns(&self, strategy: &str) -> Option<f64> {
        Some(self.one_thread_ns(strategy, 1)? / self.counts(strategy, 1)?.instructions)
    }

    /// The counts of a strategy's executions on so many CPUs.
    pub fn counts(&self, strategy: &str, cpus: u32) -> Option<Counts> {
        self.growths.get(&operation(strategy))?.at(cpus)
    }
}

/// Nanoseconds of a CPU for an execution in the fastest round: what else runs on the machine makes rounds slower only.
fn fastest_ns<'a>(rounds: impl Iterator<Item = &'a Round>) -> Option<f64> {
    rounds.map(|round| 1e9 * f64::from(round.setting.cpus) / round.per_second).min_by(f64::total_cmp)
}

/// The strategies, by name.
pub fn strategies() -> Vec<String> {
    Strategy::expanded(&[Strategy::All])
}

/// The name of the operation that is an execution of a strategy.
pub fn operation(strategy: &str) -> String {
    format!("exec/{strategy}")
}

/// One run of the bench, of what is compared with predictions.
fn bench(progress: &mut Progress, title: &str) -> Result<Vec<bench_rows::Row>> {
    progress.stage(title);
    let names: BTreeSet<_> = OPERATIONS.iter().flat_map(|operation| [operation.one_thread, operation.two_threads]).collect();
    let filter = names.into_iter().chain([LINE_TRANSFER]).collect::<Vec<_>>().join(",");
    let mut rows = Vec::new();
    messages(&filter, BENCH_POSSIBLE_CPUS, &[], |message| match message {
        Message::Progress { done, total, label } => progress.step(done, total, &format!("{title}: {label}")),
        Message::Row(row) => rows.push(row),
        Message::Operation(_) => {}
    })?;
    progress.boot_done();
    Ok(rows)
}

fn latencies(plan: &Plan, progress: &mut Progress) -> Result<Vec<Latency>> {
    let title = format!("{} threads on each core", THREADS_PER_CORE);
    progress.stage(&title);
    let mut rows = Vec::new();
    native_lines(&plan.latency_arguments(), &title, progress, |_, key, line| {
        if key == "@latency" {
            rows.push(Latency::parse(line));
        }
    })?;
    progress.boot_done();
    rows.into_iter().collect()
}

/// A kernel whose operations are marked, and what counts them.
struct UnderPlugin {
    machine: Machine,
    kernel: Kernel,
    marks: Marks,
    plugin: std::path::PathBuf,
}

impl UnderPlugin {
    fn build(machine: &Machine) -> Result<Self> {
        let kernel = workspace::kernel("transfers", Target::Host)?;
        let marks = Marks::open(kernel.path(), workspace::root())?;
        Ok(Self { machine: machine.clone(), kernel, marks, plugin: build_plugin(workspace::root())? })
    }

    /// Boots with so many CPUs, and files the counts of each operation. Single operations are compared on two threads at most.
    fn count(&self, cpus: u32, growths: &mut BTreeMap<String, Growth>, progress: &mut Progress) -> Result<()> {
        let title = format!("counting, {}", counted_units(cpus as usize, "CPU"));
        progress.stage(&title);
        let singles = OPERATIONS.iter().map(|operation| operation.counted).filter(|_| cpus <= 2);
        let names: BTreeSet<_> = singles.chain(["exec/"]).collect();
        let words = names.into_iter().map(|name| format!("op={name}")).collect::<Vec<_>>().join(" ");
        let machine = Machine { cpus, time_limit: Some(TIME_LIMIT + TIME_LIMIT_PER_CPU * cpus), ..self.machine.clone() };
        let rows = count(&machine, &self.plugin, &self.kernel, &self.marks, &words, |event| match event {
            Event::Progress(step) => progress.step(step.done, step.total, &format!("{title}: {}", step.label)),
            Event::Log(line) if line.level >= Some(Level::Warn) => progress.print(&line.to_string()),
            _ => {}
        });
        let rows = rows.context(title)?;
        if let Some(missing) = strategies().into_iter().find(|strategy| rows.iter().all(|row| row.op != operation(strategy))) {
            bail!("the kernel did not execute an exec with `{missing}`");
        }
        rows.iter().for_each(|row| growths.entry(row.op.clone()).or_default().insert(cpus, Counts::from(row)));
        progress.boot_done();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::tests::round;

    fn plan(cpus: &[u32], cores: u32) -> Plan {
        let cpus = cpus.to_vec();
        Plan { counted: counted(&cpus), cpus, cores, native: true, seconds: Duration::from_millis(300) }
    }

    #[test]
    fn all_numbers_of_cores_up_to_this_machines_are_measured() {
        let cores = |cores| plan(&[1], cores).together().iter().map(|series| series.cpus).collect::<Vec<_>>();
        assert_eq!(cores(2), [1, 2]);
        assert_eq!(cores(12), [1, 2, 4, 8, 12]);
    }

    #[test]
    fn without_options_it_takes_less_than_four_minutes() {
        let plan = plan(&[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024], 2);
        let measured: Duration = plan.alone().iter().chain(&plan.together()).map(Series::duration).sum();
        // The rest is for the plugin's boots, the bench and the latencies.
        assert!(measured < Duration::from_secs(90), "{measured:?}");
    }

    #[test]
    fn a_cost_is_the_fastest_rounds_for_each_cpu() {
        let rounds = [round("lazy", 2, 1_000_000), round("lazy", 2, 4_000_000), round("lazy", 2, 2_000_000)];
        assert_eq!(fastest_ns(rounds.iter()), Some(500.0));
        assert_eq!(fastest_ns([].iter()), None);
    }
}
