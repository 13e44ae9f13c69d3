//! What the kernel measured, and what is said about it.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// One round of one strategy, as the kernel reports it.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct Round {
    pub workload: String,
    pub strategy: String,
    pub cpus: u32,
    pub possible_cpus: u32,
    pub native: bool,
    pub lifetimes: u64,
    pub seconds: f64,
    pub per_second: f64,
    pub nonzero_counters: u64,
    pub leaked_objects: i64,
}

impl Round {
    /// Reads the keys and values of the kernel's row.
    pub fn from_row(row: &kernel_runner::Row) -> Result<Self> {
        // What is neither a number nor a truth value is a string.
        let typed = |value: &String| serde_json::from_str(value).unwrap_or_else(|_| Value::from(value.as_str()));
        let fields: Map<_, _> = row.fields.iter().map(|(key, value)| (key.clone(), typed(value))).collect();
        serde_json::from_value(Value::Object(fields)).context("the kernel's row cannot be read")
    }
}

/// All rounds of one strategy on one number of CPUs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    pub workload: String,
    pub strategy: String,
    pub cpus: u32,
    pub possible_cpus: u32,
    pub native: bool,
    /// How many rounds this is taken from.
    pub rounds: usize,
    /// In all rounds.
    pub lifetimes: u64,
    /// In all rounds.
    pub seconds: f64,
    /// The median round's.
    pub per_second: f64,
    /// The fastest minus the slowest round, as a part of the median.
    pub spread: f64,
    /// `per_second` in units of the first row of the same workload and CPUs, compared round by round: the median.
    pub ratio: f64,
    pub nonzero_counters: u64,
    pub leaked_objects: i64,
}

impl Row {
    /// Whether every counter ended at zero and nothing leaked.
    pub fn is_clean(&self) -> bool {
        self.nonzero_counters == 0 && self.leaked_objects == 0
    }

    fn new(rounds: &[&Round], reference: &[&Round]) -> Self {
        let first = rounds[0];
        let rates: Vec<_> = rounds.iter().map(|round| round.per_second).collect();
        let per_second = median(&rates);
        let fastest = rates.iter().copied().fold(f64::MIN, f64::max);
        let slowest = rates.iter().copied().fold(f64::MAX, f64::min);
        // The rounds of a turn are neighbours in time, so that a machine that changes its speed changes both.
        let ratios: Vec<_> = rounds.iter().zip(reference).map(|(this, that)| this.per_second / that.per_second).collect();
        Self {
            workload: first.workload.clone(),
            strategy: first.strategy.clone(),
            cpus: first.cpus,
            possible_cpus: first.possible_cpus,
            native: first.native,
            rounds: rounds.len(),
            lifetimes: rounds.iter().map(|round| round.lifetimes).sum(),
            seconds: rounds.iter().map(|round| round.seconds).sum(),
            per_second,
            spread: (fastest - slowest) / per_second,
            ratio: median(&ratios),
            nonzero_counters: rounds.iter().map(|round| round.nonzero_counters).sum(),
            leaked_objects: rounds.iter().map(|round| round.leaked_objects).sum(),
        }
    }
}

/// One row for each workload, strategy and number of CPUs, in the order in which they first occur.
pub fn summarize(rounds: &[Round]) -> Vec<Row> {
    let mut groups: Vec<Vec<&Round>> = Vec::new();
    for round in rounds {
        let is_same = |other: &Round| is_comparable(other, round) && other.strategy == round.strategy;
        match groups.iter_mut().find(|group| is_same(group[0])) {
            Some(group) => group.push(round),
            None => groups.push(vec![round]),
        }
    }
    groups
        .iter()
        .filter_map(|group| {
            let reference = groups.iter().find(|other| is_comparable(other[0], group[0]))?;
            Some(Row::new(group, reference))
        })
        .collect()
}

fn is_comparable(one: &Round, other: &Round) -> bool {
    (&one.workload, one.cpus) == (&other.workload, other.cpus)
}

/// The middle value, or the mean of the two in the middle. Of no values: NaN.
fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    fn parse(words: &str) -> Result<Round> {
        let pairs = words.split_whitespace().filter_map(|word| word.split_once('='));
        Round::from_row(&kernel_runner::Row { fields: pairs.map(|(key, value)| (key.into(), value.into())).collect() })
    }

    /// A round of one second.
    pub fn round(strategy: &str, cpus: u32, lifetimes: u64) -> Round {
        parse(&format!(
            "workload=bomb strategy={strategy} cpus={cpus} possible_cpus={cpus} native=false lifetimes={lifetimes} seconds=1.0 \
             per_second={lifetimes}.0 nonzero_counters=0 leaked_objects=0"
        ))
        .unwrap()
    }

    #[test]
    fn a_row_with_a_key_missing_or_of_the_wrong_kind_is_refused_by_name() {
        let error = parse("workload=bomb strategy=each cpus=4").unwrap_err();
        assert!(format!("{error:#}").contains("possible_cpus"), "{error:#}");
        assert!(parse("workload=bomb strategy=each cpus=-4").is_err());
    }

    #[test]
    fn rounds_of_a_strategy_and_a_number_of_cpus_become_one_row() {
        let rounds =
            [round("each", 1, 100), round("grouped", 1, 300), round("each", 1, 110), round("grouped", 1, 320), round("each", 2, 50)];
        let rows = summarize(&rounds);
        let names: Vec<_> = rows.iter().map(|row| (row.strategy.as_str(), row.cpus, row.rounds, row.lifetimes)).collect();
        assert_eq!(names, [("each", 1, 2, 210), ("grouped", 1, 2, 620), ("each", 2, 1, 50)]);
    }

    #[test]
    fn per_second_is_the_median_and_spread_the_range_over_it() {
        let rounds = [round("each", 1, 90), round("each", 1, 100), round("each", 1, 140)];
        let row = &summarize(&rounds)[0];
        assert_eq!((row.per_second, row.spread, row.seconds), (100.0, 0.5, 3.0));
    }

    #[test]
    fn the_ratio_compares_rounds_of_the_same_turn_on_the_same_number_of_cpus() {
        // The machine halves its speed from turn to turn: the ratio stays 2.
        let rounds = [
            round("each", 4, 100),
            round("grouped", 4, 200),
            round("each", 4, 50),
            round("grouped", 4, 100),
            round("each", 4, 25),
            round("grouped", 4, 50),
            round("grouped", 8, 7),
        ];
        let ratios: Vec<_> = summarize(&rounds).iter().map(|row| row.ratio).collect();
        assert_eq!(ratios, [1.0, 2.0, 1.0]);
    }

    #[test]
    fn a_counter_off_zero_or_a_leak_in_any_round_is_kept() {
        let mut wrong = round("each", 1, 100);
        wrong.nonzero_counters = 1;
        let mut leaky = round("grouped", 1, 100);
        leaky.leaked_objects = 2;
        let rows = summarize(&[wrong, leaky, round("each", 1, 100), round("grouped", 1, 100), round("each", 2, 100)]);
        let clean: Vec<_> = rows.iter().map(Row::is_clean).collect();
        assert_eq!(clean, [false, false, true]);
    }

    #[test]
    fn the_median_of_an_even_number_is_between_the_middle_two() {
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), 2.5);
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
    }
}
