//! The rows of the JSON file.

use super::measure::{Measured, PARTS, Plan, strategies};
use super::model::{Bound, Costs, predict};
use super::usl::Usl;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// Where a throughput comes from.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Measured,
    Model,
}

/// A throughput.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Row {
    pub strategy: String,
    pub workload: String,
    /// `counters`: those of an exec alone; `whole`: with the process around them.
    pub part: String,
    pub cpus: u32,
    /// Executions; the median round's, where it is measured.
    pub per_second: f64,
    pub kind: Kind,
    /// The fastest minus the slowest round, as a part of the median; of a model: null.
    pub spread: Option<f64>,
    /// What bounds a model; of a measurement: null.
    pub bound: Option<Bound>,
    /// Whether the model's counts are beyond what was counted.
    pub extrapolated: bool,
    /// Of the rows of this kind, strategy and part; null for fewer than three.
    pub usl_alpha: Option<f64>,
    pub usl_beta: Option<f64>,
    /// Root mean square of how far the law is from the rows, as a part of them.
    pub usl_residual: Option<f64>,
}

/// Strategy by strategy: what was measured, each part, and the model.
pub fn all(plan: &Plan, measured: &Measured) -> Result<Vec<Row>> {
    let transfer_ns = measured.line_transfer_ns()?;
    let mut rows = Vec::new();
    for strategy in strategies() {
        for part in PARTS {
            let is_wanted = |row: &Row| row.strategy == strategy && row.part == part;
            rows.extend(with_law(self::measured(&measured.together).into_iter().filter(is_wanted).collect()));
        }
        let point = |&cpus: &u32| {
            let one_thread_ns = measured.one_thread_ns(&strategy, cpus).context("was not measured on one thread")?;
            let counts = measured.counts(&strategy, cpus).context("was not counted")?;
            let instruction_ns = measured.instruction_ns(&strategy).context("was not counted on one CPU")?;
            let costs = Costs { one_thread: one_thread_ns, instruction: instruction_ns, transfer: transfer_ns };
            let prediction = predict(cpus, costs, &counts);
            Ok(Row {
                kind: Kind::Model,
                bound: Some(prediction.bound),
                extrapolated: !plan.counted.contains(&cpus),
                ..new(&strategy, PARTS[0], cpus, 1e9 * f64::from(cpus) / prediction.time)
            })
        };
        let points: Result<Vec<_>> = plan.cpus.iter().map(point).collect();
        rows.extend(with_law(points.with_context(|| strategy.clone())?));
    }
    Ok(rows)
}

/// Of what was measured alone.
pub fn measured(together: &[crate::rows::Row]) -> Vec<Row> {
    let row = |row: &crate::rows::Row| Row {
        spread: Some(row.spread),
        ..new(&row.strategy, &row.setting.part, row.setting.cpus, row.per_second)
    };
    together.iter().map(row).collect()
}

fn new(strategy: &str, part: &str, cpus: u32, per_second: f64) -> Row {
    Row {
        strategy: strategy.to_owned(),
        workload: "exec".to_owned(),
        part: part.to_owned(),
        cpus,
        per_second,
        kind: Kind::Measured,
        spread: None,
        bound: None,
        extrapolated: false,
        usl_alpha: None,
        usl_beta: None,
        usl_residual: None,
    }
}

/// The rows of one curve, with the law's parameters.
fn with_law(mut rows: Vec<Row>) -> Vec<Row> {
    let points: Vec<_> = rows.iter().map(|row| (row.cpus, row.per_second)).collect();
    if let Some(usl) = Usl::fit(&points) {
        for row in &mut rows {
            (row.usl_alpha, row.usl_beta, row.usl_residual) = (Some(usl.alpha), Some(usl.beta), Some(usl.residual));
        }
    }
    rows
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use serde_json::json;

    pub fn row(strategy: &str, cpus: u32, per_second: f64, kind: Kind) -> Row {
        let bound = (kind == Kind::Model).then_some(Bound::Lock);
        Row { kind, bound, ..new(strategy, PARTS[0], cpus, per_second) }
    }

    #[test]
    fn rows_of_a_curve_have_the_laws_parameters_if_they_are_enough() {
        let curve = |nr: usize| with_law([1, 2, 4, 8].into_iter().take(nr).map(|cpus| row("a", cpus, 100.0, Kind::Model)).collect());
        assert!(curve(4).iter().all(|row| row.usl_alpha.is_some_and(|alpha| (alpha - 1.0).abs() < 1e-6)), "{:?}", curve(4));
        assert!(curve(2).iter().all(|row| (row.usl_alpha, row.usl_beta, row.usl_residual) == (None, None, None)));
    }

    #[test]
    fn a_row_has_its_fixed_keys() {
        let row = serde_json::to_value(row("lazy", 64, 1.5, Kind::Model)).unwrap();
        let expected = json!({
            "strategy": "lazy", "workload": "exec", "part": "counters", "cpus": 64, "per_second": 1.5, "kind": "model", "spread": null,
            "bound": "a lock", "extrapolated": false, "usl_alpha": null, "usl_beta": null, "usl_residual": null
        });
        assert_eq!(row, expected);
    }
}
