//! The key figures as Markdown.

use super::data::Data;
use super::figures;
use crate::legend::MAX_SPREAD;
use crate::table::percent;
use std::fmt::Write;

/// Before the spread that is too large.
const HEAD: &str = "\
# Numbers

Written by `cargo xtask report --numbers docs/numbers.md`; not to be changed by hand. What the names mean: `cargo xtask forkbomb --help`,
`cargo xtask bench --list`, `cargo xtask transfers --help`, `cargo xtask scale --help`. The spread is how far the fastest and the slowest round
are apart, as a part of the median, unless it says something else; a figure does not say much whose spread is above ";

const COLUMNS: [&str; 4] = ["figure", "value", "on", "spread"];

pub fn render(data: &Data) -> String {
    let mut text = format!("{HEAD}{}.\n", percent(MAX_SPREAD));
    for group in figures::all(data) {
        // Writing to a string does not fail.
        let _ = write!(text, "\n## {}\n\n`{}` on {}\n\n", group.title, group.command, escaped(&group.machine));
        let _ = writeln!(text, "{}\n|{}", line(COLUMNS), "---|".repeat(COLUMNS.len()));
        for figure in group.figures {
            let _ = writeln!(text, "{}", line([&figure.name, &figure.value, &figure.setting, &figure.spread].map(|cell| escaped(cell))));
        }
    }
    text
}

fn line<T: AsRef<str>>(cells: [T; COLUMNS.len()]) -> String {
    format!("| {} |", cells.map(|cell| cell.as_ref().to_owned()).join(" | "))
}

fn escaped(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::super::transfers_section::DRAWN;
    use super::*;
    use crate::report::fixture;
    use crate::workspace;
    use std::fs;

    /// The lines that are the same whatever is measured, and the names in the others.
    fn shape(text: &str) -> Vec<String> {
        let part = |line: &str| match line.split(" | ").collect::<Vec<_>>()[..] {
            [name, value, on, spread] => {
                assert!(![value, on, spread].iter().any(|cell| cell.trim_matches([' ', '|']).is_empty()), "an empty cell: {line}");
                name.to_owned()
            }
            // The command and the machine.
            _ if line.starts_with('`') && line.contains("` on ") => line.split(" on ").next().unwrap_or_default().to_owned(),
            _ => line.to_owned(),
        };
        text.lines().map(part).collect()
    }

    /// Figures of `text`, by name, that are not as `numbers` has them.
    fn disagreeing<'a>(text: &'a str, numbers: &str) -> Vec<&'a str> {
        let is_other = |line: &&str| {
            let Some(name) = line.strip_prefix("| ").and_then(|rest| rest.split(" | ").next()) else { return false };
            numbers.lines().any(|figure| figure.starts_with(&format!("| {name} | "))) && !numbers.lines().any(|figure| figure == *line)
        };
        text.lines().filter(is_other).collect()
    }

    fn in_tree(file: &str) -> String {
        fs::read_to_string(workspace::root().join(file)).unwrap()
    }

    #[test]
    fn the_file_in_the_tree_has_the_shape_that_is_written() {
        let numbers = in_tree("docs/numbers.md");
        assert_eq!(shape(&numbers), shape(&render(&fixture::data())));
    }

    /// Else a figure would be missing without a word.
    #[test]
    fn operations_that_are_told_or_drawn_exist() {
        let allowed = in_tree("qemu-tests/transfers/allowed.csv");
        let exists = |op: &&str| allowed.lines().any(|line| line.split(',').next() == Some(op));
        let missing: Vec<_> = figures::COUNTED.iter().chain(&DRAWN).filter(|op| !exists(op)).collect();
        assert_eq!(missing, [&""; 0]);
    }

    #[test]
    fn figures_in_the_readme_agree() {
        assert_eq!(disagreeing(&in_tree("README.md"), &in_tree("docs/numbers.md")), [""; 0]);
    }

    #[test]
    fn a_figure_that_differs_is_found() {
        let numbers = "| gs_add | 0.31 ns | a | b |\n| figure | value | on | spread |\n";
        let text = "| gs_add | 0.32 ns | a | b |\n| gs_add | 0.31 ns | a | b |\n| other | 1 | 2 | 3 |\ngs_add\n";
        assert_eq!(disagreeing(text, numbers), ["| gs_add | 0.32 ns | a | b |"]);
    }

    #[test]
    fn each_figure_has_its_command_machine_and_spread() {
        let text = render(&fixture::data());
        for part in [
            "`cargo xtask bench` on Fixture, 2 CPUs",
            "| counters of an exec, linux-grouped | 50,000 ns; linux-grouped takes 1.00x | native, 2 CPUs of 256 possible | fastest round; 10 % |",
            "| alloc_free/16 | 6.00 ns; baseline 600 ns (100.0x) | 1 thread, 256 possible CPUs | median 7.00 ns, 20.0 gs adds |",
            "| atomic_add | 8 transfers, 3 instructions | 8 CPUs | counted |",
            "| exec, lazy, model | 0.06 million/s | 64 CPUs | a model |",
        ] {
            assert!(text.contains(part), "no {part} in {text}");
        }
    }

    #[test]
    fn what_would_end_a_cell_is_escaped() {
        assert_eq!(escaped("a|b\nc"), "a\\|b c");
    }
}
