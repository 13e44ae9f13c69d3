//! What the fork bomb measures.

use super::data::Source;
use super::section::{Cell, Shown, cells, charts, section, table};
use crate::cli::{Strategy, Workload, name};
use crate::distinct::distinct;
use crate::forkbomb::tables::{change, find, milliseconds, per_second, times};
use crate::json_file::Stored;
use crate::legend::{MAX_SPREAD, meaning};
use crate::plot::{Axis, Bar, Bars, Chart, Kind, Line, Lines, Point};
use crate::published;
use crate::rows::Row;
use crate::table::{counted, grouped_digits, percent};
use maud::{Markup, html};

/// The parts of an exec that are measured alone.
const COUNTERS: &str = "counters";
const LIFECYCLE: &str = "lifecycle";

pub fn lifetime(source: &Source<Row>) -> Markup {
    section("Four counters' lifetime", source, |stored| {
        let alone = Alone::of(stored)?;
        let bar = |row: &&Row| {
            let ns = row.best_ns_per_lifetime();
            Bar {
                label: row.strategy.clone(),
                value: ns,
                low: ns,
                high: row.ns_per_lifetime(),
                text: format!("{} ns", grouped_digits(ns.round() as u64)),
            }
        };
        let bars = Bars {
            title: format!("An exec's counters alone, {} possible CPUs", alone.possible_cpus),
            axis: Axis::log("ns of a CPU: two spaces' counters made, 59 adds, 8 exact sums, freed"),
            bars: alone.counters.iter().map(bar).collect(),
        };
        let rows: Vec<_> = alone
            .counters
            .iter()
            .map(|row| {
                let without_adds = alone.lifecycle.iter().find(|other| other.strategy == row.strategy);
                let by = |strategy: &str| alone.ratio(strategy, &row.strategy).map_or_else(String::new, times);
                cells([
                    row.strategy.clone(),
                    grouped_digits(row.best_ns_per_lifetime().round() as u64),
                    by("linux-grouped"),
                    by("atomic"),
                    without_adds.map_or_else(String::new, |row| grouped_digits(row.best_ns_per_lifetime().round() as u64)),
                    grouped_digits(row.ns_per_lifetime().round() as u64),
                    percent(row.spread),
                ])
            })
            .collect();
        let headings = ["strategy", "ns", "linux-grouped / this", "atomic / this", "ns without adds", "median ns", "spread"];
        Some(Shown {
            see: alone.sentence()?,
            content: html! { (charts(&[bars.inline()])) (table(&headings, &rows)) (meanings(&alone.counters)) },
            spread: format!("fastest of {}; lines go to the median", rounds_of(&alone.counters)),
        })
    })
}

/// The counters of an exec, measured alone.
pub struct Alone<'a> {
    pub possible_cpus: u32,
    pub counters: Vec<&'a Row>,
    pub lifecycle: Vec<&'a Row>,
}

impl<'a> Alone<'a> {
    pub fn of(stored: &'a Stored<Row>) -> Option<Self> {
        let of_part = |part: &str| stored.rows.iter().filter(|row| row.setting.part == part).collect::<Vec<_>>();
        let counters = of_part(COUNTERS);
        Some(Self { possible_cpus: counters.first()?.setting.possible_cpus, counters, lifecycle: of_part(LIFECYCLE) })
    }

    pub fn find(&self, strategy: &str) -> Option<&'a Row> {
        self.counters.iter().find(|row| row.strategy == strategy).copied()
    }

    /// How many times as long one takes as the other.
    pub fn ratio(&self, slow: &str, fast: &str) -> Option<f64> {
        Some(self.find(fast)?.best_per_second / self.find(slow)?.best_per_second)
    }

    fn sentence(&self) -> Option<String> {
        let ns = |strategy| Some(format!("{} ns", grouped_digits(self.find(strategy)?.best_ns_per_lifetime().round() as u64)));
        Some(format!(
            "Two spaces' counters take {} when their kernel says that each has one user, beside {} with plain atomics and {} in Linux's way, grouped; lazy ones, \
             which need not be told how many users there are, take {}.",
            ns("sole-user")?,
            ns("atomic")?,
            ns("linux-grouped")?,
            ns("lazy")?
        ))
    }
}

