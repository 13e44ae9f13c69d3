//! The commands whose results are shown, one after the other.

use super::data::file_name;
use crate::progress::Progress;
use anyhow::{Context, Result, bail};
use kernel_runner::Guarded;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};
use std::{env, fs};

/// The commands, their options, and how long each takes on two CPUs, compiling included, in seconds.
const COMMANDS: [(&str, &[&str], u64); 4] =
    [("forkbomb", &[], 200), ("bench", &[], 160), ("transfers", &["--cpus", "1,2,4,8,16,32,64"], 120), ("scale", &[], 180)];

/// How often the bar moves.
const TICK: Duration = Duration::from_millis(250);

/// Runs them all, and leaves their JSON files in `folder`. The failures of all are one error.
pub fn all(folder: &Path) -> Result<()> {
    let mut progress = Progress::new(COMMANDS.len());
    let mut failed = Vec::new();
    for (command, options, seconds) in COMMANDS {
        if let Err(error) = one(folder, command, options, seconds, &mut progress) {
            failed.push(format!("{command}: {error:#}"));
        }
        progress.boot_done();
    }
    if !failed.is_empty() {
        bail!("{}", failed.join("; "));
    }
    Ok(())
}

/// This program in another process: its command's failure, or a signal, is that command's alone.
fn one(folder: &Path, command: &str, options: &[&str], seconds: u64, progress: &mut Progress) -> Result<()> {
    progress.stage(command);
    let file = folder.join(file_name(command));
    // Else a command that fails would be shown by what it once measured.
    if file.exists() {
        fs::remove_file(&file).with_context(|| format!("cannot replace {}", file.display()))?;
    }
    let mut process = Command::new(env::current_exe().context("this program's file is unknown")?);
    process.arg(command).args(options).arg("--json").arg(file);
    process.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut process = Guarded::spawn(&mut process).context("cannot be started")?;
    let stderr = process.take_stderr().context("it has no error output")?;
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || BufReader::new(stderr).lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));

    let start = Instant::now();
    let mut last = String::new();
    loop {
        match lines.recv_timeout(TICK) {
            Ok(line) => last = line,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        let (done, total) = (start.elapsed().as_secs(), seconds);
        // Its end is known only when it is there.
        progress.step(done.min(total - 1), total, &format!("{command}: {last}"));
    }
    let status = process.wait().context("it is lost")?;
    if !status.success() {
        bail!("{}", last.strip_prefix("error: ").unwrap_or(&last));
    }
    Ok(())
}
