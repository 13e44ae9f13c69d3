//! The Universal Scalability Law, fitted to throughputs.
//!
//! Gunther's law: on N CPUs the throughput is `γN / (1 + α(N-1) + βN(N-1))`. α is what is done one at a time, as a part of all; β is what each CPU has to
//! do for each other one; γ is one CPU's throughput.

/// The fewest points that say anything about three parameters.
pub const MIN_POINTS: usize = 3;

/// The law's parameters for some throughputs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Usl {
    pub alpha: f64,
    pub beta: f64,
    pub gamma: f64,
    /// Root mean square of how far the law is from the points, as a part of them.
    pub residual: f64,
}

impl Usl {
    /// The best fit of relative errors in which neither α nor β is negative. `None` for fewer points than [`MIN_POINTS`].
    ///
    /// With what is given divided by what the law says as the error, the law is linear in 1/γ, α/γ and β/γ, so that the best fit is found
    /// directly: the best of those in which α, β, both, or none of them is zero.
    pub fn fit(points: &[(u32, f64)]) -> Option<Self> {
        if points.len() < MIN_POINTS || points.iter().any(|&(cpus, rate)| cpus == 0 || rate.is_nan() || rate <= 0.0) {
            return None;
        }
        let scale = points.iter().map(|&(cpus, rate)| rate / f64::from(cpus)).fold(f64::MIN, f64::max);
        let rows: Vec<[f64; 3]> = points
            .iter()
            .map(|&(cpus, rate)| {
                let (cpus, each) = (f64::from(cpus), rate / f64::from(cpus) / scale);
                [each, each * (cpus - 1.0), each * cpus * (cpus - 1.0)]
            })
            .collect();
        let error = |solution: &[f64; 3]| {
            rows.iter().map(|row| (row.iter().zip(solution).map(|(a, b)| a * b).sum::<f64>() - 1.0).powi(2)).sum::<f64>()
        };
        let subsets = [&[0, 1, 2][..], &[0, 1], &[0, 2], &[0]];
        let feasible = subsets.iter().filter_map(|used| least_squares(&rows, used)).filter(|solution| solution[0] > 0.0);
        let best = feasible.filter(|solution| solution.iter().all(|&part| part >= 0.0)).min_by(|a, b| error(a).total_cmp(&error(b)))?;
        let mut usl = Self { alpha: best[1] / best[0], beta: best[2] / best[0], gamma: scale / best[0], residual: 0.0 };
        let squares = points.iter().map(|&(cpus, rate)| (usl.per_second(cpus) / rate - 1.0).powi(2)).sum::<f64>();
        usl.residual = (squares / points.len() as f64).sqrt();
        Some(usl)
    }

    /// What the law says.
    pub fn per_second(&self, cpus: u32) -> f64 {
        let cpus = f64::from(cpus);
        self.gamma * cpus / (1.0 + self.alpha * (cpus - 1.0) + self.beta * cpus * (cpus - 1.0))
    }
}

/// The solution of `rows * x = 1` that uses some columns only, the others being 0; `None` when they do not determine it.
fn least_squares(rows: &[[f64; 3]], used: &[usize]) -> Option<[f64; 3]> {
    // Columns of length 1, so that nothing depends on their units.
    let lengths = [0, 1, 2].map(|column| rows.iter().map(|row| row[column].powi(2)).sum::<f64>().sqrt());
    let column = |row: &[f64; 3], index: usize| row[used[index]] / lengths[used[index]];
    let nr = used.len();
    let mut matrix: Vec<Vec<f64>> = (0..nr)
        .map(|i| {
            let products = (0..nr).map(|j| rows.iter().map(|row| column(row, i) * column(row, j)).sum::<f64>());
            products.chain([rows.iter().map(|row| column(row, i)).sum()]).collect()
        })
        .collect();
    for pivot in 0..nr {
        let largest = (pivot..nr).max_by(|&a, &b| matrix[a][pivot].abs().total_cmp(&matrix[b][pivot].abs()))?;
        matrix.swap(pivot, largest);
        let head = matrix[pivot].clone();
        if head[pivot].is_nan() || head[pivot].abs() < f64::EPSILON {
            return None;
        }
        for (_, row) in matrix.iter_mut().enumerate().filter(|(index, _)| *index != pivot) {
            let factor = row[pivot] / head[pivot];
            row.iter_mut().zip(&head).for_each(|(cell, of_head)| *cell -= factor * of_head);
        }
    }
    let mut solution = [0.0; 3];
    for (index, &column) in used.iter().enumerate() {
        solution[column] = matrix[index][nr] / matrix[index][index] / lengths[column];
    }
    Some(solution)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_near(value: f64, expected: f64, part: f64) {
        assert!((value - expected).abs() <= part * expected.abs().max(1e-12), "{value} is not {expected}");
    }

    fn of(alpha: f64, beta: f64, gamma: f64) -> Vec<(u32, f64)> {
        let usl = Usl { alpha, beta, gamma, residual: 0.0 };
        [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024].map(|cpus| (cpus, usl.per_second(cpus))).to_vec()
    }

    #[test]
    fn parameters_that_made_the_points_are_found() {
        for (alpha, beta) in [(0.03, 0.0001), (0.5, 0.01), (0.000_1, 0.000_000_1)] {
            let usl = Usl::fit(&of(alpha, beta, 4e6)).unwrap();
            assert_near(usl.alpha, alpha, 1e-6);
            assert_near(usl.beta, beta, 1e-6);
            assert_near(usl.gamma, 4e6, 1e-6);
            assert!(usl.residual < 1e-9, "{usl:?}");
        }
    }

    #[test]
    fn what_scales_without_limit_has_neither_contention_nor_crosstalk() {
        let usl = Usl::fit(&of(0.0, 0.0, 10.0)).unwrap();
        assert!(usl.alpha < 1e-9 && usl.beta < 1e-9, "{usl:?}");
        // Faster than with one CPU's share each: no negative parameter is made of it.
        let usl = Usl::fit(&[(1, 10.0), (2, 21.0), (4, 44.0), (8, 90.0)]).unwrap();
        assert_eq!((usl.alpha, usl.beta), (0.0, 0.0));
        assert!(usl.residual > 0.01, "{usl:?}");
    }

    #[test]
    fn the_sdm_benchmark_has_the_published_parameters() {
        // SPEC SDM91 on a Sun SPARCcenter: Gunther, "Guerrilla Capacity Planning", and the R package `usl`, which give 0.0277 and 0.000104.
        let points = [(1, 64.9), (18, 995.9), (36, 1652.4), (72, 1853.2), (108, 1828.9), (144, 1775.0), (216, 1702.2)];
        let usl = Usl::fit(&points).unwrap();
        // They take absolute errors; this one is of relative ones, so that it is not the same in all digits.
        assert!((0.01..0.05).contains(&usl.alpha), "{usl:?}");
        assert!((0.00008..0.00016).contains(&usl.beta), "{usl:?}");
        assert!(usl.residual < 0.2, "{usl:?}");
    }

    #[test]
    fn too_few_points_have_no_parameters() {
        assert_eq!(Usl::fit(&[(1, 1.0), (2, 2.0)]), None);
        assert_eq!(Usl::fit(&[(1, 1.0), (2, 0.0), (4, 3.0)]), None);
    }
}
