//! Bars beside each other's names.

use super::axis::Scale;
use super::{Axis, Chart, HEAD, LINE_HEIGHT, MARGIN, WIDTH, number, palette, short, width_of};
use maud::{Markup, html};

/// From one bar to the next, and how thick it is.
const PITCH: f64 = 24.0;
const THICKNESS: f64 = 15.0;

/// A value with its name.
#[derive(Clone, Debug)]
pub struct Bar {
    /// A strategy's name gives it that strategy's colour.
    pub label: String,
    pub value: f64,
    /// Between which two its rounds are.
    pub low: f64,
    pub high: f64,
    /// The value, as it is written beside the bar.
    pub text: String,
}

/// A chart of bars.
#[derive(Clone, Debug)]
pub struct Bars {
    pub title: String,
    pub axis: Axis,
    pub bars: Vec<Bar>,
}

impl Chart for Bars {
    fn title(&self) -> &str {
        &self.title
    }

    fn body(&self) -> (f64, Markup) {
        let widest = |text: fn(&Bar) -> &str| self.bars.iter().map(|bar| width_of(text(bar))).fold(0.0, f64::max);
        let left = MARGIN + widest(|bar| &bar.label) + 6.0;
        let right = WIDTH - MARGIN - widest(|bar| &bar.text) - 6.0;
        let scale = Scale::over(&self.axis, self.bars.iter().flat_map(|bar| [bar.value, bar.low, bar.high]));
        let at = |value| left + scale.place(value) * (right - left);
        let bottom = HEAD + PITCH * self.bars.len() as f64;
        let mut ticks: Vec<f64> = Vec::new();
        for &tick in &scale.ticks {
            if ticks.last().is_none_or(|&last| at(tick) - at(last) > width_of(&short(tick)) + MARGIN) {
                ticks.push(tick);
            }
        }
        let markup = html! {
            text class="name" x=(MARGIN) y="35" { (self.axis.label) }
            @for tick in ticks {
                line class="grid" x1=(number(at(tick))) x2=(number(at(tick))) y1=(number(HEAD)) y2=(number(bottom)) {}
                text class="tick middle" x=(number(at(tick))) y=(number(bottom + LINE_HEIGHT - 4.0)) { (short(tick)) }
            }
            @for (index, bar) in self.bars.iter().enumerate() {
                @let middle = HEAD + PITCH * (index as f64 + 0.5);
                @let (low, high) = (at(bar.low), at(bar.high));
                text class="tick end" x=(number(left - 6.0)) y=(number(middle + 4.0)) { (bar.label) }
                g class=(palette::class(&bar.label, index)) {
                    rect class="mark" x=(number(left)) y=(number(middle - THICKNESS / 2.0)) height=(THICKNESS)
                        width=(number(at(bar.value) - left)) { title { (bar.label) ": " (bar.text) } }
                }
                @if bar.low < bar.high {
                    line class="bar-spread" x1=(number(low)) x2=(number(high)) y1=(number(middle)) y2=(number(middle)) {}
                }
                text x=(number(at(bar.value).max(high) + 6.0)) y=(number(middle + 4.0)) { (bar.text) }
            }
        };
        (bottom + LINE_HEIGHT + MARGIN, markup)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(label: &str, value: f64, high: f64) -> Bar {
        Bar { label: label.into(), value, low: value, high, text: format!("{value} ns") }
    }

    fn chart(bars: Vec<Bar>) -> String {
        Bars { title: "times".into(), axis: Axis::linear("ns for a lifetime"), bars }.inline().into_string()
    }

    #[test]
    fn a_bar_has_its_name_its_value_and_its_spread_if_it_has_one() {
        let text = chart(vec![bar("atomic", 150.0, 150.0), bar("<b>", 7_500.0, 8_000.0)]);
        assert!(text.contains(">atomic<") && text.contains(">7500 ns<") && text.contains("ns for a lifetime"), "{text}");
        assert!(text.contains("&lt;b&gt;") && !text.contains("<b>"), "{text}");
        assert_eq!(text.matches("bar-spread").count(), 1, "{text}");
    }

    #[test]
    fn bars_are_as_long_as_their_values() {
        let text = chart(vec![bar("a", 50.0, 50.0), bar("b", 100.0, 100.0)]);
        let widths: Vec<f64> = text.split("width=\"").skip(2).filter_map(|rest| rest.split('"').next()?.parse().ok()).collect();
        assert!((widths[1] / widths[0] - 2.0).abs() < 0.01, "{widths:?}");
    }
}
