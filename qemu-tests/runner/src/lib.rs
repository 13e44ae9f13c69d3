//! Boots a kernel in QEMU and says, in types, what it did and how it ended.
//!
//! A kernel speaks to its runner through one port (QEMU's debug console at `0xE9`) in [defmt] frames only. A frame whose
//! text starts with `@` is addressed to the runner and becomes an [`Event`]; every other frame is a [`LogLine`] for people.
//! The kernel is told what to do on its command line, and says how it ended through `isa-debug-exit` at port `0xf4`.
//!
//! * [`Kernel`]: an ELF file and its defmt table.
//! * [`Machine`]: the QEMU to boot it in, and [`Machine::boot`], which streams events to a callback and returns an [`Ending`].
//! * [`run_cases`] and [`list_cases`]: the same for a kernel that holds test cases, one report for each case.
//! * [`build_kernel`]: the nested `cargo` call that makes the ELF file.
//!
//! ```no_run
//! use kernel_runner::{Event, Kernel, Machine};
//!
//! let kernel = Kernel::open("target/kernel/x86_64-unknown-linux-gnu/release/forkbomb")?;
//! let machine = Machine { cpus: 8, ..Machine::find()? };
//! let mut rows = Vec::new();
//! let ending = machine.boot(&kernel, "seconds=5", |event| match event {
//!     Event::Row(row) => rows.push(row),
//!     Event::Progress(progress) => eprintln!("{} of {}", progress.done, progress.total),
//!     Event::Log(line) => eprintln!("{line}"),
//!     _ => {}
//! });
//! ending.into_result()?;
//! # Ok::<(), kernel_runner::Error>(())
//! ```
//!
//! # No QEMU outlives its runner
//! It is killed when [`Machine::boot`] returns or unwinds, when the process gets SIGINT, SIGTERM or SIGHUP (the first boot
//! installs a handler which kills every QEMU and then lets the signal end the process), and, on Linux, by the kernel when
//! the thread that called `boot` dies for any other reason, `kill -9` included.
//!
//! [defmt]: https://defmt.ferrous-systems.com

mod boot;
mod build;
mod ending;
mod error;
mod event;
mod kernel;
mod line;
mod process;
mod qemu;
mod suite;

pub use build::build_kernel;
pub use ending::Ending;
pub use error::Error;
pub use event::{Event, Panic, Progress, Row};
pub use kernel::Kernel;
pub use line::{Level, LogLine};
pub use qemu::{Accel, Machine};
pub use suite::{CaseReport, Step, SuiteReport, list_cases, run_cases};
