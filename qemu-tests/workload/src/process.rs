//! A process from fork to exit.

use crate::lifetime::{CHILD_RUN, EXEC_NEW, EXEC_TEARDOWN, EXIT_TEARDOWN, FORK_COPY, PROGRAM_RUN};
use crate::space::AddressSpace;
use crate::strategy::Strategy;
use core::ops::AddAssign;

/// What a CPU's processes added up to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Processes that went from fork through exec to exit.
    pub lifetimes: u64,
    /// Counters that were not at 0 when their address space was torn down.
    pub nonzero_counters: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.lifetimes += other.lifetimes;
        self.nonzero_counters += other.nonzero_counters;
    }
}

/// A process between fork and exec: it has a copy of its parent's address space.
#[derive(Debug)]
pub struct Forked<S> {
    copy: AddressSpace<S>,
}

impl<S: Strategy> Forked<S> {
    /// Forks. The parent's counters stay as they are: fork only reads its pages.
    pub fn new() -> Result<Self, S::Error> {
        let copy = AddressSpace::new()?;
        copy.apply(FORK_COPY);
        Ok(Self { copy })
    }

    /// Runs up to exec, replaces the address space, and runs the program. When there is no memory for the new space, the process is
    /// killed: its copy is torn down all the same.
    pub fn exec(self, tally: &mut Tally) -> Result<Program<S>, S::Error> {
        self.copy.apply(CHILD_RUN);
        let own = AddressSpace::new().inspect(|own| own.apply(EXEC_NEW));
        tally.nonzero_counters += self.copy.tear_down(EXEC_TEARDOWN);
        let own = own?;
        own.apply(PROGRAM_RUN);
        Ok(Program { own })
    }
}

/// A process after exec: it has an address space of its own.
#[derive(Debug)]
pub struct Program<S> {
    own: AddressSpace<S>,
}

impl<S: Strategy> Program<S> {
    /// Exits.
    pub fn exit(self, tally: &mut Tally) {
        tally.nonzero_counters += self.own.tear_down(EXIT_TEARDOWN);
        tally.lifetimes += 1;
    }
}
