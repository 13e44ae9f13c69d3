//! `cargo xtask transfers`.

use crate::cli::{Target, command_line};
use crate::distinct::distinct;
use crate::host::Host;
use crate::json_file::{Destination, Report};
use crate::output::show;
use crate::progress::Progress;
use crate::{qemu_install, transfers_table, workspace};
use ::transfers::{Marks, Row, build_plugin, count, read_report};
use anyhow::{Context, Result, bail};
use clap::Args;
use kernel_runner::{Event, Kernel, Level, MAX_CPUS, Machine, number_in};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// What a boot may take, and more for each CPU: all of them share a thread of the host's.
const TIME_LIMIT: Duration = Duration::from_secs(120);
const TIME_LIMIT_PER_CPU: Duration = Duration::from_secs(20);

/// Count how often cache lines change hands in each operation, on a kernel in QEMU
///
/// An operation that moves no line between CPUs scales to any number of them. A plugin counts what QEMU executes between two marks in the
/// kernel; nothing is timed, and two runs give the same numbers. All CPUs execute the operation at once, in turns, after a warm-up.
///
/// QEMU is installed first when it is missing (by apt, as root on Debian or Ubuntu; elsewhere the command to type is printed).
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  cargo xtask transfers                                all operations on 1, 2, 4 and 8 CPUs
  cargo xtask transfers --op alloc --cpus 2,64         what allocation costs on a large machine
  cargo xtask transfers --op sum --causes              who moves lines, and from whom, by lines of source
  cargo xtask transfers --kernel my-os --append bench  the operations that another kernel marks")]
pub struct Transfers {
    /// Only operations whose name contains this
    #[arg(long, value_name = "NAME")]
    pub op: Option<String>,

    /// Numbers of CPUs, 1 to 255 each; one boot for each number
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,2,4,8", allow_hyphen_values = true, value_parser = number_in(1..=MAX_CPUS))]
    pub cpus: Vec<u32>,

    /// Also print who moves lines, and from whom
    #[arg(long)]
    pub causes: bool,

    /// Write the rows to this file as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Let the next CPU run after every N instructions in the middle of operations too; instructions and lines then count what that takes
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = number_in(1..=1_000_000), conflicts_with = "kernel")]
    pub interleave: Option<u32>,

    /// Another kernel, whose operations are marked, and which logs as the runner expects
    #[arg(long, value_name = "ELF")]
    pub kernel: Option<PathBuf>,

    /// Words for the command line of that kernel
    #[arg(long, value_name = "WORDS", default_value = "", requires = "kernel")]
    pub append: String,

    /// Boot nothing: read what the plugin wrote under another QEMU, which ran that kernel with that number of CPUs
    #[arg(long, value_name = "FILE", requires = "kernel", conflicts_with = "append")]
    pub report: Option<PathBuf>,
}

/// Counts, prints the table and writes the JSON file. What was counted before a failure is printed and written all the same.
pub fn run(options: &Transfers) -> Result<ExitCode> {
    let destination = options.json.as_deref().map(Destination::new).transpose()?;
    // Before anything is built: who has no QEMU learns it at once.
    let source = match &options.report {
        Some(report) => Source::Report(report),
        None => Source::Boot(qemu_install::find_or_install()?),
    };
    let elf = match &options.kernel {
        Some(elf) => elf.clone(),
        None => workspace::kernel("transfers", Target::Host)?.path().to_owned(),
    };
    let marks = Marks::open(&elf, workspace::root())?;
    if let Some(op) = options.op.as_ref().filter(|op| !marks.operations.values().any(|name| name.contains(*op))) {
        let names: Vec<_> = marks.operations.values().map(String::as_str).collect();
        bail!("no operation's name contains `{op}`: there are {}", names.join(", "));
    }

    let mut rows = Vec::new();
    let (host, counted) = match source {
        Source::Report(report) => (Host::native(), read(options, report, &marks, &mut rows)),
        Source::Boot(machine) => {
            let under_plugin = UnderPlugin { kernel: Kernel::open(&elf)?, marks, plugin: build_plugin(workspace::root())? };
            (Host::of(&machine), boot_all(options, &machine, &under_plugin, &mut rows))
        }
    };
    if !rows.is_empty() {
        if let Some(destination) = &destination {
            destination.write(&Report { machine: &host, command: command_line(), rows: &rows })?;
        }
        show(transfers_table::render(&rows))?;
        if options.causes {
            show(transfers_table::causes(&rows).trim_end())?;
        }
    }
    counted?;
    show(transfers_table::LEGEND)?;
    Ok(ExitCode::SUCCESS)
}

/// Where the counts come from.
enum Source<'a> {
    Report(&'a Path),
    Boot(Machine),
}

/// What a boot takes.
struct UnderPlugin {
    kernel: Kernel,
    marks: Marks,
    plugin: PathBuf,
}

/// Boots the kernel once for each number of CPUs, up to the first failure.
fn boot_all(options: &Transfers, machine: &Machine, under_plugin: &UnderPlugin, rows: &mut Vec<Row>) -> Result<()> {
    let UnderPlugin { kernel, marks, plugin } = under_plugin;
    let all_cpus = distinct(options.cpus.iter().copied());
    let mut progress = Progress::new(all_cpus.len());
    for cpus in all_cpus {
        let stage = format!("{cpus} {}", if cpus == 1 { "CPU" } else { "CPUs" });
        progress.stage(&format!("{stage}: booting"));
        let machine = Machine { cpus, time_limit: Some(TIME_LIMIT + TIME_LIMIT_PER_CPU * cpus), ..machine.clone() };
        let counted = count(&machine, plugin, kernel, marks, &words(options), |event| match event {
            Event::Progress(step) => progress.step(step.done, step.total, &format!("{stage}: {}", step.label)),
            Event::Log(line) if line.level >= Some(Level::Warn) => progress.print(&line.to_string()),
            _ => {}
        });
        choose(options, counted.context(stage)?, rows)?;
        progress.boot_done();
    }
    Ok(())
}

fn read(options: &Transfers, report: &Path, marks: &Marks, rows: &mut Vec<Row>) -> Result<()> {
    let [cpus] = options.cpus[..] else { bail!("a report is of one boot: `--cpus` says of how many CPUs") };
    choose(options, read_report(report, cpus, marks)?, rows)
}

/// Keeps the rows that were asked for; none is an error.
fn choose(options: &Transfers, counted: Vec<Row>, rows: &mut Vec<Row>) -> Result<()> {
    rows.extend(counted.into_iter().filter(|row| options.op.as_ref().is_none_or(|op| row.op.contains(op))));
    if rows.is_empty() {
        bail!("the kernel did not execute an operation of that name");
    }
    Ok(())
}

/// The kernel's command line.
fn words(options: &Transfers) -> String {
    if options.kernel.is_some() {
        return options.append.clone();
    }
    let op = options.op.as_ref().map(|op| format!("op={op}"));
    let interleave = options.interleave.map(|instructions| format!("interleave={instructions}"));
    op.into_iter().chain(interleave).collect::<Vec<_>>().join(" ")
}
