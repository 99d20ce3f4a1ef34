/// Least squares of y ≈ θ·x with θ ≥ 0, older observations counting less and less.
///
/// Keeps the decayed sums of x·xᵀ and x·y and solves them anew each time, with a term that holds on to the last
/// solution (the proximal point method): what the latest observations tell nothing about stays as it was, and
/// the system never gets singular. A recursive form would be cheaper and is fragile: with the constraint and with
/// observations that are all alike, its covariance runs away.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Fit {
    gram: Matrix,
    moment: Vector,
    solution: Vector,
}

pub(crate) const N: usize = 4;
pub(crate) type Vector = [f64; N];
type Matrix = [Vector; N];

/// Observations count for about 1 / (1 - this).
const FORGETTING: f64 = 0.98;
/// Weight of the last solution, relative to the largest entry of the sums.
const HOLD: f64 = 1e-4;

impl Fit {
    /// Before the first observation.
    pub(crate) fn new(guess: Vector) -> Self {
        Self { gram: [[0.0; N]; N], moment: [0.0; N], solution: guess }
    }

    pub(crate) fn solution(&self) -> &Vector {
        &self.solution
    }

    pub(crate) fn observe(&mut self, x: &Vector, y: f64) {
        self.gram = matrix(|i, j| FORGETTING * self.gram[i][j] + x[i] * x[j]);
        self.moment = std::array::from_fn(|i| FORGETTING * self.moment[i] + x[i] * y);
        let largest = (0..N).map(|i| self.gram[i][i]).fold(f64::MIN_POSITIVE, f64::max);
        let hold = HOLD * largest;
        let a = matrix(|i, j| self.gram[i][j] + if i == j { hold } else { 0.0 });
        let b: Vector = std::array::from_fn(|i| self.moment[i] + hold * self.solution[i]);
        let solution = non_negative(&a, &b);
        if solution.iter().all(|coefficient| coefficient.is_finite()) {
            self.solution = solution;
        }
    }
}

/// Solves a·θ = b; while a coefficient comes out negative, the most negative one is pinned to zero.
fn non_negative(a: &Matrix, b: &Vector) -> Vector {
    let mut is_pinned = [false; N];
    loop {
        let solution = solve(a, b, &is_pinned);
        let lowest = (0..N).filter(|&i| !is_pinned[i]).min_by(|&i, &j| solution[i].total_cmp(&solution[j]));
        match lowest {
            Some(lowest) if solution[lowest] < 0.0 => is_pinned[lowest] = true,
            _ => return solution,
        }
    }
}

/// Gaussian elimination; positive definite systems need no pivoting. Pinned coefficients are zero.
fn solve(a: &Matrix, b: &Vector, is_pinned: &[bool; N]) -> Vector {
    let is_free = |i: usize, j: usize| !is_pinned[i] && !is_pinned[j];
    let mut a = matrix(|i, j| if is_free(i, j) { a[i][j] } else { f64::from(u8::from(i == j)) });
    let mut b: Vector = std::array::from_fn(|i| if is_pinned[i] { 0.0 } else { b[i] });
    for pivot in 0..N {
        for row in pivot + 1..N {
            let factor = a[row][pivot] / a[pivot][pivot];
            let upper = a[pivot];
            a[row].iter_mut().zip(upper).for_each(|(entry, above)| *entry -= factor * above);
            b[row] -= factor * b[pivot];
        }
    }
    for row in (0..N).rev() {
        let known: f64 = (row + 1..N).map(|column| a[row][column] * b[column]).sum();
        b[row] = (b[row] - known) / a[row][row];
    }
    b
}

fn matrix(entry: impl Fn(usize, usize) -> f64) -> Matrix {
    std::array::from_fn(|i| std::array::from_fn(|j| entry(i, j)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn product(a: &Vector, b: &Vector) -> f64 {
        a.iter().zip(b).map(|(a, b)| a * b).sum()
    }

    #[test]
    fn solves_with_and_without_pins() {
        let a = [[4.0, 1.0, 0.0, 0.5], [1.0, 3.0, 0.2, 0.0], [0.0, 0.2, 2.0, 0.1], [0.5, 0.0, 0.1, 1.0]];
        let theta = [1.0, 2.0, 3.0, 4.0];
        let b: Vector = std::array::from_fn(|i| product(&a[i], &theta));
        let solved = non_negative(&a, &b);
        assert!(solved.iter().zip(theta).all(|(solved, theta)| (solved - theta).abs() < 1e-12), "{solved:?}");
        let negative: Vector = std::array::from_fn(|i| product(&a[i], &[1.0, -2.0, 3.0, 4.0]));
        let solved = non_negative(&a, &negative);
        assert!(solved[1] == 0.0 && solved.iter().all(|coefficient| *coefficient >= 0.0), "{solved:?}");
    }
}
