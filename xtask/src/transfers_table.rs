//! Transfers as a table for people.

use ::transfers::Row;
use comfy_table::{CellAlignment, Table, presets::UTF8_FULL_CONDENSED};
use std::fmt::Write;

/// What the columns mean.
pub const LEGEND: &str = "\
Means of an execution, with all CPUs executing it in turns. transfers: how often a line changes hands: a CPU reads what another one has
written (read misses), writes what others hold too (upgrades), or writes what only others hold (write misses). Caches never run out of room.";

const COLUMNS: [(&str, CellAlignment); 10] = [
    ("operation", CellAlignment::Left),
    ("CPUs", CellAlignment::Right),
    ("transfers", CellAlignment::Right),
    ("read misses", CellAlignment::Right),
    ("upgrades", CellAlignment::Right),
    ("write misses", CellAlignment::Right),
    ("instructions", CellAlignment::Right),
    ("locked", CellAlignment::Right),
    ("lines read", CellAlignment::Right),
    ("lines written", CellAlignment::Right),
];

/// A table with the numbers of CPUs of an operation below each other.
pub fn render(rows: &[Row]) -> String {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_header(COLUMNS.map(|(heading, _)| heading));
    for (column, (_, alignment)) in table.column_iter_mut().zip(COLUMNS) {
        column.set_cell_alignment(alignment);
    }
    for row in by_operation(rows) {
        table.add_row([
            row.op.clone(),
            row.cpus.to_string(),
            number(row.transfers_per_op),
            number(row.read_misses_per_op),
            number(row.upgrades_per_op),
            number(row.write_misses_per_op),
            number(row.instructions_per_op),
            number(row.locked_per_op),
            number(row.lines_read),
            number(row.lines_written),
        ]);
    }
    table.to_string()
}

/// Who moves lines, and from whom: nothing for operations that move none.
pub fn causes(rows: &[Row]) -> String {
    let mut text = String::new();
    for row in by_operation(rows).into_iter().filter(|row| !row.causes.is_empty()) {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{} on {} CPUs", row.op, row.cpus);
        for cause in &row.causes {
            let _ = writeln!(text, "  {} by {}\n    from {}", number(cause.transfers_per_op), cause.by, cause.from);
        }
    }
    text
}

/// Operations in the order in which they first occur.
fn by_operation(rows: &[Row]) -> Vec<&Row> {
    let mut ops: Vec<&str> = Vec::new();
    for row in rows {
        if !ops.contains(&row.op.as_str()) {
            ops.push(&row.op);
        }
    }
    ops.iter().flat_map(|op| rows.iter().filter(move |row| row.op == *op)).collect()
}

/// Exact for whole numbers, which most are.
fn number(value: f64) -> String {
    if value.fract() == 0.0 { value.to_string() } else { format!("{value:.4}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::transfers::{Cause, Frame, Kind, Place};

    fn row(op: &str, cpus: u32, transfers_per_op: f64) -> Row {
        serde_json::from_value(serde_json::json!({
            "op": op, "cpus": cpus, "executions": 512, "instructions_per_op": 3.5, "lines_read": 1.0, "lines_written": 2.0,
            "transfers_per_op": transfers_per_op, "read_misses_per_op": 0.0, "upgrades_per_op": transfers_per_op, "write_misses_per_op": 0.0,
            "locked_per_op": 0.0, "causes": [],
        }))
        .unwrap()
    }

    #[test]
    fn rows_of_an_operation_stand_together_with_all_of_their_numbers() {
        let text = render(&[row("a", 1, 0.0), row("b", 1, 0.0), row("a", 2, 1.03125)]);
        let lines: Vec<_> = text.lines().skip(3).collect();
        let first_cells: Vec<_> = lines.iter().filter_map(|line| line.split_whitespace().nth(1)).take(3).collect();
        assert_eq!(first_cells, ["a", "a", "b"], "{text}");
        for part in [" 2 ", " 1.0312 ", " 3.5000 "] {
            assert!(lines[1].contains(part), "no {part} in {}", lines[1]);
        }
        assert!(lines[0].contains(" 0 ") && !lines[0].contains("0.0"), "{}", lines[0]);
    }

    #[test]
    fn causes_name_both_sides() {
        let place = |line| Place { frames: vec![Frame { symbol: "post".into(), file: "src/counter.rs".into(), line }] };
        let cause = Cause { kind: Kind::Upgrade, transfers_per_op: 1.0, by: place(3), from: place(5) };
        let text = causes(&[row("a", 1, 0.0), Row { causes: vec![cause], ..row("a", 2, 1.0) }]);
        assert_eq!(text, "a on 2 CPUs\n  1 by post (src/counter.rs:3)\n    from post (src/counter.rs:5)\n");
    }
}
