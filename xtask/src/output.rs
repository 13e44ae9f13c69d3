//! What commands print for people and pipes, beside the progress.

use anyhow::{Context, Result};
use std::fmt::Display;
use std::io::{self, Write};

/// Prints a text and ends its line. Fails where nobody reads it any more: what is to be kept is written before.
pub fn show(text: impl Display) -> Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{text}").and_then(|()| stdout.flush()).context("cannot write to the standard output")
}
