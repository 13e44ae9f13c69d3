//! The bench's rows as tables for people.

use crate::bench_rows::{Operation, Row};
use crate::table::grouped_digits;
use comfy_table::{CellAlignment, Table, presets::UTF8_FULL_CONDENSED};

/// What the columns mean.
const COLUMNS_LEGEND: &str = "\
ns: nanoseconds for an operation on each thread, best round. median ns: median round.
gs adds: ns in units of one `add gs:[..]` in the same round, median round.
baseline ns: the same with an allocator that works as Linux's does, best round; for lifetime/... with four plain atomics.
speedup: baseline ns by ns.";

/// Rows whose names begin so and go on as another row's are that one's baseline.
const BASELINE_PREFIX: &str = "linux_like_";

const COLUMNS: [(&str, CellAlignment); 8] = [
    ("operation", CellAlignment::Left),
    ("threads", CellAlignment::Right),
    ("possible CPUs", CellAlignment::Right),
    ("ns", CellAlignment::Right),
    ("median ns", CellAlignment::Right),
    ("gs adds", CellAlignment::Right),
    ("baseline ns", CellAlignment::Right),
    ("speedup", CellAlignment::Right),
];

/// A table for each number of possible CPUs. What is a row's baseline has no row of its own, as it stands there already.
pub fn render(rows: &[Row]) -> String {
    rows.chunk_by(|one, other| one.possible_cpus == other.possible_cpus).map(render_one).collect::<Vec<_>>().join("\n")
}

/// What the columns and the operations of these rows mean, and whether the numbers mean anything.
pub fn legend(rows: &[Row], operations: &[Operation], quick: bool) -> String {
    let is_shown = |operation: &&Operation| rows.iter().any(|row| !is_repeated(row, rows) && operation.rows.contains(&row.name));
    let shown: Vec<_> = operations.iter().filter(is_shown).collect();
    let note = if quick { "\n\n--quick: a few rounds, not for figures." } else { "" };
    format!("{COLUMNS_LEGEND}\n\n{}{note}", meanings(&shown))
}

/// A line for each operation.
pub fn meanings(operations: &[&Operation]) -> String {
    let width = operations.iter().map(|operation| operation.name.len()).max().unwrap_or_default();
    let line = |operation: &&Operation| format!("{:width$}  {}", operation.name, operation.meaning);
    operations.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Whether the row is the baseline of another one.
pub fn is_repeated(row: &Row, rows: &[Row]) -> bool {
    let of = row.name.strip_prefix(BASELINE_PREFIX);
    of.is_some_and(|of| {
        rows.iter().any(|other| other.name == of && (other.threads, other.possible_cpus) == (row.threads, row.possible_cpus))
    })
}

fn render_one(rows: &[Row]) -> String {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_header(COLUMNS.map(|(heading, _)| heading));
    for (column, (_, alignment)) in table.column_iter_mut().zip(COLUMNS) {
        column.set_cell_alignment(alignment);
    }
    for row in rows.iter().filter(|row| !is_repeated(row, rows)) {
        table.add_row([
            row.name.clone(),
            row.threads.to_string(),
            row.possible_cpus.to_string(),
            nanoseconds(row.ns),
            nanoseconds(row.median_ns),
            ratio(row.ratio_to_gs_add),
            row.baseline_ns.map(nanoseconds).unwrap_or_default(),
            row.speedup.map(ratio).unwrap_or_default(),
        ]);
    }
    table.to_string()
}

/// Three or more digits that mean something.
pub fn nanoseconds(ns: f64) -> String {
    if ns < 100.0 { format!("{ns:.2}") } else { grouped_digits(ns.round() as u64) }
}

pub fn ratio(ratio: f64) -> String {
    if ratio < 1000.0 { format!("{ratio:.1}") } else { grouped_digits(ratio.round() as u64) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench_rows::tests::row;

    fn operation(name: &str, rows: &[&str]) -> Operation {
        Operation { name: name.into(), meaning: format!("means {name}"), rows: rows.iter().map(|row| row.to_string()).collect() }
    }

    #[test]
    fn a_baseline_that_stands_in_a_rows_line_has_no_line_of_its_own() {
        let rows = [row("alloc_free/16", 2, Some(100.0)), row("linux_like_alloc_free/16", 2, None)];
        assert!(!render(&rows).contains("linux_like_"));
        // Asked for alone.
        assert!(render(&rows[1..]).contains("linux_like_alloc_free/16"));
    }

    #[test]
    fn large_ratios_have_thousands_separators() {
        assert_eq!([0.96, 999.94, 1000.0, 12_345.6].map(ratio), ["1.0", "999.9", "1,000", "12,346"]);
    }

    #[test]
    fn the_legend_explains_the_operations_that_are_there_and_no_others() {
        let operations = [operation("gs_add", &["gs_add"]), operation("alloc_free/SIZE", &["alloc_free/8", "alloc_free/16"])];
        let text = legend(&[row("alloc_free/16", 2, None)], &operations, false);
        assert!(text.contains("alloc_free/SIZE  means") && !text.contains("gs_add") && text.contains("baseline ns: "), "{text}");
        assert!(!text.contains("--quick"), "{text}");
    }

    #[test]
    fn quick_rows_are_told_to_be_no_figures() {
        let text = legend(&[row("gs_add", 2, None)], &[], true);
        assert!(text.ends_with("a few rounds, not for figures."), "{text}");
    }

    #[test]
    fn a_line_has_all_of_a_rows_numbers() {
        let text = render(&[row("alloc_free/16", 256, Some(1_250.0))]);
        let line = text.lines().find(|line| line.contains("alloc_free/16")).unwrap();
        for part in ["  1 ", " 256 ", " 6.25 ", " 7.50 ", " 19.5 ", " 1,250 ", " 200.0 "] {
            assert!(line.contains(part), "no {part} in {line}");
        }
    }

    #[test]
    fn what_has_no_baseline_has_an_empty_cell() {
        let text = render(&[row("gs_add", 2, None)]);
        assert!(!text.contains("NaN") && !text.contains("None"), "{text}");
    }

    #[test]
    fn each_number_of_possible_cpus_has_a_table() {
        let text = render(&[row("gs_add", 2, None), row("static_add", 2, None), row("gs_add", 16, None)]);
        assert_eq!(text.matches("possible CPUs").count(), 2, "{text}");
    }
}
