//! What is counted for operations, from what CPUs execute and access.

use crate::caches::{Access, Caches, Kind, LINE_BYTES};
use crate::cpu_set::MAX_CPUS;
use crate::locks::{Held, Locks};
use crate::marker::Marker;
use crate::report::{Operation, Report, Transfers};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Caches and counts of a guest.
#[derive(Debug)]
pub struct Counts {
    caches: Caches,
    cpus: Vec<Cpu>,
    operations: BTreeMap<u16, Sums>,
    troubles: Vec<String>,
}

/// What a CPU is in the middle of.
#[derive(Debug, Default)]
struct Cpu {
    operation: Option<u16>,
    is_suspended: bool,
    /// Whether the instruction that accesses memory now locks the bus.
    is_locked: bool,
    held: Held,
    /// Line numbers that this execution has read, and written: mostly a few, but a hundred thousand when it clears a chunk.
    read: BTreeSet<u64>,
    written: BTreeSet<u64>,
}

#[derive(Debug, Default)]
struct Sums {
    totals: Operation,
    transfers: BTreeMap<(Kind, u64, u64), u64>,
    lines: HashMap<u64, LineTransfers>,
    locks: Locks,
}

/// How often a line changed hands.
#[derive(Debug, Default)]
struct LineTransfers {
    to_read: u64,
    to_write: u64,
}

impl LineTransfers {
    /// Transfers that are one after the other. Many CPUs can read a line at once; one of them takes it from the one that wrote it.
    fn in_turn(&self) -> u64 {
        self.to_write + self.to_read.min(self.to_write)
    }
}

impl Default for Counts {
    fn default() -> Self {
        let cpus = (0..MAX_CPUS).map(|_| Cpu::default()).collect();
        Self { caches: Caches::default(), cpus, operations: BTreeMap::new(), troubles: Vec::new() }
    }
}

impl Counts {
    /// `cpu` executes a marker.
    pub fn mark(&mut self, cpu: usize, marker: Marker) {
        match marker {
            Marker::Begin(number) => {
                self.begin(cpu, number);
                self.sums(number).totals.executions += 1;
            }
            Marker::Part(number) => self.begin(cpu, number),
            Marker::End => self.end(cpu),
            Marker::Forget(number) => *self.sums(number) = Sums::default(),
            Marker::Suspend => self.cpus[cpu].is_suspended = true,
            Marker::Resume => self.cpus[cpu].is_suspended = false,
        }
    }

    /// `cpu` executes an instruction that is no marker.
    pub fn execute(&mut self, cpu: usize, is_locked: bool) {
        self.cpus[cpu].is_locked = is_locked;
        if let Some(number) = self.operation_of(cpu) {
            let sums = self.operations.entry(number).or_default();
            sums.totals.instructions += 1;
            sums.totals.locked += u64::from(is_locked);
            sums.locks.execute(&self.cpus[cpu].held);
        }
    }

    /// `cpu` accesses so many bytes, by the instruction at that address. What is outside of operations counts for nothing, but lines move.
    pub fn access(&mut self, cpu: usize, address: u64, bytes: u64, access: Access, instruction: u64) {
        let operation = self.operation_of(cpu);
        let is_locked = self.cpus[cpu].is_locked;
        if let Some(number) = operation.filter(|_| self.cpus[cpu].held.acquires(address, bytes, is_locked)) {
            self.sums(number).locks.acquire(address, cpu);
        }
        for line in address / LINE_BYTES..=address.saturating_add(bytes.saturating_sub(1)) / LINE_BYTES {
            let transfer = self.caches.access(cpu, line, access, instruction);
            let Some(number) = operation else { continue };
            match access {
                Access::Read => self.cpus[cpu].read.insert(line),
                Access::Write => self.cpus[cpu].written.insert(line),
            };
            if let Some(transfer) = transfer {
                let sums = self.operations.entry(number).or_default();
                *sums.transfers.entry((transfer.kind, instruction, transfer.peer)).or_default() += 1;
                let of_line = sums.lines.entry(line).or_default();
                match transfer.kind {
                    Kind::ReadMiss => of_line.to_read += 1,
                    Kind::Upgrade | Kind::WriteMiss => of_line.to_write += 1,
                }
                sums.locks.transfer(&self.cpus[cpu].held);
            }
        }
        if access == Access::Write && !is_locked {
            self.cpus[cpu].held.release(address, bytes);
        }
    }

    /// What was counted so far.
    pub fn report(&self) -> Report {
        let operations = self.operations.iter().map(|(&number, sums)| {
            let mut transfers: Vec<_> =
                sums.transfers.iter().map(|(&(kind, instruction, peer), &count)| Transfers { kind, instruction, peer, count }).collect();
            transfers.sort_by_key(|transfers| std::cmp::Reverse(transfers.count));
            let hottest_line = sums.lines.values().map(LineTransfers::in_turn).max().unwrap_or(0);
            Operation { number, transfers, hottest_line, shared_locks: sums.locks.shared(), ..sums.totals.clone() }
        });
        Report { operations: operations.filter(|operation| operation.executions > 0).collect(), troubles: self.troubles.clone() }
    }

    fn begin(&mut self, cpu: usize, number: u16) {
        if let Some(other) = self.cpus[cpu].operation.replace(number) {
            self.trouble(format!("operation {number} began on CPU {cpu} within operation {other}"));
            self.cpus[cpu].read.clear();
            self.cpus[cpu].written.clear();
        }
        // What was taken outside of the operation is not of it.
        self.cpus[cpu].held = Held::default();
    }

    fn end(&mut self, cpu: usize) {
        let Cpu { operation, read, written, .. } = &mut self.cpus[cpu];
        let lines = (read.len() as u64, written.len() as u64);
        read.clear();
        written.clear();
        match operation.take() {
            Some(number) => {
                let totals = &mut self.sums(number).totals;
                totals.lines_read += lines.0;
                totals.lines_written += lines.1;
            }
            None => self.trouble(format!("an operation ended on CPU {cpu} that had not begun there: it moved from another CPU")),
        }
    }

    /// The operation that counts what `cpu` does now.
    fn operation_of(&self, cpu: usize) -> Option<u16> {
        self.cpus[cpu].operation.filter(|_| !self.cpus[cpu].is_suspended)
    }

    fn sums(&mut self, number: u16) -> &mut Sums {
        self.operations.entry(number).or_default()
    }

    fn trouble(&mut self, text: String) {
        // One of a kind is enough to know, and a guest may go on for long.
        const ENOUGH: usize = 10;
        if self.troubles.len() < ENOUGH && !self.troubles.contains(&text) {
            self.troubles.push(text);
        }
    }
}

#[cfg(test)]
mod tests;
