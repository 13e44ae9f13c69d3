//! The ways in which an address space can keep its counters.

use crate::lifetime::{Member, Update};
use pcpu::{AllocError, Counter, CounterSet};

/// One way to keep an address space's counters.
pub trait Strategy: Sized {
    /// Why counters could not be allocated.
    type Error: Copy;

    /// The strategy's name on command lines and in result rows.
    const NAME: &'static str;

    /// Counters of a new address space, all 0.
    fn new() -> Result<Self, Self::Error>;

    /// Applies one update; any CPU may do so at any time.
    fn add(&self, update: Update);

    /// The exact value of each member.
    fn sums(&self) -> [i64; Member::COUNT];
}

/// Four counters, each an allocation of its own.
#[derive(Debug)]
pub struct Each([Counter; Member::COUNT]);

impl Strategy for Each {
    type Error = AllocError;
    const NAME: &'static str = "each";

    fn new() -> Result<Self, AllocError> {
        Ok(Self([Counter::new(0)?, Counter::new(0)?, Counter::new(0)?, Counter::new(0)?]))
    }

    fn add(&self, update: Update) {
        self.0[update.member.index()].add(update.pages);
    }

    fn sums(&self) -> [i64; Member::COUNT] {
        self.0.each_ref().map(Counter::sum)
    }
}

/// One set of four counters, allocated in one go.
#[derive(Debug)]
pub struct Grouped(CounterSet<{ Member::COUNT }>);

impl Strategy for Grouped {
    type Error = AllocError;
    const NAME: &'static str = "grouped";

    fn new() -> Result<Self, AllocError> {
        CounterSet::new([0; Member::COUNT]).map(Self)
    }

    fn add(&self, update: Update) {
        self.0.add(update.member.index(), update.pages);
    }

    fn sums(&self) -> [i64; Member::COUNT] {
        self.0.sum_all()
    }
}
