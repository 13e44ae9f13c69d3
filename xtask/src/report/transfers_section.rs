//! How often cache lines change hands.

use super::data::Source;
use super::section::{Cell, Shown, charts, section, table};
use crate::distinct::distinct;
use crate::json_file::Stored;
use crate::plot::{Axis, Chart, Kind, Line, Lines, Point};
use crate::table::grouped_digits;
use ::transfers::Row;
use maud::{Markup, html};

/// Where a cell is as warm as it gets: transfers of an execution.
const HOTTEST: f64 = 8.0;

/// What is drawn: what grows with the number of CPUs, and what replaces it.
pub const DRAWN: [&str; 7] = [
    "atomic_add",
    "sum/touched_all",
    "exec/linux-grouped",
    "linux_like_alloc_free",
    "alloc_here_free_there/16",
    "alloc_free/16",
    "exec/grouped",
];

pub fn transfers(source: &Source<Row>) -> Markup {
    section("Line transfers", source, |stored| {
        let counts = counts(stored);
        let ops = distinct(stored.rows.iter().map(|row| row.op.as_str()));
        let row = |op: &&str| {
            let at = |&cpus: &u32| find(stored, op, cpus);
            let cell = |cpus: &u32| at(cpus).map_or_else(|| Cell::new(""), |row| heat(row.transfers_per_op));
            let largest = counts.iter().rev().find_map(at);
            let instructions = largest.map_or_else(String::new, |row| whole(row.instructions_per_op));
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
            content: html! { (charts(&[growth(stored, &counts).inline()])) (table(&headings, &rows)) },
            spread: "counted, not timed: two runs give the same".into(),
        })
    })
}

/// Transfers by the number of CPUs.
fn growth(stored: &Stored<Row>, counts: &[u32]) -> Lines {
    let line = |op: &str| Line {
        label: op.to_owned(),
        kind: Kind::Measured,
        points: counts
            .iter()
            .filter_map(|&cpus| find(stored, op, cpus))
            .map(|row| Point::exact(row.cpus.into(), row.transfers_per_op))
            .collect(),
    };
    Lines {
        title: "Transfers by the number of CPUs".into(),
        x: Axis::log("CPUs, all at it"),
        y: Axis::linear("transfers of a line for each execution, counted"),
        lines: DRAWN.iter().map(|op| line(op)).filter(|line| !line.points.is_empty()).collect(),
    }
}

/// Without a fraction, which is there only because CPUs do different things now and then.
pub fn whole(value: f64) -> String {
    grouped_digits(value.round() as u64)
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
