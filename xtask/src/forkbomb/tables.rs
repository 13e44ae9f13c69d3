//! The tables of the fork bomb, each with what it says and, where there is one, what its model on the mailing lists says.

use super::series::View;
use crate::distinct::distinct;
use crate::published;
use crate::rows::{Row, Setting};
use crate::table::{counted, grouped_digits, lines, styled};

/// Workloads beside each other in one table: as many as a terminal is wide.
const WORKLOADS_PER_TABLE: usize = 5;

/// What `rows` of one series say.
pub fn render(view: View, rows: &[Row]) -> String {
    let Some(first) = rows.first() else { return String::new() };
    let place = place(&first.setting);
    let mut tables = match view {
        View::Lines => return lines(rows),
        View::Matrix => {
            let mut tables = vec![format!("{place}: lifetimes/s, and in units of the first strategy's"), matrix(rows)];
            tables.extend(execs(rows));
            tables.extend(operations(rows));
            tables.extend(scans(rows));
            tables.push(format!("{place}: how far reads were off, and memory"));
            tables.push(accuracy(rows));
            tables
        }
        View::Folios => vec![format!("{place}: {} with folios of 2^order pages", first.setting.workload), folios(rows)],
        View::Alone => vec![format!("{place}: an exec's counters alone, two spaces"), alone(rows)],
        View::Threads => vec![format!("{place}: threads of one process, one on each"), threads(rows)],
        View::Memory => vec![format!("{place}: a bomb of up to {} processes", grouped_digits(first.setting.live)), memory(rows)],
    };
    tables.extend((view == View::Matrix).then(|| spread(rows)));
    tables.join("\n")
}

/// How far rounds were apart, where there is no column for it.
fn spread(rows: &[Row]) -> String {
    let mut spreads: Vec<_> = rows.iter().map(|row| row.spread * 100.0).collect();
    spreads.sort_by(f64::total_cmp);
    let (median, most) = (spreads[spreads.len() / 2], spreads[spreads.len() - 1]);
    let nr_rounds = rows.iter().map(|row| row.rounds).max().unwrap_or_default();
    format!(
        "{} each; from the slowest to the fastest it is {median:.0} % of the median for most, and up to {most:.0} %",
        counted(nr_rounds, "round")
    )
}

fn place(setting: &Setting) -> String {
    if setting.native {
        format!("{} of {} possible, native threads", counted(setting.cpus as usize, "CPU"), setting.possible_cpus)
    } else {
        format!("kernel on {}", counted(setting.cpus as usize, "CPU"))
    }
}

pub fn find<'a>(rows: &'a [Row], workload: &str, strategy: &str) -> Option<&'a Row> {
    rows.iter().find(|row| row.setting.workload == workload && row.strategy == strategy)
}

pub fn per_second(rate: f64) -> String {
    grouped_digits(rate.round() as u64)
}

/// `+39.3 %`.
pub fn change(before: f64, after: f64) -> String {
    format!("{:+.1} %", (after / before - 1.0) * 100.0)
}

fn matrix(rows: &[Row]) -> String {
    let strategies = distinct(rows.iter().map(|row| row.strategy.as_str()));
    let workloads = distinct(rows.iter().map(|row| row.setting.workload.as_str()));
    let table = |workloads: &[&str]| {
        let mut table = styled([&["strategy"][..], workloads].concat());
        for strategy in &strategies {
            let cell = |workload: &&str| {
                find(rows, workload, strategy).map_or_else(String::new, |row| format!("{} ({:.2})", per_second(row.per_second), row.ratio))
            };
            table.add_row([vec![(*strategy).to_owned()], workloads.iter().map(cell).collect()].concat());
        }
        table.to_string()
    };
    workloads.chunks(WORKLOADS_PER_TABLE).map(table).collect::<Vec<_>>().join("\n")
}

