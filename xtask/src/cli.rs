//! The command line.

use crate::bench::Bench;
use crate::distinct::distinct;
use crate::forkbomb::series::MAX_LIVE;
use crate::report::Report;
use crate::scale::Scale;
use crate::transfers::Transfers;
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use kernel_runner::{Accel, MAX_CPUS, number_in, one_line};
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
    version,
    disable_help_subcommand = true,
    after_help = "\
Examples:
  cargo xtask forkbomb    watch a kernel fork-bomb per-CPU counters, under three minutes
  cargo xtask bench       time single operations, about two minutes
  cargo xtask transfers   count how often cache lines change hands in each operation
  cargo xtask scale       what both say about 1 to 1,024 CPUs, about two minutes
  cargo xtask report      all of these as one page with tables and charts, six to ten minutes
  cargo xtask test        run all tests

The environment variable QEMU names QEMU's executable, if it is not the
qemu-system-x86_64 on PATH.

Exit code: 0 all is well; 1 or what cargo exits with: a failure, which stderr tells;
2 a wrong option; 130 interrupted, and nothing written."
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Bench(Bench),
    Forkbomb(Forkbomb),
    Report(Report),
    Scale(Scale),
    Test(Test),
    Transfers(Transfers),
}

/// Fork-bomb simulated address spaces on every CPU of a kernel in QEMU
///
/// Boots a kernel whose CPUs fork, exec and exit processes. Every process has address spaces, and every address space has four counters, which
/// are kept by different strategies. Prints how many lifetimes a second each strategy reaches, and checks that every counter ended at exactly zero and that
/// nothing leaked.
///
/// Without options prints all tables: two strategies on 1, 2, 4 and 8 CPUs; all strategies and all workloads; and, on native threads, folio
/// orders and the LRU lock, the counters of an exec alone laid out for 256 CPUs, and the memory of bombs. Options choose one table.
///
/// The strategies take turns in short rounds. `lifetimes/s` is the median round's; `spread` is how far the fastest and the slowest round are apart, as
/// a part of the median; `ratio` is to the first strategy on the same number of CPUs, compared within each turn.
///
/// QEMU is installed first when it is missing (by apt, as root on Debian or Ubuntu; elsewhere the command to type is printed). The environment
/// variable QEMU names another executable of it than the qemu-system-x86_64 on PATH.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  cargo xtask forkbomb                                 all tables, under three minutes
  cargo xtask forkbomb --cpus 1,2,4,8                  two strategies, a minute
  cargo xtask forkbomb --workload all --strategy all --seconds 0.3
  cargo xtask forkbomb --native --possible-cpus 256 --workload exec
  cargo xtask forkbomb --native --workload doexec --folio-order 0,2,4
  cargo xtask forkbomb --profile --workload doexec     where the instructions of each strategy are
  cargo xtask forkbomb --cpus 2 --seconds 1            a short look
  cargo xtask forkbomb --cpus 4,16 --json rows.json    the rows as JSON too")]
pub struct Forkbomb {
    /// Numbers of CPUs, 1 to 255 each; one boot for each number
    #[arg(long, value_name = "LIST", value_delimiter = ',', allow_hyphen_values = true, value_parser = number_in(1..=MAX_CPUS))]
    pub cpus: Vec<u32>,

    /// Seconds measured for each workload, strategy and number of CPUs; a bomb that was begun goes to its end, however long it takes
    /// [default: 5]
    #[arg(long, value_name = "S", allow_hyphen_values = true, value_parser = parse_seconds)]
    pub seconds: Option<Duration>,

    /// What the processes do [default: bomb; with --profile exec]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub workload: Vec<Workload>,

    /// Strategies to compare; the first one is the ratio's 1.00 [default: each,grouped; with --profile all]
    #[arg(long, value_name = "LIST", value_delimiter = ',', alias = "strategies")]
    pub strategy: Vec<Strategy>,

    /// Most processes alive at once on each CPU
    #[arg(long, value_name = "N", default_value = "64", allow_hyphen_values = true, value_parser = number_in(4..=4096))]
    pub live_per_cpu: u32,

    /// Most processes alive at once on all CPUs together, instead
    #[arg(long, value_name = "N", conflicts_with = "live_per_cpu", allow_hyphen_values = true, value_parser = number_in(4..=MAX_LIVE))]
    pub live: Option<u32>,