pub fn first_thread(source: &Source<Row>) -> Markup {
    section("The first thread: execs before and after grouping", source, |stored| {
        let execs = Execs::of(stored)?;
        let mut rows: Vec<_> = execs
            .pairs
            .iter()
            .map(|(name, before, after)| {
                cells([
                    (*name).to_owned(),
                    per_second(before.per_second),
                    per_second(after.per_second),
                    change(before.per_second, after.per_second),
                    percent(before.spread.max(after.spread)),
                ])
            })
            .collect();
        rows.push(
            [
                published::EXEC_PLACE.to_owned(),
                per_second(published::EXEC_BEFORE),
                per_second(published::EXEC_AFTER),
                change(published::EXEC_BEFORE, published::EXEC_AFTER),
                String::new(),
            ]
            .map(Cell::quoted)
            .into(),
        );
        let measured: Vec<&Row> = execs.pairs.iter().flat_map(|(_, before, after)| [*before, *after]).collect();
        Some(Shown {
            see: format!(
                "Allocating the four counters in one go is worth {} in Linux's way and {} with this crate; the last line is what the thread \
                 printed.",
                execs.change(0),
                execs.change(1)
            ),
            content: table(&["doexec, exec/s", "one by one", "grouped", "change", "spread"], &rows),
            spread: rounds(&measured),
        })
    })
}

/// Execs a second with counters one by one, and grouped.
pub struct Execs<'a> {
    pub pairs: [(&'static str, &'a Row, &'a Row); 2],
}

impl<'a> Execs<'a> {
    pub fn of(stored: &'a Stored<Row>) -> Option<Self> {
        let all = matrix(stored);
        let find = |strategy| all.iter().rfind(|row| row.setting.workload == "doexec" && row.strategy == strategy).copied();
        Some(Self { pairs: [("Linux-like", find("linux-each")?, find("linux-grouped")?), ("pcpu", find("each")?, find("grouped")?)] })
    }
}

impl Execs<'_> {
    fn change(&self, index: usize) -> String {
        let (_, before, after) = self.pairs[index];
        change(before.per_second, after.per_second)
    }
}

/// The strategies of the second thread's table, the base first.
pub const OPERATION_STRATEGIES: [(&str, &str); 5] = [
    ("base: linux-grouped", "linux-grouped"),
    ("revert: atomic", "atomic"),
    ("linux-lazy", "linux-lazy"),
    ("lazy", "lazy"),
    ("sole-user", "sole-user"),
];

/// Its workloads.
pub const OPERATIONS: [&str; 3] = ["fork", "exec", "shell"];

pub fn second_thread(source: &Source<Row>) -> Markup {
    section("The second thread: fork, exec, shell", source, |stored| {
        let all = matrix(stored);
        let find =
            |workload: &str, strategy: &str| all.iter().rfind(|row| row.setting.workload == workload && row.strategy == strategy).copied();
        let fork_change = |strategy| {
            let ns = |strategy| Some(find(OPERATIONS[0], strategy)?.ns_per_lifetime());
            Some(change(ns(OPERATION_STRATEGIES[0].1)?, ns(strategy)?))
        };
        let mut rows = Vec::new();
        let mut measured = Vec::new();
        for workload in OPERATIONS {
            let base = find(workload, OPERATION_STRATEGIES[0].1)?.ns_per_lifetime();
            let mut row = vec![Cell::new(format!("{workload}, us"))];
            for (_, strategy) in OPERATION_STRATEGIES {
                let this = find(workload, strategy)?;
                measured.push(this);
                let ns = this.ns_per_lifetime();
                let text = format!("{:.2}", ns / 1e3);
                row.push(Cell::new(if ns == base { text } else { format!("{text} ({})", change(base, ns)) }));
            }
            rows.push(row);
        }
        for (name, base, revert, change) in published::OPERATIONS_MS {
            let revert = format!("{} ({change})", milliseconds(revert));
            let name = format!("{name}, ms ({})", published::OPERATIONS_PLACE);
            rows.push([name, milliseconds(base), revert, String::new(), String::new(), String::new()].map(Cell::quoted).into());
        }
        let headings: Vec<_> = ["one CPU's time for one"].into_iter().chain(OPERATION_STRATEGIES.map(|(heading, _)| heading)).collect();
        Some(Shown {
            see: format!(
                "A process of one thread needs no per-CPU counters: a fork's time changes by {} with the revert, by {} with lazy ones; the last lines \
                 are what lmbench printed in the thread.",
                fork_change("atomic")?,
                fork_change("lazy")?
            ),
            content: table(&headings, &rows),
            spread: rounds(&measured),
        })
    })
}

