//! Which functions the instructions of operations are in.

use crate::count::boot;
use crate::folder::Folder;
use crate::marks::Marks;
use anyhow::{Context, Result, bail};
use conflict_plugin::profile::Profile as Counted;
use kernel_runner::{Event, Kernel, Machine};
use serde::Serialize;
use std::collections::HashMap;
use std::fs;
use std::path::Path;

/// An operation's instructions, by the functions that they are in.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Profile {
    /// The operation's name.
    pub op: String,
    /// All instructions, on all CPUs.
    pub instructions: u64,
    /// Most first.
    pub symbols: Vec<Symbol>,
}

/// A function, or one that was inlined.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Symbol {
    /// Its path. What is inlined from `core` counts for whoever called that.
    pub symbol: String,
    /// Its part of the operation's instructions.
    pub share: f64,
}

/// Boots a kernel with these words of its command line, in real time, and tells where the instructions of each marked operation are.
///
/// # Errors
/// As [`count`](crate::count).
pub fn profile(
    machine: &Machine,
    plugin: &Path,
    kernel: &Kernel,
    marks: &Marks,
    words: &str,
    on_event: impl FnMut(Event),
) -> Result<Vec<Profile>> {
    let folder = Folder::new()?;
    let out = folder.report();
    boot(machine, plugin, &["count=instructions"], &[], &out, (kernel, words), on_event)?;
    let text = fs::read(&out).context("the plugin's report cannot be read")?;
    let counted: Counted = serde_json::from_slice(&text).context("the plugin's report is none")?;
    if counted.operations.is_empty() {
        bail!("the kernel executed no marked operation");
    }
    let name = |number| marks.operations.get(&number).with_context(|| format!("operation {number} has no name in the kernel's file"));
    counted.operations.iter().map(|operation| Ok(by_symbol(name(operation.number)?, &operation.instructions, marks))).collect()
}

fn by_symbol(op: &str, counted: &[(u64, u64)], marks: &Marks) -> Profile {
    let mut symbols = HashMap::<String, u64>::new();
    for &(address, count) in counted {
        let innermost = marks.places.of(address).frames.into_iter().next();
        *symbols.entry(innermost.map_or_else(|| format!("{address:#x}"), |frame| frame.symbol)).or_default() += count;
    }
    let instructions: u64 = symbols.values().sum();
    let mut symbols: Vec<_> =
        symbols.into_iter().map(|(symbol, count)| Symbol { symbol, share: count as f64 / instructions as f64 }).collect();
    symbols.sort_by(|one, other| other.share.total_cmp(&one.share).then_with(|| one.symbol.cmp(&other.symbol)));
    Profile { op: op.into(), instructions, symbols }
}
