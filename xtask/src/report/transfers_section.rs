//! How often cache lines change hands.

use super::data::Source;
use super::section::{Cell, Shown, section, table};
use crate::json_file::Stored;
use ::transfers::Row;
use maud::Markup;

/// Where a cell is as warm as it gets: transfers of an execution.
const HOTTEST: f64 = 8.0;

pub fn transfers(source: &Source<Row>) -> Markup {
    section("Line transfers", source, |stored| {
        let counts = counts(stored);
        let ops = stored.rows.iter().fold(Vec::new(), |mut seen: Vec<&str>, row| {
            if !seen.contains(&row.op.as_str()) {
                seen.push(&row.op);
            }
            seen
        });
        let row = |op: &&str| {
            let at = |&cpus: &u32| find(stored, op, cpus);
            let cell = |cpus: &u32| at(cpus).map_or_else(|| Cell::new(""), |row| heat(row.transfers_per_op));
            let largest = counts.iter().rev().find_map(at);
            let instructions = largest.map_or_else(String::new, |row| format!("{:.1}", row.instructions_per_op));
            let locked = largest.map_or_else(String::new, |row| short(row.locked_per_op));
            [vec![Cell::new(*op)], counts.iter().map(cell).collect(), vec![Cell::new(instructions), Cell::new(locked)]].concat()
        };
        let rows: Vec<_> = ops.iter().map(row).collect();
        let columns: Vec<String> = counts.iter().map(|cpus| if *cpus == 1 { "1 CPU".into() } else { format!("{cpus} CPUs") }).collect();
        let headings: Vec<_> =
            ["operation"].into_iter().chain(columns.iter().map(String::as_str)).chain(["instructions", "locked"]).collect();
        let largest = counts.last()?;
        let none = ops.iter().filter(|op| find(stored, op, *largest).is_some_and(|row| row.transfers_per_op == 0.0)).count();
        Some(Shown {
            see: format!(
                "How often a cache line changes hands in an operation, with all CPUs at it: what moves none scales to any number. On {largest} CPUs \
                 {none} of {} operations move none.",
                ops.len()
            ),
            content: table(&headings, &rows),
            spread: "counted, not timed: two runs give the same".into(),
        })
    })
}

/// The numbers of CPUs.
pub fn counts(stored: &Stored<Row>) -> Vec<u32> {
    let mut counts: Vec<u32> = stored.rows.iter().map(|row| row.cpus).collect();
    counts.sort_unstable();
    counts.dedup();
    counts
}

pub fn find<'a>(stored: &'a Stored<Row>, op: &str, cpus: u32) -> Option<&'a Row> {
    stored.rows.iter().find(|row| row.op == op && row.cpus == cpus)
}

fn heat(transfers: f64) -> Cell {
    if transfers == 0.0 { Cell::new("0") } else { Cell::with_heat(short(transfers), (1.0 + transfers).ln() / (1.0 + HOTTEST).ln()) }
}

/// Exact for whole numbers, which most are.
pub fn short(value: f64) -> String {
    if value.fract() == 0.0 { value.to_string() } else { format!("{value:.2}") }
}
