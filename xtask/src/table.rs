//! The rows as a table for people.

use crate::rows::Row;
use comfy_table::{CellAlignment, Table, presets::UTF8_FULL_CONDENSED};

/// Where a memory limit made forks fail.
const FAILED_FORKS: &str = "failed forks";

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

/// A table without lines, whose first column is text and whose others are numbers.
pub fn styled<'a>(headings: impl IntoIterator<Item = &'a str>) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_header(headings);
    table.column_iter_mut().skip(1).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    table
}

/// A line for each of `rows`.
pub fn lines(rows: &[Row]) -> String {
    let has_failed = rows.iter().any(|row| row.failed_forks > 0);
    let mut table = styled(COLUMNS.map(|(heading, _)| heading).into_iter().chain(has_failed.then_some(FAILED_FORKS)));
    for (column, (_, is_number)) in table.column_iter_mut().zip(COLUMNS) {
        if !is_number {
            column.set_cell_alignment(CellAlignment::Left);
        }
    }
    for row in rows {
        let mut cells = vec![
            row.setting.workload.clone(),
            row.strategy.clone(),
            row.setting.cpus.to_string(),
            grouped_digits(row.lifetimes),
            format!("{:.1}", row.seconds),
            grouped_digits(row.per_second.round() as u64),
            row.spread_text(),
            row.ratio_text(),
        ];
        cells.extend(has_failed.then(|| grouped_digits(row.failed_forks)));
        table.add_row(cells);
    }
    table.to_string()
}

/// The verdict under the table, `Err` when a counter did not end at zero, an object leaked, or a fork failed without a limit.
pub fn verdict(rows: &[Row], is_limited: bool) -> Result<String, String> {
    let nonzero: u64 = rows.iter().map(|row| row.nonzero_counters).sum();
    // Summed up without sign: an object too few in one row does not make up for one too many in another.
    let leaked: u64 = rows.iter().map(|row| row.leaked_objects.unsigned_abs()).sum();
    let failed: u64 = rows.iter().map(|row| row.failed_forks).sum();
    if failed > 0 && !is_limited {
        Err(format!(
            "{} forks failed for want of memory; {nonzero} counters did not end at zero, and {leaked} objects leaked",
            grouped_digits(failed)
        ))
    } else if rows.iter().all(Row::is_clean) {
        let lifetimes = rows.iter().map(|row| row.lifetimes).sum();
        let failed = if failed > 0 { format!("{} forks failed at the limit. ", grouped_digits(failed)) } else { String::new() };
        Ok(format!("{failed}Every counter of {} lifetimes ended at zero, and nothing leaked.", grouped_digits(lifetimes)))
    } else {
        Err(format!("{nonzero} counters did not end at zero, and {leaked} objects leaked"))
    }
}

/// `12 %`.
pub fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// `1 CPU`, `2 CPUs`.
pub fn counted(number: usize, unit: &str) -> String {
    format!("{number} {unit}{}", if number == 1 { "" } else { "s" })
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
        let text = lines(&summarize(&[round("each", 4, 12_345), round("grouped", 4, 24_690)]));
        let lines: Vec<_> = text.lines().filter(|line| line.contains("bomb")).collect();
        assert_eq!(lines.len(), 2, "{text}");
        for part in ["grouped", " 4 ", "24,690", "1.0", " - ", "2.00"] {
            assert!(lines[1].contains(part), "no {part} in {}", lines[1]);
        }
    }

    #[test]
    fn the_verdict_counts_what_is_wrong() {
        let mut rounds = [round("each", 1, 100), round("grouped", 1, 100)];
        assert_eq!(verdict(&summarize(&rounds), false), Ok("Every counter of 200 lifetimes ended at zero, and nothing leaked.".into()));
        rounds[0].leaked_objects = -1;
        rounds[1].leaked_objects = 1;
        rounds[1].nonzero_counters = 3;
        assert_eq!(verdict(&summarize(&rounds), false), Err("3 counters did not end at zero, and 2 objects leaked".into()));
        rounds[0].failed_forks = 7;
        assert!(verdict(&summarize(&rounds), false).unwrap_err().starts_with("7 forks failed"));
        assert!(verdict(&summarize(&rounds[..0]), true).is_ok());
    }

    #[test]
    fn digits_are_grouped_by_thousands() {
        assert_eq!([0, 999, 1_000, 12_345_678].map(grouped_digits), ["0", "999", "1,000", "12,345,678"]);
    }
}
