//! From reset to Rust on every CPU: what a kernel needs before it can use `pcpu`, for QEMU's q35 machine.
//!
//! ```ignore
//! #![no_std]
//! #![no_main]
//!
//! pcpu_boot::entry!(main);
//!
//! fn main(boot: &'static pcpu_boot::BootInfo) -> ! {
//!     pcpu_boot::smp::start(boot, 64 * 1024);
//!     pcpu_boot::smp::run_on_all(|cpu| defmt::println!("hello from CPU {=usize}", cpu.index()));
//!     pcpu_boot::exit(pcpu_boot::Exit::Success)
//! }
//! ```
//!
//! The order of things: the boot CPU reaches long mode and calls `main`, which [`entry!`] names, with the log, the heap, the clock and
//! the exception handlers working and interrupts off; per-CPU variables still mean the template. [`smp::start`] makes the per-CPU areas and starts
//! the other CPUs, which then run what [`smp::run_on_all`] gives them.

#![no_std]

extern crate alloc;

pub mod apic;
mod boot_info;
mod command_line;
mod cpu;
mod entry;
mod exit;
mod fw_cfg;
mod gdt;
mod heap;
mod idt;
pub mod interrupts;
mod log;
#[cfg(all(pcpu_kernel, target_os = "linux"))]
mod mem;
mod panic;
mod pvh;
pub mod smp;
pub mod time;
pub mod timer;

pub use boot_info::BootInfo;
pub use command_line::CommandLine;
pub use exit::{Exit, exit};
