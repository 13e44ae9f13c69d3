//! What is said about an operation.

use crate::place::{Place, Places};
use conflict_plugin::caches::Kind;
use conflict_plugin::report::Operation;
use serde::{Deserialize, Serialize};

/// An operation on a number of CPUs. Numbers are means of its executions, on all CPUs.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Row {
    /// Its name.
    pub op: String,
    /// How many CPUs executed it at once.
    pub cpus: u32,
    /// How often, on all CPUs.
    pub executions: u64,
    /// Instructions.
    pub instructions_per_op: f64,
    /// Lines that one execution reads.
    pub lines_read: f64,
    /// Lines that one execution writes.
    pub lines_written: f64,
    /// How often a line changes hands.
    pub transfers_per_op: f64,
    /// Of those: reads of what another CPU has written.
    pub read_misses_per_op: f64,
    /// Of those: writes to what this CPU and others hold.
    pub upgrades_per_op: f64,
    /// Of those: writes to what other CPUs alone hold.
    pub write_misses_per_op: f64,
    /// Instructions that lock the bus.
    pub locked_per_op: f64,
    /// Transfers of the line that changes hands most often, one after the other: to write it, and as many to read it at most.
    #[serde(default)]
    pub hottest_line_per_op: f64,
    /// What is done under each lock that several CPUs take, most first: by one CPU at a time.
    #[serde(default)]
    pub shared_locks: Vec<SharedLock>,
    /// Who causes the transfers, most first.
    pub causes: Vec<Cause>,
}

/// A lock, and what an execution does while it has it.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct SharedLock {
    /// How often it is taken.
    pub acquisitions_per_op: f64,
    /// Instructions.
    pub instructions_per_op: f64,
    /// Lines that change hands, the lock's among them.
    pub transfers_per_op: f64,
}

/// Two instructions that make a line change hands.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Cause {
    /// Why.
    pub kind: Kind,
    /// How often.
    pub transfers_per_op: f64,
    /// The instruction that needs the line.
    pub by: Place,
    /// The one on another CPU that touched it last.
    pub from: Place,
}

impl Row {
    pub(crate) fn new(op: &str, cpus: u32, operation: &Operation, places: &Places) -> Self {
        let per_op = |number: u64| number as f64 / operation.executions as f64;
        let cause = |kind, count, by, from| Cause { kind, transfers_per_op: per_op(count), by: places.of(by), from: places.of(from) };
        let mut causes: Vec<Cause> = Vec::new();
        for transfers in &operation.transfers {
            let cause = cause(transfers.kind, transfers.count, transfers.instruction, transfers.peer);
            // A line of source that was compiled twice is one cause.
            match causes.iter_mut().find(|other| (other.kind, &other.by, &other.from) == (cause.kind, &cause.by, &cause.from)) {
                Some(other) => other.transfers_per_op += cause.transfers_per_op,
                None => causes.push(cause),
            }
        }
        Self {
            op: op.to_owned(),
            cpus,
            executions: operation.executions,
            instructions_per_op: per_op(operation.instructions),
            lines_read: per_op(operation.lines_read),
            lines_written: per_op(operation.lines_written),
            transfers_per_op: per_op(operation.nr_transfers()),
            read_misses_per_op: per_op(operation.nr_of(Kind::ReadMiss)),
            upgrades_per_op: per_op(operation.nr_of(Kind::Upgrade)),
            write_misses_per_op: per_op(operation.nr_of(Kind::WriteMiss)),
            locked_per_op: per_op(operation.locked),
            hottest_line_per_op: per_op(operation.hottest_line),
            shared_locks: operation
                .shared_locks
                .iter()
                .map(|lock| SharedLock {
                    acquisitions_per_op: per_op(lock.acquisitions),
                    instructions_per_op: per_op(lock.instructions),
                    transfers_per_op: per_op(lock.transfers),
                })
                .collect(),
            causes,
        }
    }
}
