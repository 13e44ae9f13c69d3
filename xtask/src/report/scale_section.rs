//! Throughput over numbers of CPUs, measured and by a model, and how long single executions take.

use super::data::{Data, Source};
use super::section::{Shown, cells, charts, section, table};
use crate::json_file::Stored;
use crate::plot::Chart;
use crate::scale::curves::{throughput, times};
use crate::scale::latency::Latency;
use crate::scale::measure::PARTS;
use crate::scale::rows::{Kind, Row};
use crate::scale::tables::{law, millions};
use crate::table::{grouped_digits, percent};
use maud::{Markup, html};

pub fn scale(source: &Source<Row>) -> Markup {
    section("Scaling", source, |stored| {
        let rows: Vec<_> = curves(stored)
            .iter()
            .filter_map(|curve| {
                let last = curve.iter().max_by_key(|row| row.cpus)?;
                Some(cells([
                    last.strategy.clone(),
                    last.part.clone(),
                    kind_name(last.kind).to_owned(),
                    grouped_digits(last.cpus.into()),
                    millions(last.per_second),
                    last.bound.map_or_else(String::new, |bound| bound.name().to_owned()),
                    law(last.usl_alpha),
                    law(last.usl_beta),
                    last.spread.map_or_else(String::new, percent),
                ]))
            })
            .collect();
        let headings = ["strategy", "part", "from", "most CPUs", "million execs/s there", "bound by", "USL alpha", "USL beta", "spread"];
        let spread = stored.rows.iter().filter_map(|row| row.spread).fold(0.0, f64::max);
        let plots = [
            throughput("An exec's counters", PARTS[0], &stored.rows),
            throughput("The whole exec, on this machine's cores", PARTS[1], &stored.rows),
        ];
        let plots: Vec<_> = plots.iter().filter(|plot| !plot.lines.is_empty()).map(Chart::inline).collect();
        Some(Shown {
            see: format!(
                "{}Markers are measured, dashed curves are a model made of counted line transfers and of times on one thread; alpha is the share \
                 that is serial, beta what each pair of CPUs costs.",
                finding(&stored.rows).unwrap_or_default()
            ),
            content: html! { (charts(&plots)) (table(&headings, &rows)) },
            spread: format!("rounds up to {} apart; a model has no spread", percent(spread)),
        })
    })
}

/// What the model says of this crate's groups and of Linux's way on the most CPUs.
fn finding(rows: &[Row]) -> Option<String> {
    let last = |strategy: &str| {
        rows.iter().filter(|row| row.strategy == strategy && row.kind == Kind::Model && row.part == PARTS[0]).max_by_key(|row| row.cpus)
    };
    let (this, linux) = (last("grouped")?, last("linux-grouped")?);
    Some(format!(
        "By the model, {} CPUs do the counters of {} million execs/s with this crate's groups, bound by {}, and of {} million in Linux's way, \
         bound by {}. ",
        grouped_digits(this.cpus.into()),
        millions(this.per_second),
        this.bound?.name(),
        millions(linux.per_second),
        linux.bound?.name()
    ))
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
            see: format!(
                "With more threads than cores, who waits for a lock waits for an owner that may not run{}.",
                slow(&data.latency).unwrap_or_default()
            ),
            content: html! { (charts(&[times(&data.latency).inline()])) (table(&headings, &rows)) },
            spread: "all executions of one run".into(),
        })
    })
}

/// How slow the slowest thousandth of the execs is.
fn slow(latencies: &[Latency]) -> Option<String> {
    let ns = |strategy: &str| latencies.iter().find(|row| row.strategy == strategy).map(|row| grouped_digits(row.p999_ns));
    Some(format!(
        ": one exec in a thousand takes over {} ns with this crate's groups, and over {} ns in Linux's way, grouped",
        ns("grouped")?,
        ns("linux-grouped")?
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scale::latency::tests::latency;
    use crate::scale::rows::tests::row;

    #[test]
    fn what_the_model_says_is_of_the_most_cpus() {
        let mut rows = vec![
            row("grouped", 1_024, 6_386e6, Kind::Model),
            row("linux-grouped", 1_024, 0.8e6, Kind::Model),
            row("linux-grouped", 2, 9e6, Kind::Model),
            row("grouped", 2_048, 9e6, Kind::Measured),
        ];
        let text = finding(&rows).unwrap();
        assert!(
            ["1,024 CPUs", "6,386 million execs/s", "of 0.80 million", "bound by a lock. "].iter().all(|part| text.contains(part)),
            "{text}"
        );
        rows.retain(|row| row.strategy != "grouped");
        assert_eq!(finding(&rows), None);
    }

    #[test]
    fn the_slowest_execs_are_told_if_both_were_measured() {
        let of = |strategy: &str, p999_ns| Latency { strategy: strategy.into(), p999_ns, ..latency() };
        let text = slow(&[of("grouped", 250), of("linux-grouped", 13_000)]).unwrap();
        assert!(text.contains("250 ns with this crate") && text.contains("13,000 ns in Linux"), "{text}");
        assert_eq!(slow(&[of("grouped", 250)]), None);
    }
}
