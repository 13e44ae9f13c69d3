//! Throughput over numbers of CPUs, measured and by a model, and how long single executions take.

use super::data::{Data, Source};
use super::section::{Shown, cells, charts, percent, section, table};
use crate::forkbomb::tables::per_second;
use crate::json_file::Stored;
use crate::plot::Chart;
use crate::scale::curves::{throughput, times};
use crate::scale::latency::Latency;
use crate::scale::measure::PARTS;
use crate::scale::rows::{Kind, Row};
use crate::table::grouped_digits;
use maud::{Markup, html};

pub fn scale(source: &Source<Row>) -> Markup {
    section("Scaling", source, |stored| {
        let rows: Vec<_> = curves(stored)
            .iter()
            .filter_map(|curve| {
                let last = curve.iter().max_by_key(|row| row.cpus)?;
                let parameter = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:.4}"));
                Some(cells([
                    last.strategy.clone(),
                    last.part.clone(),
                    kind_name(last.kind).to_owned(),
                    last.cpus.to_string(),
                    per_second(last.per_second),
                    last.bound.map_or_else(String::new, |bound| bound.name().to_owned()),
                    parameter(last.usl_alpha),
                    parameter(last.usl_beta),
                    last.spread.map_or_else(String::new, percent),
                ]))
            })
            .collect();
        let headings = ["strategy", "part", "from", "most CPUs", "execs/s there", "bound by", "USL alpha", "USL beta", "spread"];
        let spread = stored.rows.iter().filter_map(|row| row.spread).fold(0.0, f64::max);
        let plots = [
            throughput("An exec's counters", PARTS[0], &stored.rows),
            throughput("The whole exec, on this machine's cores", PARTS[1], &stored.rows),
        ];
        let plots: Vec<_> = plots.iter().filter(|plot| !plot.lines.is_empty()).map(Chart::inline).collect();
        Some(Shown {
            see: "Markers are measured, dashed curves are a model made of counted line transfers and of times on one thread; alpha is the share \
                  that is serial, beta what each pair of CPUs costs."
                .into(),
            content: html! { (charts(&plots)) (table(&headings, &rows)) },
            spread: format!("rounds up to {} apart; a model has no spread", percent(spread)),
        })
    })
}

/// The rows of each curve.
fn curves(stored: &Stored<Row>) -> Vec<Vec<&Row>> {
    let mut curves: Vec<Vec<&Row>> = Vec::new();
    for row in &stored.rows {
        let is_same = |other: &Row| (&other.strategy, &other.part, other.kind) == (&row.strategy, &row.part, row.kind);
        match curves.iter_mut().find(|curve| is_same(curve[0])) {
            Some(curve) => curve.push(row),
            None => curves.push(vec![row]),
        }
    }
    curves
}

pub fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Measured => "measured",
        Kind::Model => "model",
    }
}

pub fn latency(data: &Data) -> Markup {
    section("How long single execs take", &data.scale, |_| {
        let row = |row: &Latency| {
            let numbers = [u64::from(row.threads), row.p50_ns, row.p99_ns, row.p999_ns, row.max_ns, row.stalls_over_1ms];
            cells([row.strategy.clone()].into_iter().chain(numbers.map(grouped_digits)))
        };
        let rows: Vec<_> = data.latency.iter().map(row).collect();
        let headings = ["strategy", "threads", "median, ns", "99 %, ns", "99.9 %, ns", "longest, ns", "over 1 ms"];
        (!rows.is_empty()).then(|| Shown {
            see: "With more threads than cores, who waits for a lock waits for an owner that may not run: the slowest execs tell.".into(),
            content: html! { (charts(&[times(&data.latency).inline()])) (table(&headings, &rows)) },
            spread: "all executions of one run".into(),
        })
    })
}
