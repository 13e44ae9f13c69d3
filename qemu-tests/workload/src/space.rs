//! A simulated address space: its resident-set counters.

use crate::lifetime::Update;
use crate::strategy::Strategy;

/// An address space, as far as its counters go.
#[derive(Debug)]
pub struct AddressSpace<S> {
    counters: S,
}

impl<S: Strategy> AddressSpace<S> {
    /// An empty address space.
    pub fn new() -> Result<Self, S::Error> {
        S::new().map(|counters| Self { counters })
    }

    /// Applies `updates` in order.
    pub fn apply(&self, updates: &[Update]) {
        for &update in updates {
            self.counters.add(update);
        }
    }

    /// Applies `updates`, frees the space, and tells how many of its counters did not end at exactly 0. Kernels make the same check.
    pub fn tear_down(self, updates: &[Update]) -> u64 {
        self.apply(updates);
        self.counters.sums().iter().filter(|&&sum| sum != 0).count() as u64
    }
}
