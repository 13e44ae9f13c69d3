//! The fork bomb's rounds on native threads, each pinned to a core: the code that the test kernel runs, without the emulation.
//!
//! Prints the lines that the kernel sends to its runner: `@progress`, `@row`; and `@latency`. For people there are `cargo xtask forkbomb --native`
//! and `cargo xtask scale`.

mod latency;
mod threads;

use anyhow::{Context, Error, Result, bail, ensure};
use clap::Parser;
use pcpu::host::Machine;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};
use threads::Threads;
use workload::{CHUNK_LIMIT, ChunkLimit, MIN_LIVE_PER_CPU, Orders, Part, Plan, STRATEGIES, Workload, clock};

/// How long the clock is compared with the system's.
const CALIBRATION: Duration = Duration::from_millis(100);

/// Runs rounds of the fork bomb on native threads; prints progress and rows, a line each
#[derive(Debug, Parser)]
struct Options {
    /// Threads, each a CPU pinned to a core
    #[arg(long, value_name = "N", default_value_t = 2)]
    cpus: usize,

    /// The machine's number of possible CPUs
    #[arg(long, value_name = "N", default_value_t = 2)]
    possible_cpus: usize,

    /// Seconds for each strategy and workload
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    seconds: f64,

    /// Rounds in which strategies take turns
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: usize,

    /// Strategies, `all` for all
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "all")]
    strategies: Vec<String>,

    /// Workloads, `all` for all
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "exec")]
    workloads: Vec<String>,

    /// What is done: whole, counters, lifecycle
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "whole")]
    parts: Vec<String>,

    /// Most processes alive at once, on all CPUs together
    #[arg(long, value_name = "N", default_value_t = 128)]
    live: usize,

    /// Chunks that per-CPU objects may take
    #[arg(long, value_name = "N")]
    chunk_limit: Option<usize>,

    /// Logarithms of how many pages a folio has
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "0", value_parser = clap::value_parser!(u32).range(0..=4))]
    folio_orders: Vec<u32>,

    /// Time the shares of counters and of the list's lock
    #[arg(long)]
    shares: bool,

    /// Time single execs' counters instead; threads may be more than cores, and then take turns on them
    #[arg(long)]
    latency: bool,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(is_clean) => ExitCode::from(u8::from(!is_clean)),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs all rounds and tells whether every counter ended at zero and nothing leaked.
fn run(options: &Options) -> Result<bool> {
    let cores = core_affinity::get_core_ids().filter(|cores| !cores.is_empty()).context("this system does not tell its cores")?;
    ensure!(options.cpus >= 1 && options.cpus <= options.possible_cpus, "{} CPUs of {} possible", options.cpus, options.possible_cpus);
    ensure!(
        options.latency || options.cpus <= cores.len(),
        "{} CPUs need as many cores, and this machine has {}",
        options.cpus,
        cores.len()
    );
    ensure!(options.live >= options.cpus * MIN_LIVE_PER_CPU, "a live limit of {} is too small for {} CPUs", options.live, options.cpus);
    ensure!(options.seconds > 0.0 && options.rounds > 0, "nothing to measure");
    let strategies = named(&options.strategies, &STRATEGIES, "strategy", |&name| name)?;
    let workloads = named(&options.workloads, &Workload::ALL, "workload", |workload| workload.name())?;
    let parts = named(&options.parts, &[Part::Whole, Part::Counters, Part::Lifecycle], "part", |part| part.name())?;

    // SAFETY: per-CPU data is touched by the stage's threads only.
    let machine = unsafe { Machine::boot(options.possible_cpus) }.context("no machine")?;
    if let Some(nr_chunks) = options.chunk_limit {
        ChunkLimit::set_all(nr_chunks);
    }
    pcpu::alloc::set_source(&CHUNK_LIMIT);
    let stage = Threads { machine, cores: cores.iter().copied().cycle().take(options.cpus).collect() };
    clock::set_ticks_per_second(ticks_per_second());
    if options.latency {
        return latencies(options, &stage, &strategies);
    }

    let nr_steps = workloads.len() * parts.len() * options.rounds * options.folio_orders.len() * strategies.len();
    let (mut step, mut is_clean) = (0, true);
    for &workload in &workloads {
        for &part in &parts {
            for _ in 0..options.rounds {
                for &folio_order in &options.folio_orders {
                    for strategy in &strategies {
                        println!("@progress {step} {nr_steps} {workload}, {strategy}");
                        let orders = Orders { workload, live: options.live, folio_order, shares: options.shares };
                        let plan = Plan { orders, part, seconds: options.seconds / options.rounds as f64 };
                        let round = workload::run(strategy, &stage, &plan).map_err(Error::msg)?;
                        println!("@row {round}");
                        is_clean &= round.is_clean();
                        step += 1;
                    }
                }
            }
        }
    }
    println!("@progress {nr_steps} {nr_steps} done");
    Ok(is_clean)
}

/// Times single execs of each strategy, and tells whether every counter ended at zero.
fn latencies(options: &Options, stage: &Threads, strategies: &[&str]) -> Result<bool> {
    let mut is_clean = true;
    for (step, strategy) in strategies.iter().enumerate() {
        println!("@progress {step} {} exec, {strategy}", strategies.len());
        let latency = latency::measure(strategy, stage, options.seconds)?;
        println!("@latency {latency}");
        is_clean &= latency.is_clean();
    }
    println!("@progress {0} {0} done", strategies.len());
    Ok(is_clean)
}

/// What the names stand for, in their order.
fn named<T: Copy>(names: &[String], all: &[T], kind: &str, name_of: impl Fn(&T) -> &str) -> Result<Vec<T>> {
    let mut found = Vec::new();
    for name in names {
        match all.iter().find(|&item| name_of(item) == name) {
            Some(&item) => found.push(item),
            None if name == "all" => found.extend_from_slice(all),
            None => bail!("there is no {kind} `{name}`; there are {}", all.iter().map(name_of).collect::<Vec<_>>().join(", ")),
        }
    }
    Ok(found)
}

fn ticks_per_second() -> u64 {
    let (start, ticks) = (Instant::now(), clock::ticks());
    thread::sleep(CALIBRATION);
    let ticks = clock::ticks() - ticks;
    (ticks as f64 / start.elapsed().as_secs_f64()) as u64
}