/// The first thread's table.
fn execs(rows: &[Row]) -> Option<String> {
    let mut table = styled(["doexec, exec/s", "each", "grouped", "change"]);
    let mut add = |name: &str, each: &str, grouped: &str| {
        let (before, after) = (find(rows, "doexec", each)?.per_second, find(rows, "doexec", grouped)?.per_second);
        table.add_row([name.to_owned(), per_second(before), per_second(after), change(before, after)]);
        Some(())
    };
    add("Linux-like", "linux-each", "linux-grouped")?;
    add("pcpu", "each", "grouped")?;
    table.add_row([
        published::EXEC_PLACE.to_owned(),
        per_second(published::EXEC_BEFORE),
        per_second(published::EXEC_AFTER),
        change(published::EXEC_BEFORE, published::EXEC_AFTER),
    ]);
    Some(table.to_string())
}

/// The second thread's table.
fn operations(rows: &[Row]) -> Option<String> {
    const COLUMNS: [(&str, &str); 5] = [
        ("base: linux-grouped", "linux-grouped"),
        ("revert: atomic", "atomic"),
        ("linux-lazy", "linux-lazy"),
        ("lazy", "lazy"),
        ("sole-user", "sole-user"),
    ];
    let mut table = styled([&["us per operation"][..], &COLUMNS.map(|(heading, _)| heading)].concat());
    for workload in ["fork", "exec", "shell"] {
        let base = find(rows, workload, COLUMNS[0].1)?.ns_per_lifetime();
        let cell = |(_, strategy): &(&str, &str)| {
            let ns = find(rows, workload, strategy)?.ns_per_lifetime();
            Some(if ns == base { format!("{:.2}", ns / 1e3) } else { format!("{:.2} ({})", ns / 1e3, change(base, ns)) })
        };
        let cells: Option<Vec<_>> = COLUMNS.iter().map(cell).collect();
        table.add_row([vec![workload.to_owned()], cells?].concat());
    }
    for (index, (name, base, revert, change)) in published::OPERATIONS_MS.into_iter().enumerate() {
        let name = if index == 0 { format!("{name} ({}), ms", published::OPERATIONS_PLACE) } else { name.to_owned() };
        let revert = format!("{} ({change})", milliseconds(revert));
        table.add_row([&name, &milliseconds(base), &revert, "", "", ""]);
    }
    Some(table.to_string())
}

/// As the thread printed them.
pub fn milliseconds(value: f64) -> String {
    format!("{}.{}", grouped_digits(value as u64), (value * 10.0).round() as u64 % 10)
}

fn scans(rows: &[Row]) -> Option<String> {
    let mut table = styled(["oom-scan", "spaces looked at/s", "exact sums", "lifetimes/s meanwhile"]);
    for row in rows.iter().filter(|row| row.scanned_per_second > 0.0) {
        let sums = format!("{:.1} %", row.exact_sums_share * 100.0);
        table.add_row([row.strategy.clone(), per_second(row.scanned_per_second), sums, per_second(row.per_second)]);
    }
    (table.row_iter().next().is_some()).then(|| table.to_string())
}

fn accuracy(rows: &[Row]) -> String {
    let mut table = styled([
        "strategy",
        "largest error seen",
        "guaranteed",
        "bytes/space",
        "bytes/space, threads",
        "instructions/exec",
        "from the heap/lifetime",
    ]);
    for strategy in distinct(rows.iter().map(|row| row.strategy.as_str())) {
        let of_strategy = || rows.iter().filter(|row| row.strategy == strategy);
        let bytes = |row: &Row| grouped_digits(row.bytes_per_space.round() as u64);
        let alone = of_strategy().find(|row| row.setting.workload != "threads").map(bytes);
        table.add_row([
            strategy.to_owned(),
            grouped_digits(of_strategy().map(|row| row.worst_read_error).max().unwrap_or_default()),
            grouped_digits(of_strategy().map(|row| row.guaranteed_error).max().unwrap_or_default()),
            alone.unwrap_or_default(),
            find(rows, "threads", strategy).map(bytes).unwrap_or_default(),
            of_strategy().find_map(|row| row.instructions_per_lifetime).map(|nr| grouped_digits(nr.round() as u64)).unwrap_or_default(),
            format!("{:.3}", of_strategy().map(|row| row.pool_misses_per_lifetime).fold(0.0, f64::max)),
        ]);
    }
    table.to_string()
}

