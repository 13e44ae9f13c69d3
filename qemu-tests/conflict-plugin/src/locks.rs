//! Which spin locks CPUs hold, seen from outside.
//!
//! A lock is a byte that a locked instruction takes, and that the same CPU gives back by a plain store: as the locks of the crate `spin` are, and all
//! that the library and the test kernel use. An attempt that fails looks like one that succeeds; when operations run one at a time, none fails.

use crate::report::Lock;
use std::collections::BTreeMap;

/// The locks that a CPU holds: a few.
#[derive(Debug, Default)]
pub struct Held(Vec<u64>);

impl Held {
    /// Notes an access by an instruction that locks the bus or does not, and tells whether it takes a lock.
    pub fn acquires(&mut self, address: u64, bytes: u64, is_locked: bool) -> bool {
        // The second access of one instruction, its store, takes nothing.
        let is_new = is_locked && bytes == 1 && !self.0.contains(&address);
        if is_new {
            self.0.push(address);
        }
        is_new
    }

    /// Notes a plain store.
    pub fn release(&mut self, address: u64, bytes: u64) {
        if bytes == 1 {
            self.0.retain(|&held| held != address);
        }
    }
}

/// What was done under each lock.
#[derive(Debug, Default)]
pub struct Locks(BTreeMap<u64, Use>);

#[derive(Debug, Default)]
struct Use {
    totals: Lock,
    first_cpu: usize,
    is_shared: bool,
}

impl Locks {
    /// `cpu` takes the lock at that address.
    pub fn acquire(&mut self, address: u64, cpu: usize) {
        let new = || Use { totals: Lock { address, ..Lock::default() }, first_cpu: cpu, is_shared: false };
        let lock = self.0.entry(address).or_insert_with(new);
        lock.totals.acquisitions += 1;
        lock.is_shared |= lock.first_cpu != cpu;
    }

    /// An instruction of a CPU that holds these.
    pub fn execute(&mut self, held: &Held) {
        self.each(held, |lock| lock.instructions += 1);
    }

    /// A transfer to a CPU that holds these.
    pub fn transfer(&mut self, held: &Held) {
        self.each(held, |lock| lock.transfers += 1);
    }

    /// The locks that several CPUs took, most instructions first.
    pub fn shared(&self) -> Vec<Lock> {
        let mut locks: Vec<_> = self.0.values().filter(|lock| lock.is_shared).map(|lock| lock.totals.clone()).collect();
        locks.sort_by_key(|lock| std::cmp::Reverse(lock.instructions));
        locks
    }

    fn each(&mut self, held: &Held, change: impl Fn(&mut Lock)) {
        for address in &held.0 {
            if let Some(lock) = self.0.get_mut(address) {
                change(&mut lock.totals);
            }
        }
    }
}
