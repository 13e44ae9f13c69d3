//! `cargo xtask forkbomb`.

use crate::cli::{Forkbomb, command_line, name};
use crate::host::Host;
use crate::progress::Progress;
use crate::report::{Destination, Report};
use crate::rows::{Round, summarize};
use crate::{qemu_install, table, workspace};
use anyhow::{Context, Error, Result, bail};
use kernel_runner::{Event, Kernel, Level, Machine};
use std::process::ExitCode;
use std::time::Duration;

/// What a boot may take beyond what is measured.
const BOOT_LIMIT: Duration = Duration::from_secs(60);

/// Measures, prints the table and writes the JSON file. What was measured before a failure is printed and written all the same.
pub fn run(options: &Forkbomb) -> Result<ExitCode> {
    let destination = options.json.as_deref().map(Destination::new).transpose()?;
    if let Some(reason) = options.accel.unavailable() {
        bail!(reason);
    }
    let machine = Machine { accel: options.accel, ..qemu_install::find_or_install()? };
    let kernel = workspace::kernel("forkbomb", options.target)?;

    let mut rounds = Vec::new();
    let boots = boot_all(options, &machine, &kernel, &mut rounds);

    let rows = summarize(&rounds);
    if !rows.is_empty() {
        println!("{}", table::render(&rows));
        if let Some(destination) = &destination {
            destination.write(&Report { machine: &Host::of(&machine), command: command_line(), rows: &rows })?;
        }
    }
    // A kernel whose counters are wrong also ends with a failure: the verdict says more.
    let verdict = table::verdict(&rows).map_err(Error::msg)?;
    boots?;
    println!("{verdict}");
    Ok(ExitCode::SUCCESS)
}

/// Boots the kernel once for each number of CPUs, up to the first failure.
fn boot_all(options: &Forkbomb, machine: &Machine, kernel: &Kernel, rounds: &mut Vec<Round>) -> Result<()> {
    let mut progress = Progress::new(options.cpus.len());
    for &cpus in &options.cpus {
        progress.stage(&format!("{}: booting", cpu_count(cpus)));
        boot(options, &Machine { cpus, ..machine.clone() }, kernel, rounds, &mut progress).with_context(|| cpu_count(cpus))?;
        progress.boot_done();
    }
    Ok(())
}

fn boot(options: &Forkbomb, machine: &Machine, kernel: &Kernel, rounds: &mut Vec<Round>, progress: &mut Progress) -> Result<()> {
    let strategies: Vec<_> = options.strategies.iter().map(|&strategy| name(strategy)).collect();
    let measured = options.seconds * strategies.len() as u32;
    // The slowest machine still gets its turn: a round ends when its last process has exited.
    let machine = Machine { time_limit: Some(BOOT_LIMIT + measured * 4), ..machine.clone() };
    let words = format!(
        "seconds={} strategies={} live={}",
        options.seconds.as_secs_f64(),
        strategies.join(","),
        machine.cpus * options.live_per_cpu
    );

    let before = rounds.len();
    let mut unreadable = Ok(());
    let ending = machine.boot(kernel, &words, |event| match event {
        Event::Row(row) => match Round::from_row(&row) {
            Ok(round) => rounds.push(round),
            Err(error) => unreadable = Err(error),
        },
        Event::Progress(step) => progress.step(step.done, step.total, &format!("{}: {}", cpu_count(machine.cpus), step.label)),
        Event::Log(line) if line.level >= Some(Level::Warn) => progress.print(&line.to_string()),
        _ => {}
    });
    unreadable?;
    let rounds = &rounds[before..];
    ending.into_result()?;
    match strategies.iter().find(|&strategy| rounds.iter().all(|round| round.strategy != *strategy)) {
        Some(strategy) => bail!("the kernel ended without a result for `{strategy}`"),
        None => Ok(()),
    }
}

fn cpu_count(cpus: u32) -> String {
    format!("{cpus} {}", if cpus == 1 { "CPU" } else { "CPUs" })
}