    /// Chunks that each allocator may take besides its first; forks that find no memory fail, and the kernel goes on. For each possible CPU a chunk
    /// has 128 KiB in the kernel, 32 KiB on native threads, and 256 KiB of the Linux-like allocator
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = number_in(0..=1_000_000))]
    pub chunk_limit: Option<u32>,

    /// Logarithms of how many pages an anonymous folio has, 0 to 4; also times what counters and the LRU lock take
    #[arg(long, value_name = "LIST", value_delimiter = ',', allow_hyphen_values = true, value_parser = number_in(0..=4))]
    pub folio_order: Vec<u32>,

    /// Native threads of this machine instead of a kernel in QEMU, one pinned to each core
    #[arg(long)]
    pub native: bool,

    /// Print in which functions the instructions are, ten for each strategy, instead of rates; one workload
    #[arg(long, conflicts_with_all = ["native", "folio_order", "chunk_limit"])]
    pub profile: bool,

    /// How many CPUs per-CPU memory is laid out for, though fewer run
    #[arg(long, value_name = "N", requires = "native", allow_hyphen_values = true, value_parser = number_in(1..=1024))]
    pub possible_cpus: Option<u32>,

    /// Write the rows to this file as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// How QEMU runs the CPUs
    #[arg(long, default_value = "tcg", conflicts_with = "native")]
    pub accel: Accel,

    /// A further argument for QEMU; can be repeated. With a leading dash: --qemu-arg=-m --qemu-arg=2G
    #[arg(long = "qemu-arg", value_name = "ARG", allow_hyphen_values = true, conflicts_with = "native")]
    pub qemu_args: Vec<OsString>,

    /// What the kernel is compiled for: the host's own target, or x86_64-unknown-none
    #[arg(long, default_value = "host", conflicts_with = "native")]
    pub target: Target,
}

/// Run all tests: on the host, of the kernel in QEMU with 1, 2, 4 and 8 CPUs, and in robust mode
///
/// Installs QEMU first when it is missing (by apt, as root on Debian or Ubuntu; elsewhere the command to type is printed). Then runs
/// `cargo test`, and after it, even if it failed, `cargo test -p pcpu --features robust --tests`: the library's tests in robust mode, some of
/// which are there in that mode only. Fails if either does.
///
/// With arguments runs `cargo test` with them, and nothing after it: they choose among its tests.
///
/// The environment variable QEMU names another executable of it than the qemu-system-x86_64 on PATH.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  cargo xtask test                          everything
  cargo xtask test --test kernel            only the kernel in QEMU
  cargo xtask test --test kernel -- --list  the names of its cases")]
pub struct Test {
    /// Arguments for `cargo test`; without any, both runs
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    pub args: Vec<OsString>,
}

