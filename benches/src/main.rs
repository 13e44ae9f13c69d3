//! Times single operations of the library on native threads, each pinned to a core, beside an allocator that works as Linux's does.
//!
//! One process has one number of possible CPUs. Prints lines of JSON: progress and then the rows, or the operations. For people there is
//! `cargo xtask bench`.

mod aged;
mod case;
mod cases;
mod clock;
mod heap;
mod message;
mod names;
mod rounds;
mod turn;

use anyhow::{Context, Result};
use case::Case;
use clap::Parser;
use pcpu::host::Machine;
use std::process::ExitCode;
use workload::linux_like::LinuxLike;

/// What x86 Linux takes with more than a few CPUs.
const LINUX_UNIT_BYTES: usize = 256 << 10;

/// Times single operations on native threads; prints rows as JSON, a line each
#[derive(Debug, Parser)]
struct Options {
    /// The machine's number of possible CPUs
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(2..=1024))]
    possible_cpus: u16,

    /// Only rows whose name contains one of these; none is no error
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "")]
    filter: Vec<String>,

    /// Few rounds: shows that everything runs, not how fast
    #[arg(long)]
    quick: bool,

    /// Tell what the rows are, and measure nothing
    #[arg(long)]
    list: bool,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<()> {
    heap::keep_memory();
    let cores = core_affinity::get_core_ids().filter(|cores| !cores.is_empty()).context("this system does not tell its cores")?;
    let nr_possible = usize::from(options.possible_cpus);
    // SAFETY: per-CPU data is touched inside `run` only; what the cases hold is never dropped.
    let machine = unsafe { Machine::boot(nr_possible) }?;
    let linux_like: &'static LinuxLike = Box::leak(Box::new(LinuxLike::new(nr_possible, LINUX_UNIT_BYTES)));

    let mut cases = cases::all(&machine, nr_possible, linux_like);
    let is_wanted = |name: &str| options.filter.iter().any(|part| name.contains(part));
    cases.retain(|case| case.threads <= cores.len() && case.row_names().any(is_wanted));
    if options.list {
        let rows: Vec<_> = cases.iter().flat_map(Case::row_names).filter(|name| is_wanted(name)).collect();
        names::operations(&rows).into_iter().for_each(|operation| message::Message::Operation(operation).print());
        return Ok(());
    }
    if cases.is_empty() {
        return Ok(());
    }
    aged::age(&machine, linux_like);
    let cases: &'static [Case] = cases.leak();
    rounds::run(&machine, &cores, cases, options.quick)
        .into_iter()
        .filter(|row| is_wanted(&row.name))
        .for_each(|row| message::Message::Row(row).print());
    Ok(())
}
