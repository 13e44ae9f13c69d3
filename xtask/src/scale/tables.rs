//! The tables for people.

use super::cores::Cores;
use super::latency::Latency;
use super::measure::{Measured, Plan, operation, strategies};
use super::rows::{Kind, Row};
use super::validation::{self, Check};
use crate::host::Host;
use crate::table::{grouped_digits, percent, styled};
use std::fmt::Write;

/// Numbers of CPUs that the table has columns for; the JSON file has all.
const SHOWN: [u32; 6] = [1, 2, 8, 64, 256, 1024];

/// Everything.
pub fn render(host: &Host, cores: &Cores, plan: &Plan, measured: &Measured, rows: &[Row], checks: &[Check]) -> String {
    let mut text = String::new();
    let transfer_ns = measured.line_transfer_ns().unwrap_or(f64::NAN);
    let parts = [
        format!(
            "MODEL: execs' counters a second, in millions, for numbers of CPUs; L, a line's way from core to core, is {transfer_ns:.1} ns here\n{}",
            models(plan, measured, rows)
        ),
        LEGEND.to_owned(),
        format!("MEASURED: execs a second on {}, and what the model says\n{}", places(plan), throughputs(rows)),
        format!("{} {}", processor(host), cores.sentence()),
        format!("PREDICTION and measurement, for an operation on each thread\n{}", predictions(checks)),
        validation::verdict(checks, cores.are_busy()),
        UNITS.to_owned(),
        format!("TIMES of single execs' counters, when threads lose their cores\n{}", latencies(&measured.latency)),
        OVERCOMMIT.to_owned(),
    ];
    for part in parts {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{part}");
    }
    text.trim_end().to_owned()
}

const LEGEND: &str = "\
ns on 1: one thread alone, in the fastest round. transfers: how often a line changes hands in an exec with so many CPUs at work; ~: from the line through the
counts. bound: what bounds the throughput on the most CPUs: each CPU's own work, a lock that all take, or a line that all write.
alpha, beta, residual: the Universal Scalability Law that fits best, and how far it is off (root mean square).";

const UNITS: &str = "\
gs adds: times in units of an addition through GS in the same round, the median round's; ns: the fastest round's. error: of the prediction, as a
part of the measurement. On one thread the prediction is an earlier measurement of the same run, so that its error is the machine's noise.
The plugin's CPUs take turns by whole operations. Cores take turns within an exec with linux-each, which is slower than predicted; and one keeps the lock
for several pairs of linux_like_alloc_free, which is faster. alloc_here_free_there is counted with 64 objects handed over at once, and timed with 1,024.";

const OVERCOMMIT: &str = "\
Execs one after the other on four pinned threads for each core, by the wall clock: what a thread waits for its core while it is in an exec is
in. The fewer threads get anything done, the fewer of the execs are hit: compare execs/s first. over 1 ms: how many waited for a core.";

fn places(plan: &Plan) -> &'static str {
    if plan.native { "pinned native threads" } else { "CPUs of a kernel in QEMU" }
}

fn processor(host: &Host) -> String {
    format!("On {} ({}, {}).", host.processor, crate::table::counted(host.host_cpus, "CPU"), host.system)
}

fn models(plan: &Plan, measured: &Measured, rows: &[Row]) -> String {
    let shown: Vec<u32> = SHOWN.into_iter().filter(|cpus| plan.cpus.contains(cpus)).collect();
    let most = plan.cpus.last().copied().unwrap_or(1);
    let headings = ["strategy", "ns on 1"].map(str::to_owned).into_iter();
    let headings = headings.chain(shown.iter().map(|cpus| grouped_digits((*cpus).into()))).chain([
        format!("transfers on 2, {most}"),
        "bound".into(),
        "alpha".into(),
        "beta".into(),
        "residual".into(),
    ]);
    let headings: Vec<_> = headings.collect();
    let mut table = styled(headings.iter().map(String::as_str));
    for strategy in strategies() {
        let of: Vec<_> = rows.iter().filter(|row| row.kind == Kind::Model && row.strategy == strategy).collect();
        let Some(last) = of.last() else { continue };
        let one_thread = measured.one_thread_ns(&strategy, 1).unwrap_or(f64::NAN);
        let at = |cpus: u32| of.iter().find(|row| row.cpus == cpus).map_or_else(String::new, |row| millions(row.per_second));
        let transfers = |cpus| measured.counts(&strategy, cpus).map_or(f64::NAN, |counts| counts.transfers);
        let about = if last.extrapolated { "~" } else { "" };
        let cells = [strategy.clone(), format!("{one_thread:.0}")].into_iter().chain(shown.iter().map(|&cpus| at(cpus)));
        table.add_row(cells.chain([
            format!("{:.1}, {about}{:.1}", transfers(2), transfers(most)),
            last.bound.map_or("", |bound| bound.name()).to_owned(),
            law(last.usl_alpha),
            law(last.usl_beta),
            last.usl_residual.map_or_else(String::new, percent),
        ]));
    }
    let mut text = table.to_string();
    for strategy in strategies() {
        let line = measured.growths.get(&operation(&strategy)).and_then(super::counts::Growth::transfers);
        if let Some(line) = line.filter(|line| line.slope.abs() > 0.005 && rows.iter().any(|row| row.extrapolated)) {
            // Writing to a string does not fail.
            let _ = write!(
                text,
                "\n{strategy}, beyond {} CPUs: transfers = {:.1} + {:.2} for each CPU, up to {} off where they were counted",
                super::MAX_COUNTED_CPUS,
                line.start,
                line.slope,
                percent(line.residual)
            );
        }
    }
    text
}

