//! What was measured, round by round, and what is said about it.

use crate::table::percent;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What was to be done, whichever strategy does it: rounds of the same setting are comparable.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Setting {
    pub workload: String,
    /// `whole`, or what of it: `counters`, `lifecycle`.
    pub part: String,
    pub cpus: u32,
    pub possible_cpus: u32,
    pub native: bool,
    /// The most processes alive at once, on all CPUs together.
    pub live: u64,
    pub folio_order: u32,
    /// Whether the shares of counters and of the list's lock were timed, which itself takes time.
    pub shares: bool,
}

/// One round of one strategy, as the kernel or the native process reports it.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct Round {
    #[serde(flatten)]
    pub setting: Setting,
    pub strategy: String,
    pub lifetimes: u64,
    pub seconds: f64,
    pub per_second: f64,
    pub nonzero_counters: u64,
    pub leaked_objects: i64,
    pub failed_forks: u64,
    /// What did not come from a pool but from the heap.
    pub pool_misses: u64,
    pub peak_live: u64,
    pub bytes_per_space: f64,
    pub worst_read_error: u64,
    pub guaranteed_error: u64,
    pub scanned_per_second: f64,
    pub exact_sums_share: f64,
    pub counter_share: f64,
    pub lru_share: f64,
}

impl Round {
    /// Reads the keys and values of a row.
    pub fn from_fields<'a>(fields: impl Iterator<Item = (&'a str, &'a str)>) -> Result<Self> {
        // What is neither a number nor a truth value is a string.
        let typed = |value: &str| serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
        let fields: Map<_, _> = fields.map(|(key, value)| (key.to_owned(), typed(value))).collect();
        serde_json::from_value(Value::Object(fields)).context("the row of a round cannot be read")
    }
}

/// All rounds of one strategy in one setting.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Row {
    #[serde(flatten)]
    pub setting: Setting,
    pub strategy: String,
    /// How many rounds this is taken from.
    pub rounds: usize,
    /// In all rounds.
    pub lifetimes: u64,
    /// In all rounds.
    pub seconds: f64,
    /// The median round's.
    pub per_second: f64,
    /// The fastest round's.
    pub best_per_second: f64,
    /// The fastest minus the slowest round, as a part of the median.
    pub spread: f64,
    /// `per_second` in units of the first row of the same setting, compared round by round: the median.
    pub ratio: f64,
    pub nonzero_counters: u64,
    pub leaked_objects: i64,
    /// In all rounds.
    pub failed_forks: u64,
    /// What came from the heap for each lifetime, since a pool was empty.
    pub pool_misses_per_lifetime: f64,
    /// In the round that had the most.
    pub peak_live: u64,
    /// The counters', on all CPUs together; the median round's.
    pub bytes_per_space: f64,
    /// The largest difference between a read and the truth that any round saw.
    pub worst_read_error: u64,
    /// What that difference can be at most.
    pub guaranteed_error: u64,
    /// The median round's.
    pub scanned_per_second: f64,
    /// How many of the spaces that a reader looked at it had to sum up; the median round's.
    pub exact_sums_share: f64,
    /// Of the CPUs' time; the median round's, if it was timed.
    pub counter_share: f64,
    /// Of the CPUs' time; the median round's, if it was timed.
    pub lru_share: f64,
    /// If they were counted, in a boot of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions_per_lifetime: Option<f64>,
}

impl Row {
    /// Whether every counter ended at zero and nothing leaked.
    pub fn is_clean(&self) -> bool {
        self.nonzero_counters == 0 && self.leaked_objects == 0
    }

    /// Nanoseconds of one CPU for one lifetime.
    pub fn ns_per_lifetime(&self) -> f64 {
        1e9 * f64::from(self.setting.cpus) / self.per_second
    }

    /// The same in the fastest round: what else runs on the machine only makes rounds slower.
    pub fn best_ns_per_lifetime(&self) -> f64 {
        1e9 * f64::from(self.setting.cpus) / self.best_per_second
    }

    /// How far rounds are apart: of one round, or where nothing was done, there is nothing to say.
    pub fn spread_text(&self) -> String {
        if self.rounds > 1 && self.lifetimes > 0 { percent(self.spread) } else { "-".into() }
    }

    /// In units of the first strategy's, if both did something.
    pub fn ratio_text(&self) -> String {
        if self.ratio > 0.0 { format!("{:.2}", self.ratio) } else { "-".into() }
    }

