//! The rows as a table for people.

use crate::rows::Row;
use comfy_table::{CellAlignment, Table, presets::UTF8_FULL_CONDENSED};

/// The column headings, and whether a column holds numbers.
const COLUMNS: [(&str, bool); 8] = [
    ("workload", false),
    ("strategy", false),
    ("CPUs", true),
    ("lifetimes", true),
    ("seconds", true),
    ("lifetimes/s", true),
    ("spread", true),
    ("ratio", true),
];

/// A table of `rows`.
pub fn render(rows: &[Row]) -> String {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_header(COLUMNS.map(|(heading, _)| heading));
    for (column, (_, is_number)) in table.column_iter_mut().zip(COLUMNS) {
        if is_number {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    for row in rows {
        table.add_row([
            row.workload.clone(),
            row.strategy.clone(),
            row.cpus.to_string(),
            grouped_digits(row.lifetimes),
            format!("{:.1}", row.seconds),
            grouped_digits(row.per_second.round() as u64),
            format!("{:.0} %", row.spread * 100.0),
            format!("{:.2}", row.ratio),
        ]);
    }
    table.to_string()
}

/// The verdict under the table, `Err` when a counter did not end at zero or an object leaked.
pub fn verdict(rows: &[Row]) -> Result<String, String> {
    let nonzero: u64 = rows.iter().map(|row| row.nonzero_counters).sum();
    // Summed up without sign: an object too few in one row does not make up for one too many in another.
    let leaked: u64 = rows.iter().map(|row| row.leaked_objects.unsigned_abs()).sum();
    if rows.iter().all(Row::is_clean) {
        let lifetimes = rows.iter().map(|row| row.lifetimes).sum();
        Ok(format!("Every counter of {} lifetimes ended at zero, and nothing leaked.", grouped_digits(lifetimes)))
    } else {
        Err(format!("{nonzero} counters did not end at zero, and {leaked} objects leaked"))
    }
}

/// `1234567` as `1,234,567`.
pub fn grouped_digits(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.char_indices() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::{summarize, tests::round};

    #[test]
    fn a_line_for_each_row_has_all_of_its_numbers() {
        let text = render(&summarize(&[round("each", 4, 12_345), round("grouped", 4, 24_690)]));
        let lines: Vec<_> = text.lines().filter(|line| line.contains("bomb")).collect();
        assert_eq!(lines.len(), 2, "{text}");
        for part in ["grouped", " 4 ", "24,690", "1.0", "0 %", "2.00"] {
            assert!(lines[1].contains(part), "no {part} in {}", lines[1]);
        }
    }

    #[test]
    fn the_verdict_counts_what_is_wrong() {
        let mut rounds = [round("each", 1, 100), round("grouped", 1, 100)];
        assert_eq!(verdict(&summarize(&rounds)), Ok("Every counter of 200 lifetimes ended at zero, and nothing leaked.".into()));
        rounds[0].leaked_objects = -1;
        rounds[1].leaked_objects = 1;
        rounds[1].nonzero_counters = 3;
        assert_eq!(verdict(&summarize(&rounds)), Err("3 counters did not end at zero, and 2 objects leaked".into()));
    }

    #[test]
    fn digits_are_grouped_by_thousands() {
        assert_eq!([0, 999, 1_000, 12_345_678].map(grouped_digits), ["0", "999", "1,000", "12,345,678"]);
    }
}
