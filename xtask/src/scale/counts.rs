//! What the plugin counts of an operation, on numbers of CPUs on which it does, and beyond.

use ::transfers::Row;
use std::collections::BTreeMap;

/// Counts up to this number of CPUs do not show how they grow: the first CPUs to share a line are a special case.
const GROWTH_FROM: u32 = 8;

/// What an execution does, on average.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counts {
    pub instructions: f64,
    /// How often a line changes hands.
    pub transfers: f64,
    /// How often the line does that changes hands most often.
    pub hottest_line: f64,
    /// Under each lock that several CPUs take.
    pub locks: Vec<Section>,
}

/// What an execution does under a lock.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Section {
    pub instructions: f64,
    pub transfers: f64,
}

impl From<&Row> for Counts {
    fn from(row: &Row) -> Self {
        let section = |lock: &::transfers::SharedLock| Section { instructions: lock.instructions_per_op, transfers: lock.transfers_per_op };
        Counts {
            instructions: row.instructions_per_op,
            transfers: row.transfers_per_op,
            hottest_line: row.hottest_line_per_op,
            locks: row.shared_locks.iter().map(section).collect(),
        }
    }
}

impl Counts {
    /// Every number, in an order, for so many locks.
    fn numbers(&self, nr_locks: usize) -> Vec<f64> {
        let locks = (0..nr_locks).map(|index| self.locks.get(index).copied().unwrap_or_default());
        [self.instructions, self.transfers, self.hottest_line]
            .into_iter()
            .chain(locks.flat_map(|lock| [lock.instructions, lock.transfers]))
            .collect()
    }

    fn from_numbers(numbers: &[f64]) -> Self {
        let (own, locks) = numbers.split_at(3);
        let locks = locks.chunks(2).map(|lock| Section { instructions: lock[0], transfers: lock[1] }).collect();
        Counts { instructions: own[0], transfers: own[1], hottest_line: own[2], locks }
    }
}

/// The counts of one operation on several numbers of CPUs.
#[derive(Clone, Debug, Default)]
pub struct Growth(BTreeMap<u32, Counts>);

/// Transfers as a line over the number of CPUs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    /// What it is on none.
    pub start: f64,
    /// What each CPU adds.
    pub slope: f64,
    /// How far it is from what was counted, at most, as a part of the largest count.
    pub residual: f64,
}

impl Growth {
    pub fn insert(&mut self, cpus: u32, counts: Counts) {
        self.0.insert(cpus, counts);
    }

    /// What was counted, or, beyond that, what a straight line through what was counted on 8 CPUs and more says. What gets less on more CPUs is taken to
    /// stay as it was on the most: a line would go below zero. `None` between the counts, and without any.
    pub fn at(&self, cpus: u32) -> Option<Counts> {
        if let Some(counts) = self.0.get(&cpus) {
            return Some(counts.clone());
        }
        let (&most, last) = self.0.last_key_value()?;
        if cpus < most {
            return None;
        }
        let nr_locks = self.0.values().map(|counts| counts.locks.len()).max().unwrap_or(0);
        let last = last.numbers(nr_locks);
        let numbers: Vec<_> = last
            .iter()
            .enumerate()
            .map(|(index, &last)| {
                let line = self.line(|counts| counts.numbers(nr_locks)[index]);
                line.map_or(last, |line| (line.start + line.slope * f64::from(cpus)).max(last))
            })
            .collect();
        Some(Counts::from_numbers(&numbers))
    }

    /// How transfers grow.
    pub fn transfers(&self) -> Option<Line> {
        self.line(|counts| counts.transfers)
    }

    /// The least squares line of a number; `None` for fewer than two points.
    fn line(&self, number: impl Fn(&Counts) -> f64) -> Option<Line> {
        let points: Vec<_> = self.0.range(GROWTH_FROM..).map(|(&cpus, counts)| (f64::from(cpus), number(counts))).collect();
        if points.len() < 2 {
            return None;
        }
        let nr = points.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / nr;
        let (x, y) = (mean(|point| point.0), mean(|point| point.1));
        let slope = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum::<f64>()
            / points.iter().map(|point| (point.0 - x).powi(2)).sum::<f64>();
        let start = y - slope * x;
        let largest = points.iter().map(|point| point.1.abs()).fold(0.0, f64::max);
        let off = points.iter().map(|point| (start + slope * point.0 - point.1).abs()).fold(0.0, f64::max);
        Some(Line { start, slope, residual: if largest > 0.0 { off / largest } else { 0.0 } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn growth(of: impl Fn(f64) -> Counts) -> Growth {
        let mut growth = Growth::default();
        [1, 2, 4, 8, 16, 32, 64].into_iter().for_each(|cpus| growth.insert(cpus, of(f64::from(cpus))));
        growth
    }

    #[test]
    fn what_grows_with_each_cpu_goes_on_to_grow() {
        let lock = |cpus: f64| Section { instructions: 100.0, transfers: 2.0 + cpus };
        let growth =
            growth(|cpus| Counts { instructions: 10.0 * cpus, transfers: 5.0 + 2.0 * cpus, hottest_line: 1.0, locks: vec![lock(cpus)] });
        let expected = Counts { instructions: 10_240.0, transfers: 2053.0, hottest_line: 1.0, locks: vec![lock(1024.0)] };
        let at = growth.at(1024).unwrap();
        for (number, expected) in at.numbers(1).iter().zip(expected.numbers(1)) {
            assert!((number - expected).abs() < 1e-6, "{at:?}");
        }
        let line = growth.transfers().unwrap();
        assert!((line.start - 5.0).abs() < 1e-9 && (line.slope - 2.0).abs() < 1e-9 && line.residual < 1e-9, "{line:?}");
    }

    #[test]
    fn what_gets_less_stays_where_it_was_last() {
        let growth = growth(|cpus| Counts { instructions: 1000.0 / cpus, ..Counts::default() });
        assert_eq!(growth.at(512).unwrap().instructions, 1000.0 / 64.0);
    }

    #[test]
    fn what_was_counted_is_taken_as_it_is_and_nothing_is_made_up_in_between() {
        let growth = growth(|cpus| Counts { transfers: if cpus == 2.0 { 7.0 } else { cpus }, ..Counts::default() });
        assert_eq!(growth.at(2).unwrap().transfers, 7.0);
        assert_eq!(growth.at(3), None);
        assert_eq!(Growth::default().at(1), None);
    }

    #[test]
    fn a_bend_is_a_residual() {
        let line = growth(|cpus| Counts { transfers: cpus * cpus, ..Counts::default() }).transfers().unwrap();
        assert!(line.residual > 0.05, "{line:?}");
    }
}
