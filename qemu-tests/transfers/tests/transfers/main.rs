//! The transfers that the plugin counts in the test kernel.

mod bad_input;
mod gate;
mod hand_computed;

use kernel_runner::{Event, Kernel, Level, Machine};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use transfers::{Marks, Row, build_plugin, count};

/// The kernel whose operations are marked, and the plugin.
static KERNEL: LazyLock<PathBuf> = LazyLock::new(|| kernel_called("transfers"));
static PLUGIN: LazyLock<PathBuf> = LazyLock::new(|| build_plugin(workspace()).unwrap_or_else(|error| panic!("{error:#}")));

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap()
}

fn kernel_called(name: &str) -> PathBuf {
    let arguments = ["build", "--quiet", "--config", ".cargo/kernel-host.toml", "--package", "test-kernel", "--release", "--bin", name];
    kernel_runner::build_kernel(workspace(), &arguments).expect("the kernel builds")
}

fn machine(cpus: u32) -> Machine {
    Machine { cpus, ..Machine::find().unwrap_or_else(|error| panic!("{error}")) }
}

/// Boots the kernel with these words, and counts.
fn rows(cpus: u32, words: &str) -> Vec<Row> {
    rows_of(&KERNEL, cpus, words)
}

fn rows_of(elf: &Path, cpus: u32, words: &str) -> Vec<Row> {
    let kernel = Kernel::open(elf).unwrap_or_else(|error| panic!("{error}"));
    let marks = Marks::open(elf, workspace()).unwrap_or_else(|error| panic!("{error:#}"));
    let counted = count(&machine(cpus), &PLUGIN, &kernel, &marks, words, |event| match event {
        Event::Log(line) if line.level >= Some(Level::Warn) => println!("{line}"),
        _ => {}
    });
    counted.unwrap_or_else(|error| panic!("{cpus} CPUs, `{words}`: {error:#}"))
}
