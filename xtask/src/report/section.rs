//! A part of the page: a sentence, tables and charts, and how they came about.

use super::data::{Source, command_of};
use crate::json_file::Stored;
use maud::{Markup, html};

/// What a section shows.
#[derive(Debug)]
pub struct Shown {
    /// One sentence that says what to see.
    pub see: String,
    pub content: Markup,
    /// How far rounds are apart, and of how many.
    pub spread: String,
}

/// A section with the tables and charts that `show` makes of the rows, or with what it is that they lack.
pub fn section<R>(title: &str, source: &Source<R>, show: impl FnOnce(&Stored<R>) -> Option<Shown>) -> Markup {
    let id = title.to_lowercase().replace(|letter: char| !letter.is_ascii_alphanumeric(), "-");
    html! {
        section id=(id) {
            h2 { (title) }
            @match source {
                Err(problem) => p.missing { "Not measured: " (problem) "." },
                Ok(stored) => @match show(stored) {
                    None => p.missing { "Not measured by " code { (command_of(stored)) } ": the command without options has these rows." },
                    Some(shown) => {
                        p.see { (shown.see) }
                        (shown.content)
                        p.made { code { (command_of(stored)) } " · " (stored.machine.line()) " · " (shown.spread) }
                    }
                }
            }
        }
    }
}

/// Charts beside each other, where there is room.
pub fn charts(charts: &[Markup]) -> Markup {
    html! { div.charts { @for chart in charts { figure { (chart) } } } }
}

/// A table that scrolls in its box where it is wider than the page. The first column is text, the others are numbers.
pub fn table(headings: &[&str], rows: &[Vec<Cell>]) -> Markup {
    html! {
        div.scroll tabindex="0" {
            table {
                thead { tr { @for heading in headings { th scope="col" { (heading) } } } }
                tbody {
                    @for row in rows {
                        tr { @for (index, cell) in row.iter().enumerate() { (cell.markup(index == 0)) } }
                    }
                }
            }
        }
    }
}

/// A cell.
#[derive(Clone, Debug)]
pub struct Cell {
    text: String,
    /// From 0 to 1: how warm its ground is.
    heat: Option<f64>,
    is_quoted: bool,
}

impl Cell {
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), heat: None, is_quoted: false }
    }

    /// Of somebody else's, not measured here.
    pub fn quoted(text: impl Into<String>) -> Self {
        Self { is_quoted: true, ..Self::new(text) }
    }

    pub fn with_heat(text: impl Into<String>, heat: f64) -> Self {
        Self { heat: heat.is_finite().then(|| heat.clamp(0.0, 1.0)), ..Self::new(text) }
    }

    fn markup(&self, is_heading: bool) -> Markup {
        let is_long = self.text.chars().count() > LONG_NAME;
        let class = self.is_quoted.then_some("quoted").or(self.heat.map(|_| "heat"));
        let style = self.heat.map(|heat| format!("--heat: {:.0}%", heat * 100.0));
        html! {
            @if is_heading {
                th scope="row" class=[class.or(is_long.then_some("long"))] { (self.text) }
            } @else {
                td class=[class] style=[style] { (self.text) }
            }
        }
    }
}

/// A row's name of more letters is broken into lines where the page is narrow.
const LONG_NAME: usize = 24;

/// A row of plain cells.
pub fn cells<T: Into<String>>(texts: impl IntoIterator<Item = T>) -> Vec<Cell> {
    texts.into_iter().map(Cell::new).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Host;

    fn source() -> Source<u32> {
        Ok(Stored { machine: Host { processor: "P & Q".into(), ..Host::default() }, command: "cargo <b>".into(), rows: vec![1] })
    }

    #[test]
    fn a_section_says_how_it_came_about_and_escapes_it() {
        let shown =
            |_: &Stored<u32>| Some(Shown { see: "See <i>.".into(), content: table(&["<h>"], &[cells(["<c>"])]), spread: "5 %".into() });
        let text = section("A title", &source(), shown).into_string();
        for part in ["id=\"a-title\"", "cargo &lt;b&gt;", "P &amp; Q", "See &lt;i&gt;.", "&lt;h&gt;", "&lt;c&gt;", "5 %"] {
            assert!(text.contains(part), "no {part} in {text}");
        }
    }

    #[test]
    fn a_section_without_rows_says_which_are_missing() {
        let text = section::<u32>("T", &Err("there is no <f>".into()), |_| unreachable!()).into_string();
        assert!(text.contains("there is no &lt;f&gt;"), "{text}");
        let text = section("T", &source(), |_| None).into_string();
        assert!(text.contains("Not measured by") && text.contains("cargo &lt;b&gt;"), "{text}");
    }

    #[test]
    fn heat_is_between_nothing_and_all() {
        let heat = |heat| Cell::with_heat("x", heat).markup(false).into_string();
        assert!(heat(0.25).contains("--heat: 25%") && heat(7.0).contains("--heat: 100%") && !heat(f64::NAN).contains("heat"));
    }
}
