//! Curves over a common axis.

use super::axis::Scale;
use super::{Axis, Chart, HEAD, LINE_HEIGHT, MARGIN, WIDTH, number, palette, short, width_of};
use maud::{Markup, html};

/// The plot's own height.
const PLOT_HEIGHT: f64 = 210.0;

/// Left of the plot: room for its ticks.
const LEFT: f64 = 52.0;

/// Right of the plot: half of the last tick's text.
const RIGHT: f64 = 18.0;

/// The sample of a line in the legend, and what is around it.
const SAMPLE: f64 = 22.0;
const SAMPLE_GAP: f64 = 6.0;
const ENTRY_GAP: f64 = 14.0;

/// Ticks that are nearer to each other lose their texts.
const MIN_TICK_GAP: f64 = 30.0;

/// A curve of more points has no markers, and an axis of more values has ticks of its own.
const MAX_MARKED: usize = 12;

/// Half a marker.
const MARK: f64 = 4.0;

/// Where values come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Drawn with markers, and how far rounds are apart.
    Measured,
    /// Drawn dashed, and named a model.
    Model,
}

/// A value, and between which two its rounds are.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    pub x: f64,
    pub y: f64,
    pub low: f64,
    pub high: f64,
}

impl Point {
    /// A value that has no spread, or whose spread is not known.
    pub fn exact(x: f64, y: f64) -> Self {
        Self { x, y, low: y, high: y }
    }

    /// A median, whose rounds are apart by `spread` of it.
    pub fn with_spread(x: f64, y: f64, spread: f64) -> Self {
        Self { x, y, low: y * (1.0 - spread / 2.0), high: y * (1.0 + spread / 2.0) }
    }
}

/// A curve.
#[derive(Clone, Debug)]
pub struct Line {
    /// A strategy's name gives it that strategy's colour.
    pub label: String,
    pub kind: Kind,
    pub points: Vec<Point>,
}

/// A chart of curves.
#[derive(Clone, Debug)]
pub struct Lines {
    pub title: String,
    pub x: Axis,
    pub y: Axis,
    pub lines: Vec<Line>,
}

impl Line {
    fn name(&self) -> String {
        match self.kind {
            Kind::Measured => self.label.clone(),
            Kind::Model => format!("{} (model)", self.label),
        }
    }
}

impl Chart for Lines {
    fn title(&self) -> &str {
        &self.title
    }

    fn body(&self) -> (f64, Markup) {
        let is_drawn = |point: &&Point| self.x.has(point.x) && self.y.has(point.y);
        let points = || self.lines.iter().flat_map(|line| &line.points).filter(is_drawn);
        let mut values: Vec<_> = points().map(|point| point.x).collect();
        values.sort_by(f64::total_cmp);
        values.dedup();
        let x = if values.len() <= MAX_MARKED { Scale::at(&self.x, values) } else { Scale::over(&self.x, values.into_iter()) };
        let y = Scale::over(&self.y, points().flat_map(|point| [point.y, point.low, point.high]));
        let (right, bottom) = (WIDTH - RIGHT, HEAD + PLOT_HEIGHT);
        let at_x = |value| LEFT + x.place(value) * (right - LEFT);
        let at_y = |value| bottom - y.place(value) * PLOT_HEIGHT;
        let below = bottom + 2.0 * LINE_HEIGHT + MARGIN;
        let (nr_rows, legend) = self.legend(below + LINE_HEIGHT);
        let markup = html! {
            text class="name" x=(MARGIN) y="33" { (self.y.label) }
            @for &tick in &y.ticks {
                line class="grid" x1=(number(LEFT)) x2=(number(right)) y1=(number(at_y(tick))) y2=(number(at_y(tick))) {}
                text class="tick end" x=(number(LEFT - 6.0)) y=(number(at_y(tick) + 4.0)) { (short(tick)) }
            }
            @for tick in apart(&x.ticks, at_x) {
                line class="grid" x1=(number(at_x(tick))) x2=(number(at_x(tick))) y1=(number(bottom)) y2=(number(bottom + 4.0)) {}
                text class="tick middle" x=(number(at_x(tick))) y=(number(bottom + LINE_HEIGHT)) { (short(tick)) }
            }
            text class="name middle" x=(number(f64::midpoint(LEFT, right))) y=(number(bottom + 2.0 * LINE_HEIGHT)) { (self.x.label) }
            @for (index, line) in self.lines.iter().enumerate() {
                @let drawn: Vec<_> = line.points.iter().filter(is_drawn).collect();
                g class=(palette::class(&line.label, index)) {
                    polyline class=(curve(line.kind)) points=(path(&drawn, &at_x, &at_y)) {}
                    @if line.kind == Kind::Measured && drawn.len() <= MAX_MARKED {
                        @for point in drawn {
                            @if point.low < point.high {
                                line class="spread" x1=(number(at_x(point.x))) x2=(number(at_x(point.x)))
                                    y1=(number(at_y(point.low))) y2=(number(at_y(point.high))) {}
                            }
                            (mark(palette::place(&line.label, index), at_x(point.x), at_y(point.y),
                                &format!("{}: {} {} at {}", line.label, short(point.y), self.y.label, short(point.x))))
                        }
                    }
                }
            }
            (legend)
        };
        (below + LINE_HEIGHT * nr_rows as f64 + MARGIN, markup)
    }
}

