//! The key figures: few, named, each with its spread.

use super::data::{Data, Source, command_of};
use super::forkbomb_sections::{Alone, Execs, OPERATION_STRATEGIES, OPERATIONS, bombs, errors, folios, matrix, memories, threads_alone};
use super::{scale_section, transfers_section};
use crate::bench_rows;
use crate::bench_table::{nanoseconds, ratio};
use crate::forkbomb::tables::{change, per_second, times};
use crate::json_file::Stored;
use crate::rows::Row;
use crate::scale::measure::PARTS;
use crate::scale::rows::{Kind, Row as ScaleRow};
use crate::scale::tables::millions;
use crate::table::{counted, grouped_digits, percent};

/// A figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    pub name: String,
    /// With its unit.
    pub value: String,
    /// What it was measured on, besides the machine.
    pub setting: String,
    pub spread: String,
}

/// What one command measured on one machine.
#[derive(Debug)]
pub struct Group {
    pub title: &'static str,
    pub command: String,
    pub machine: String,
    pub figures: Vec<Figure>,
}

/// Operations of the bench whose figures are told, on one thread.
pub const TIMED: [&str; 21] = [
    "gs_add",
    "static_add",
    "event_add",
    "atomic_add",
    "counter_add",
    "counter_add_pinned",
    "set4_add",
    "set4_add_pinned",
    "lazy4_add_inline",
    "lazy4_add_sole_user",
    "lazy4_add_promoted",
    "limit_add",
    "alloc_free/16",
    "set4_new_drop",
    "lazy4_new_drop",
    "sum/touched_2",
    "lifetime/atomic4",
    "lifetime/set4",
    "lifetime/lazy4",
    "lifetime/lazy4_explicit",
    "lifetime/sole_user4",
];

/// Operations whose transfers are told, with the most CPUs.
pub const COUNTED: [&str; 12] = [
    "counter_add",
    "set4_add",
    "lazy4_add_promoted",
    "atomic_add",
    "sum/touched_2",
    "alloc_free/16",
    "alloc_here_free_there/16",
    "linux_like_alloc_free",
    "set4_new_drop",
    "exec/grouped",
    "exec/lazy",
    "exec/linux-grouped",
];

/// Strategies whose scaling is told.
const SCALED: [&str; 5] = ["atomic", "linux-grouped", "grouped", "lazy", "sole-user"];

/// All that the files have.
pub fn all(data: &Data) -> Vec<Group> {
    let groups = [
        group("Fork bomb", &data.forkbomb, fork_bomb),
        group("Single operations", &data.bench, operations),
        group("Line transfers", &data.transfers, transfers),
        group("Scaling", &data.scale, scaling),
    ];
    groups.into_iter().flatten().collect()
}

fn group<R>(title: &'static str, source: &Source<R>, figures: impl FnOnce(&Stored<R>) -> Vec<Figure>) -> Option<Group> {
    let stored = source.as_ref().ok()?;
    Some(Group { title, command: command_of(stored), machine: stored.machine.line(), figures: figures(stored) })
}

