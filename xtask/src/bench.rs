//! `cargo xtask bench`.

use crate::bench_rows::{Message, Operation, Row};
use crate::cli::command_line;
use crate::distinct::distinct;
use crate::host::Host;
use crate::json_file::{Destination, Report};
use crate::output::show;
use crate::progress::Progress;
use crate::{bench_table, workspace};
use anyhow::{Context, Result, bail};
use clap::Args;
use kernel_runner::{Guarded, number_in};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{ExitCode, Stdio};

const PACKAGE: &str = "native-bench";

/// The fewest possible CPUs of a machine. A million objects are measured on this one only.
const SMALLEST_POSSIBLE_CPUS: u32 = 2;

/// Time single operations on native threads, each pinned to a core
///
/// Runs one process for each number of possible CPUs. Its threads are the CPUs; those without a thread have memory only. In each round every
/// operation has its turn, and an addition to a word through GS is timed beside it, which is the unit of `gs adds`: neighbours on the
/// machine make everything slower for a while, and the ratio stays.
///
/// The baseline is an allocator in this workspace that works as Linux's does: a mutex and a lock for all CPUs, a first-fit search in a bitmap, and
/// a pass over the copies of all possible CPUs. A baseline of `sum` is a pass over all possible CPUs; of `set4_new_drop`, an allocation of
/// Linux's size; of `lifetime`, `lifetime/atomic4`: four plain atomics and no allocation. The table has a baseline in the line of what is compared
/// with it, the JSON file in a row of its own too.
///
/// `million` rows allocate a million objects and free them in some order; the largest take 2 GiB.
///
/// What is measured is the package in the folder `benches`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  cargo xtask bench                             everything, about two minutes
  cargo xtask bench --list                      the operations, and what they are
  cargo xtask bench --filter alloc_free --possible-cpus 2,256
                                                is a large machine slower?
  cargo xtask bench --quick --json rows.json    a short look, the rows as JSON too")]
pub struct Bench {
    /// Write the rows to this file as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// List the operations, with what their names mean, and measure nothing
    #[arg(long)]
    pub list: bool,

    /// Only operations whose name contains this, or one of these with commas between them
    #[arg(long, value_name = "NAME", default_value = "")]
    pub filter: String,

    /// Numbers of possible CPUs, 2 to 1024 each; a million objects are measured with 2
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "2,16,64,256", allow_hyphen_values = true, value_parser = number_in(SMALLEST_POSSIBLE_CPUS..=1024))]
    pub possible_cpus: Vec<u32>,

    /// A few rounds only: to see that everything runs, not how fast
    #[arg(long)]
    pub quick: bool,
}

/// Measures, prints the tables and writes the JSON file. What was measured before a failure is printed and written all the same.
pub fn run(options: &Bench) -> Result<ExitCode> {
    let destination = options.json.as_deref().map(Destination::new).transpose()?;
    build()?;
    let operations = operations(options)?;
    if options.list {
        show(bench_table::meanings(&operations.iter().collect::<Vec<_>>()))?;
        return Ok(ExitCode::SUCCESS);
    }

    let mut rows = Vec::new();
    let measured = measure_all(options, &mut rows);
    if !rows.is_empty() {
        if let Some(destination) = &destination {
            destination.write(&Report { machine: &Host::native(), command: command_line(), rows: &rows })?;
        }
        show(format_args!("{}\n{}", bench_table::render(&rows), bench_table::legend(&rows, &operations, options.quick)))?;
    }
    measured?;
    if rows.is_empty() {
        bail!("no operation's name contains `{}` with {} possible CPUs", options.filter, list(&options.possible_cpus));
    }
    Ok(ExitCode::SUCCESS)
}

/// The operations that the filter leaves, of which there must be some. They are asked for on the machine that has all.
fn operations(options: &Bench) -> Result<Vec<Operation>> {
    let mut operations = Vec::new();
    each_message(options, SMALLEST_POSSIBLE_CPUS, &["--list"], |message| {
        if let Message::Operation(operation) = message {
            operations.push(operation);
        }
    })?;
    if let Some(part) = unknown(&options.filter, &operations) {
        bail!("no operation's name contains `{part}`; `cargo xtask bench --list` has all");
    }
    Ok(operations)
}

/// The first part of the filter that no row's name contains.
fn unknown<'a>(filter: &'a str, operations: &[Operation]) -> Option<&'a str> {
    let is_known = |part: &str| !part.is_empty() && operations.iter().flat_map(|operation| &operation.rows).any(|row| row.contains(part));
    filter.split(',').find(|part| !filter.is_empty() && !is_known(part))
}

/// One process for each number of possible CPUs, up to the first failure.
fn measure_all(options: &Bench, rows: &mut Vec<Row>) -> Result<()> {
    let machines = distinct(options.possible_cpus.iter().copied());
    let mut progress = Progress::new(machines.len());
    for (index, &possible_cpus) in machines.iter().enumerate() {
        let machine = format!("{possible_cpus} possible CPUs");
        progress.stage(&format!("{machine} ({} of {})", index + 1, machines.len()));
        let further = if options.quick { &["--quick"][..] } else { &[] };
        let measured = each_message(options, possible_cpus, further, |message| match message {
            Message::Progress { done, total, label } => progress.step(done, total, &format!("{machine}: {label}")),
            Message::Row(row) => rows.push(row),
            Message::Operation(_) => {}
        });
        measured.context(machine)?;
        progress.boot_done();
    }
    Ok(())
}

/// Runs the bench for one number of possible CPUs, and calls `on_message` for all that it says.
fn each_message(options: &Bench, possible_cpus: u32, further: &[&str], on_message: impl FnMut(Message)) -> Result<()> {
    messages(&options.filter, possible_cpus, further, on_message)
}

/// Builds what [`messages`] runs.
pub fn build() -> Result<()> {
    let built = workspace::cargo().args(["build", "--quiet", "--release", "--package", PACKAGE]).stdin(Stdio::null()).status();
    if !built.context("cannot start cargo")?.success() {
        bail!("{PACKAGE} cannot be built");
    }
    Ok(())
}

/// Runs the bench for the rows whose names contain a part of the filter, and calls `on_message` for all that it says.
pub fn messages(filter: &str, possible_cpus: u32, further: &[&str], mut on_message: impl FnMut(Message)) -> Result<()> {
    let mut command = workspace::cargo();
    command.args(["run", "--quiet", "--release", "--package", PACKAGE, "--"]);
    command.args(["--possible-cpus", &possible_cpus.to_string()]).arg(format!("--filter={filter}")).args(further);
    let mut process = Guarded::spawn(command.stdin(Stdio::null()).stdout(Stdio::piped())).context("cannot start cargo")?;
    let output = process.take_stdout().context("the process has no output")?;
    let mut unreadable = Ok(());
    for line in BufReader::new(output).lines() {
        match line.context("the output cannot be read").and_then(|line| Message::parse(&line)) {
            Ok(message) => on_message(message),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_of_a_filter_is_in_the_name_of_a_row() {
        let operation = |name: &str, row: &str| Operation { name: name.into(), meaning: String::new(), rows: vec![row.into()] };
        let operations = [operation("sum/touched_NR", "sum/touched_2"), operation("gs_add", "gs_add")];
        for filter in ["", "sum/touched_2", "add", "gs_add,sum"] {
            assert_eq!(unknown(filter, &operations), None, "{filter}");
        }
        for (filter, part) in [("touched_NR", "touched_NR"), ("gs_add,nosuch", "nosuch"), (",", ""), ("gs_add,", "")] {
            assert_eq!(unknown(filter, &operations), Some(part), "{filter}");
        }
    }
}
