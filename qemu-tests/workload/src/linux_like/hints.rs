//! What is known about the free runs of a block, or of a whole chunk, without looking at the bitmap.
//!
//! # Invariants
//!
//! * `contig` and `scan` are free. Nothing is said of free runs that is not there: a hint may be too short, never too long.
//! * No run is longer than `contig` in a block. In a chunk a run that crosses blocks may be.
//! * If `scan` is known (not empty), no run that begins before it is longer (in a chunk, none within a block), and `contig` begins
//!   behind it. So a search for more than its length begins at its end.
//! * Nothing is free before `first_free`; `left_free` and `right_free` are the runs at the borders (of a block only).

/// A run of granules; none if empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) start: usize,
    pub(super) len: usize,
}

impl Run {
    pub(super) const NONE: Run = Run { start: 0, len: 0 };

    pub(super) fn between(start: usize, end: usize) -> Run {
        Run { start, len: end - start }
    }

    pub(super) fn end(self) -> usize {
        self.start + self.len
    }

    pub(super) fn overlaps(self, other: Run) -> bool {
        self.start < other.end() && other.start < self.end()
    }

    /// Whether that many granules with that alignment fit in.
    pub(super) fn fits(self, nr: usize, align: usize) -> bool {
        self.start.next_multiple_of(align) + nr <= self.end()
    }
}

/// Positions are from the start of the block or chunk.
#[derive(Clone, Debug)]
pub(super) struct Hints {
    len: usize,
    pub(super) first_free: usize,
    pub(super) left_free: usize,
    pub(super) right_free: usize,
    pub(super) contig: Run,
    pub(super) scan: Run,
}

impl Hints {
    /// Everything is free.
    pub(super) fn all_free(len: usize) -> Self {
        Hints { len, first_free: 0, left_free: len, right_free: len, contig: Run { start: 0, len }, scan: Run::NONE }
    }

    /// Where a search for that many granules begins.
    pub(super) fn search_start(&self, nr: usize) -> usize {
        if self.scan.len > 0 && self.scan.len < nr { self.scan.end() } else { self.first_free }
    }

    /// Learns of a free run: one that came to be, in any order, or one that was there, from left to right.
    pub(super) fn consider(&mut self, run: Run) {
        self.first_free = self.first_free.min(run.start);
        if run.start == 0 {
            self.left_free = run.len;
        }
        if run.end() == self.len {
            self.right_free = run.len;
        }
        if run.len > self.contig.len {
            if run.start >= self.contig.end() {
                self.scan = self.contig;
            } else if self.scan.end() > run.start {
                self.scan = Run::NONE;
            }
            self.contig = run;
        } else if self.scan.len > 0 && run.start <= self.scan.start && run.len > self.scan.len {
            self.scan = run;
        }
    }

    /// Learns of the longest run that a search skipped, before what it found.
    pub(super) fn skipped(&mut self, run: Run) {
        if run.len >= self.scan.len && run.start >= self.scan.start && run.start < self.contig.start {
            self.scan = run;
        }
    }

    /// Learns of granules that are no longer free. Says whether the longest run is gone and has to be found again.
    #[must_use]
    pub(super) fn taken(&mut self, taken: Run) -> bool {
        self.left_free = self.left_free.min(taken.start);
        self.right_free = self.right_free.min(self.len - taken.end());
        if self.scan.overlaps(taken) {
            self.scan = Run::NONE;
        }
        self.contig.overlaps(taken)
    }

    /// Forgets the longest run. The search for it begins at the position returned.
    pub(super) fn forget_contig(&mut self) -> usize {
        self.contig = core::mem::take(&mut self.scan);
        if self.contig.len > 0 { self.contig.end() } else { self.first_free }
    }

    /// Forgets all runs. The search for the longest one begins at the position returned.
    pub(super) fn forget_runs(&mut self) -> usize {
        self.scan = Run::NONE;
        self.forget_contig()
    }
}
