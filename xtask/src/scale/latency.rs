//! Times of single executions, as the native process tells them.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::str::FromStr;

/// The times of one strategy's executions, when more threads run than there are cores.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Latency {
    pub strategy: String,
    pub workload: String,
    pub part: String,
    pub threads: u32,
    pub seconds: f64,
    pub lifetimes: u64,
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub p999_ns: u64,
    pub max_ns: u64,
    /// How many took longer than a millisecond.
    pub stalls_over_1ms: u64,
    /// Shares of the executions, and the time that these took at most, in nanoseconds.
    pub curve: Vec<(f64, u64)>,
}

impl Latency {
    /// Reads a line of words with values.
    pub fn parse(line: &str) -> Result<Self> {
        let words: HashMap<_, _> = line.split(' ').filter_map(|word| word.split_once('=')).collect();
        Self::from_words(&words).context("the times of single executions cannot be read")
    }

    /// The time that no more than this share of the executions took.
    pub fn at(&self, share: f64) -> Option<u64> {
        self.curve.iter().find(|(quantile, _)| *quantile >= share).map(|(_, ns)| *ns)
    }

    fn from_words(words: &HashMap<&str, &str>) -> Result<Self> {
        fn value<T: FromStr>(words: &HashMap<&str, &str>, key: &str) -> Result<T> {
            let value = words.get(key).and_then(|value| value.parse().ok());
            value.with_context(|| format!("`{key}` is missing or wrong"))
        }
        let point = |text: &str| {
            let (quantile, ns) = text.split_once(':')?;
            Some((quantile.parse().ok()?, ns.parse().ok()?))
        };
        let curve: String = value(words, "curve")?;
        Ok(Self {
            strategy: value(words, "strategy")?,
            workload: value(words, "workload")?,
            part: value(words, "part")?,
            threads: value(words, "threads")?,
            seconds: value(words, "seconds")?,
            lifetimes: value(words, "lifetimes")?,
            p50_ns: value(words, "p50_ns")?,
            p99_ns: value(words, "p99_ns")?,
            p999_ns: value(words, "p999_ns")?,
            max_ns: value(words, "max_ns")?,
            stalls_over_1ms: value(words, "stalls_over_1ms")?,
            curve: curve.split(',').map(point).collect::<Option<_>>().context("`curve` is wrong")?,
        })
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    const LINE: &str = "strategy=lazy workload=exec part=counters threads=8 seconds=1 lifetimes=900 nonzero_counters=0 p50_ns=220 p99_ns=271 \
                        p999_ns=381 stalls_over_1ms=3 max_ns=31195135 curve=0.50000000:220,0.99900000:381";

    pub fn latency() -> Latency {
        Latency::parse(LINE).unwrap()
    }

    #[test]
    fn a_line_has_all_numbers_and_the_curve() {
        let latency = latency();
        assert_eq!((latency.strategy.as_str(), latency.threads, latency.lifetimes), ("lazy", 8, 900));
        assert_eq!((latency.p50_ns, latency.p99_ns, latency.p999_ns, latency.max_ns), (220, 271, 381, 31_195_135));
        assert_eq!((latency.stalls_over_1ms, latency.curve), (3, vec![(0.5, 220), (0.999, 381)]));
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        for (from, to, named) in
            [("p99_ns=271", "p99_ns=fast", "p99_ns"), ("0.99900000:381", "0.999", "curve"), ("threads=8", "", "threads")]
        {
            let error = format!("{:#}", Latency::parse(&LINE.replace(from, to)).unwrap_err());
            assert!(error.contains(named), "{error}");
        }
    }
}
