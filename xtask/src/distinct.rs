//! Lists without repetition.

/// Each of `values` once, where it came first.
pub fn distinct<T: PartialEq>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    values.into_iter().fold(Vec::new(), |mut seen, value| {
        if !seen.contains(&value) {
            seen.push(value);
        }
        seen
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_again_is_left_out() {
        assert_eq!(distinct([3, 1, 3, 2, 1]), [3, 1, 2]);
        assert_eq!(distinct([0; 0]), [0; 0]);
    }
}
