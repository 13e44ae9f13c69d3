//! A colour for each series, the same in every chart.

use crate::cli::Strategy;

/// As many as the style has.
pub const NR_COLOURS: usize = 9;

/// What works as Linux's does, and this crate, where no strategy is compared.
pub const LINUX_LIKE: &str = "linux-like";
pub const PCPU: &str = "pcpu";

/// The class with the colour of the series called `name`, which is the chart's `index`th. Strategies are known by name: grey are atomics, warm Linux's
/// ways, cold this crate's.
pub fn class(name: &str, index: usize) -> String {
    format!("c{}", place(name, index) % NR_COLOURS)
}

/// What tells series apart without colour: which of the markers.
pub fn place(name: &str, index: usize) -> usize {
    let strategies = Strategy::expanded(&[Strategy::All]);
    let first_word = match name.split([' ', ',']).next().unwrap_or_default() {
        LINUX_LIKE => "linux-grouped",
        PCPU => "grouped",
        word => word,
    };
    strategies.iter().position(|strategy| strategy == first_word).unwrap_or(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strategy_has_its_colour_wherever_it_stands_and_whatever_follows() {
        assert_eq!(class("lazy", 0), class("lazy, 256 CPUs", 5));
        assert_ne!(class("lazy", 0), class("linux-lazy", 0));
        assert_eq!(class("linux-like", 0), class("linux-grouped", 1));
        assert_eq!(class("lifetime/set4", 2), "c2");
    }

    #[test]
    fn each_strategy_has_a_colour_of_its_own() {
        let mut classes: Vec<_> = Strategy::expanded(&[Strategy::All]).iter().map(|name| class(name, 0)).collect();
        classes.sort();
        classes.dedup();
        assert_eq!(classes.len(), NR_COLOURS);
        assert!((0..NR_COLOURS).all(|index| super::super::STYLE.contains(&format!(".c{index} "))));
    }
}
