//! What operations may cost.

use crate::row::Row;
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::fmt::Write;

/// How many transfers an execution of each operation may cost on average. Read from lines of `operation,transfers,reason`; lines that
/// begin with `#` are for readers.
#[derive(Clone, Debug, PartialEq)]
pub struct Allowance(BTreeMap<String, f64>);

/// More of an operation's causes would not be read.
const CAUSES_SHOWN: usize = 4;

impl Allowance {
    /// Reads the table.
    ///
    /// # Errors
    /// A line has fewer fields, a number that is none, or an operation that had a line already.
    pub fn parse(text: &str) -> Result<Self> {
        let mut table = BTreeMap::new();
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let mut fields = line.splitn(3, ',');
            let (Some(op), Some(number), Some(_reason)) = (fields.next(), fields.next(), fields.next()) else {
                bail!("`{line}` is not `operation,transfers,reason`");
            };
            let number: f64 = number.parse().with_context(|| format!("`{line}`: not a number of transfers"))?;
            if table.insert(op.to_owned(), number).is_some() {
                bail!("`{op}` has two lines");
            }
        }
        Ok(Self(table))
    }

    /// What is not allowed in these rows, one text for each operation, with the lines of source that cause it.
    pub fn violations(&self, rows: &[Row]) -> Vec<String> {
        rows.iter().filter_map(|row| self.violation(row)).collect()
    }

    /// What an operation may cost, if the table has it.
    pub fn of(&self, op: &str) -> Option<f64> {
        self.0.get(op).copied()
    }

    /// Operations of the table that these rows lack.
    pub fn missing(&self, rows: &[Row]) -> Vec<&str> {
        self.0.keys().map(String::as_str).filter(|op| rows.iter().all(|row| row.op != *op)).collect()
    }

    fn violation(&self, row: &Row) -> Option<String> {
        let Row { op, cpus, transfers_per_op, causes, .. } = row;
        let Some(allowed) = self.of(op) else {
            return Some(format!("{op} has no line in the table of what operations may cost"));
        };
        if *transfers_per_op <= allowed {
            return None;
        }
        let mut text = format!("{op} on {cpus} CPUs: {transfers_per_op} transfers for each execution, {allowed} allowed");
        for cause in &causes[..causes.len().min(CAUSES_SHOWN)] {
            // Writing to a string does not fail.
            let _ = write!(text, "\n  {} by {}\n    from {}", cause.transfers_per_op, cause.by, cause.from);
        }
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::{Frame, Place};
    use crate::row::Cause;
    use conflict_plugin::caches::Kind;

    fn row(op: &str, transfers_per_op: f64) -> Row {
        let place = |symbol: &str, line| Place { frames: vec![Frame { symbol: symbol.into(), file: "src/a.rs".into(), line }] };
        let cause = Cause { kind: Kind::WriteMiss, transfers_per_op, by: place("writes", 3), from: place("reads", 5) };
        Row {
            op: op.into(),
            cpus: 2,
            executions: 10,
            instructions_per_op: 1.0,
            lines_read: 1.0,
            lines_written: 1.0,
            transfers_per_op,
            read_misses_per_op: 0.0,
            upgrades_per_op: 0.0,
            write_misses_per_op: transfers_per_op,
            locked_per_op: 0.0,
            hottest_line_per_op: transfers_per_op,
            shared_locks: Vec::new(),
            causes: vec![cause],
        }
    }

    const TABLE: &str = "# for readers\nhit,0,a hit\n\npost,0.5,once a batch, on average\n";

    #[test]
    fn what_is_allowed_is_not_named() {
        let allowance = Allowance::parse(TABLE).unwrap();
        assert_eq!(allowance.violations(&[row("hit", 0.0), row("post", 0.5)]), [""; 0]);
    }

    #[test]
    fn what_is_not_is_named_with_both_sides_and_their_lines() {
        let allowance = Allowance::parse(TABLE).unwrap();
        let violations = allowance.violations(&[row("hit", 0.25), row("post", 0.5), row("new", 0.0)]);
        assert_eq!(violations.len(), 2, "{violations:?}");
        for part in ["hit on 2 CPUs", "0.25 transfers", "0 allowed", "by writes (src/a.rs:3)", "from reads (src/a.rs:5)"] {
            assert!(violations[0].contains(part), "no {part} in {}", violations[0]);
        }
        assert!(violations[1].contains("new has no line"), "{}", violations[1]);
        assert_eq!(allowance.missing(&[row("hit", 0.0)]), ["post"]);
    }

    #[test]
    fn bad_tables_are_refused() {
        for text in ["hit,0", "hit,none,a hit", "hit,0,a\nhit,1,b"] {
            assert!(Allowance::parse(text).is_err(), "{text}");
        }
    }
}