pub fn bomb(source: &Source<Row>) -> Markup {
    section("The fork bomb on 1 to 8 CPUs", source, |stored| {
        let bombs = bombs(stored);
        let strategies = distinct(bombs.iter().map(|row| row.strategy.clone()));
        let line = |strategy: &String| Line {
            label: strategy.clone(),
            kind: Kind::Measured,
            points: bombs
                .iter()
                .filter(|row| row.strategy == *strategy)
                .map(|row| Point::with_spread(row.setting.cpus.into(), row.per_second, row.spread))
                .collect(),
        };
        let lines = Lines {
            title: "Lifetimes of processes in QEMU".into(),
            x: Axis::log("CPUs of the kernel"),
            y: Axis::linear("lifetimes/s"),
            lines: strategies.iter().map(line).collect(),
        };
        let rows: Vec<_> = bombs
            .iter()
            .map(|row| {
                cells([
                    row.strategy.clone(),
                    row.setting.cpus.to_string(),
                    per_second(row.per_second),
                    format!("{:.2}", row.ratio),
                    percent(row.spread),
                ])
            })
            .collect();
        (!rows.is_empty()).then(|| Shown {
            see: format!(
                "Groups beside counters one by one; more CPUs than the host's {} take turns on these, so that lifetimes/s cannot grow.",
                stored.machine.host_cpus
            ),
            content: html! { (charts(&[lines.inline()])) (table(&["strategy", "CPUs", "lifetimes/s", "ratio to each", "spread"], &rows)) },
            spread: rounds(&bombs.iter().collect::<Vec<_>>()),
        })
    })
}

/// The bomb with the two strategies of this crate, a row for each number of CPUs.
pub fn bombs(stored: &Stored<Row>) -> Vec<Row> {
    let mut bombs: Vec<Row> = Vec::new();
    for row in stored.rows.iter().filter(|row| is_plain(row) && row.setting.workload == name(Workload::Bomb)) {
        let is_wanted = [name(Strategy::Each), name(Strategy::Grouped)].contains(&row.strategy);
        let is_new = bombs.iter().all(|other| (other.setting.cpus, &other.strategy) != (row.setting.cpus, &row.strategy));
        if is_wanted && is_new {
            bombs.push(row.clone());
        }
    }
    bombs
}

pub fn workloads(source: &Source<Row>) -> Markup {
    section("All strategies, all workloads", source, |stored| {
        let all = matrix(stored);
        let workloads = distinct(all.iter().map(|row| row.setting.workload.as_str()));
        let strategies = distinct(all.iter().map(|row| row.strategy.as_str()));
        let find = |workload: &str, strategy: &str| all.iter().rfind(|row| row.setting.workload == workload && row.strategy == strategy);
        let row = |strategy: &&str| {
            let cell = |workload: &&str| {
                let best = all.iter().filter(|row| row.setting.workload == *workload).map(|row| row.per_second).fold(0.0, f64::max);
                find(workload, strategy).map_or_else(
                    || Cell::new(""),
                    |row| Cell::with_heat(format!("{} ({:.2})", per_second(row.per_second), row.ratio), row.per_second / best),
                )
            };
            [vec![Cell::new(*strategy)], workloads.iter().map(cell).collect()].concat()
        };
        let rows: Vec<_> = strategies.iter().map(row).collect();
        let headings = [vec!["strategy"], workloads.clone()].concat();
        let cpus = all.first()?.setting.cpus;
        (workloads.len() > 1).then(|| Shown {
            see: format!(
                "Lifetimes/s on {} of a kernel in QEMU, and in units of the first strategy's; the warmer a cell, the nearer it is to its \
                 column's best.",
                counted(cpus as usize, "CPU")
            ),
            content: table(&headings, &rows),
            spread: rounds(&all),
        })
    })
}

pub fn accuracy(source: &Source<Row>) -> Markup {
    section("How far a read may be off", source, |stored| {
        let errors = errors(stored);
        let rows: Vec<_> = errors
            .iter()
            .map(|error| cells([error.strategy.clone(), grouped_digits(error.seen), grouped_digits(error.guaranteed)]))
            .collect();
        let worst = errors.iter().max_by_key(|error| error.seen)?;
        Some(Shown {
            see: format!(
                "{} of {} strategies kept what they guarantee; the furthest read was off by {} ({}).",
                errors.iter().filter(|error| error.seen <= error.guaranteed).count(),
                errors.len(),
                grouped_digits(worst.seen),
                worst.strategy
            ),
            content: table(&["strategy", "largest |read - true| seen", "guaranteed"], &rows),
            spread: "the worst of all rounds".into(),
        })
    })
}

/// How far reads were off in any workload, and could be.
pub struct ReadError {
    pub strategy: String,
    pub seen: u64,
    pub guaranteed: u64,
}

