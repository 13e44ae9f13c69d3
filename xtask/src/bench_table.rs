//! The bench's rows as tables for people.

use crate::bench_rows::Row;
use crate::table::grouped_digits;
use comfy_table::{CellAlignment, Table, presets::UTF8_FULL_CONDENSED};

/// What the columns mean.
pub const LEGEND: &str = "\
ns: nanoseconds for an operation on each thread, best round; median: median round. gs adds: ns in units of one `add gs:[..]` in the same round,
median round. baseline: the same with an allocator that works as Linux's does, best round; speedup: baseline by ns.";

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

/// A table for each number of possible CPUs.
pub fn render(rows: &[Row]) -> String {
    rows.chunk_by(|one, other| one.possible_cpus == other.possible_cpus).map(render_one).collect::<Vec<_>>().join("\n")
}

fn render_one(rows: &[Row]) -> String {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_header(COLUMNS.map(|(heading, _)| heading));
    for (column, (_, alignment)) in table.column_iter_mut().zip(COLUMNS) {
        column.set_cell_alignment(alignment);
    }
    for row in rows {
        table.add_row([
            row.name.clone(),
            row.threads.to_string(),
            row.possible_cpus.to_string(),
            nanoseconds(row.ns),
            nanoseconds(row.median_ns),
            format!("{:.1}", row.ratio_to_gs_add),
            row.baseline_ns.map(nanoseconds).unwrap_or_default(),
            row.speedup.map(|speedup| format!("{speedup:.1}")).unwrap_or_default(),
        ]);
    }
    table.to_string()
}

/// Three or more digits that mean something.
fn nanoseconds(ns: f64) -> String {
    if ns < 100.0 { format!("{ns:.2}") } else { grouped_digits(ns.round() as u64) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench_rows::tests::row;

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
