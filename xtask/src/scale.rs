//! `cargo xtask scale`.

mod cores;
mod counts;
pub mod curves;
pub mod latency;
pub mod measure;
mod model;
pub mod rows;
pub mod tables;
mod usl;
mod validation;

use crate::cli::command_line;
use crate::host::Host;
use crate::json_file::{self, Destination};
use crate::output::show;
use crate::rows::summarize;
use crate::{bench, qemu_install, table};
use anyhow::{Result, bail, ensure};
use clap::Args;
use cores::Cores;
use curves::Folder;
use kernel_runner::{Accel, Machine, number_in};
use latency::Latency;
use measure::{Measured, Plan};
use rows::Row;
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use validation::Check;

/// The most CPUs that the model speaks of, as many as the native threads' memory can be laid out for.
const MAX_CPUS: u32 = 1024;

/// Where the plugin's counts end, and the line through them begins.
const MAX_COUNTED_CPUS: u32 = 64;

/// Show how each way of keeping an address space's counters scales: measured as far as this machine goes, modelled to 1,024 CPUs
///
/// What is done is the work of one fork, exec and exit on the counters (59 adds, two allocations, two frees, eight sums), by nine strategies;
/// `measured` rows have it alone (part `counters`) and within the whole simulated process (`whole`), on 1 to as many pinned threads as there are cores.
///
/// `model` rows come from three measurements, and nothing in them is fitted to throughputs:
///   c  what an execution takes on one thread, with memory laid out for N CPUs: timed natively, in this run;
///   t  how often a cache line changes hands in it with N CPUs at work: counted in QEMU by a plugin, as by `cargo xtask transfers`, up to 64 CPUs;
///      beyond that a straight line through the counts from 8 CPUs on, which is printed with how well it fits;
///   L  what one such transfer takes between two cores of this machine: timed by a ping-pong, in this run.
/// N CPUs do at most N / (c + t L) executions a second. What is done under a lock that all take, and what is done to a line that all write, is done
/// by one CPU at a time and bounds any number of CPUs; the plugin tells both. What the model does not know: a larger machine has a larger L, several sockets
/// a much larger one; CPUs that wait disturb the holder of a lock; a core may keep a line or a lock for several operations, where the plugin's CPUs
/// take turns; transfers may overlap.
///
/// The parameters of the Universal Scalability Law (alpha: serial part, beta: crosstalk) are fitted to the curves, by least squares of relative
/// errors. The prediction for 1 and 2 threads is compared with another measurement of the same run, for strategies and for single operations.
///
/// A last table has the times of single executions with four threads on each core: what happens to the others when the holder of a lock loses its
/// core.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  cargo xtask scale                             everything, about two minutes and a build
  cargo xtask scale --cpus 1,2,16,256           the model for these numbers of CPUs only
  cargo xtask scale --json rows.json --svg out  the rows as JSON, the curves as out/*.svg
  cargo xtask scale --accel kvm                 the measured rows from a kernel in a virtual machine

For a steady result leave the machine idle: the printed spread tells how steady it was.")]
pub struct Scale {
    /// Numbers of CPUs that the model speaks of, 1 to 1024 each
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,2,4,8,16,32,64,128,256,512,1024", allow_hyphen_values = true, value_parser = number_in(1..=MAX_CPUS))]
    pub cpus: Vec<u32>,

    /// Seconds measured on one thread for each strategy and each number of CPUs; three times as long on several
    #[arg(long, value_name = "S", default_value = "0.3", allow_hyphen_values = true, value_parser = crate::cli::parse_seconds)]
    pub seconds: Duration,

    /// Measure on native threads: the default
    #[arg(long, conflicts_with = "accel")]
    pub native: bool,

    /// Measure throughputs on a kernel in QEMU instead, whose CPUs are run this way: kvm, or tcg to see that it works
    #[arg(long)]
    pub accel: Option<Accel>,

    /// Write the rows to this file as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Write the curves into this folder as SVG
    #[arg(long, value_name = "DIR")]
    pub svg: Option<PathBuf>,
}

/// What the JSON file holds.
#[derive(Debug, Serialize)]
struct Report<'a> {
    machine: &'a Host,
    command: String,
    rows: &'a [Row],
    /// What a transfer of a line takes between two cores of this machine, in the median round.
    line_transfer_ns: f64,
    cores: &'a Cores,
    validation: &'a [Check],
    latency: &'a [Latency],
}

/// Measures, counts, prints the tables and writes the JSON file.
pub fn run(options: &Scale) -> Result<ExitCode> {
    let destination = options.json.as_deref().map(Destination::new).transpose()?;
    let folder = options.svg.as_deref().map(Folder::new).transpose()?;
    if let Some(reason) = options.accel.and_then(Accel::unavailable) {
        bail!(reason);
    }
    let host = Host::native();
    ensure!(host.host_cpus >= 2, "two cores are needed to time how a line goes from one to the other, and this machine has one");
    let machine = qemu_install::find_or_install()?;
    let plan = Plan::new(options, host.host_cpus as u32);
    bench::build()?;
    crate::forkbomb::measure::build_native()?;
    let cores = Cores::look();
    let measuring = Machine { accel: options.accel.unwrap_or(machine.accel), ..machine.clone() };
    let mut together = Vec::new();
    let measured = match Measured::take(&plan, &measuring, &machine, &mut together) {
        Ok(measured) => measured,
        Err(error) => {
            keep(destination.as_ref(), &Host::of(&measuring), &summarize(&together.concat()))?;
            return Err(error);
        }
    };
    let cores = cores.look_again();

    let rows = rows::all(&plan, &measured)?;
    let validation = validation::checks(&measured, plan.native)?;
    if let Some(destination) = &destination {
        destination.write(&Report {
            machine: &Host::of(&measuring),
            command: command_line(),
            rows: &rows,
            line_transfer_ns: measured.line_transfer_ns()?,
            cores: &cores,
            validation: &validation,
            latency: &measured.latency,
        })?;
    }
    if let Some(folder) = &folder {
        folder.write_all(&rows, &measured.latency)?;
    }
    show(tables::render(&host, &cores, &plan, &measured, &rows, &validation))?;
    Ok(ExitCode::SUCCESS)
}

/// Writes and prints the throughputs that were measured before a failure, if there are some.
fn keep(destination: Option<&Destination>, host: &Host, together: &[crate::rows::Row]) -> Result<()> {
    if together.is_empty() {
        return Ok(());
    }
    if let Some(destination) = destination {
        destination.write(&json_file::Report { machine: host, command: command_line(), rows: &rows::measured(together) })?;
    }
    show(table::lines(together))
}

/// The numbers of the list that the plugin counts, and those that it has to count for the others.
fn counted(cpus: &[u32]) -> BTreeSet<u32> {
    let own = cpus.iter().copied().filter(|&cpus| cpus <= MAX_COUNTED_CPUS);
    // The prediction for one and two threads needs them.
    let mut counted: BTreeSet<u32> = own.chain([1, 2]).collect();
    if cpus.iter().any(|&cpus| cpus > MAX_COUNTED_CPUS) {
        counted.extend([8, 16, 32, MAX_COUNTED_CPUS]);
    }
    counted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plugin_counts_what_is_asked_for_and_what_a_line_needs() {
        assert_eq!(counted(&[1]), BTreeSet::from([1, 2]));
        assert_eq!(counted(&[64, 3]), BTreeSet::from([1, 2, 3, 64]));
        assert_eq!(counted(&[65]), BTreeSet::from([1, 2, 8, 16, 32, 64]));
    }
}
