//! `cargo xtask bench`.

use crate::bench_rows::{Message, Row};
use crate::cli::command_line;
use crate::host::Host;
use crate::progress::Progress;
use crate::report::{Destination, Report};
use crate::{bench_table, workspace};
use anyhow::{Context, Result, bail};
use clap::Args;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{ExitCode, Stdio};

const PACKAGE: &str = "native-bench";

/// Time single operations on native threads, each pinned to a core
///
/// Runs one process for each number of possible CPUs. Its threads are the CPUs; those without a thread have memory only. In each round every
/// operation has its turn, and an addition to a word through GS is timed beside it, which is the unit of `gs adds`: neighbours on the
/// machine make everything slower for a while, and the ratio stays.
///
/// The baseline is an allocator in this workspace that works as Linux's does: a mutex and a lock for all CPUs, a first-fit search in a bitmap, and
/// a pass over the copies of all possible CPUs. A baseline of `sum` is a pass over all possible CPUs; of `set4_new_drop`, an allocation of
/// Linux's size.
///
/// `million` rows allocate a million objects and free them in some order; the largest take 2 GiB.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  cargo xtask bench                                              everything, about two minutes
  cargo xtask bench --filter alloc_free --possible-cpus 2,256    does allocation cost the same on large machines?
  cargo xtask bench --quick --json rows.json                     a short look, the rows as JSON too")]
pub struct Bench {
    /// Write the rows to this file as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Only operations whose name contains this
    #[arg(long, value_name = "NAME", default_value = "")]
    pub filter: String,

    /// Numbers of possible CPUs, 2 to 1024 each; a million objects are measured with 2
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "2,16,64,256", allow_hyphen_values = true, value_parser = clap::value_parser!(u32).range(2..=1024))]
    pub possible_cpus: Vec<u32>,

    /// A few rounds only: to see that everything runs, not how fast
    #[arg(long)]
    pub quick: bool,
}

/// Measures, prints the tables and writes the JSON file. What was measured before a failure is printed and written all the same.
pub fn run(options: &Bench) -> Result<ExitCode> {
    let destination = options.json.as_deref().map(Destination::new).transpose()?;
    let built = workspace::cargo().args(["build", "--quiet", "--release", "--package", PACKAGE]).stdin(Stdio::null()).status();
    if !built.context("cannot start cargo")?.success() {
        bail!("{PACKAGE} cannot be built");
    }

    let mut rows = Vec::new();
    let measured = options.possible_cpus.iter().enumerate().try_for_each(|(index, &possible_cpus)| {
        let stage = format!("{possible_cpus} possible CPUs ({} of {})", index + 1, options.possible_cpus.len());
        measure(options, possible_cpus, &stage, &mut rows).context(stage)
    });
    if !rows.is_empty() {
        println!("{}", bench_table::render(&rows));
        if let Some(destination) = &destination {
            destination.write(&Report { machine: &Host::native(), command: command_line(), rows: &rows })?;
        }
    }
    measured?;
    if rows.is_empty() {
        bail!("no operation's name contains `{}` with {} possible CPUs", options.filter, list(&options.possible_cpus));
    }
    println!("{}", bench_table::LEGEND);
    Ok(ExitCode::SUCCESS)
}

/// One process.
fn measure(options: &Bench, possible_cpus: u32, stage: &str, rows: &mut Vec<Row>) -> Result<()> {
    let mut progress = Progress::new(1);
    progress.stage(stage);
    let mut command = workspace::cargo();
    command.args(["run", "--quiet", "--release", "--package", PACKAGE, "--"]);
    command.args(["--possible-cpus", &possible_cpus.to_string()]).arg(format!("--filter={}", options.filter));
    if options.quick {
        command.arg("--quick");
    }
    let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("cannot start cargo")?;
    let output = process.stdout.take().context("the process has no output")?;
    let mut unreadable = Ok(());
    for line in BufReader::new(output).lines() {
        match line.context("the output cannot be read").and_then(|line| Message::parse(&line)) {
            Ok(Message::Progress { done, total, label }) => progress.step(done, total, &format!("{stage}: {label}")),
            Ok(Message::Row(row)) => rows.push(row),
            Err(error) => unreadable = Err(error),
        }
    }
    let status = process.wait().context("the process is lost")?;
    unreadable?;
    if !status.success() {
        bail!("{PACKAGE} failed: {status}");
    }
    Ok(())
}

fn list(numbers: &[u32]) -> String {
    numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}
