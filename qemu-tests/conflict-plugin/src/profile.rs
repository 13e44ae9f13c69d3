//! Which instructions the marked operations execute, without a look at memory: fast enough for work that takes its time by the clock.

use crate::cpu_set::MAX_CPUS;
use crate::marker::Marker;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Operations have numbers below this one; what has a higher one is not counted.
pub const NR_OPERATIONS: usize = 16;

/// What the plugin writes.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Profile {
    /// The operations that the guest executed, by number.
    pub operations: Vec<Operation>,
}

/// How often each instruction was executed in an operation, on all CPUs.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Operation {
    /// The number in its markers.
    pub number: u16,
    /// Addresses and counts, in the order of the addresses.
    pub instructions: Vec<(u64, u64)>,
}

/// A block of translated code.
#[derive(Debug)]
pub struct Block {
    instructions: Box<[u64]>,
    executions: [AtomicU64; NR_OPERATIONS],
}

/// No operation is under way.
const NONE: usize = usize::MAX;

/// What is counted.
#[derive(Debug)]
pub struct Profiler {
    /// The operation that each CPU is in, and the one that it has suspended.
    current: [AtomicUsize; MAX_CPUS],
    suspended: [AtomicUsize; MAX_CPUS],
    /// QEMU calls back with them for as long as it runs, so they are never given back.
    blocks: Mutex<Vec<&'static Block>>,
}

impl Default for Profiler {
    fn default() -> Self {
        let none = || [const { AtomicUsize::new(NONE) }; MAX_CPUS];
        Self { current: none(), suspended: none(), blocks: Mutex::default() }
    }
}

impl Profiler {
    /// Takes note of a block with instructions at these addresses.
    pub fn block(&self, instructions: impl Iterator<Item = u64>) -> &'static Block {
        let block = &*Box::leak(Box::new(Block { instructions: instructions.collect(), executions: Default::default() }));
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner).push(block);
        block
    }

    /// A CPU is about to execute a block.
    pub fn execute(&self, cpu: usize, block: &Block) {
        let operation = self.current.get(cpu).map_or(NONE, |current| current.load(Ordering::Relaxed));
        if let Some(executions) = block.executions.get(operation) {
            executions.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A CPU has executed a marker.
    pub fn mark(&self, cpu: usize, marker: Marker) {
        let (Some(current), Some(suspended)) = (self.current.get(cpu), self.suspended.get(cpu)) else { return };
        match marker {
            Marker::Begin(number) | Marker::Part(number) => current.store(usize::from(number), Ordering::Relaxed),
            Marker::End => current.store(NONE, Ordering::Relaxed),
            Marker::Suspend => suspended.store(current.swap(NONE, Ordering::Relaxed), Ordering::Relaxed),
            Marker::Resume => current.store(suspended.load(Ordering::Relaxed), Ordering::Relaxed),
            Marker::Forget(_) => {}
        }
    }

    /// What was counted.
    pub fn profile(&self) -> Profile {
        let blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        let counted = |number: usize| {
            let mut instructions = BTreeMap::<u64, u64>::new();
            for block in blocks.iter() {
                let executions = block.executions[number].load(Ordering::Relaxed);
                for &address in block.instructions.iter().filter(|_| executions > 0) {
                    *instructions.entry(address).or_default() += executions;
                }
            }
            Operation { number: number as u16, instructions: instructions.into_iter().collect() }
        };
        Profile { operations: (0..NR_OPERATIONS).map(counted).filter(|operation| !operation.instructions.is_empty()).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_count_for_the_operation_that_their_cpu_is_in() {
        let profiler = Profiler::default();
        let (one, two) = (profiler.block([10, 11].into_iter()), profiler.block([11, 12].into_iter()));
        profiler.execute(0, one);
        profiler.mark(0, Marker::Begin(5));
        profiler.execute(0, one);
        profiler.execute(0, two);
        profiler.execute(1, two);
        profiler.mark(0, Marker::Suspend);
        profiler.execute(0, two);
        profiler.mark(0, Marker::Resume);
        profiler.execute(0, two);
        profiler.mark(0, Marker::End);
        profiler.execute(0, one);
        profiler.execute(MAX_CPUS, one);
        profiler.mark(1, Marker::Begin(0));
        profiler.execute(1, one);
        profiler.mark(1, Marker::Begin(NR_OPERATIONS as u16));
        profiler.execute(1, two);
        let operations = profiler.profile().operations;
        let counted: Vec<_> = operations.into_iter().map(|operation| (operation.number, operation.instructions)).collect();
        assert_eq!(counted, [(0, vec![(10, 1), (11, 1)]), (5, vec![(10, 1), (11, 3), (12, 2)])]);
    }
}
