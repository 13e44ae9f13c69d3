//! Every line of assembly, and the only place that knows GS, privilege levels, flags and model-specific registers.
//!
//! # What the rest of the crate relies on
//!
//! * Each GS operation touches memory in exactly one instruction. An instruction completes before an interrupt, an NMI or a migration
//!   is seen, so it is atomic against everything that runs on the same CPU.
//! * Memory model: another CPU, and another context (interrupt, NMI, another task) on this CPU, is another thread. A read-modify-write
//!   is seen by other CPUs as a relaxed atomic load followed by a relaxed atomic store of the same size; all accesses from other CPUs are
//!   relaxed atomics of that size.
//! * No operation is `pure`, `nomem` or `readonly`: what GS refers to changes when a task moves to another CPU, which the compiler
//!   cannot see, so it must not merge two accesses.

mod gs;
mod ring;

pub use gs::{Bytes, GsBase, Offset};
#[cfg(feature = "host")]
pub(crate) use ring::{enter_template, leave_template};
pub(crate) use ring::{irq_restore, irq_save_and_disable, irqs_are_on, set_gs_base, virtual_address_bits};