    fn new(rounds: &[&Round], reference: &[&Round]) -> Self {
        let first = rounds[0];
        let rates: Vec<_> = rounds.iter().map(|round| round.per_second).collect();
        let per_second = median(&rates);
        let fastest = rates.iter().copied().fold(f64::MIN, f64::max);
        let slowest = rates.iter().copied().fold(f64::MAX, f64::min);
        // The rounds of a turn are neighbours in time, so that a machine that changes its speed changes both.
        let ratios: Vec<_> = rounds.iter().zip(reference).map(|(this, that)| this.per_second / that.per_second).collect();
        let middle = |value: fn(&Round) -> f64| median(&rounds.iter().map(|round| value(round)).collect::<Vec<_>>());
        let lifetimes: u64 = rounds.iter().map(|round| round.lifetimes).sum();
        let pool_misses: u64 = rounds.iter().map(|round| round.pool_misses).sum();
        Self {
            setting: first.setting.clone(),
            strategy: first.strategy.clone(),
            rounds: rounds.len(),
            lifetimes,
            seconds: rounds.iter().map(|round| round.seconds).sum(),
            per_second,
            best_per_second: fastest,
            spread: finite((fastest - slowest) / per_second),
            ratio: finite(median(&ratios)),
            nonzero_counters: rounds.iter().map(|round| round.nonzero_counters).sum(),
            leaked_objects: rounds.iter().map(|round| round.leaked_objects).sum(),
            failed_forks: rounds.iter().map(|round| round.failed_forks).sum(),
            pool_misses_per_lifetime: pool_misses as f64 / lifetimes.max(1) as f64,
            peak_live: rounds.iter().map(|round| round.peak_live).max().unwrap_or_default(),
            bytes_per_space: middle(|round| round.bytes_per_space),
            worst_read_error: rounds.iter().map(|round| round.worst_read_error).max().unwrap_or_default(),
            guaranteed_error: rounds.iter().map(|round| round.guaranteed_error).max().unwrap_or_default(),
            scanned_per_second: middle(|round| round.scanned_per_second),
            exact_sums_share: middle(|round| round.exact_sums_share),
            counter_share: middle(|round| round.counter_share),
            lru_share: middle(|round| round.lru_share),
            instructions_per_lifetime: None,
        }
    }
}

/// JSON has no other numbers.
fn finite(value: f64) -> f64 {
    if value.is_finite() { value } else { 0.0 }
}

/// One row for each setting and strategy, in the order in which they first occur.
pub fn summarize(rounds: &[Round]) -> Vec<Row> {
    let mut groups: Vec<Vec<&Round>> = Vec::new();
    for round in rounds {
        let is_same = |other: &Round| other.setting == round.setting && other.strategy == round.strategy;
        match groups.iter_mut().find(|group| is_same(group[0])) {
            Some(group) => group.push(round),
            None => groups.push(vec![round]),
        }
    }
    groups
        .iter()
        .filter_map(|group| {
            let reference = groups.iter().find(|other| other[0].setting == group[0].setting)?;
            Some(Row::new(group, reference))
        })
        .collect()
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
        Round::from_fields(words.split_whitespace().filter_map(|word| word.split_once('=')))
    }

    fn words(strategy: &str, cpus: i64, lifetimes: u64) -> String {
        format!(
            "workload=bomb part=whole strategy={strategy} cpus={cpus} possible_cpus={cpus} native=false live=64 folio_order=0 shares=false \
             lifetimes={lifetimes} seconds=1.0 per_second={lifetimes}.0 nonzero_counters=0 leaked_objects=0 failed_forks=0 pool_misses=0 \
             peak_live=64 bytes_per_space=256 worst_read_error=31 guaranteed_error=93 scanned_per_second=0 exact_sums_share=0 \
             counter_share=0 lru_share=0"
        )
    }

    /// A round of one second.
    pub fn round(strategy: &str, cpus: u32, lifetimes: u64) -> Round {
        parse(&words(strategy, cpus.into(), lifetimes)).unwrap()
    }

    #[test]
    fn a_row_with_a_key_missing_or_of_the_wrong_kind_is_refused_by_name() {
        let error = parse("workload=bomb part=whole strategy=each cpus=4").unwrap_err();
        assert!(format!("{error:#}").contains("lifetimes"), "{error:#}");
        assert!(parse(&words("each", 4, 1)).is_ok() && parse(&words("each", -4, 1)).is_err());
    }

    #[test]
    fn rounds_of_a_strategy_and_a_number_of_cpus_become_one_row() {
        let rounds =
            [round("each", 1, 100), round("grouped", 1, 300), round("each", 1, 110), round("grouped", 1, 320), round("each", 2, 50)];
        let rows = summarize(&rounds);
        let names: Vec<_> = rows.iter().map(|row| (row.strategy.as_str(), row.setting.cpus, row.rounds, row.lifetimes)).collect();
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
