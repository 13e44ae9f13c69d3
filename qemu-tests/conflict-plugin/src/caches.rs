//! Who has which cache line: the model that transfers are counted with.
//!
//! Every CPU has a cache of its own that never runs out of room, and a line is in one of these states, as in the MESI protocols of real
//! processors:
//!
//! * nobody has touched it;
//! * some CPUs hold a copy, each of them since the last write;
//! * one CPU has written it, so no other CPU holds it.
//!
//! A transfer is an access that another CPU must take part in. What a CPU touches for the first time, and nobody else has written, comes
//! from memory and is none.

use crate::cpu_set::CpuSet;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// A cache line's size, as on every x86_64 processor.
pub const LINE_BYTES: u64 = 64;

/// What is done to a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// A load.
    Read,
    /// A store, or any access of a locked instruction: those take the line for writing from the start, whether they store or not.
    Write,
}

/// Why a line changed hands.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A CPU reads what another one has written since.
    ReadMiss,
    /// A CPU holds a copy, and writes: the others lose theirs.
    Upgrade,
    /// A CPU without a copy writes, and others lose theirs.
    WriteMiss,
}

/// A line changed hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Why.
    pub kind: Kind,
    /// The address of the instruction on another CPU that touched the line last.
    pub peer: u64,
}

#[derive(Clone, Copy, Debug)]
struct Touch {
    cpu: usize,
    instruction: u64,
}

#[derive(Debug)]
struct Line {
    holders: CpuSet,
    /// Whether anybody has written it: else copies come from memory.
    is_written: bool,
    last: Touch,
    /// The last touch by another CPU than `last`'s.
    other: Option<Touch>,
}

/// The caches of all CPUs.
#[derive(Debug, Default)]
pub struct Caches {
    lines: HashMap<u64, Line>,
}

impl Caches {
    /// `cpu` accesses the line that has this number, by the instruction at that address.
    pub fn access(&mut self, cpu: usize, line: u64, access: Access, instruction: u64) -> Option<Transfer> {
        let touch = Touch { cpu, instruction };
        let line = self.lines.entry(line).or_insert(Line { holders: CpuSet::default(), is_written: false, last: touch, other: None });
        if line.last.cpu != cpu {
            line.other = Some(line.last);
        }
        line.last = touch;
        let kind = match access {
            Access::Read => line.read(cpu),
            Access::Write => line.write(cpu),
        };
        kind.map(|kind| Transfer { kind, peer: line.other.map_or(0, |other| other.instruction) })
    }
}

impl Line {
    fn read(&mut self, cpu: usize) -> Option<Kind> {
        if self.holders.contains(cpu) {
            return None;
        }
        self.holders.insert(cpu);
        self.is_written.then_some(Kind::ReadMiss)
    }

    fn write(&mut self, cpu: usize) -> Option<Kind> {
        let before = std::mem::replace(&mut self.holders, CpuSet::only(cpu));
        self.is_written = true;
        if !before.has_other_than(cpu) {
            return None;
        }
        Some(if before.contains(cpu) { Kind::Upgrade } else { Kind::WriteMiss })
    }
}