fn fork_bomb(stored: &Stored<Row>) -> Vec<Figure> {
    let mut figures = Vec::new();
    let mut add = |name: String, value: String, row: &Row, spread: String| {
        figures.push(Figure { name, value, setting: setting(row), spread });
    };
    if let Some(alone) = Alone::of(stored) {
        for row in &alone.counters {
            let name = format!("counters of an exec, {}", row.strategy);
            let linux = alone
                .ratio("linux-grouped", &row.strategy)
                .map_or_else(String::new, |ratio| format!("; linux-grouped takes {}", times(ratio)));
            let value = format!("{} ns{linux}", grouped_digits(row.best_ns_per_lifetime().round() as u64));
            add(name, value, row, format!("fastest round; {}", percent(row.spread)));
        }
    }
    if let Some(execs) = Execs::of(stored) {
        for (name, before, after) in execs.pairs {
            let (one, other) = (before.per_second, after.per_second);
            let value = format!("{} to {} exec/s ({})", per_second(one), per_second(other), change(one, other));
            add(format!("doexec before and after grouping, {name}"), value, after, percent(before.spread.max(after.spread)));
        }
    }
    let all = matrix(stored);
    for workload in OPERATIONS {
        let find = |strategy: &str| all.iter().rfind(|row| row.setting.workload == workload && row.strategy == strategy);
        let Some(base) = find(OPERATION_STRATEGIES[0].1) else { continue };
        for (heading, strategy) in OPERATION_STRATEGIES {
            let Some(row) = find(strategy) else { continue };
            let ns = row.ns_per_lifetime();
            let from_base = if row == base { String::new() } else { format!(" ({})", change(base.ns_per_lifetime(), ns)) };
            add(format!("{workload}, {heading}"), format!("{:.2} us{from_base}", ns / 1e3), row, percent(row.spread));
        }
    }
    for row in bombs(stored) {
        let value = format!("{} lifetimes/s, {:.2} times each", per_second(row.per_second), row.ratio);
        add(format!("bomb, {}, {}", row.strategy, counted(row.setting.cpus as usize, "CPU")), value, &row, percent(row.spread));
    }
    for error in errors(stored) {
        let value = format!("{} seen, {} guaranteed", grouped_digits(error.seen), grouped_digits(error.guaranteed));
        // Of all workloads of one setting.
        if let Some(row) = all.first() {
            add(format!("largest error of a read, {}", error.strategy), value, row, "worst of all rounds".into());
        }
    }
    let threads = threads_alone(stored);
    let atomic = threads.iter().find(|row| row.strategy == "atomic");
    for row in &threads {
        let ratio = atomic.map_or_else(String::new, |atomic| format!("; {} atomic's", times(row.per_second / atomic.per_second)));
        add(
            format!("threads of one process, {}", row.strategy),
            format!("{} runs/s{ratio}", per_second(row.per_second)),
            row,
            percent(row.spread),
        );
    }
    for row in memories(stored) {
        let name = format!("memory of a space's counters, {}, {} processes", row.strategy, grouped_digits(row.setting.live));
        add(name, format!("{} B", grouped_digits(row.bytes_per_space.round() as u64)), row, "counted".into());
    }
    for row in folios(stored) {
        let name = format!("LRU lock's share, {}, folio order {}", row.strategy, row.setting.folio_order);
        let value = format!("{:.1} % of the CPUs' time; counters {:.1} %", row.lru_share * 100.0, row.counter_share * 100.0);
        add(name, value, row, percent(row.spread));
    }
    figures
}

fn setting(row: &Row) -> String {
    let cpus = counted(row.setting.cpus as usize, "CPU");
    if row.setting.native { format!("native, {cpus} of {} possible", row.setting.possible_cpus) } else { format!("kernel in QEMU, {cpus}") }
}

fn operations(stored: &Stored<bench_rows::Row>) -> Vec<Figure> {
    let one_thread = || stored.rows.iter().filter(|row| row.threads == 1);
    let largest = one_thread().map(|row| row.possible_cpus).max().unwrap_or_default();
    TIMED
        .iter()
        .filter_map(|name| one_thread().find(|row| row.name == *name && row.possible_cpus == largest))
        .map(|row| Figure {
            name: row.name.clone(),
            value: match (row.baseline_ns, row.speedup) {
                (Some(baseline), Some(speedup)) => {
                    format!("{} ns; baseline {} ns ({}x)", nanoseconds(row.ns), nanoseconds(baseline), ratio(speedup))
                }
                _ => format!("{} ns", nanoseconds(row.ns)),
            },
            setting: format!("1 thread, {largest} possible CPUs"),
            spread: format!("median {} ns, {} gs adds", nanoseconds(row.median_ns), ratio(row.ratio_to_gs_add)),
        })
        .collect()
}

fn transfers(stored: &Stored<::transfers::Row>) -> Vec<Figure> {
    let Some(&largest) = transfers_section::counts(stored).last() else { return Vec::new() };
    COUNTED
        .iter()
        .filter_map(|op| transfers_section::find(stored, op, largest))
        .map(|row| Figure {
            name: row.op.clone(),
            value: format!(
                "{} transfers, {} instructions",
                transfers_section::short(row.transfers_per_op),
                transfers_section::whole(row.instructions_per_op)
            ),
            setting: counted(largest as usize, "CPU"),
            spread: "counted".into(),
        })
        .collect()
}

/// Each told strategy on the most CPUs that were measured, and that were modelled.
fn scaling(stored: &Stored<ScaleRow>) -> Vec<Figure> {
    let mut figures = Vec::new();
    for strategy in SCALED {
        for kind in [Kind::Measured, Kind::Model] {
            let of_curve = stored.rows.iter().filter(|row| row.strategy == strategy && row.kind == kind && row.part == PARTS[0]);
            let Some(row) = of_curve.max_by_key(|row| row.cpus) else { continue };
            let kind = scale_section::kind_name(kind);
            figures.push(Figure {
                name: format!("{}, {strategy}, {kind}", row.workload),
                value: format!("{} million/s", millions(row.per_second)),
                setting: counted(row.cpus as usize, "CPU"),
                spread: row.spread.map_or_else(|| "a model".to_owned(), percent),
            });
        }
    }
    figures
}
