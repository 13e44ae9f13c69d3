//! What the plugin writes when the guest ends: JSON, with addresses where a reader has symbols.

use crate::caches::Kind;
use serde::{Deserialize, Serialize};

/// Everything that was counted.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Report {
    /// The operations that the guest executed, by number.
    pub operations: Vec<Operation>,
    /// What makes the numbers doubtful, such as an operation that begins within another one.
    pub troubles: Vec<String>,
}

/// All executions of an operation, on all CPUs.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Operation {
    /// The number in its markers.
    pub number: u16,
    /// How often it was executed.
    pub executions: u64,
    /// Instructions between the markers.
    pub instructions: u64,
    /// Instructions that lock the bus.
    pub locked: u64,
    /// Lines that an execution read, added up: each counts once for an execution.
    pub lines_read: u64,
    /// Lines that an execution wrote, added up.
    pub lines_written: u64,
    /// Lines that changed hands, by kind and by who caused it; most first.
    pub transfers: Vec<Transfers>,
    /// Transfers of the line that changed hands most often, one after the other: to write it, and as many to read it at most.
    #[serde(default)]
    pub hottest_line: u64,
    /// The locks that more than one CPU took, by what was done under them; most first.
    #[serde(default)]
    pub shared_locks: Vec<Lock>,
}

/// What all CPUs did while they had a lock. Another lock that was taken meanwhile is no reason not to count.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Lock {
    /// Where the lock is.
    pub address: u64,
    /// How often it was taken.
    pub acquisitions: u64,
    /// Instructions while it was held.
    pub instructions: u64,
    /// Transfers while it was held, and the one that brought it.
    pub transfers: u64,
}

/// Transfers of one kind between two instructions.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Transfers {
    /// Why the line changed hands.
    pub kind: Kind,
    /// The address of the instruction that needed it.
    pub instruction: u64,
    /// The address of the instruction on another CPU that had touched it last.
    pub peer: u64,
    /// How often.
    pub count: u64,
}

impl Operation {
    /// How often lines changed hands.
    pub fn nr_transfers(&self) -> u64 {
        self.transfers.iter().map(|transfers| transfers.count).sum()
    }

    /// How often lines changed hands for that reason.
    pub fn nr_of(&self, kind: Kind) -> u64 {
        self.transfers.iter().filter(|transfers| transfers.kind == kind).map(|transfers| transfers.count).sum()
    }
}
