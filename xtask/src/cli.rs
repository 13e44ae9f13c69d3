//! The command line.

use crate::bench::Bench;
use clap::{Args, Parser, Subcommand, ValueEnum};
use kernel_runner::Accel;
use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Longest measurement that is accepted, in seconds: a day.
const MAX_SECONDS: f64 = 86_400.0;

/// Commands of the pcpu workspace
#[derive(Debug, Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    disable_help_subcommand = true,
    after_help = "\
Examples:
  cargo xtask forkbomb    watch a multicore kernel fork-bomb per-CPU counters, about a minute
  cargo xtask bench       time single operations beside an allocator that works as Linux's does, about two minutes
  cargo xtask test        run all tests"
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Bench(Bench),
    Forkbomb(Forkbomb),
    Test(Test),
}

/// Fork-bomb simulated address spaces on every CPU of a kernel in QEMU
///
/// Boots a kernel whose CPUs fork, exec and exit processes as a binary tree up to a live limit. Every process has address spaces, and every
/// address space has four per-CPU counters, which are allocated one by one (`each`) or as a group (`grouped`). Prints how many
/// lifetimes a second each strategy reaches, and checks that every counter ended at exactly zero and that nothing leaked.
///
/// The strategies take turns in short rounds. `lifetimes/s` is the median round's; `spread` is how far the fastest and the slowest round are apart, as
/// a part of the median; `ratio` is to the first strategy on the same number of CPUs, compared within each turn.
///
/// QEMU is installed first when it is missing (by apt, as root on Debian or Ubuntu; elsewhere the command to type is printed).
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  cargo xtask forkbomb                                  1, 2, 4 and 8 CPUs beside each other, about a minute
  cargo xtask forkbomb --cpus 2 --seconds 1             a short look
  cargo xtask forkbomb --cpus 4,16 --json rows.json     the rows as JSON too")]
pub struct Forkbomb {
    /// Numbers of CPUs, 1 to 255 each; one boot for each number
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,2,4,8", allow_hyphen_values = true, value_parser = clap::value_parser!(u32).range(1..=255))]
    pub cpus: Vec<u32>,

    /// Seconds measured for each strategy and number of CPUs
    #[arg(long, value_name = "S", default_value = "5", allow_hyphen_values = true, value_parser = parse_seconds)]
    pub seconds: Duration,

    /// Strategies to compare; the first one is the ratio's 1.00
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "each,grouped")]
    pub strategies: Vec<Strategy>,

    /// Most processes alive at once on each CPU
    #[arg(long, value_name = "N", default_value = "64", value_parser = clap::value_parser!(u32).range(4..=4096))]
    pub live_per_cpu: u32,

    /// Write the rows to this file as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// How QEMU runs the CPUs
    #[arg(long, default_value = "tcg")]
    pub accel: Accel,

    /// What the kernel is compiled for: the host's own target, or x86_64-unknown-none
    #[arg(long, default_value = "host")]
    pub target: Target,
}

/// Run all tests: on the host, and of the kernel in QEMU with 1, 2, 4 and 8 CPUs
///
/// Installs QEMU first when it is missing (by apt, as root on Debian or Ubuntu; elsewhere the command to type is printed), then runs
/// `cargo test` with the arguments given.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  cargo xtask test                          everything
  cargo xtask test --test kernel            only the kernel in QEMU, on every number of CPUs
  cargo xtask test --test kernel -- --list  the names of its cases")]
