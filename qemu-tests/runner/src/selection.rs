//! Which cases libtest's filters select.

/// Filters as libtest has them: a case runs if any filter matches it, or there is none, and no `--skip` does.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// Parts of names; with `exact`, whole names.
    pub filters: Vec<String>,
    /// As `filters`, for cases not to run.
    pub skip: Vec<String>,
    /// Whether filters and skips are whole names.
    pub exact: bool,
    /// `--ignored`: only cases marked to be ignored. A kernel has no such mark, so none.
    pub only_ignored: bool,
}

impl Selection {
    /// Whether every case is selected whatever its name.
    pub fn is_all(&self) -> bool {
        self.filters.is_empty() && self.skip.is_empty() && !self.only_ignored
    }

    /// Whether the case of this name is selected.
    pub fn selects(&self, name: &str) -> bool {
        let matches = |pattern: &String| if self.exact { name == pattern } else { name.contains(pattern.as_str()) };
        !self.only_ignored && (self.filters.is_empty() || self.filters.iter().any(matches)) && !self.skip.iter().any(matches)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selected(filters: &[&str], skip: &[&str], exact: bool) -> Vec<&'static str> {
        let words = |words: &[&str]| words.iter().map(|word| word.to_string()).collect();
        let selection = Selection { filters: words(filters), skip: words(skip), exact, only_ignored: false };
        ["a::b", "a::b_c", "d"].into_iter().filter(|name| selection.selects(name)).collect()
    }

    #[test]
    fn without_filters_all_are_selected() {
        assert_eq!(selected(&[], &[], false), ["a::b", "a::b_c", "d"]);
        assert_eq!(selected(&[], &[], true), ["a::b", "a::b_c", "d"]);
        assert!(Selection::default().is_all());
    }

    #[test]
    fn a_filter_is_a_part_of_the_name_and_any_may_match() {
        assert_eq!(selected(&["a::b"], &[], false), ["a::b", "a::b_c"]);
        assert_eq!(selected(&["_c", "d"], &[], false), ["a::b_c", "d"]);
        assert_eq!(selected(&["x"], &[], false), [""; 0]);
    }

    #[test]
    fn exact_filters_and_skips_are_whole_names() {
        assert_eq!(selected(&["a::b"], &[], true), ["a::b"]);
        assert_eq!(selected(&[], &["a::b"], true), ["a::b_c", "d"]);
    }

    #[test]
    fn a_skip_wins_over_a_filter() {
        assert_eq!(selected(&["a"], &["_c"], false), ["a::b"]);
        assert_eq!(selected(&["a::b"], &["a::b"], true), [""; 0]);
    }

    #[test]
    fn only_ignored_selects_nothing() {
        let selection = Selection { only_ignored: true, ..Selection::default() };
        assert!(!selection.selects("a") && !selection.is_all());
    }
}