fn throughputs(rows: &[Row]) -> String {
    let mut table = styled(["strategy", "part", "CPUs", "execs/s", "spread", "model", "error"]);
    for row in rows.iter().filter(|row| row.kind == Kind::Measured) {
        let is_same = |other: &&Row| (&other.strategy, &other.part, other.cpus) == (&row.strategy, &row.part, row.cpus);
        let model = rows.iter().filter(|other| other.kind == Kind::Model).find(is_same);
        table.add_row([
            row.strategy.clone(),
            row.part.clone(),
            row.cpus.to_string(),
            grouped_digits(row.per_second.round() as u64),
            row.spread.map_or_else(String::new, percent),
            model.map_or_else(String::new, |model| grouped_digits(model.per_second.round() as u64)),
            model.map_or_else(String::new, |model| signed_percent(model.per_second / row.per_second - 1.0)),
        ]);
    }
    table.to_string()
}

fn predictions(checks: &[Check]) -> String {
    let mut table = styled(["operation", "threads", "transfers", "unit", "predicted", "measured", "error"]);
    for check in checks {
        table.add_row([
            check.op.clone(),
            check.threads.to_string(),
            format!("{:.2}", check.transfers_per_op),
            check.unit.replace('_', " "),
            format!("{:.1}", check.predicted),
            format!("{:.1}", check.measured),
            signed_percent(check.error),
        ]);
    }
    table.to_string()
}

fn latencies(rows: &[Latency]) -> String {
    let mut table = styled(["strategy", "threads", "execs/s", "p50 ns", "p99 ns", "p99.9 ns", "max ms", "over 1 ms"]);
    for row in rows {
        table.add_row([
            row.strategy.clone(),
            row.threads.to_string(),
            grouped_digits((row.lifetimes as f64 / row.seconds).round() as u64),
            grouped_digits(row.p50_ns),
            grouped_digits(row.p99_ns),
            grouped_digits(row.p999_ns),
            format!("{:.1}", row.max_ns as f64 / 1e6),
            grouped_digits(row.stalls_over_1ms),
        ]);
    }
    table.to_string()
}

/// Three digits.
pub fn millions(per_second: f64) -> String {
    let millions = per_second / 1e6;
    match millions {
        large if large >= 99.95 => grouped_digits(large.round() as u64),
        middle if middle >= 9.995 => format!("{middle:.1}"),
        small => format!("{small:.2}"),
    }
}

/// A parameter of the Universal Scalability Law.
pub fn law(parameter: Option<f64>) -> String {
    match parameter {
        None => String::new(),
        Some(value) if value < 1e-9 => "0".to_owned(),
        Some(value) if value < 0.001 => format!("{value:.1e}"),
        Some(value) => format!("{value:.3}"),
    }
}

fn signed_percent(part: f64) -> String {
    format!("{:+.0} %", part * 100.0)
}

#[cfg(test)]
mod tests {
    use super::super::latency::tests::latency;
    use super::super::rows::tests::row;
    use super::super::validation::tests::check;
    use super::*;

    fn assert_has(text: &str, line: &str, parts: &[&str]) {
        let line = text.lines().find(|candidate| candidate.contains(line)).unwrap_or_else(|| panic!("no line with {line} in\n{text}"));
        for part in parts {
            assert!(line.contains(part), "no {part} in {line}");
        }
    }

    #[test]
    fn a_throughput_stands_beside_what_the_model_says() {
        let rows = [row("lazy", 2, 2_000_000.0, Kind::Measured), row("lazy", 2, 1_500_000.0, Kind::Model)];
        assert_has(&throughputs(&rows), "lazy", &["counters", " 2 ", "2,000,000", "1,500,000", "-25 %"]);
        assert_eq!(throughputs(&rows[..1]).matches("lazy").count(), 1);
    }

    #[test]
    fn predictions_and_times_have_units_and_errors() {
        assert_has(&predictions(&[check("event_add", 2, 12.0, 10.0)]), "event_add", &[" 2 ", " ns ", "12.0", "10.0", "+20 %"]);
        assert_has(&latencies(&[latency()]), "lazy", &[" 8 ", " 900 ", " 220 ", " 271 ", " 381 ", " 31.2 ", " 3 "]);
    }

    #[test]
    fn numbers_have_three_digits_or_so() {
        assert_eq!([0.0049e6, 9.994e6, 10e6, 99.96e6, 4321e6].map(millions), ["0.00", "9.99", "10.0", "100", "4,321"]);
        assert_eq!([None, Some(0.0), Some(0.000_25), Some(0.5)].map(law), ["", "0", "2.5e-4", "0.500"]);
    }
}
