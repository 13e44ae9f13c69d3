//! Runs cases and reports them to the runner, each in lines that begin with `@`.

use core::fmt;

use alloc::{format, string::String};
use pcpu::CpuId;
use pcpu_boot::{CommandLine, Exit, exit, smp};
use spin::mutex::SpinMutex;

/// One claim and the function that tries it.
pub struct Case {
    /// With the path of its module, the crate's name included.
    pub path: &'static str,
    pub run: fn() -> Outcome,
}

impl Case {
    /// The module and the claim.
    fn name(&self) -> &'static str {
        self.path.split_once("::").map_or(self.path, |(_, name)| name)
    }
}

/// The cases of a module, each named as the function that tries it.
macro_rules! cases {
    ($($run:ident),* $(,)?) => {
        &[$($crate::harness::Case { path: concat!(module_path!(), "::", stringify!($run)), run: $run }),*]
    };
}
pub(crate) use cases;

/// A case's result; the error says what was found.
pub type Outcome = Result<(), Failure>;

/// Why a claim does not hold.
pub struct Failure(String);

impl Failure {
    pub fn new(reason: fmt::Arguments<'_>) -> Self {
        Self(format!("{reason}"))
    }
}

impl<E: core::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(format!("unexpected error: {error}"))
    }
}

/// Makes the enclosing case fail unless the condition holds.
macro_rules! check {
    ($condition:expr $(,)?) => {
        check!($condition, "`{}` does not hold", stringify!($condition))
    };
    ($condition:expr, $($reason:tt)+) => {
        if !$condition {
            return Err($crate::harness::Failure::new(format_args!("{} (line {})", format_args!($($reason)+), line!())));
        }
    };
}
pub(crate) use check;

/// Makes the enclosing case fail unless both sides are equal.
macro_rules! check_eq {
    ($found:expr, $expected:expr $(,)?) => {
        match (&$found, &$expected) {
            (found, expected) => {
                check!(found == expected, "{} is {:?}, not {:?}", stringify!($found), found, expected)
            }
        }
    };
}
pub(crate) use check_eq;

/// Runs `task` on every CPU at once; any failure is the whole's.
pub fn on_all(task: impl Fn(CpuId) -> Outcome + Sync) -> Outcome {
    let outcome: SpinMutex<Outcome> = SpinMutex::new(Ok(()));
    smp::run_on_all(|cpu| {
        if let Err(Failure(reason)) = task(cpu) {
            *outcome.lock() = Err(Failure(format!("on CPU {cpu}: {reason}")));
        }
    });
    outcome.into_inner()
}

/// Lists or runs what the command line asks for, and ends the machine.
pub fn run(command_line: CommandLine, groups: &[&[Case]]) -> ! {
    let chosen = |case: &&Case| {
        let matches = |pattern: &str| {
            if command_line.has("exact") { case.name() == pattern } else { case.name().contains(pattern) }
        };
        let mut filters = command_line.values("filter").peekable();
        (filters.peek().is_none() || filters.any(matches)) && !command_line.values("skip").any(matches)
    };
    let cases = || groups.iter().copied().flatten().filter(chosen);

    if command_line.has("list") {
        for case in cases() {
            defmt::println!("@case {=str}", case.name());
        }
        exit(Exit::Success)
    }
    defmt::println!("@plan {=usize}", cases().count());
    let mut outcome = Exit::Success;
    for case in cases() {
        let name = case.name();
        defmt::println!("@begin {=str}", name);
        match (case.run)() {
            Ok(()) => defmt::println!("@pass {=str}", name),
            Err(Failure(reason)) => {
                defmt::println!("@fail {=str}: {=str}", name, reason.as_str());
                outcome = Exit::Failure;
            }
        }
    }
    defmt::println!("@end");
    exit(outcome)
}
