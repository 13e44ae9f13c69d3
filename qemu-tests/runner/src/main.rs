//! `kernel-runner`: boots a kernel in QEMU; made to be cargo's `runner`.

mod cli;
mod report;
mod selection;

use std::io::Write;
use std::process::ExitCode;

use anstream::AutoStream;
use anyhow::{Context, bail};
use kernel_runner::{Ending, Event, Kernel, Machine, list_cases, run_cases};

use crate::cli::Options;
use crate::report::Report;

/// What libtest exits with when a test has failed. Also for tests that were not run, or not listed, because the kernel ended.
const TESTS_FAILED: u8 = 101;

fn main() -> ExitCode {
    let options = Options::get();
    match run(&options) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let kernel = Kernel::open(&options.kernel)?;
    let machine = options.machine()?;
    if let Some(reason) = machine.accel.unavailable() {
        bail!("{reason}");
    }
    if options.dry_run {
        println!("{}", command_text(&machine, &kernel, options)?);
        return Ok(ExitCode::SUCCESS);
    }
    if options.gdb {
        eprintln!(
            "QEMU waits for gdb: gdb {} -ex 'target remote localhost:1234' -ex continue",
            shell_words::quote(&kernel.path().display().to_string())
        );
    }
    if kernel.holds_tests() { run_tests(options, &machine, &kernel) } else { run_kernel(options, &machine, &kernel) }
}

/// A kernel with test cases: libtest's behaviour.
fn run_tests(options: &Options, machine: &Machine, kernel: &Kernel) -> anyhow::Result<ExitCode> {
    let mut report = Report::new(AutoStream::new(std::io::stdout(), options.color()), options.format(), options.nocapture);
    let selection = options.selection();
    let (selected, filtered_out) = if selection.is_all() && !options.list {
        (None, 0)
    } else {
        let names = match list_cases(machine, kernel, &options.appended()) {
            Ok(names) => names,
            Err(ending @ Ending::CouldNotStart { .. }) => bail!("{ending}"),
            Err(ending) => {
                eprintln!("error: the kernel did not list its tests: {}", explained(&ending, options));
                return Ok(ExitCode::from(TESTS_FAILED));
            }
        };
        let (selected, others): (Vec<_>, Vec<_>) = names.into_iter().partition(|name| selection.selects(name));
        if options.list {
            report.list(&selected).context("cannot write to stdout")?;
            return Ok(ExitCode::SUCCESS);
        }
        (Some(selected), others.len())
    };
    let mut written = Ok(());
    let suite = run_cases(machine, kernel, &options.appended(), selected.as_deref(), |step| {
        if written.is_ok() {
            written = report.step(&step);
        }
    });
    let could_not_start = suite.trouble.as_ref().filter(|trouble| matches!(trouble, Ending::CouldNotStart { .. }));
    if let (Some(trouble), []) = (could_not_start, suite.cases.as_slice()) {
        bail!("{trouble}");
    }
    let trouble = suite.trouble.as_ref().map(|trouble| explained(trouble, options));
    written.and_then(|()| report.finish(&suite, trouble.as_deref(), filtered_out)).context("cannot write to stdout")?;
    if let Some(trouble) = could_not_start {
        bail!("{trouble}");
    }
    Ok(if suite.is_passed() { ExitCode::SUCCESS } else { ExitCode::from(TESTS_FAILED) })
}

/// Any other kernel: its log, and how it ended.
fn run_kernel(options: &Options, machine: &Machine, kernel: &Kernel) -> anyhow::Result<ExitCode> {
    if options.list {
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = AutoStream::new(std::io::stdout(), options.color());
    let mut written = Ok(());
    let ending = machine.boot(kernel, &command_line(options), |event| {
        let result = match event {
            Event::Log(line) => writeln!(out, "{}", line.styled()),
            Event::Row(row) => {
                let fields: Vec<_> = row.fields.iter().map(|(key, value)| format!("{key}={value}")).collect();
                writeln!(out, "{}", fields.join(" "))
            }
            _ => Ok(()),
        };
        if written.is_ok() {
            written = result;
        }
    });
    written.context("cannot write to stdout")?;
    match ending {
        Ending::Passed => Ok(ExitCode::SUCCESS),
        ending => bail!("{}", explained(&ending, options)),
    }
}

/// How a boot ended, with the option that may help.
fn explained(ending: &Ending, options: &Options) -> String {
    match ending {
        Ending::TimedOut { last_line: None, .. } => format!("{ending} (too little memory for it? --memory is {})", options.memory),
        _ => ending.to_string(),
    }
}

/// For a kernel without test cases every word that is not an option is for the kernel.
fn command_line(options: &Options) -> String {
    let words: Vec<_> = options.words.iter().cloned().chain([options.appended()]).filter(|words| !words.is_empty()).collect();
    words.join(" ")
}

/// QEMU's command as a person would type it.
fn command_text(machine: &Machine, kernel: &Kernel, options: &Options) -> anyhow::Result<String> {
    let command_line = if kernel.holds_tests() { options.appended() } else { command_line(options) };
    let command = machine.command(kernel, &command_line);
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Option<Vec<_>> = words.map(|word| word.to_str()).collect();
    Ok(shell_words::join(words.context("the command is not UTF-8")?))
}
