//! The command line: QEMU's side for this runner, libtest's side as cargo passes it on.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use anstream::ColorChoice;
use clap::builder::ArgAction;
use clap::{Parser, ValueEnum};
use kernel_runner::{Accel, Error, Machine};

use crate::selection::Selection;

const AFTER_HELP: &str = "\
As a cargo runner, in a cargo config file:
    [target.'cfg(target_arch = \"x86_64\")']
    runner = [\"kernel-runner\", \"--cpus\", \"8\"]
Then `cargo run` boots a kernel, and `cargo test --test NAME -- FILTER` runs the test cases that a kernel holds.

Options may stand in the runner's array, after cargo's `--`, and in the environment variable KERNEL_RUNNER_ARGS, split as a
shell would (KERNEL_RUNNER_ARGS=\"--cpus 8 --gdb\"); the last one wins.
The environment variable QEMU names QEMU's executable, if it is not the `qemu-system-x86_64` on PATH.

Exit code: 0 all is well; 101 a test failed, or not all ran; 1 anything else went wrong; 2 a wrong option.";

/// Boots a kernel in QEMU, decodes its defmt log, and reports its test cases as libtest does.
#[derive(Debug, Parser)]
#[command(name = "kernel-runner", args_override_self = true, after_help = AFTER_HELP)]
pub struct Options {
    /// The kernel: an ELF file that QEMU boots (PVH) and that logs with defmt to port 0xE9.
    pub kernel: PathBuf,

    /// Run only the cases whose names contain one of these. For a kernel without test cases: words for its command line.
    #[arg(value_name = "FILTER")]
    pub words: Vec<String>,

    /// How many CPUs the machine has.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=288), help_heading = "Machine")]
    cpus: u32,

    /// RAM in MiB, or with a suffix.
    #[arg(long, value_name = "SIZE", default_value = "512M", help_heading = "Machine")]
    memory: String,

    /// What executes the guest; kvm only where the processor has vmx or svm.
    #[arg(long, value_enum, default_value_t, help_heading = "Machine")]
    accel: Accel,

    /// Wait for gdb before the first instruction, without a time limit, and say which gdb command to type.
    #[arg(long, help_heading = "Machine")]
    pub gdb: bool,

    /// A further argument for QEMU; can be repeated. With a leading dash: --qemu-arg=-d --qemu-arg=int
    #[arg(long = "qemu-arg", value_name = "ARG", action = ArgAction::Append, allow_hyphen_values = true, help_heading = "Machine")]
    qemu_args: Vec<OsString>,

    /// Kill QEMU when a boot has lasted this long; 0: never.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, help_heading = "Machine")]
    time_limit: u64,

    /// Further words for the kernel's command line; can be repeated.
    #[arg(long, value_name = "WORDS", action = ArgAction::Append, help_heading = "Machine")]
    append: Vec<String>,

    /// Print the QEMU command and do not run it.
    #[arg(long, help_heading = "Machine")]
    pub dry_run: bool,

    /// List the cases instead of running them.
    #[arg(long, help_heading = "Tests, as libtest has them")]
    pub list: bool,

    /// FILTER and --skip are whole names.
    #[arg(long, help_heading = "Tests, as libtest has them")]
    exact: bool,

    /// Do not run the cases whose names contain this; can be repeated.
    #[arg(long, value_name = "FILTER", action = ArgAction::Append, help_heading = "Tests, as libtest has them")]
    skip: Vec<String>,

    /// Show log lines as they come, those of passing cases too.
    #[arg(long, aliases = ["no-capture", "show-output"], help_heading = "Tests, as libtest has them")]
    pub nocapture: bool,

    /// One line or one character for each case.
    #[arg(long, value_enum, default_value_t, help_heading = "Tests, as libtest has them")]
    format: Format,

    /// One character for each case, as --format terse.
    #[arg(short, long, help_heading = "Tests, as libtest has them")]
    quiet: bool,

    /// Colours; auto: on a terminal, unless NO_COLOR is set.
    #[arg(long, value_enum, default_value_t, help_heading = "Tests, as libtest has them")]
    color: Color,

    /// Accepted; cases run one after the other on all CPUs of the machine.
    #[arg(long, value_name = "N", help_heading = "Tests, as libtest has them")]
    test_threads: Option<usize>,

    /// Run only cases that are marked to be ignored: none, as kernels have no such mark.
    #[arg(long, help_heading = "Tests, as libtest has them")]
    ignored: bool,

    /// Accepted; no case is ever ignored.
    #[arg(long, help_heading = "Tests, as libtest has them")]
    include_ignored: bool,
}

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Format {
    /// A line for each case.
    #[default]
    Pretty,
    /// A character for each case.
    Terse,
}

/// When output has colours.
#[derive(Debug, Clone, Copy, Default, ValueEnum)]
enum Color {
    #[default]
    Auto,
    Always,
    Never,
}

impl Options {
    /// The command line with the words of `KERNEL_RUNNER_ARGS` put before it. Does not return if either is wrong.
    pub fn get() -> Options {
        let mut arguments: Vec<OsString> = std::env::args_os().collect();
        if let Ok(words) = std::env::var("KERNEL_RUNNER_ARGS") {
            match shell_words::split(&words) {
                Ok(words) => drop(arguments.splice(1..1, words.into_iter().map(OsString::from))),
                Err(error) => {
                    eprintln!("error: KERNEL_RUNNER_ARGS: {error}");
                    std::process::exit(2);
                }
            }
        }
        Options::parse_from(arguments)
    }

    /// The machine that the options describe.
    pub fn machine(&self) -> Result<Machine, Error> {
        let unlimited = self.gdb || self.time_limit == 0;
        Ok(Machine {
            cpus: self.cpus,
            memory: self.memory.clone(),
            accel: self.accel,
            gdb: self.gdb,
            qemu_args: self.qemu_args.clone(),
            time_limit: (!unlimited).then(|| Duration::from_secs(self.time_limit)),
            ..Machine::find()?
        })
    }

    /// The words of every `--append`.
    pub fn appended(&self) -> String {
        self.append.join(" ")
    }

    /// Which cases to run.
    pub fn selection(&self) -> Selection {
        Selection { filters: self.words.clone(), skip: self.skip.clone(), exact: self.exact, only_ignored: self.ignored }
    }

    /// How results are printed.
    pub fn format(&self) -> Format {
        if self.quiet { Format::Terse } else { self.format }
    }

    /// When output has colours.
    pub fn color(&self) -> ColorChoice {
        match self.color {
            Color::Auto => ColorChoice::Auto,
            Color::Always => ColorChoice::Always,
            Color::Never => ColorChoice::Never,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(arguments: &[&str]) -> Options {
        Options::try_parse_from([&["kernel-runner"], arguments].concat()).expect("valid options")
    }

    #[test]
    fn the_definition_is_consistent() {
        <Options as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn what_cargo_passes_after_the_kernel_may_mix_filters_and_options_of_both_sides() {
        let options = options(&["k.elf", "one", "--exact", "--cpus", "2", "two", "--skip", "three"]);
        assert_eq!((options.kernel.as_path(), options.cpus), (std::path::Path::new("k.elf"), 2));
        let selection = options.selection();
        assert_eq!((selection.filters, selection.skip, selection.exact), (vec!["one".into(), "two".into()], vec!["three".into()], true));
    }

    #[test]
    fn the_last_value_wins_and_lists_grow() {
        let options =
            options(&["--cpus", "2", "--append", "a b", "k", "--cpus", "8", "--append", "c", "--qemu-arg", "-d", "--qemu-arg=int"]);
        assert_eq!((options.cpus, options.appended().as_str()), (8, "a b c"));
        assert_eq!(options.qemu_args, ["-d", "int"]);
    }

    #[test]
    fn zero_cpus_and_unknown_options_are_refused() {
        for wrong in [&["k", "--cpus", "0"][..], &["k", "--accel", "xen"], &["k", "--dance"], &[]] {
            assert!(Options::try_parse_from([&["kernel-runner"], wrong].concat()).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn libtests_options_are_accepted() {
        options(&["k", "--test-threads", "1", "--color", "always", "--show-output", "--include-ignored", "--format", "terse", "-q"]);
    }
}
