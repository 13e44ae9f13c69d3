//! What the bench's processes print: lines of JSON.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// One operation on one number of possible CPUs. Times are in nanoseconds for each operation on each thread.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Row {
    pub name: String,
    pub threads: u32,
    pub possible_cpus: u32,
    /// In the best round.
    pub ns: f64,
    /// In the median round.
    pub median_ns: f64,
    /// In additions through GS that were timed in the same round; the median round's.
    pub ratio_to_gs_add: f64,
    /// The baseline's, in its best round.
    pub baseline_ns: Option<f64>,
    /// `baseline_ns` in units of `ns`.
    pub speedup: Option<f64>,
}

/// What the rows of some names measure.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct Operation {
    /// In capitals is what differs from row to row.
    pub name: String,
    pub meaning: String,
    /// The names of its rows.
    pub rows: Vec<String>,
}

/// A line.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    Progress { done: u64, total: u64, label: String },
    Row(Row),
    Operation(Operation),
}

impl Message {
    pub fn parse(line: &str) -> Result<Self> {
        serde_json::from_str(line).context("the bench printed a line that cannot be read")
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use serde_json::{Value, json};

    pub fn row(name: &str, possible_cpus: u32, baseline_ns: Option<f64>) -> Row {
        Row {
            name: name.into(),
            threads: 1,
            possible_cpus,
            ns: 6.25,
            median_ns: 7.5,
            ratio_to_gs_add: 19.5,
            baseline_ns,
            speedup: baseline_ns.map(|baseline| baseline / 6.25),
        }
    }

    #[test]
    fn a_row_has_its_fixed_keys() {
        let expected = json!({
            "name": "alloc_free/16", "threads": 1, "possible_cpus": 2, "ns": 6.25, "median_ns": 7.5, "ratio_to_gs_add": 19.5,
            "baseline_ns": 100.0, "speedup": 16.0
        });
        assert_eq!(serde_json::to_value(row("alloc_free/16", 2, Some(100.0))).unwrap(), expected);
        let without = serde_json::to_value(row("gs_add", 2, None)).unwrap();
        assert_eq!((&without["baseline_ns"], &without["speedup"]), (&Value::Null, &Value::Null));
    }

    #[test]
    fn lines_are_progress_or_rows_or_operations() {
        let printed = json!({"row": row("gs_add", 2, None)}).to_string();
        assert!(matches!(Message::parse(&printed), Ok(Message::Row(parsed)) if parsed == row("gs_add", 2, None)));
        let printed = r#"{"progress":{"done":1,"total":2,"label":"gs_add"}}"#;
        assert!(matches!(Message::parse(printed), Ok(Message::Progress { done: 1, total: 2, .. })));
        let printed = r#"{"operation":{"name":"alloc_free/SIZE","meaning":"m","rows":["alloc_free/8"]}}"#;
        assert!(matches!(Message::parse(printed), Ok(Message::Operation(operation)) if operation.rows == ["alloc_free/8"]));
        assert!(Message::parse("ready").is_err());
    }
}
