//! The command line: QEMU's side for this runner, libtest's side as cargo passes it on.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use anstream::ColorChoice;
use clap::builder::ArgAction;
use clap::{Parser, ValueEnum};
use kernel_runner::{Accel, Error, MAX_CPUS, Machine, memory_size, number_in, one_line};

use crate::selection::Selection;

/// The environment variable whose words are options too.
const VARIABLE: &str = "KERNEL_RUNNER_ARGS";

macro_rules! exit_codes {
    () => {
        "\
Exit code:
    0    all is well
    1    QEMU could not start, there is nothing to boot, or a kernel without tests did not end well
    2    a wrong option
    101  a kernel with tests ran, and not all passed: one failed, or the kernel ended before all had run"
    };
}

const AFTER_HELP: &str =
    concat!(exit_codes!(), "\n\n--help tells how to use this as cargo's runner, and what a kernel of your own does to be run by it.");

const AFTER_LONG_HELP: &str = concat!(
    "\
As cargo's runner, in a file .cargo/config.toml:
    [target.x86_64-unknown-none]
    runner = [\"kernel-runner\", \"--cpus\", \"8\"]
Then `cargo run` boots a kernel, and `cargo test --test NAME -- FILTER` runs the tests that a kernel holds.

Options may stand in the runner's array, after cargo's `--`, and in the environment variable
KERNEL_RUNNER_ARGS, split as a shell would (KERNEL_RUNNER_ARGS=\"--cpus 8 --gdb\"); of these places the
array wins over the variable, and cargo's `--` over both. The environment variable QEMU names QEMU's
executable, if it is not the qemu-system-x86_64 on PATH.

What a kernel of your own does:
    it is    an ELF file with a PVH note, which is what QEMU's -kernel takes
    links    with the linker's option `-T defmt.x` (the script comes with the defmt crate)
    logs     with a defmt logger that writes the frames, and nothing else, to port 0xE9, byte by byte
    ends     with a 32-bit write to port 0xF4 (QEMU's isa-debug-exit):
             0x10 all is well; 0x11 a test failed; 0x12 a panic
It holds tests if it has the message `@plan` to send. The messages to the runner, each a log line:
    @plan N                    so many tests will run
    @begin NAME                one begins; a name is one word
    @pass NAME                 it has passed, or
    @fail NAME: REASON         it has failed
    @end                       no further test
    @panic cpu=N FILE:LINE:COL: MESSAGE    a CPU panics
    @row KEY=VALUE ...         a result
    @case NAME                 in answer to `list`: there is this test
The words on its command line, if it holds tests:
    list                       log a `@case` for each test, run none, and end well
    exact filter=NAME ...      run the tests of these names only; without it, all
A test that ends the machine has failed, and the tests after it run in a next boot.
More, and how to boot a kernel from a program of yours: `cargo doc --open -p kernel-runner`.

",
    exit_codes!()
);

/// Boots a kernel in QEMU, decodes its defmt log, and reports its test cases as libtest does.
#[derive(Debug, Parser)]
#[command(name = "kernel-runner", args_override_self = true, after_help = AFTER_HELP, after_long_help = AFTER_LONG_HELP)]
pub struct Options {
    /// The kernel: an ELF file that QEMU boots (PVH) and that logs with defmt to port 0xE9.
    pub kernel: PathBuf,

    /// Run only the cases whose names contain one of these. For a kernel without test cases: words for its command line.
    #[arg(value_name = "FILTER")]
    pub words: Vec<String>,

    /// How many CPUs the machine has: 1 to 255.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = number_in(1..=MAX_CPUS), help_heading = "Machine")]
    cpus: u32,

    /// RAM: a number of MiB, or with K, M or G after it.
    #[arg(long, value_name = "SIZE", default_value = "512M", value_parser = memory_size, help_heading = "Machine")]
    pub memory: String,

    /// What executes the guest; kvm only where the processor has vmx or svm.
    #[arg(long, value_enum, default_value_t, help_heading = "Machine")]
    accel: Accel,

    /// Wait for gdb before the first instruction, without a time limit, and say which gdb command to type.
    #[arg(long, help_heading = "Machine")]
    pub gdb: bool,

    /// A further argument for QEMU; can be repeated.
    ///
    /// The registers of a triple fault: --qemu-arg=-d --qemu-arg=int,cpu_reset --qemu-arg=-D --qemu-arg=FILE
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
        let arguments: Vec<OsString> = std::env::args_os().collect();
        let alone = Options::try_parse_from(&arguments).unwrap_or_else(|error| {
            if !error.use_stderr() {
                error.exit();
            }
            eprintln!("{}; `kernel-runner --help` tells more", one_line(&error.render().to_string()));
            std::process::exit(2);
        });
        let Some(variable) = std::env::var_os(VARIABLE) else { return alone };
        alone.with_variable(arguments, &variable).unwrap_or_else(|error| {
            eprintln!("error: in the environment variable {VARIABLE}: {error}");
            std::process::exit(2);
        })
    }

    /// The options of `arguments`, which are right without the variable, with its words put before them.
    fn with_variable(&self, mut arguments: Vec<OsString>, variable: &OsStr) -> Result<Options, String> {
        let text = variable.to_str().ok_or("it is not UTF-8")?;
        let words = shell_words::split(text).map_err(|error| error.to_string())?;
        arguments.splice(1..1, words.into_iter().map(OsString::from));
        let options = Options::try_parse_from(arguments).map_err(|error| {
            let text = one_line(&error.render().to_string());
            text.strip_prefix("error: ").unwrap_or(&text).to_owned()
        })?;
        if options.kernel != self.kernel {
            return Err(format!("`{}` is no option, and only options may stand there", options.kernel.display()));
        }
        Ok(options)
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
    fn machines_that_cannot_be_and_unknown_options_are_refused() {
        for wrong in [
            &["k", "--cpus", "0"][..],
            &["k", "--cpus", "256"],
            &["k", "--memory", "foo"],
            &["k", "--memory", "0"],
            &["k", "--accel", "xen"],
            &["k", "--dance"],
            &[],
        ] {
            assert!(Options::try_parse_from([&["kernel-runner"], wrong].concat()).is_err(), "{wrong:?}");
        }
    }

    fn with_variable(arguments: &[&str], variable: &str) -> Result<Options, String> {
        let all = [&["kernel-runner"], arguments].concat().into_iter().map(OsString::from).collect();
        options(arguments).with_variable(all, OsStr::new(variable))
    }

    #[test]
    fn the_variables_options_count_and_the_command_lines_win() {
        let options = with_variable(&["k", "--cpus", "2"], "--cpus 8 --append 'a b'").expect("valid options");
        assert_eq!((options.cpus, options.appended().as_str()), (2, "a b"));
    }

    #[test]
    fn what_is_no_option_is_refused_in_the_variable() {
        for (wrong, named) in
            [("--dance", "--dance"), ("--cpus 0", "between 1 and 255"), ("'", "quot"), ("filter", "`filter` is no option")]
        {
            let error = with_variable(&["k"], wrong).expect_err(wrong);
            assert!(error.contains(named) && !error.starts_with("error"), "{wrong}: {error}");
        }
    }

    #[test]
    fn help_tells_what_a_kernel_does() {
        let help = <Options as clap::CommandFactory>::command().render_long_help().to_string();
        for part in ["-T defmt.x", "0xF4", "0x10", "@case", "@plan", "@begin", "@pass", "@fail", "@end", "list ", "cargo doc"] {
            assert!(help.contains(part), "{part}");
        }
    }

    #[test]
    fn libtests_options_are_accepted() {
        options(&["k", "--test-threads", "1", "--color", "always", "--show-output", "--include-ignored", "--format", "terse", "-q"]);
    }
}
