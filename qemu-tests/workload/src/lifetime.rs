//! The counter updates of one fork, exec and exit, phase by phase.
//!
//! Phases, updates in a phase and the CPUs follow a trace (the `rss_stat` tracepoint) of a statically linked program on Linux 6.18. Single
//! amounts are chosen to fit the trace's lumps and sums. Two address spaces take part: the copy of the parent's that fork makes, and
//! the program's that exec makes. Each ends at exactly 0 in every member.

/// A member of the resident set: what an address space counts its pages by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Member {
    /// Pages of mapped files.
    File,
    /// Anonymous pages: heap, stack, written private pages.
    Anon,
    /// Swapped-out pages. The traced program has none.
    Swap,
    /// Shared-memory pages. The traced program has none.
    Shmem,
}

impl Member {
    /// All of them, in the order of their places.
    pub const ALL: [Member; 4] = [Member::File, Member::Anon, Member::Swap, Member::Shmem];

    /// How many members there are.
    pub const COUNT: usize = Self::ALL.len();

    /// The member's place among an address space's counters.
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// One counter update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Update {
    /// The counter that changes.
    pub member: Member,
    /// By how many pages.
    pub pages: i64,
}

const fn file(pages: i64) -> Update {
    Update { member: Member::File, pages }
}

const fn anon(pages: i64) -> Update {
    Update { member: Member::Anon, pages }
}

/// fork fills the child's copy, on the parent's CPU.
pub const FORK_COPY: &[Update] = &[file(2), anon(2), anon(3), anon(2), anon(2), anon(2)];

/// The child runs in its copy until it calls exec.
#[rustfmt::skip]
pub const CHILD_RUN: &[Update] = &[
    file(16), file(16), file(16), file(16), file(16), file(6), anon(1), anon(-1),
];

/// exec prepares the program's stack in the new space, which is not the current one yet.
pub const EXEC_NEW: &[Update] = &[anon(1)];

/// exec drops the copy that fork made.
#[rustfmt::skip]
pub const EXEC_TEARDOWN: &[Update] = &[
    file(-64), file(-22), file(-2), anon(-3), anon(-2), anon(-2), anon(-2), anon(-2),
];

/// The program runs in its own space.
#[rustfmt::skip]
pub const PROGRAM_RUN: &[Update] = &[
    file(16), anon(1), file(16), anon(1), file(16), anon(1), file(18), anon(1), file(16), anon(1), file(16), anon(1), file(10),
    anon(1), file(6), anon(1), file(-1), file(16), anon(1), file(4), anon(1), file(2), file(1), file(1), file(-1), file(1),
];

/// exit drops the program's space.
#[rustfmt::skip]
pub const EXIT_TEARDOWN: &[Update] = &[
    file(-121), anon(-2), anon(-2), file(-16), anon(-2), anon(-1), anon(-1), anon(-1), anon(-1), anon(-1),
];

/// All updates, in order: those of one address space that lives from the fork to the exit.
pub const PHASES: [&[Update]; 6] = [FORK_COPY, CHILD_RUN, EXEC_NEW, EXEC_TEARDOWN, PROGRAM_RUN, EXIT_TEARDOWN];

/// A child that exits without exec: it runs in its copy.
pub const FORK_RUN: &[Update] = &[file(16), file(6)];

/// A child that exits without exec drops its copy. With the copying and the running: 6 of files, 10 anonymous, as in the trace.
pub const FORK_EXIT: &[Update] = &[file(-16), file(-6), file(-2), anon(-3), anon(-2), anon(-2), anon(-2), anon(-2)];

/// A child that vfork made runs in its parent's space until exec.
pub const VFORK_RUN: &[Update] = &[file(2), file(-1), file(-1)];

/// A thread of a process with several: it touches new memory page by page, and unmaps it in pieces. 60 faults, 4 lumps.
pub const THREAD_RUN: &[Update] = &{
    let mut updates = [anon(1); 64];
    let mut lump = 0;
    while lump < 4 {
        updates[lump * 16 + 15] = anon(-15);
        lump += 1;
    }
    updates
};