pub struct Test {
    /// Arguments for `cargo test`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    pub args: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Strategy {
    /// Four counters allocated one by one
    Each,
    /// Four counters allocated as a group
    Grouped,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Target {
    /// The host's target, freestanding: works with every toolchain
    Host,
    /// x86_64-unknown-none: has to be installed
    None,
}

/// What is typed for `value` on the command line.
pub fn name(value: impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// What was typed.
pub fn command_line() -> String {
    ["cargo".to_owned(), "xtask".to_owned()].into_iter().chain(env::args().skip(1)).collect::<Vec<_>>().join(" ")
}

/// Why there is no command to run.
#[derive(Debug)]
pub enum Stop {
    /// Help was asked for: this is it.
    Help(String),
    /// The arguments are wrong: one line that says how.
    Error(String),
}

impl Cli {
    /// Parses this process's arguments; an error is a single line.
    pub fn parse_or_line() -> Result<Self, Stop> {
        Self::parse_list(env::args_os().collect())
    }

    fn parse_list(mut arguments: Vec<OsString>) -> Result<Self, Stop> {
        // The parser takes the first `--` for itself, and in `test -- NAME` it is cargo's.
        if arguments.get(1).is_some_and(|command| command == "test") && arguments.get(2).is_some_and(|word| word == "--") {
            arguments.insert(2, "--".into());
        }
        Self::try_parse_from(arguments).map_err(Stop::from)
    }
}

impl From<clap::Error> for Stop {
    fn from(error: clap::Error) -> Self {
        use clap::error::ErrorKind::{DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, DisplayVersion};
        let text = error.render().to_string();
        match error.kind() {
            DisplayHelp | DisplayVersion => Self::Help(text),
            DisplayHelpOnMissingArgumentOrSubcommand => Self::Error("error: no command given; `cargo xtask --help` lists them".into()),
            _ => {
                let parts: Vec<_> = text
                    .lines()
                    .map(str::trim)
                    .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"))
                    .filter(|line| !line.is_empty())
                    .collect();
                Self::Error(parts.join("; "))
            }
        }
    }
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    text.parse()
        .ok()
        .filter(|&seconds: &f64| seconds > 0.0 && seconds <= MAX_SECONDS)
        .map(Duration::from_secs_f64)
        .ok_or_else(|| format!("not a number of seconds above 0 and up to {MAX_SECONDS}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &str) -> Result<Cli, Stop> {
        Cli::parse_list(["xtask"].into_iter().chain(arguments.split_whitespace()).map(OsString::from).collect())
    }

    fn forkbomb(arguments: &str) -> Forkbomb {
        match parse(&format!("forkbomb {arguments}")).unwrap().command {
            Command::Forkbomb(options) => options,
            _ => panic!("not a fork bomb"),
        }
    }

    #[test]
    fn defaults_are_as_the_help_says() {
        let options = forkbomb("");
        assert_eq!(options.cpus, [1, 2, 4, 8]);
        assert_eq!(options.seconds, Duration::from_secs(5));
        assert_eq!(options.strategies, [Strategy::Each, Strategy::Grouped]);
        assert_eq!((options.accel, options.target), (Accel::Tcg, Target::Host));
    }

    #[test]
    fn lists_and_fractions_are_read() {
        let options = forkbomb("--cpus 255,1 --seconds 0.25 --strategies grouped");
        assert_eq!(options.cpus, [255, 1]);
        assert_eq!(options.seconds, Duration::from_millis(250));
        assert_eq!(options.strategies, [Strategy::Grouped]);
    }

    #[test]
    fn each_bad_argument_is_one_line_that_names_it() {
        for (arguments, named) in [
            ("forkbomb --cpus 0", "--cpus"),
            ("forkbomb --cpus 256", "--cpus"),
            ("forkbomb --cpus 1,,2", "--cpus"),
            ("forkbomb --cpus two", "--cpus"),
            ("forkbomb --seconds 0", "--seconds"),
            ("forkbomb --cpus -1", "--cpus"),
            ("forkbomb --seconds -1", "--seconds"),
            ("forkbomb --seconds NaN", "--seconds"),
            ("forkbomb --seconds inf", "--seconds"),
            ("forkbomb --seconds 1e9", "--seconds"),
            ("forkbomb --strategies none", "--strategies"),
            ("forkbomb --live-per-cpu 3", "--live-per-cpu"),
            ("forkbomb --accel hvf", "--accel"),
            ("forkbomb --target arm", "--target"),
            ("forkbomb --cpu 2", "--cpu"),
            ("forkbomb --json", "--json"),
            ("bench --possible-cpus 1", "--possible-cpus"),
            ("bench --possible-cpus 1025", "--possible-cpus"),
            ("bench --possible-cpus 2,,16", "--possible-cpus"),
            ("bench --possible-cpus -2", "--possible-cpus"),
            ("bench --filter", "--filter"),
            ("bench --slow", "--slow"),
            ("bench sums", "sums"),
            ("spoonbomb", "spoonbomb"),
            ("", "--help"),
        ] {
            match parse(arguments) {
                Err(Stop::Error(line)) => {
                    assert!(line.starts_with("error: ") && line.contains(named), "`{arguments}`: {line}");
                    assert_eq!(line.lines().count(), 1, "`{arguments}`: {line}");
                }
                other => panic!("`{arguments}` is not an error: {other:?}"),
            }
        }
    }

    #[test]
    fn help_has_an_example_for_each_command() {
        for command in ["bench", "forkbomb", "test"] {
            match parse(&format!("{command} --help")) {
                Err(Stop::Help(text)) => assert!(text.contains(&format!("  cargo xtask {command}"))),
                other => panic!("no help for {command}: {other:?}"),
            }
        }
    }

    #[test]
    fn test_passes_options_of_cargo_test_through() {
        match parse("test --test kernel -- --list").unwrap().command {
            Command::Test(options) => assert_eq!(options.args, ["--test", "kernel", "--", "--list"]),
            _ => panic!("not the tests"),
        }
        match parse("test -- --list").unwrap().command {
            Command::Test(options) => assert_eq!(options.args, ["--", "--list"]),
            _ => panic!("not the tests"),
        }
    }
}
