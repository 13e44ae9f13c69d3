//! Names for the counters of a set.

/// What names a counter of a set of `N`: a number, or an enum with `N` variants, as [`counters!`](crate::counters) makes them.
pub trait CounterIndex<const N: usize>: Copy {
    /// The counter's place in the set. Using one of `N` or more panics.
    fn index(self) -> usize;
}

impl<const N: usize> CounterIndex<N> for usize {
    #[inline(always)]
    fn index(self) -> usize {
        self
    }
}
