//! Charts as SVG that needs nothing else: colours follow the reader's light or dark scheme, and text is text.
//!
//! `plotters` writes colours into each element, and `poloto` has no logarithmic axes; so this is a small writer on `maud`, which escapes.

mod axis;
mod bars;
mod lines;
mod palette;

pub use axis::{Axis, short};
pub use bars::{Bar, Bars};
pub use lines::{Kind, Line, Lines, Point};
pub use palette::{LINUX_LIKE, PCPU};

use maud::{Markup, PreEscaped, html};

/// How charts look. A page has it once; a file of its own has it inside.
pub const STYLE: &str = include_str!("plot/style.css");

/// Widths and heights are in these units, of which a chart's width has as many. A phone shows all of them, so text stays readable there.
const WIDTH: f64 = 480.0;

/// Between the chart and its edge.
const MARGIN: f64 = 10.0;

/// Below the title.
const HEAD: f64 = 50.0;

/// From one line of text to the next.
const LINE_HEIGHT: f64 = 18.0;

/// What a character takes in `text` of the style's size, at most on average.
const CHARACTER_WIDTH: f64 = 7.2;

/// A part of a page: the style is the page's.
pub trait Chart {
    fn title(&self) -> &str;

    /// The height, and what is drawn below the title.
    fn body(&self) -> (f64, Markup);

    fn inline(&self) -> Markup {
        svg(self, false)
    }

    /// A file of its own.
    fn file(&self) -> String {
        svg(self, true).into_string()
    }
}

fn svg(chart: &(impl Chart + ?Sized), is_file: bool) -> Markup {
    let (height, body) = chart.body();
    html! {
        svg xmlns="http://www.w3.org/2000/svg" class="plot" role="img" viewBox={ "0 0 " (WIDTH) " " (number(height)) } {
            title { (chart.title()) }
            @if is_file { style { (PreEscaped(STYLE)) } }
            rect class="ground" width=(WIDTH) height=(number(height)) {}
            text class="head" x=(MARGIN) y="18" { (chart.title()) }
            (body)
        }
    }
}

/// A coordinate: tenths are finer than any screen.
fn number(value: f64) -> String {
    format!("{value:.1}")
}

/// What `text` takes, at most.
fn width_of(text: &str) -> f64 {
    CHARACTER_WIDTH * text.chars().count() as f64
}
