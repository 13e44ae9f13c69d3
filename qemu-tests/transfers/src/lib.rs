//! Counts how often cache lines change hands in the marked operations of a kernel, and names the lines of source that make them.
//!
//! * [`Marks`]: the operations that an ELF file marks.
//! * [`build_plugin`]: the plugin that counts.
//! * [`count`]: boots a kernel under it, and makes a [`Row`] of each operation.
//! * [`profile()`]: boots a kernel under it, and tells which functions the instructions are in.
//! * [`remove_folders`]: for who ends the process in the middle of a boot.
//! * [`read_report`]: makes rows of what the plugin wrote under a QEMU that somebody else started.
//! * [`Allowance`]: what operations may cost.

mod allowance;
mod count;
mod folder;
mod marks;
mod place;
mod plugin;
mod profile;
mod row;

pub use allowance::Allowance;
pub use conflict_plugin::caches::Kind;
pub use count::{count, read_report};
pub use folder::remove_folders;
pub use marks::Marks;
pub use place::{Frame, Place, Places};
pub use plugin::build_plugin;
pub use profile::{Profile, Symbol, profile};
pub use row::{Cause, Row, SharedLock};
