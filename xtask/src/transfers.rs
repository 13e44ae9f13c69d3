//! `cargo xtask transfers`.

use crate::cli::{Target, command_line};
use crate::host::Host;
use crate::progress::Progress;
use crate::report::{Destination, Report};
use crate::{qemu_install, transfers_table, workspace};
use ::transfers::{MarkedKernel, Row, build_plugin, count};
use anyhow::{Context, Result, bail};
use clap::Args;
use kernel_runner::{Event, Level, MAX_CPUS, Machine, number_in};
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

    /// Another kernel, whose operations are marked, and which ends by itself
    #[arg(long, value_name = "ELF")]
    pub kernel: Option<PathBuf>,

    /// Words for the command line of that kernel
    #[arg(long, value_name = "WORDS", default_value = "", requires = "kernel")]
    pub append: String,
}

/// Counts, prints the table and writes the JSON file. What was counted before a failure is printed and written all the same.
pub fn run(options: &Transfers) -> Result<ExitCode> {
    let destination = options.json.as_deref().map(Destination::new).transpose()?;
    let machine = qemu_install::find_or_install()?;
    let elf = match &options.kernel {
        Some(elf) => elf.clone(),
        None => workspace::kernel("transfers", Target::Host)?.path().to_owned(),
    };
    let marked = MarkedKernel::open(&elf, workspace::root())?;
    let plugin = build_plugin(workspace::root())?;

    let mut rows = Vec::new();
    let boots = boot_all(options, &machine, &plugin, &marked, &mut rows);
    if !rows.is_empty() {
        println!("{}", transfers_table::render(&rows));
        if options.causes {
            print!("{}", transfers_table::causes(&rows));
        }
        if let Some(destination) = &destination {
            destination.write(&Report { machine: &Host::of(&machine), command: command_line(), rows: &rows })?;
        }
    }
    boots?;
    println!("{}", transfers_table::LEGEND);
    Ok(ExitCode::SUCCESS)
}

/// Boots the kernel once for each number of CPUs, up to the first failure.
fn boot_all(options: &Transfers, machine: &Machine, plugin: &Path, marked: &MarkedKernel, rows: &mut Vec<Row>) -> Result<()> {
    let mut progress = Progress::new(options.cpus.len());
    for &cpus in &options.cpus {
        let stage = format!("{cpus} {}", if cpus == 1 { "CPU" } else { "CPUs" });
        progress.stage(&format!("{stage}: booting"));
        let machine = Machine { cpus, time_limit: Some(TIME_LIMIT + TIME_LIMIT_PER_CPU * cpus), ..machine.clone() };
        let counted = count(&machine, plugin, marked, &words(options), |event| match event {
            Event::Progress(step) => progress.step(step.done, step.total, &format!("{stage}: {}", step.label)),
            Event::Log(line) if line.level >= Some(Level::Warn) => progress.print(&line.to_string()),
            _ => {}
        });
        rows.extend(counted.context(stage)?.into_iter().filter(|row| options.op.as_ref().is_none_or(|op| row.op.contains(op))));
        if rows.is_empty() {
            bail!("no operation's name contains `{}`", options.op.as_deref().unwrap_or_default());
        }
        progress.boot_done();
    }
    Ok(())
}

/// The kernel's command line.
fn words(options: &Transfers) -> String {
    match (&options.kernel, &options.op) {
        (Some(_), _) => options.append.clone(),
        (None, Some(op)) => format!("op={op}"),
        (None, None) => String::new(),
    }
}