pub fn errors(stored: &Stored<Row>) -> Vec<ReadError> {
    let all = matrix(stored);
    let error = |strategy: &&str| {
        let of_strategy = || all.iter().filter(|row| row.strategy == *strategy);
        ReadError {
            strategy: (*strategy).to_owned(),
            seen: of_strategy().map(|row| row.worst_read_error).max().unwrap_or_default(),
            guaranteed: of_strategy().map(|row| row.guaranteed_error).max().unwrap_or_default(),
        }
    };
    distinct(all.iter().map(|row| row.strategy.as_str())).iter().map(error).collect()
}

pub fn threads(source: &Source<Row>) -> Markup {
    section("Threads of one process", source, |stored| {
        let all = threads_alone(stored);
        let setting = &all.first()?.setting;
        let find = |strategy| all.iter().find(|row| row.strategy == strategy);
        let ratio = |row: &Row| find("atomic").map(|atomic| row.per_second / atomic.per_second);
        let bars = Bars {
            title: "Runs of threads that share a space's counters".into(),
            axis: Axis::linear("million runs/s: 60 page faults, one by one, and four unmaps"),
            bars: all
                .iter()
                .map(|row| {
                    let millions = row.per_second / 1e6;
                    Bar {
                        label: row.strategy.clone(),
                        value: millions,
                        low: millions * (1.0 - row.spread / 2.0),
                        high: millions * (1.0 + row.spread / 2.0),
                        text: format!("{millions:.1} M/s"),
                    }
                })
                .collect(),
        };
        let rows: Vec<_> = all
            .iter()
            .map(|row| {
                cells([
                    row.strategy.clone(),
                    per_second(row.per_second),
                    ratio(row).map_or_else(String::new, times),
                    grouped_digits(row.worst_read_error),
                    grouped_digits(row.guaranteed_error),
                    percent(row.spread),
                ])
            })
            .collect();
        Some(Shown {
            see: format!(
                "On {} (native threads) this crate's groups count {} as much as plain atomics, lazy ones, which become per-CPU by themselves, {}.",
                counted(setting.cpus as usize, "core"),
                times(ratio(find("grouped")?)?),
                times(ratio(find("lazy")?)?)
            ),
            content: html! {
                (charts(&[bars.inline()]))
                (table(&["strategy", "runs/s", "this / atomic", "largest |read - true| seen", "guaranteed", "spread"], &rows))
            },
            spread: rounds(&all),
        })
    })
}

/// Native threads of one process.
pub fn threads_alone(stored: &Stored<Row>) -> Vec<&Row> {
    stored.rows.iter().filter(|row| row.setting.native && row.setting.workload == name(Workload::Threads) && !row.setting.shares).collect()
}

pub fn memory(source: &Source<Row>) -> Markup {
    section("Memory of a space's counters", source, |stored| {
        let memory = memories(stored);
        let largest = memory.iter().map(|row| row.setting.live).max()?;
        let of_largest: Vec<_> = memory.iter().filter(|row| row.setting.live == largest).collect();
        let bars = Bars {
            title: format!("Bytes a space, {} processes at most", grouped_digits(largest)),
            axis: Axis::log("bytes for four counters, on all CPUs together"),
            bars: of_largest
                .iter()
                .map(|row| Bar {
                    label: row.strategy.clone(),
                    value: row.bytes_per_space,
                    low: row.bytes_per_space,
                    high: row.bytes_per_space,
                    text: format!("{} B", grouped_digits(row.bytes_per_space.round() as u64)),
                })
                .collect(),
        };
        let rows: Vec<_> = memory
            .iter()
            .map(|row| {
                cells([
                    row.strategy.clone(),
                    grouped_digits(row.peak_live),
                    grouped_digits(row.bytes_per_space.round() as u64),
                    grouped_digits((row.bytes_per_space * row.peak_live as f64 / 1024.0).round() as u64),
                    row.leaked_objects.to_string(),
                ])
            })
            .collect();
        let headings = ["strategy", "most alive", "bytes/space", "KiB in all", "left behind"];
        Some(Shown {
            see: format!(
                "With {} possible CPUs a space's four counters take from {} B to {} B.",
                memory[0].setting.possible_cpus,
                grouped_digits(of_largest.iter().map(|row| row.bytes_per_space).fold(f64::INFINITY, f64::min).round() as u64),
                grouped_digits(of_largest.iter().map(|row| row.bytes_per_space).fold(0.0, f64::max).round() as u64)
            ),
            content: html! { (charts(&[bars.inline()])) (table(&headings, &rows)) },
            spread: "counted, not timed".into(),
        })
    })
}

