//! `cargo xtask test`.

use crate::cli::Test;
use crate::qemu_install;
use crate::workspace::cargo;
use anyhow::{Context, Result};
use std::os::unix::process::CommandExt;
use std::process::ExitCode;

/// Runs `cargo test`, in this process's place.
pub fn run(options: &Test) -> Result<ExitCode> {
    qemu_install::find_or_install()?;
    Err(cargo().arg("test").args(&options.args).exec()).context("cannot start cargo")
}
