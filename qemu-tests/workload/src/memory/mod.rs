//! What an address space consists of besides its counters: page-table entries, and anonymous pages on a list that all CPUs share.
//!
//! Everything comes from pools of the worker's own, filled before the work starts, so that no heap is measured.

mod lru;
mod page_table;
mod pools;

pub(crate) use lru::Lru;
pub(crate) use page_table::PageTable;
pub(crate) use pools::{Pools, Slot};

/// A folio's number.
pub(crate) type Folio = u32;
