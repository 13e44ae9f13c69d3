//! From values to places, and which values are written beside them.

use crate::table::grouped_digits;

/// An axis.
#[derive(Clone, Debug)]
pub struct Axis {
    /// What it measures, with the unit.
    pub label: String,
    pub is_log: bool,
}

impl Axis {
    pub fn linear(label: &str) -> Self {
        Self { label: label.to_owned(), is_log: false }
    }

    /// Values that are not above zero have no place on it.
    pub fn log(label: &str) -> Self {
        Self { label: label.to_owned(), is_log: true }
    }

    pub fn has(&self, value: f64) -> bool {
        value.is_finite() && (!self.is_log || value > 0.0)
    }
}

/// An axis over the range of some values.
#[derive(Debug)]
pub struct Scale {
    is_log: bool,
    low: f64,
    high: f64,
    pub ticks: Vec<f64>,
}

/// How many steps a linear axis has, about.
const STEPS: f64 = 5.0;

/// When a logarithmic axis spans fewer decades, it has more than one tick in each.
const DENSE_DECADES: f64 = 2.5;

/// When it spans more, it has not even one.
const SPARSE_DECADES: f64 = 7.0;

impl Scale {
    /// From zero, or from the decade's part below the least value, up to the next tick above the largest one.
    pub fn over(axis: &Axis, values: impl Iterator<Item = f64>) -> Self {
        let values: Vec<_> = values.filter(|&value| axis.has(value)).collect();
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        match (values.is_empty(), axis.is_log) {
            (true, is_log) => Self { is_log, low: if is_log { 0.1 } else { 0.0 }, high: 1.0, ticks: vec![1.0] },
            (false, true) => Self::log(low, high),
            (false, false) => Self::linear(low.min(0.0), high),
        }
    }

    /// From the first of `values`, which ascend, to the last. All are ticks.
    pub fn at(axis: &Axis, values: Vec<f64>) -> Self {
        match (values.first(), values.last()) {
            (Some(&low), Some(&high)) if low < high => Self { is_log: axis.is_log, low, high, ticks: values },
            // One value stands in the middle.
            (Some(&only), _) if axis.is_log => Self { is_log: true, low: only / 2.0, high: only * 2.0, ticks: values },
            (Some(&only), _) => Self { is_log: false, low: only - 1.0, high: only + 1.0, ticks: values },
            (None, _) => Self::over(axis, values.into_iter()),
        }
    }

    fn linear(low: f64, high: f64) -> Self {
        let high = if high > low { high } else { low + 1.0 };
        let rough = (high - low) / STEPS;
        let decade = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|part| part * decade).find(|&step| step >= rough).unwrap_or(decade);
        let (first, last) = ((low / step).floor(), (high / step).ceil());
        let ticks: Vec<_> = (0..=(last - first) as usize).map(|index| (first + index as f64) * step).collect();
        Self { is_log: false, low: first * step, high: last * step, ticks }
    }

    fn log(low: f64, high: f64) -> Self {
        let span = (high / low).log10();
        let parts: &[f64] = if span < DENSE_DECADES { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
        let all: Vec<f64> = (first..=last).flat_map(|decade| parts.iter().map(move |part| part * 10_f64.powi(decade))).collect();
        let low = all.iter().copied().filter(|&tick| tick <= low).fold(all[0], f64::max);
        let above = all.iter().copied().filter(|&tick| tick >= high && tick > low).fold(f64::INFINITY, f64::min);
        let high = if above.is_finite() { above } else { low * 10.0 };
        let every = if span > SPARSE_DECADES { 2 } else { 1 };
        let ticks = all.into_iter().filter(|&tick| tick >= low && tick <= high).step_by(every).collect();
        Self { is_log: true, low, high, ticks }
    }

    /// Where `value` is, from 0 to 1.
    pub fn place(&self, value: f64) -> f64 {
        let to = |value: f64| if self.is_log { value.max(f64::MIN_POSITIVE).ln() } else { value };
        ((to(value) - to(self.low)) / (to(self.high) - to(self.low))).clamp(0.0, 1.0)
    }
}

/// A number as short as a tick's text is: `250`, `1.5k`, `20M`. What has four digits that count, as many a number of CPUs has, keeps them: `1,024`.
pub fn short(value: f64) -> String {
    if (1e3..1e4).contains(&value) && value.fract() == 0.0 && value % 10.0 != 0.0 {
        return grouped_digits(value as u64);
    }
    let (scaled, unit) = match value.abs() {
        size if size >= 1e9 => (value / 1e9, "G"),
        size if size >= 1e6 => (value / 1e6, "M"),
        size if size >= 1e3 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let digits = match scaled.abs() {
        0.0 => 0,
        size => (2 - size.log10().floor() as i32).clamp(0, 6) as usize,
    };
    let text = format!("{scaled:.digits$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scale(axis: &Axis, values: &[f64]) -> Scale {
        Scale::over(axis, values.iter().copied())
    }

    #[test]
    fn a_linear_axis_starts_at_zero_and_ends_at_a_tick_above_all() {
        let scale = scale(&Axis::linear("ns"), &[3.0, 41.0]);
        assert_eq!(scale.ticks, [0.0, 10.0, 20.0, 30.0, 40.0, 50.0]);
        assert_eq!([0.0, 25.0, 50.0].map(|value| scale.place(value)), [0.0, 0.5, 1.0]);
    }

    #[test]
    fn a_logarithmic_axis_has_decades_and_what_is_not_positive_is_not_on_it() {
        let scale = scale(&Axis::log("ns"), &[0.0, -1.0, f64::NAN, 2.0, 3_000.0]);
        assert_eq!(scale.ticks, [1.0, 10.0, 100.0, 1_000.0, 10_000.0]);
        assert!((scale.place(100.0) - 0.5).abs() < 1e-9);
    }

    #[test]
    fn a_short_logarithmic_axis_has_ticks_within_decades() {
        assert_eq!(scale(&Axis::log("ns"), &[25.0, 180.0]).ticks, [20.0, 50.0, 100.0, 200.0]);
    }

    #[test]
    fn nothing_and_a_single_value_have_an_axis_too() {
        for values in [&[][..], &[0.0], &[7.0], &[1.0]] {
            for axis in [Axis::linear(""), Axis::log("")] {
                let scale = scale(&axis, values);
                assert!(scale.low < scale.high && !scale.ticks.is_empty(), "{values:?} {scale:?}");
                assert!(values.iter().all(|&value| scale.place(value).is_finite()), "{values:?} {scale:?}");
            }
        }
        assert!((Scale::at(&Axis::log(""), vec![8.0]).place(8.0) - 0.5).abs() < 1e-9);
    }

    #[test]
    fn ticks_are_short() {
        let texts = [0.0, 0.5, 0.001, 1.0, 250.0, 1_024.0, 1_500.0, 20_000_000.0, 3e9].map(short);
        assert_eq!(texts, ["0", "0.5", "0.001", "1", "250", "1,024", "1.5k", "20M", "3G"]);
    }
}
