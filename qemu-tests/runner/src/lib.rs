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
//! * [`number_in`] and [`memory_size`]: for a command line that asks for machines.
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
//! # What a kernel does
//! * It is an ELF file with a PVH note: what QEMU's `-kernel` boots. Words for it are the command line in PVH's start info.
//! * It is linked with `-T defmt.x`, a script that the defmt crate brings, so that it has the table that its log is decoded with.
//! * Its `defmt::Logger` writes the encoder's bytes, and nothing else, to port `0xE9`. A timestamp of the form `{=u64:us} cpu{=u32}` tells
//!   each line's CPU.
//! * It ends by a 32-bit write to port `0xf4`: `0x10` all is well, `0x11` a test failed, `0x12` a panic. QEMU then exits with twice the
//!   value and one, so no value is taken for QEMU's own 0 (the guest was reset) or 1 (it did not start).
//!
//! ```ignore
//! defmt::error!("@panic cpu={=u32} {=str}:{=u32}:{=u32}: {}", cpu, file, line, column, message);
//! Port::<u32>::new(0xf4).write(0x12);
//! ```
//!
//! A kernel that holds tests answers the word `list` with a message `@case NAME` for each, and ends well. Otherwise it runs those whose whole
//! names the words `exact filter=NAME filter=NAME ...` give, or all if there is no such word:
//!
//! ```text
//! @plan 2
//! @begin statics::adds
//! @pass statics::adds
//! @begin statics::wraps
//! @fail statics::wraps: 0 is not 1
//! @end
//! ```
//!
//! [`Event`] has all messages.
//!
//! # No QEMU outlives its runner
//! It is killed when [`Machine::boot`] returns or unwinds, when the process gets SIGINT, SIGTERM or SIGHUP (the first boot
//! installs a handler which kills every QEMU and then lets the signal end the process), and, on Linux, by the kernel when
//! the thread that called `boot` dies for any other reason, `kill -9` included. [`Guarded`] does this for any child, and [`on_signal`] adds
//! a last word.
//!
//! [defmt]: https://defmt.ferrous-systems.com

mod boot;
mod build;
mod ending;
mod error;
mod event;
mod kernel;
mod limits;
mod line;
mod process;
mod qemu;
mod suite;

pub use build::build_kernel;
pub use ending::Ending;
pub use error::Error;
pub use event::{Event, Panic, Progress, Row};
pub use kernel::Kernel;
pub use limits::{MAX_CPUS, memory_size, number_in, one_line};
pub use line::{Level, LogLine};
pub use process::{Guarded, on_signal};
pub use qemu::{Accel, Machine};
pub use suite::{CaseReport, Step, SuiteReport, list_cases, run_cases};