impl Forkbomb {
    /// Nothing was chosen: all tables are wanted.
    pub fn is_everything(&self) -> bool {
        let nothing = (self.seconds, self.live, self.chunk_limit, self.native, self.profile) == (None, None, None, false, false);
        nothing && self.cpus.is_empty() && self.folio_order.is_empty() && self.workload.is_empty() && self.strategy.is_empty()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Strategy {
    /// Four atomic words, as before Linux's conversion
    Atomic,
    /// A cache in each task, moved to the space's atomic words every 64 page faults
    Split,
    /// Four counters as Linux's, allocated one by one
    LinuxEach,
    /// Four counters as Linux's, allocated as a group
    LinuxGrouped,
    /// Four counters as Linux's proposed lazy ones: atomic until 256 changes within a second
    LinuxLazy,
    /// Four counters allocated one by one
    Each,
    /// Four counters allocated as a group
    Grouped,
    /// A lazy group: atomic until several CPUs add in turns
    Lazy,
    /// A lazy group of a kernel that counts threads: plain words until a second one joins
    SoleUser,
    /// All of these
    All,
}

impl Strategy {
    /// The names of these, or of all.
    pub fn expanded(list: &[Self]) -> Vec<String> {
        expanded(list, Self::All)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Workload {
    /// fork, exit
    Fork,
    /// fork, exec, exit
    Exec,
    /// vfork, exec, exit
    Vfork,
    /// fork, exec of a shell, which has a child exec a program, exit
    Shell,
    /// A program on each CPU that execs itself over and over
    Doexec,
    /// Threads of one process, one on each CPU
    Threads,
    /// Processes double until the live limit, and then all exit; again and again
    Bomb,
    /// fork here, exec there, exit elsewhere
    Migrate,
    /// A reader looks for the largest space, while spaces come and go
    OomScan,
    /// All of these
    All,
}

impl Workload {
    /// The names of these, or of all.
    pub fn expanded(list: &[Self]) -> Vec<String> {
        expanded(list, Self::All)
    }
}

/// The names of what is in the list, each once; `all` stands for all others.
fn expanded<T: ValueEnum + PartialEq + Copy>(list: &[T], all: T) -> Vec<String> {
    let everything: Vec<_> = T::value_variants().iter().copied().filter(|&value| value != all).collect();
    let values = list.iter().flat_map(|&value| if value == all { everything.clone() } else { vec![value] });
    distinct(values.map(name))
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
        let command = arguments.get(1).and_then(|word| word.to_str()).map(str::to_owned);
        Self::try_parse_from(arguments).map_err(|error| Stop::new(&error, command.as_deref()))
    }
}

impl Stop {
    /// The parser's error about the options of `command`, if it is one.
    fn new(error: &clap::Error, command: Option<&str>) -> Self {
        use clap::error::ErrorKind::{DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, DisplayVersion};
        let text = error.render().to_string();
        let is_command = |name: &&str| Cli::command().find_subcommand(name).is_some();
        let help = command.filter(is_command).map_or("--help".to_owned(), |command| format!("{command} --help"));
        match error.kind() {
            DisplayHelp | DisplayVersion => Self::Help(text),
            DisplayHelpOnMissingArgumentOrSubcommand => Self::Error("error: no command given; `cargo xtask --help` lists them".into()),
            _ => Self::Error(format!("{}; `cargo xtask {help}` tells more", one_line(&text))),
        }
    }
}

pub fn parse_seconds(text: &str) -> Result<Duration, String> {
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
        assert!(options.is_everything());
        assert_eq!((options.live_per_cpu, options.live, options.native), (64, None, false));
        assert_eq!((options.accel, options.target), (Accel::Tcg, Target::Host));
    }

    #[test]
    fn lists_and_fractions_are_read() {
        let options = forkbomb("--cpus 255,1 --seconds 0.25 --strategies grouped --qemu-arg=-m --qemu-arg 2G");
        assert_eq!(options.cpus, [255, 1]);
        assert_eq!(options.seconds, Some(Duration::from_millis(250)));
        assert_eq!(options.strategy, [Strategy::Grouped]);
        assert!(!options.is_everything());
        assert_eq!(options.qemu_args, ["-m", "2G"]);
    }

    #[test]
    fn a_wrong_option_is_told_with_the_help_of_its_command() {
        for (arguments, help) in [
            ("forkbomb --cup 2", "`cargo xtask forkbomb --help`"),
            ("forkbomb --cpus 0", "`cargo xtask forkbomb --help`"),
            ("bench --slow", "`cargo xtask bench --help`"),
            ("--cpus 2", "`cargo xtask --help`"),
            ("spoonbomb", "`cargo xtask --help`"),
        ] {
            match parse(arguments) {
                Err(Stop::Error(line)) => assert!(line.ends_with(&format!("; {help} tells more")), "{line}"),
                other => panic!("`{arguments}` is not an error: {other:?}"),
            }
        }
    }

    #[test]
    fn an_empty_number_is_told_what_is_wanted() {
        match Cli::parse_list(["xtask", "forkbomb", "--cpus", ""].map(OsString::from).into()) {
            Err(Stop::Error(line)) => assert!(line.contains("a number between 1 and 255 is wanted"), "{line}"),
            other => panic!("not an error: {other:?}"),
        }
    }

    #[test]
    fn the_version_is_told() {
        match parse("--version") {
            Err(Stop::Help(text)) => assert!(text.starts_with("cargo xtask ") && text.contains(env!("CARGO_PKG_VERSION")), "{text}"),
            other => panic!("no version: {other:?}"),
        }
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
            ("forkbomb --strategy none", "--strategy"),
            ("forkbomb --workload none", "--workload"),
            ("forkbomb --possible-cpus 256", "--native"),
            ("forkbomb --native --possible-cpus 1025", "--possible-cpus"),
            ("forkbomb --folio-order 5", "--folio-order"),
            ("forkbomb --live 3", "--live"),
            ("forkbomb --live 100 --live-per-cpu 10", "--live"),
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
            ("report --from", "--from"),
            ("report page.html", "page.html"),
            ("transfers --cpus 256", "--cpus"),
            ("transfers --cpus 2,,4", "--cpus"),
            ("transfers --cpus -2", "--cpus"),
            ("transfers --append words", "--kernel"),
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
        for command in ["bench", "forkbomb", "report", "test", "transfers"] {
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
