//! `cargo xtask test`.

use crate::cli::Test;
use crate::qemu_install;
use crate::workspace::cargo;
use anyhow::{Context, Result};
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitCode;

/// The library's tests in robust mode.
const ROBUST: [&str; 6] = ["test", "-p", "pcpu", "--features", "robust", "--tests"];

/// Runs what the options ask for. A failed run does not keep the next one from being tried, and is told again at the end, where it is seen.
pub fn run(options: &Test) -> Result<ExitCode> {
    qemu_install::find_or_install()?;
    let mut failed = Vec::new();
    let mut code = ExitCode::SUCCESS;
    for arguments in runs(&options.args) {
        let command = format!("cargo {}", arguments.join(&OsString::from(" ")).display());
        eprintln!("xtask: {command}");
        let status = cargo().args(&arguments).status().context("cannot start cargo")?;
        if !status.success() {
            code = ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1));
            failed.push(format!("`{command}`"));
        }
        // Whoever stopped it does not want the next one.
        if status.signal().is_some() {
            break;
        }
    }
    if !failed.is_empty() {
        eprintln!("error: failed: {}", failed.join(", "));
    }
    Ok(code)
}

/// Cargo's arguments for each run.
fn runs(arguments: &[OsString]) -> Vec<Vec<OsString>> {
    let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
    if arguments.is_empty() { vec![words(&["test"]), words(&ROBUST)] } else { vec![[words(&["test"]), arguments.to_vec()].concat()] }
}
