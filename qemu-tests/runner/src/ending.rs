//! How a boot ended.

use std::fmt;
use std::time::Duration;

use crate::{Error, Panic};

/// How to see more of a triple fault. The options are QEMU's own: each program that boots a machine has its own way to hand them on.
const REGISTERS: &str = "QEMU's `-d int,cpu_reset -D FILE` writes the registers to a file";

/// How a boot ended. Displays as one line, except that a panic's message may have more.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ending {
    /// The kernel reported success, and every test that it announced, if any, has passed.
    Passed,
    /// The kernel ran to its end, but these tests failed.
    TestsFailed {
        /// Their names; empty if the kernel reported failure and named none.
        names: Vec<String>,
    },
    /// A CPU panicked.
    Panicked {
        /// The panic; `None` if the kernel reported one by its exit code only.
        panic: Option<Panic>,
    },
    /// The guest reset itself after it had logged something: almost always a triple fault.
    TripleFault,
    /// QEMU ended as it does when the guest resets itself, and nothing was ever logged: a triple fault before the first word, perhaps.
    EndedSilently,
    /// QEMU did not start the guest.
    CouldNotStart {
        /// What QEMU said, on one line, or the reason why it could not be run at all.
        reason: String,
    },
    /// QEMU itself died of a signal.
    Crashed {
        /// The signal's number.
        signal: i32,
    },
    /// The time limit passed, and QEMU was killed.
    TimedOut {
        /// How long the machine ran.
        after: Duration,
        /// The last thing that the kernel said.
        last_line: Option<String>,
    },
    /// The kernel reported success without having run what it announced, or without having announced anything.
    TooFewTests {
        /// How many it announced, if it did.
        announced: Option<usize>,
        /// How many of them reported a result.
        seen: usize,
    },
    /// QEMU ended with a code that none of the above uses.
    UnknownExit {
        /// The code.
        code: i32,
        /// What QEMU said, on one line, if anything.
        stderr: Option<String>,
    },
}

impl Ending {
    /// Whether all is well.
    pub fn is_passed(&self) -> bool {
        *self == Ending::Passed
    }

    /// Any other ending than [`Ending::Passed`] as an error.
    ///
    /// # Errors
    /// The ending itself, as [`Error::Boot`].
    pub fn into_result(self) -> Result<(), Error> {
        if self.is_passed() { Ok(()) } else { Err(Error::Boot(self)) }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ending::Passed => f.write_str("passed"),
            Ending::TestsFailed { names } if names.is_empty() => f.write_str("the kernel reported a failure and named no test"),
            Ending::TestsFailed { names } => write!(f, "test failed: {}", names.join(", ")),
            Ending::Panicked { panic: Some(panic) } => panic.fmt(f),
            Ending::Panicked { panic: None } => f.write_str("the kernel reported a panic and gave no message"),
            Ending::TripleFault => write!(f, "triple fault: the guest reset itself ({REGISTERS})"),
            Ending::EndedSilently => write!(
                f,
                "QEMU ended without a word from the kernel: a triple fault during boot, or something else that reset the guest ({REGISTERS})"
            ),
            Ending::CouldNotStart { reason } => write!(f, "QEMU could not start: {reason}"),
            Ending::Crashed { signal } => write!(f, "QEMU crashed: signal {signal}"),
            Ending::TimedOut { after, last_line } => {
                write!(f, "time-out: killed after {:.1} s; ", after.as_secs_f64())?;
                match last_line {
                    Some(line) => write!(f, "the last line was `{line}`"),
                    None => f.write_str("the kernel logged nothing"),
                }
            }
            Ending::TooFewTests { announced: Some(announced), seen } => {
                write!(f, "fewer tests than announced: {seen} of {announced} reported a result")
            }
            Ending::TooFewTests { announced: None, seen } => {
                write!(f, "fewer tests than announced: the kernel announced none, {seen} reported a result")
            }
            Ending::UnknownExit { code, stderr: Some(line) } => write!(f, "QEMU ended with the unknown code {code}: {line}"),
            Ending::UnknownExit { code, stderr: None } => write!(f, "QEMU ended with the unknown code {code}"),
        }
    }
}
