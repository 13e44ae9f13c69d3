//! `cargo xtask forkbomb`.

pub mod measure;
mod profile;
pub mod series;
pub mod tables;

use crate::cli::{Forkbomb, Strategy, Workload, command_line, name};
use crate::distinct::distinct;
use crate::host::Host;
use crate::json_file::{Destination, Report};
use crate::output::show;
use crate::progress::Progress;
use crate::rows::{Row, summarize};
use crate::{legend, qemu_install, table, workspace};
use anyhow::{Error, Result, bail};
use kernel_runner::{Kernel, Machine};
use measure::Benches;
use profile::Profiled;
use series::{Series, View, check_live};
use std::process::ExitCode;
use std::time::Duration;

/// Measures, prints the tables and writes the JSON file. What was measured before a failure is printed and written all the same.
pub fn run(options: &Forkbomb) -> Result<ExitCode> {
    let destination = options.json.as_deref().map(Destination::new).transpose()?;
    if let Some(reason) = options.accel.unavailable() {
        bail!(reason);
    }
    if options.profile {
        return run_profile(options, destination.as_ref());
    }
    let mut host = Host::native();
    let all = Series::of(options, &host);
    all.iter().try_for_each(|series| series.check(&host))?;
    let mut kernel = None;
    if all.iter().any(|series| !series.native) {
        let machine = Machine { accel: options.accel, qemu_args: options.qemu_args.clone(), ..qemu_install::find_or_install()? };
        host = Host::of(&machine);
        kernel = Some((machine, workspace::kernel("forkbomb", options.target)?));
    }
    if all.iter().any(|series| series.native) {
        measure::build_native()?;
    }

    let mut rounds = Vec::new();
    let benches = Benches { kernel };
    let mut measured = benches.run(&all, &mut rounds);
    let mut tables: Vec<(View, Vec<Row>)> = all.iter().zip(&rounds).map(|(series, rounds)| (series.view, summarize(rounds))).collect();
    if let (Ok(()), true, Some((machine, kernel))) = (&measured, options.is_everything(), &benches.kernel) {
        measured = count_instructions(&mut tables, machine, kernel);
    }
    let rows: Vec<Row> = tables.iter().flat_map(|(_, rows)| rows.clone()).collect();
    if let Some(destination) = destination.filter(|_| !rows.is_empty()) {
        destination.write(&Report { machine: &host, command: command_line(), rows: &rows })?;
    }
    print_tables(&tables, &host)?;
    // A kernel whose counters are wrong also ends with a failure: the verdict says more.
    let verdict = table::verdict(&rows, options.chunk_limit.is_some()).map_err(Error::msg)?;
    measured?;
    show(verdict)?;
    Ok(ExitCode::SUCCESS)
}

/// Counts the instructions of an exec for the rows of all strategies.
fn count_instructions(tables: &mut [(View, Vec<Row>)], machine: &Machine, kernel: &Kernel) -> Result<()> {
    const CPUS: u32 = 2;
    let profiled = Profiled {
        workload: name(Workload::Exec),
        strategies: Strategy::expanded(&[Strategy::All]),
        cpus: CPUS,
        live: 64 * CPUS,
        seconds: Duration::from_millis(200),
    };
    let title = "instructions of an exec";
    let mut progress = Progress::new(1);
    progress.stage(title);
    let counted = profiled.count(machine, kernel, &mut progress, title)?;
    for row in tables.iter_mut().filter(|(view, _)| *view == View::Matrix).flat_map(|(_, rows)| rows) {
        let is_same = |count: &&profile::Row| count.workload == row.setting.workload && count.strategy == row.strategy;
        row.instructions_per_lifetime = counted.iter().find(is_same).map(|count| count.instructions_per_lifetime);
    }
    Ok(())
}

/// Boots once for each number of CPUs, and prints where the instructions are.
fn run_profile(options: &Forkbomb, destination: Option<&Destination>) -> Result<ExitCode> {
    let workload = match Workload::expanded(&options.workload).as_slice() {
        [] => name(Workload::Exec),
        [one] => one.clone(),
        _ => bail!("`--profile` is of one workload"),
    };
    let strategies = match options.strategy.as_slice() {
        [] => Strategy::expanded(&[Strategy::All]),
        some => Strategy::expanded(some),
    };
    let cpus = if options.cpus.is_empty() { vec![2] } else { distinct(options.cpus.iter().copied()) };
    cpus.iter().try_for_each(|&cpus| check_live(cpus, options.live.unwrap_or(cpus * options.live_per_cpu)))?;
    let machine = Machine { accel: options.accel, qemu_args: options.qemu_args.clone(), ..qemu_install::find_or_install()? };
    let kernel = workspace::kernel("forkbomb", options.target)?;
    let mut progress = Progress::new(cpus.len());
    let (mut rows, mut tables, mut outcome) = (Vec::new(), Vec::new(), Ok(()));
    for &cpus in &cpus {
        let profiled = Profiled {
            workload: workload.clone(),
            strategies: strategies.clone(),
            cpus,
            live: options.live.unwrap_or(cpus * options.live_per_cpu),
            seconds: options.seconds.unwrap_or(Duration::from_millis(500)),
        };
        let stage = table::counted(cpus as usize, "CPU");
        progress.stage(&format!("{stage}: booting"));
        match profiled.count(&machine, &kernel, &mut progress, &stage) {
            Ok(counted) => {
                tables.push(profile::render(&counted));
                rows.extend(counted);
            }
            Err(error) => {
                outcome = Err(error.context(stage));
                break;
            }
        }
        progress.boot_done();
    }
    drop(progress);
    if let Some(destination) = destination.filter(|_| !rows.is_empty()) {
        destination.write(&Report { machine: &Host::of(&machine), command: command_line(), rows: &rows })?;
    }
    tables.iter().try_for_each(show)?;
    outcome.map(|()| ExitCode::SUCCESS)
}

/// Neighbours that are one table are printed as one.
fn print_tables(tables: &[(View, Vec<Row>)], host: &Host) -> Result<()> {
    let is_one = |(one, _): &(View, Vec<Row>), (other, _): &(View, Vec<Row>)| (*one, *other) == (View::Lines, View::Lines);
    let mut views = Vec::new();
    for tables in tables.chunk_by(is_one) {
        let rows: Vec<_> = tables.iter().flat_map(|(_, rows)| rows.clone()).collect();
        if !rows.is_empty() {
            views.push(tables[0].0);
            show(tables::render(tables[0].0, &rows))?;
        }
    }
    views.dedup();
    let rows: Vec<_> = tables.iter().flat_map(|(_, rows)| rows.clone()).collect();
    if !rows.is_empty() {
        show(format_args!("{}\n{}", legend::render(&rows, host), tables::legend(&views)))?;
    }
    Ok(())
}
