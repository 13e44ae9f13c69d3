//! The throughput that a number of CPUs can have, from what one execution costs.
//!
//! On N CPUs an execution takes `c + tL`: c is what it takes on one thread whose caches have everything, t how often a line changes hands in it, and L what
//! that takes. So N CPUs do at most `N / (c + tL)`. What is done under a lock that all take is done by one CPU at a time, and a line that all write is
//! with one CPU at a time: however many CPUs there are, they do at most `1 / s`, where s is the longest of those times. These are
//! the asymptotic bounds of operational analysis; queueing makes it less near the corner, and so does what waiting CPUs do to a lock's line.
//!
//! What is done under a lock is known in instructions. Each is taken to last as long as one does on a machine of one CPU: on a large one the mean
//! instruction lasts longer, since most of them clear or sum the copies of all CPUs, and that is done without the lock.

use super::counts::Counts;
use serde::{Deserialize, Serialize};

/// What bounds the throughput.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub enum Bound {
    /// Each CPU does what it can.
    #[serde(rename = "CPUs")]
    Cpus,
    /// A lock.
    #[serde(rename = "a lock")]
    Lock,
    /// A cache line.
    #[serde(rename = "a line")]
    Line,
}

impl Bound {
    /// For tables.
    pub fn name(self) -> &'static str {
        match self {
            Bound::Cpus => "CPUs",
            Bound::Lock => "a lock",
            Bound::Line => "a line",
        }
    }
}

/// What the model says about one number of CPUs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// What an execution takes on each CPU, in the unit of the costs: `cpus` by the throughput.
    pub time: f64,
    pub bound: Bound,
}

/// What things take, all in the same unit.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// An execution on one thread.
    pub one_thread: f64,
    /// An instruction, on a machine of one CPU.
    pub instruction: f64,
    /// A transfer of a line.
    pub transfer: f64,
}

/// Predicts for `cpus` CPUs.
pub fn predict(cpus: u32, costs: Costs, counts: &Counts) -> Prediction {
    let alone = Prediction { time: costs.one_thread + counts.transfers * costs.transfer, bound: Bound::Cpus };
    let for_all = |serial: f64, bound| Prediction { time: f64::from(cpus) * serial, bound };
    let locks = counts.locks.iter();
    let locks = locks.map(|lock| for_all(lock.instructions * costs.instruction + lock.transfers * costs.transfer, Bound::Lock));
    let line = for_all(counts.hottest_line * costs.transfer, Bound::Line);
    // The first of equals: a CPU alone waits for nobody.
    locks.chain([line]).fold(alone, |longest, other| if other.time > longest.time { other } else { longest })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scale::counts::Section;

    fn costs(one_thread: f64, instruction: f64, transfer: f64) -> Costs {
        Costs { one_thread, instruction, transfer }
    }

    #[test]
    fn what_moves_no_line_takes_the_same_on_any_number_of_cpus() {
        let counts = Counts { instructions: 10.0, ..Counts::default() };
        for cpus in [1, 2, 1024] {
            assert_eq!(predict(cpus, costs(5.0, 0.5, 40.0), &counts), Prediction { time: 5.0, bound: Bound::Cpus });
        }
    }

    #[test]
    fn a_line_that_all_write_is_with_one_cpu_at_a_time() {
        let counts = Counts { instructions: 1.0, transfers: 1.0, hottest_line: 1.0, locks: Vec::new() };
        // One after the other, however many there are: 40 each.
        assert_eq!(predict(2, costs(2.0, 2.0, 40.0), &counts), Prediction { time: 80.0, bound: Bound::Line });
        assert_eq!(predict(100, costs(2.0, 2.0, 40.0), &counts), Prediction { time: 4000.0, bound: Bound::Line });
        // A line that moves seldom is no bound for few CPUs.
        let seldom = Counts { transfers: 0.25, hottest_line: 0.25, ..counts };
        assert_eq!(predict(2, costs(30.0, 2.0, 40.0), &seldom), Prediction { time: 40.0, bound: Bound::Cpus });
    }

    #[test]
    fn what_is_done_under_a_lock_is_done_one_at_a_time() {
        let lock = Section { instructions: 25.0, transfers: 2.0 };
        let counts = Counts { instructions: 100.0, transfers: 3.0, hottest_line: 1.0, locks: vec![lock] };
        // Alone: 40 + 3 * 10. Under the lock: 25 * 0.4 + 2 * 10 for each CPU.
        assert_eq!(predict(1, costs(40.0, 0.4, 10.0), &counts), Prediction { time: 70.0, bound: Bound::Cpus });
        assert_eq!(predict(2, costs(40.0, 0.4, 10.0), &counts), Prediction { time: 70.0, bound: Bound::Cpus });
        assert_eq!(predict(4, costs(40.0, 0.4, 10.0), &counts), Prediction { time: 120.0, bound: Bound::Lock });
    }
}
