//! A plugin for QEMU's translator that counts, for each operation that a guest has marked, how often cache lines change hands.
//!
//! * [`caches`]: who has which line.
//! * [`counts`]: what the operations did.
//! * `locks`: what they did one at a time.
//! * [`marker`]: how a guest marks them.
//! * [`profile`]: which instructions they were, and nothing else.
//! * [`report`]: what the plugin writes when the guest ends.
//!
//! The README of this folder shows how to load it.

pub mod caches;
pub mod counts;
mod cpu_set;
mod locks;
pub mod marker;
pub mod profile;
mod qemu;
pub mod report;

pub use cpu_set::MAX_CPUS;
