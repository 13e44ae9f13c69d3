//! Runs series and collects their rounds.

use super::series::Series;
use crate::progress::Progress;
use crate::rows::Round;
use crate::table::{counted, grouped_digits};
use crate::workspace;
use anyhow::{Context, Result, bail};
use kernel_runner::{Event, Guarded, Kernel, Level, Machine};
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

const NATIVE_PACKAGE: &str = "native-forkbomb";

/// What a boot may take beyond what is measured.
const BOOT_LIMIT: Duration = Duration::from_secs(60);

/// What the series run on.
#[derive(Debug)]
pub struct Benches {
    /// A machine and what it boots, if some series needs that.
    pub kernel: Option<(Machine, Kernel)>,
}

/// Builds the native process.
pub fn build_native() -> Result<()> {
    let built = workspace::cargo().args(["build", "--quiet", "--release", "--package", NATIVE_PACKAGE]).stdin(Stdio::null()).status();
    if !built.context("cannot start cargo")?.success() {
        bail!("{NATIVE_PACKAGE} cannot be built");
    }
    Ok(())
}

impl Benches {
    /// Runs all series up to the first failure. What was measured until then is in `rounds`, one list for each series.
    pub fn run(&self, all: &[Series], rounds: &mut Vec<Vec<Round>>) -> Result<()> {
        self.run_shown(all, rounds, &mut Progress::new(all.len()))
    }

    /// The same as a part of a larger work: each series is a run of `progress`.
    pub fn run_shown(&self, all: &[Series], rounds: &mut Vec<Vec<Round>>, progress: &mut Progress) -> Result<()> {
        for (index, series) in all.iter().enumerate() {
            let place = if series.native { "native" } else { "kernel" };
            let title = format!("{place}, {}", counted(series.cpus as usize, "CPU"));
            progress.stage(&format!("{title} ({} of {})", index + 1, all.len()));
            rounds.push(Vec::new());
            let measured = rounds.last_mut().expect("pushed above");
            let outcome = match &self.kernel {
                Some((machine, kernel)) if !series.native => boot(series, machine, kernel, &title, measured, progress),
                _ => run_native(series, &title, measured, progress),
            };
            outcome.with_context(|| title)?;
            if let Some(strategy) = series.strategies.iter().find(|&name| measured.iter().all(|round| round.strategy != *name)) {
                bail!("ended without a result for `{strategy}`");
            }
            progress.boot_done();
        }
        Ok(())
    }
}

fn boot(series: &Series, machine: &Machine, kernel: &Kernel, title: &str, rounds: &mut Vec<Round>, progress: &mut Progress) -> Result<()> {
    // The slowest machine still gets its turn: a round ends when its last process has exited.
    let machine = Machine { cpus: series.cpus, time_limit: Some(BOOT_LIMIT + series.duration() * 4), ..machine.clone() };
    let mut unreadable = Ok(());
    let ending = machine.boot(kernel, &series.kernel_words(), |event| match event {
        Event::Row(row) => match Round::from_fields(row.fields.iter().map(|(key, value)| (key.as_str(), value.as_str()))) {
            Ok(round) => take(series, round, rounds, progress),
            Err(error) => unreadable = Err(error),
        },
        Event::Progress(step) => progress.step(step.done, step.total, &format!("{title}: {}", step.label)),
        Event::Log(line) if line.level >= Some(Level::Warn) => progress.print(&line.to_string()),
        _ => {}
    });
    unreadable?;
    Ok(ending.into_result()?)
}

/// Keeps a round, and shows it if it is a second of `doexec`.
fn take(series: &Series, round: Round, rounds: &mut Vec<Round>, progress: &Progress) {
    if series.shows_rounds() {
        progress.print(&format!("{:>15} exec/s, {}", grouped_digits(round.per_second.round() as u64), round.strategy));
    }
    rounds.push(round);
}

fn run_native(series: &Series, title: &str, rounds: &mut Vec<Round>, progress: &mut Progress) -> Result<()> {
    let mut unreadable = Ok(());
    native_lines(&series.native_arguments(), title, progress, |progress, key, fields| {
        if key == "@row" {
            match Round::from_fields(fields.split(' ').filter_map(|word| word.split_once('='))) {
                Ok(round) => take(series, round, rounds, progress),
                Err(error) => unreadable = Err(error),
            }
        }
    })?;
    unreadable
}

/// Runs the native process, which says what a kernel says, and calls `on_line` with the first word and the rest of each line that is not
/// about the progress.
pub fn native_lines(
    arguments: &[String],
    title: &str,
    progress: &mut Progress,
    mut on_line: impl FnMut(&Progress, &str, &str),
) -> Result<()> {
    let mut command = workspace::cargo();
    command.args(["run", "--quiet", "--release", "--package", NATIVE_PACKAGE, "--"]).args(arguments);
    let mut process = Guarded::spawn(command.stdin(Stdio::null()).stdout(Stdio::piped())).context("cannot start cargo")?;
    let output = process.take_stdout().context("the process has no output")?;
    for line in BufReader::new(output).lines() {
        let line = line.context("the output cannot be read")?;
        match line.split_once(' ') {
            Some(("@progress", step)) => {
                let mut words = step.splitn(3, ' ');
                if let (Some(Ok(done)), Some(Ok(total))) = (words.next().map(str::parse), words.next().map(str::parse)) {
                    progress.step(done, total, &format!("{title}: {}", words.next().unwrap_or_default()));
                }
            }
            Some((key, rest)) if key.starts_with('@') => on_line(progress, key, rest),
            _ => progress.print(&line),
        }
    }
    let status = process.wait().context("the process is lost")?;
    if !status.success() {
        bail!("{NATIVE_PACKAGE} failed: {status}");
    }
    Ok(())
}
