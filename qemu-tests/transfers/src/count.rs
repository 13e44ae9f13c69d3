//! One boot under the plugin.

use crate::folder::Folder;
use crate::marks::Marks;
use crate::row::Row;
use anyhow::{Context, Result, bail};
use conflict_plugin::MAX_CPUS;
use conflict_plugin::report::Report;
use kernel_runner::{Ending, Event, Kernel, Machine};
use std::ffi::OsString;
use std::fs;
use std::path::Path;

/// Virtual time follows instructions, 128 ns each, so that nothing depends on the host's time: the guest's clocks, and when QEMU goes on to
/// the next CPU although none has asked for it (every 100 ms). With shorter instructions the guest executes more of them while it waits.
/// It also makes QEMU run all CPUs on one thread.
const TIME: &str = "shift=7,sleep=off";

/// Boots a kernel with these words of its command line, and makes a row of each operation that it executes, in the order of their numbers.
///
/// # Errors
/// More CPUs than the plugin knows; a QEMU without plugins; a boot that does not end well; a kernel that executed no mark, or marks in a
/// way that cannot be counted.
pub fn count(
    machine: &Machine,
    plugin: &Path,
    kernel: &Kernel,
    marks: &Marks,
    words: &str,
    on_event: impl FnMut(Event),
) -> Result<Vec<Row>> {
    let folder = Folder::new()?;
    let out = folder.report();
    boot(machine, plugin, &["address=virtual"], &["-icount", TIME], &out, (kernel, words), on_event)?;
    read_report(&out, machine.cpus, marks)
}

/// Boots a kernel under the plugin, with these arguments and these of QEMU's, to its end.
pub(crate) fn boot(
    machine: &Machine,
    plugin: &Path,
    plugin_args: &[&str],
    qemu_args: &[&str],
    out: &Path,
    (kernel, words): (&Kernel, &str),
    on_event: impl FnMut(Event),
) -> Result<()> {
    if machine.cpus as usize > MAX_CPUS {
        bail!("{} CPUs: at most {MAX_CPUS} can be told apart", machine.cpus);
    }
    let mut load = OsString::from(plugin);
    for argument in plugin_args {
        load.push(",");
        load.push(argument);
    }
    load.push(",out=");
    load.push(out);
    let mut machine = machine.clone();
    machine.qemu_args.extend(qemu_args.iter().map(OsString::from));
    machine.qemu_args.extend(["-plugin".into(), load]);
    match machine.boot(kernel, words, on_event) {
        Ending::CouldNotStart { reason } if reason.contains("-plugin: invalid option") => {
            bail!("this QEMU has no plugins: it was built without them, as `--enable-plugins` tells its configure script")
        }
        ending => Ok(ending.into_result()?),
    }
}

/// Makes rows of the plugin's report on a kernel with so many CPUs.
///
/// # Errors
/// The file is not there or is none; the kernel executed no mark, or marks in a way that cannot be counted.
pub fn read_report(report: &Path, cpus: u32, marks: &Marks) -> Result<Vec<Row>> {
    let text = fs::read(report).with_context(|| format!("the plugin's report {} cannot be read", report.display()))?;
    let report: Report = serde_json::from_slice(&text).with_context(|| format!("{} is no report of the plugin's", report.display()))?;
    if let Some(trouble) = report.troubles.first() {
        bail!("{trouble}");
    }
    if report.operations.is_empty() {
        bail!("the kernel executed no marked operation");
    }
    let name = |number| marks.operations.get(&number).with_context(|| format!("operation {number} has no name in the kernel's file"));
    report.operations.iter().map(|operation| Ok(Row::new(name(operation.number)?, cpus, operation, &marks.places))).collect()
}