fn folios(rows: &[Row]) -> String {
    let mut table = styled(["strategy", "order", "lifetimes/s", "counters' share", "LRU lock's share", "spread"]);
    let share = |share: f64| format!("{:.1} %", share * 100.0);
    for strategy in distinct(rows.iter().map(|row| row.strategy.as_str())) {
        for row in rows.iter().filter(|row| row.strategy == strategy) {
            let order = row.setting.folio_order.to_string();
            table.add_row([
                row.strategy.clone(),
                order,
                per_second(row.per_second),
                share(row.counter_share),
                share(row.lru_share),
                row.spread_text(),
            ]);
        }
    }
    table.to_string()
}

fn alone(rows: &[Row]) -> String {
    let mut table = styled([
        "strategy",
        "ns",
        "linux-grouped / this",
        "ns without adds",
        "linux-grouped / this",
        "atomic / this",
        "median ns",
        "spread",
    ]);
    let of = |part: &str, strategy: &str| rows.iter().find(|row| row.setting.part == part && row.strategy == strategy);
    let by = |baseline: Option<&Row>, row: &Row| {
        baseline.map_or_else(String::new, |baseline| times(row.best_per_second / baseline.best_per_second))
    };
    for strategy in distinct(rows.iter().map(|row| row.strategy.as_str())) {
        let (Some(counters), Some(lifecycle)) = (of("counters", strategy), of("lifecycle", strategy)) else { continue };
        let ns = |row: &Row| grouped_digits(row.best_ns_per_lifetime().round() as u64);
        table.add_row([
            strategy.to_owned(),
            ns(counters),
            by(of("counters", "linux-grouped"), counters),
            ns(lifecycle),
            by(of("lifecycle", "linux-grouped"), lifecycle),
            by(of("counters", "atomic"), counters),
            grouped_digits(counters.ns_per_lifetime().round() as u64),
            counters.spread_text(),
        ]);
    }
    table.to_string()
}

/// `12.3x`.
pub fn times(ratio: f64) -> String {
    if ratio < 0.095 { format!("{ratio:.4}x") } else { format!("{ratio:.2}x") }
}

fn threads(rows: &[Row]) -> String {
    let mut table = styled(["strategy", "runs/s", "this / atomic", "largest error seen", "guaranteed", "spread"]);
    let atomic = rows.iter().find(|row| row.strategy == "atomic");
    for row in rows {
        table.add_row([
            row.strategy.clone(),
            per_second(row.per_second),
            atomic.map_or_else(String::new, |atomic| times(row.per_second / atomic.per_second)),
            grouped_digits(row.worst_read_error),
            grouped_digits(row.guaranteed_error),
            row.spread_text(),
        ]);
    }
    table.to_string()
}

fn memory(rows: &[Row]) -> String {
    let mut table = styled(["strategy", "most alive", "bytes/space", "KiB in all", "lifetimes/s", "left behind"]);
    for row in rows {
        table.add_row([
            row.strategy.clone(),
            grouped_digits(row.peak_live),
            grouped_digits(row.bytes_per_space.round() as u64),
            grouped_digits((row.bytes_per_space * row.peak_live as f64 / 1024.0).round() as u64),
            per_second(row.per_second),
            row.leaked_objects.to_string(),
        ]);
    }
    table.to_string()
}