impl Lines {
    /// How many rows it has, and the names of the lines in as many columns as fit.
    fn legend(&self, top: f64) -> (usize, Markup) {
        let widest = self.lines.iter().map(|line| width_of(&line.name())).fold(0.0, f64::max) + SAMPLE + SAMPLE_GAP + ENTRY_GAP;
        let columns = (((WIDTH - 2.0 * MARGIN) / widest) as usize).max(1);
        let markup = html! {
            @for (index, line) in self.lines.iter().enumerate() {
                @let left = MARGIN + widest * (index % columns) as f64;
                @let baseline = top + LINE_HEIGHT * (index / columns) as f64;
                g class=(palette::class(&line.label, index)) {
                    line class=(curve(line.kind)) x1=(number(left)) x2=(number(left + SAMPLE)) y1=(number(baseline - 4.0)) y2=(number(baseline - 4.0)) {}
                    @if line.kind == Kind::Measured && line.points.len() <= MAX_MARKED {
                        (mark(palette::place(&line.label, index), left + SAMPLE / 2.0, baseline - 4.0, &line.label))
                    }
                }
                text class="tick" x=(number(left + SAMPLE + SAMPLE_GAP)) y=(number(baseline)) { (line.name()) }
            }
        };
        (self.lines.len().div_ceil(columns), markup)
    }
}

fn curve(kind: Kind) -> &'static str {
    match kind {
        Kind::Measured => "curve",
        Kind::Model => "curve model",
    }
}

/// Those of `ticks` whose texts do not meet; the last is always there.
fn apart(ticks: &[f64], at: impl Fn(f64) -> f64) -> Vec<f64> {
    let mut kept: Vec<f64> = Vec::new();
    for &tick in ticks.iter().rev() {
        if kept.last().is_none_or(|&next| at(next) - at(tick) >= MIN_TICK_GAP) {
            kept.push(tick);
        }
    }
    kept
}

fn path(points: &[&Point], at_x: &impl Fn(f64) -> f64, at_y: &impl Fn(f64) -> f64) -> String {
    let mut points = points.to_vec();
    points.sort_by(|one, other| one.x.total_cmp(&other.x));
    points.iter().map(|point| format!("{},{}", number(at_x(point.x)), number(at_y(point.y)))).collect::<Vec<_>>().join(" ")
}

/// A circle, a square, a diamond or a triangle.
fn mark(place: usize, x: f64, y: f64, title: &str) -> Markup {
    let corners = |corners: &[(f64, f64)]| {
        corners.iter().map(|(dx, dy)| format!("{},{}", number(x + dx * MARK), number(y + dy * MARK))).collect::<Vec<_>>().join(" ")
    };
    html! {
        @match place % 4 {
            0 => { circle class="mark" cx=(number(x)) cy=(number(y)) r=(MARK) { title { (title) } } }
            1 => { polygon class="mark" points=(corners(&[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)])) { title { (title) } } }
            2 => { polygon class="mark" points=(corners(&[(0.0, -1.3), (1.3, 0.0), (0.0, 1.3), (-1.3, 0.0)])) { title { (title) } } }
            _ => { polygon class="mark" points=(corners(&[(0.0, -1.2), (1.2, 1.0), (-1.2, 1.0)])) { title { (title) } } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(lines: Vec<Line>) -> Lines {
        Lines { title: "a < b & \"c\"".into(), x: Axis::log("CPUs"), y: Axis::log("lifetimes/s"), lines }
    }

    fn line(label: &str, kind: Kind) -> Line {
        let points = vec![Point::with_spread(1.0, 100.0, 0.2), Point::with_spread(2.0, 180.0, 0.2), Point::exact(4.0, 0.0)];
        Line { label: label.into(), kind, points }
    }

    #[test]
    fn a_model_is_dashed_and_named_and_has_no_markers() {
        let text = chart(vec![line("grouped", Kind::Model)]).inline().into_string();
        assert!(text.contains("curve model") && text.contains("grouped (model)"), "{text}");
        assert!(!text.contains("class=\"mark\"") && !text.contains("class=\"spread\""), "{text}");
    }

    #[test]
    fn what_is_measured_has_markers_and_spread_and_what_has_no_place_has_neither() {
        let text = chart(vec![line("grouped", Kind::Measured)]).inline().into_string();
        // One more marker in the legend; the point at zero is not on a logarithmic axis.
        assert_eq!((text.matches("class=\"mark\"").count(), text.matches("class=\"spread\"").count()), (3, 2), "{text}");
        assert!(!text.contains("model"), "{text}");
    }

    #[test]
    fn a_curve_of_many_points_has_no_markers_and_ticks_of_its_own() {
        let points = (1..200).map(|x| Point::exact(f64::from(x) + 0.5, 1.0)).collect();
        let text = chart(vec![Line { points, ..line("each", Kind::Measured) }]).inline().into_string();
        assert!(!text.contains("class=\"mark\"") && text.contains(">100<") && !text.contains(">1.5<"), "{text}");
    }

    #[test]
    fn axes_are_named_and_text_is_escaped() {
        let text = chart(vec![line("<i>", Kind::Measured)]).inline().into_string();
        assert!(text.contains("a &lt; b &amp; ") && text.contains("&lt;i&gt;") && !text.contains("<i>"), "{text}");
        assert!(text.contains("CPUs") && text.contains("lifetimes/s"), "{text}");
    }

    #[test]
    fn a_file_has_its_style_and_a_page_has_it_once_elsewhere() {
        let chart = chart(vec![line("each", Kind::Measured)]);
        assert!(chart.file().contains("prefers-color-scheme: dark") && !chart.inline().into_string().contains("<style>"));
    }

    #[test]
    fn a_chart_of_nothing_has_no_numbers_that_are_none() {
        let text = chart(Vec::new()).file();
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }

    #[test]
    fn texts_of_ticks_do_not_meet() {
        assert_eq!(apart(&[1.0, 2.0, 50.0, 100.0], |value| value), [100.0, 50.0, 2.0]);
    }
}
