//! What the bench measures.

use super::data::Source;
use super::section::{Shown, cells, charts, section, table};
use crate::bench_rows::Row;
use crate::bench_table::{is_repeated, nanoseconds, ratio};
use crate::forkbomb::tables::times;
use crate::json_file::Stored;
use crate::plot::{Axis, Chart, Kind, LINUX_LIKE, Line, Lines, PCPU, Point};
use maud::{Markup, html};

/// Operations that are compared as the machine grows.
const LIFETIMES: [(&str, &str); 4] =
    [("lifetime/atomic4", "atomic"), ("lifetime/set4", "grouped"), ("lifetime/lazy4", "lazy"), ("lifetime/sole_user4", "sole-user")];

pub fn growth(source: &Source<Row>) -> Markup {
    section("As the machine grows", source, |stored| {
        let line = |name: &str, label: &str, value: fn(&Row) -> Option<f64>| Line {
            label: label.to_owned(),
            kind: Kind::Measured,
            points: of(stored, name)
                .filter_map(|row| {
                    let y = value(row)?;
                    Some(Point { x: row.possible_cpus.into(), y, low: y, high: y * row.median_ns / row.ns })
                })
                .collect(),
        };
        let chart = |title: &str, lines: Vec<Line>| Lines {
            title: title.to_owned(),
            x: Axis::log("possible CPUs"),
            y: Axis::log("ns, one thread; up to the median round"),
            lines,
        };
        let lifetimes = chart(
            "Four counters: made, 59 adds, summed, dropped",
            LIFETIMES.iter().map(|(name, label)| line(name, label, |row| Some(row.ns))).collect(),
        );
        let objects = chart(
            "16 bytes for each CPU allocated and freed",
            vec![line("alloc_free/16", PCPU, |row| Some(row.ns)), line("alloc_free/16", LINUX_LIKE, |row| row.baseline_ns)],
        );
        Some(Shown {
            see: format!(
                "From the fewest to the most possible CPUs an object takes {} as long with this crate, and {} with an allocator that works as \
                 Linux's does.",
                growth_of(&objects.lines[0])?,
                growth_of(&objects.lines[1])?
            ),
            content: charts(&[lifetimes.inline(), objects.inline()]),
            spread: "best round, and up to the median round".into(),
        })
    })
}

/// How many times as high its end is as its start, if it has both.
fn growth_of(line: &Line) -> Option<String> {
    let [first, .., last] = line.points[..] else { return None };
    Some(times(last.y / first.y))
}

/// One thread's rows of this name.
fn of<'a>(stored: &'a Stored<Row>, name: &str) -> impl Iterator<Item = &'a Row> {
    stored.rows.iter().filter(move |row| row.name == name && row.threads == 1)
}

pub fn operations(source: &Source<Row>) -> Markup {
    section("Single operations", source, |stored| {
        let mut counts: Vec<u32> = stored.rows.iter().map(|row| row.possible_cpus).collect();
        counts.sort_unstable();
        counts.dedup();
        let mut rows = Vec::new();
        for row in &stored.rows {
            let is_same = |other: &&Row| (&other.name, other.threads) == (&row.name, row.threads);
            let is_first = stored.rows.iter().find(is_same).is_some_and(|first| first == row);
            if !is_first || is_repeated(row, &stored.rows) {
                continue;
            }
            let at = |&count: &u32| stored.rows.iter().filter(is_same).find(|other| other.possible_cpus == count);
            let cell =
                |count: &u32| at(count).map_or_else(String::new, |row| format!("{} ({})", nanoseconds(row.ns), ratio(row.ratio_to_gs_add)));
            let largest = counts.iter().rev().find_map(at).unwrap_or(row);
            rows.push(cells(
                [row.name.clone(), row.threads.to_string()]
                    .into_iter()
                    .chain(counts.iter().map(cell))
                    .chain([largest.baseline_ns.map(nanoseconds).unwrap_or_default(), largest.speedup.map(ratio).unwrap_or_default()]),
            ));
        }
        let headings: Vec<String> = ["operation".to_owned(), "threads".to_owned()]
            .into_iter()
            .chain(counts.iter().map(|count| format!("{count} possible, ns")))
            .chain(["baseline, ns".to_owned(), "speedup".to_owned()])
            .collect();
        let headings: Vec<_> = headings.iter().map(String::as_str).collect();
        Some(Shown {
            see: "Nanoseconds of an operation on each thread, and how many additions through GS take as long; the baseline is an allocator that \
                  works as Linux's does, for lifetimes four plain atomics, on as many possible CPUs as the last column that has a value."
                .into(),
            content: html! { details { summary { (rows.len()) " operations" } (table(&headings, &rows)) } },
            spread: "best round; the ratio is the median round's".into(),
        })
    })
}
