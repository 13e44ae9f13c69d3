//! Counts how often cache lines change hands in the marked operations of a kernel, and names the lines of source that make them.
//!
//! * [`MarkedKernel`]: an ELF file whose operations are marked.
//! * [`build_plugin`]: the plugin that counts.
//! * [`count`]: boots the one with the other, and makes a [`Row`] of each operation.
//! * [`Allowance`]: what operations may cost.

mod allowance;
mod count;
mod kernel;
mod place;
mod plugin;
mod row;

pub use allowance::Allowance;
pub use conflict_plugin::caches::Kind;
pub use count::count;
pub use kernel::MarkedKernel;
pub use place::{Frame, Place, Places};
pub use plugin::build_plugin;
pub use row::{Cause, Row};
