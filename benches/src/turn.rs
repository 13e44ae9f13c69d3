//! A case's turn in a round, as one of its threads sees it.

use crate::clock;
use core::hint::spin_loop;
use core::sync::atomic::{AtomicUsize, Ordering};
use pcpu::PerCpuBox;

/// Where threads that spin wait for each other, often and for a short time.
#[derive(Debug, Default)]
pub struct Meeting(AtomicUsize);

impl Meeting {
    /// Waits until `nr_threads` threads called this as often.
    pub fn wait(&self, nr_threads: usize) {
        let arrived = self.0.fetch_add(1, Ordering::AcqRel) + 1;
        let all = arrived.next_multiple_of(nr_threads);
        while self.0.load(Ordering::Acquire) < all {
            spin_loop();
        }
    }
}

/// What a thread of a case is given.
#[derive(Clone, Copy, Debug)]
pub struct Turn<'a> {
    /// This thread's number: 0, or 1 in cases of two threads.
    pub thread: usize,
    /// How many threads the case has.
    pub nr_threads: usize,
    /// How many operations are to be timed at once.
    pub nr_operations: usize,
    /// For `together`.
    pub meeting: &'a Meeting,
    /// For `gs_add`.
    pub word: &'a PerCpuBox<u64>,
}

/// What a thread measured for one row, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    pub ns: f64,
    /// The addition through GS, at about the same time.
    pub gs_add_ns: f64,
}

impl Turn<'_> {
    /// Waits for the case's other threads.
    pub fn together(&self) {
        if self.nr_threads > 1 {
            self.meeting.wait(self.nr_threads);
        }
    }

    /// What an addition through GS takes now.
    pub fn gs_add(&self) -> f64 {
        clock::gs_add(self.word)
    }

    /// Times `operation`, while the case's other threads do the same.
    pub fn sample(&self, operation: impl FnMut()) -> Vec<Sample> {
        let gs_add_ns = self.gs_add();
        self.together();
        let ns = clock::time_each(self.nr_operations, operation);
        vec![Sample { ns, gs_add_ns }]
    }
}
