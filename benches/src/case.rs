//! A case: what is measured in one go, and what with.

use crate::turn::{Sample, Turn};

/// Measures once, on each of the case's threads: a sample for each row.
pub type Measure = Box<dyn Fn(&Turn<'_>) -> Vec<Sample> + Send + Sync>;

/// How many operations are timed at once.
#[derive(Clone, Copy, Debug)]
pub enum Operations {
    /// As many as take long enough for the clock.
    Calibrated,
    /// The measurement's own number; its turns are long.
    Fixed,
}

/// What the threads' samples say together.
#[derive(Clone, Copy, Debug)]
pub enum Combine {
    /// All do the same: the time for an operation on each thread, so that the throughput is the number of threads by it.
    Same,
    /// Each does a part of the operation: the sum.
    Parts,
}

pub struct Case {
    /// The rows that it gives.
    pub rows: Vec<String>,
    pub threads: usize,
    pub combine: Combine,
    pub operations: Operations,
    pub measure: Measure,
    /// What it is compared with: the same with the allocator that works as Linux's does, or, for lifetimes, with plain atomics.
    pub baseline: Option<Measure>,
    /// The baseline's own row, for a case of one row.
    pub baseline_row: Option<String>,
}

impl Case {
    /// A case of one row, of calibrated length.
    pub fn new(name: impl Into<String>, threads: usize, measure: impl Fn(&Turn<'_>) -> Vec<Sample> + Send + Sync + 'static) -> Self {
        Case {
            rows: vec![name.into()],
            threads,
            combine: Combine::Same,
            operations: Operations::Calibrated,
            measure: Box::new(measure),
            baseline: None,
            baseline_row: None,
        }
    }

    pub fn with_baseline(self, baseline: impl Fn(&Turn<'_>) -> Vec<Sample> + Send + Sync + 'static) -> Self {
        Case { baseline: Some(Box::new(baseline)), ..self }
    }

    /// The names of its rows and of its baseline's own one.
    pub fn row_names(&self) -> impl Iterator<Item = &str> {
        self.rows.iter().chain(&self.baseline_row).map(String::as_str)
    }
}

impl Combine {
    /// One value from all threads'.
    pub fn values(self, values: impl ExactSizeIterator<Item = f64>) -> f64 {
        match self {
            Combine::Same => values.len() as f64 / values.map(f64::recip).sum::<f64>(),
            Combine::Parts => values.sum(),
        }
    }
}