/// The bombs on native threads, whose memory is counted.
pub fn memories(stored: &Stored<Row>) -> Vec<&Row> {
    let is_bomb = |row: &&Row| row.setting.native && row.setting.workload == name(Workload::Bomb) && row.setting.part == "whole";
    stored.rows.iter().filter(is_bomb).collect()
}

pub fn list_lock(source: &Source<Row>) -> Markup {
    section("The LRU lock's share by folio order", source, |stored| {
        let folios = folios(stored);
        let strategies = distinct(folios.iter().map(|row| row.strategy.as_str()));
        let chart = |title: &str, share: fn(&Row) -> f64| {
            let line = |strategy: &&str| Line {
                label: (*strategy).to_owned(),
                kind: Kind::Measured,
                points: folios
                    .iter()
                    .filter(|row| row.strategy == *strategy)
                    .map(|row| Point::exact(row.setting.folio_order.into(), share(row) * 100.0))
                    .collect(),
            };
            Lines {
                title: title.to_owned(),
                x: Axis::linear("folio order: a folio has 2^order pages"),
                y: Axis::linear("% of the CPUs' time"),
                lines: strategies.iter().map(line).collect(),
            }
            .inline()
        };
        let mut orders: Vec<u32> = folios.iter().map(|row| row.setting.folio_order).collect();
        orders.sort_unstable();
        orders.dedup();
        let row = |strategy: &&str| {
            let find = |order: &u32| folios.iter().find(|row| row.strategy == *strategy && row.setting.folio_order == *order);
            let shares = |row: &&Row| format!("{:.1} % ({:.1} %)", row.lru_share * 100.0, row.counter_share * 100.0);
            cells([(*strategy).to_owned()].into_iter().chain(orders.iter().map(|order| find(order).map_or_else(String::new, shares))))
        };
        let rows: Vec<_> = strategies.iter().map(row).collect();
        let columns: Vec<_> = orders.iter().map(|order| format!("order {order}")).collect();
        let headings: Vec<_> = ["LRU lock (counters)"].into_iter().chain(columns.iter().map(String::as_str)).collect();
        let setting = &folios.first()?.setting;
        Some(Shown {
            see: format!(
                "When counters no longer hold an exec up, the lock of the LRU list comes next, as the thread found; larger folios take it less \
                 often ({} of {} possible, native threads).",
                counted(setting.cpus as usize, "CPU"),
                setting.possible_cpus
            ),
            content: html! {
                (charts(&[chart("Time in the LRU lock", |row| row.lru_share), chart("Time in counters", |row| row.counter_share)]))
                (table(&headings, &rows))
            },
            spread: format!("exec/s: {}", rounds(&folios)),
        })
    })
}

/// The rows of folio orders.
pub fn folios(stored: &Stored<Row>) -> Vec<&Row> {
    stored.rows.iter().filter(|row| row.setting.shares).collect()
}

/// All strategies by all workloads: the series of the number of CPUs that forks alone ran on.
pub fn matrix(stored: &Stored<Row>) -> Vec<&Row> {
    let Some(first) = find(&stored.rows, &name(Workload::Fork), &name(Strategy::Atomic)) else { return Vec::new() };
    stored.rows.iter().filter(|row| is_plain(row) && row.setting.cpus == first.setting.cpus && row.rounds == first.rounds).collect()
}

/// A process's whole life, in the kernel, with nothing timed besides.
fn is_plain(row: &Row) -> bool {
    !row.setting.native && row.setting.part == "whole" && !row.setting.shares
}

fn rounds_of(rows: &[&Row]) -> String {
    counted(rows.iter().map(|row| row.rounds).max().unwrap_or_default(), "round")
}

/// Of how many rounds rows are the median, and how far these are apart at most.
fn rounds(rows: &[&Row]) -> String {
    let nr_rounds = rows.iter().map(|row| row.rounds).max().unwrap_or_default();
    let spread = rows.iter().map(|row| row.spread).fold(0.0, f64::max);
    let caution = if spread > MAX_SPREAD { format!("; do not trust what is above {}", percent(MAX_SPREAD)) } else { String::new() };
    format!("median of {}, up to {} apart{caution}", counted(nr_rounds, "round"), percent(spread))
}

/// What the strategies are.
fn meanings(rows: &[&Row]) -> Markup {
    html! {
        dl.names {
            @for row in rows { div { dt { (row.strategy) } dd { (meaning(&row.strategy).unwrap_or_default()) } } }
        }
    }
}
