//! What is printed, a line of JSON each.

use serde::Serialize;

/// One row.
#[derive(Debug, Serialize)]
pub struct Row {
    pub name: String,
    pub threads: usize,
    pub possible_cpus: usize,
    /// For an operation, on each thread, in the best round.
    pub ns: f64,
    /// In the median round.
    pub median_ns: f64,
    /// To an addition through GS in the same round; the median round's.
    pub ratio_to_gs_add: f64,
    /// What it is compared with, in its best round.
    pub baseline_ns: Option<f64>,
    /// `baseline_ns` in units of `ns`.
    pub speedup: Option<f64>,
}

/// What the rows of some names measure.
#[derive(Debug, Serialize)]
pub struct Operation {
    /// In capitals is what differs from row to row.
    pub name: &'static str,
    pub meaning: &'static str,
    /// The names of its rows.
    pub rows: Vec<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Message<'a> {
    Progress { done: usize, total: usize, label: &'a str },
    Row(Row),
    Operation(Operation),
}

impl Message<'_> {
    pub fn print(&self) {
        println!("{}", serde_json::to_string(self).expect("numbers and strings are JSON"));
    }
}