/// What the headings of all tables mean.
pub fn legend(views: &[View]) -> String {
    let meaning = |view: &View| match view {
        View::Lines => Some(
            "lifetimes/s (per_second in JSON): of simulated processes, the median round's. spread: from the slowest to the fastest round, as a part\n\
             of the median. ratio: lifetimes/s in units of the first strategy's on as many CPUs, round by round; the median.",
        ),
        View::Matrix => Some(
            "An operation's time is one CPU's. largest error seen: all CPUs counted page faults in one space, and stopped just before what they\n\
             counted would show; guaranteed: what a reader may rely on. bytes/space: of the counters, on all CPUs together. instructions/exec:\n\
             counted by a plugin of QEMU's. from the heap: spaces, tables and folios that no pool had; nothing else comes from there.",
        ),
        View::Folios => Some(
            "Shares are of the CPUs' time. counters: made, added to, summed and freed. LRU lock: waited for and held, while anonymous folios go on\n\
             the list and are taken off it in batches of 15, as in exit_mmap. In the thread, folio_lruvec_lock came up next after grouping, and\n\
             M. Wilcox answered that larger anonymous folios are fewer (2023).",
        ),
        View::Alone => Some(
            "ns: a CPU's for one lifetime in the fastest round, since what else runs on the machine only makes rounds slower: two spaces' counters made,\n\
             59 adds, 8 exact sums, freed; nothing else is done. Ratios are of the fastest rounds too.",
        ),
        View::Threads => {
            Some("runs/s: of all threads; a run is 60 page faults, counted one by one, and four unmaps, in the space that all have.")
        }
        View::Memory => Some("most alive: on all CPUs together, before the collapse. left behind: objects in use after it."),
    };
    views.iter().filter_map(meaning).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::{Round, summarize, tests::round};

    fn of(workload: &str, strategy: &str, lifetimes: u64) -> Round {
        let mut round = round(strategy, 2, lifetimes);
        round.setting.workload = workload.into();
        round
    }

    #[test]
    fn a_matrix_has_a_cell_for_each_strategy_and_workload() {
        let rounds = [of("fork", "each", 100), of("fork", "grouped", 150), of("exec", "each", 1_000), of("exec", "grouped", 3_000)];
        let text = matrix(&summarize(&rounds));
        for part in ["fork", "exec", "100 (1.00)", "150 (1.50)", "3,000 (3.00)"] {
            assert!(text.contains(part), "no {part} in {text}");
        }
    }

    #[test]
    fn execs_are_compared_before_and_after_grouping() {
        let rounds = [
            of("doexec", "linux-each", 1_000),
            of("doexec", "linux-grouped", 1_500),
            of("doexec", "each", 4_000),
            of("doexec", "grouped", 5_000),
        ];
        let text = execs(&summarize(&rounds)).unwrap();
        assert!(text.contains("+50.0 %") && text.contains("+25.0 %") && text.contains("186,061"), "{text}");
        assert_eq!(execs(&summarize(&rounds[..1])), None);
    }

    #[test]
    fn operations_are_times_and_how_they_differ_from_the_base() {
        let mut rounds = Vec::new();
        for workload in ["fork", "exec", "shell"] {
            let rates = [("linux-grouped", 1_000), ("atomic", 2_000), ("linux-lazy", 2_000), ("lazy", 4_000), ("sole-user", 500)];
            rounds.extend(rates.map(|(strategy, rate)| of(workload, strategy, rate)));
        }
        let text = operations(&summarize(&rounds)).unwrap();
        // Two CPUs, a thousand a second: two milliseconds of one CPU.
        for part in ["2000.00", "1000.00 (-50.0 %)", "500.00 (-75.0 %)", "4000.00 (+100.0 %)", "398.6"] {
            assert!(text.contains(part), "no {part} in {text}");
        }
    }

    #[test]
    fn what_is_alone_is_compared_with_linux() {
        let rounds: Vec<_> = [("counters", 1), ("lifecycle", 10)]
            .into_iter()
            .flat_map(|(part, factor)| {
                [("atomic", 5_000), ("linux-grouped", 100), ("grouped", 2_500)].map(|(strategy, rate)| {
                    let mut round = of("exec", strategy, rate * factor);
                    round.setting.part = part.into();
                    round
                })
            })
            .collect();
        let text = alone(&summarize(&rounds));
        let line = text.lines().find(|line| line.contains(" grouped ")).unwrap();
        assert!(line.contains("25.00x") && line.contains("0.50x"), "{line}");
    }
}
