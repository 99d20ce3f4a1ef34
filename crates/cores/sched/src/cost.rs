use std::time::Duration;

use crate::fit::{Fit, N, Vector};

/// What a step's time depends on.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct StepShape {
    /// Tokens computed.
    pub tokens: f64,
    /// Sum over these tokens of the positions each attends to, its own included.
    pub context: f64,
    /// KV blocks spilled, copied or filled.
    pub moved: f64,
}

impl StepShape {
    /// `tokens` consecutive tokens of one sequence, the first at position `start`.
    pub fn chunk(start: u32, tokens: u32) -> Self {
        let (start, tokens) = (f64::from(start), f64::from(tokens));
        Self { tokens, context: tokens * start + tokens * (tokens + 1.0) / 2.0, moved: 0.0 }
    }
}

impl std::ops::Add for StepShape {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            tokens: self.tokens + other.tokens,
            context: self.context + other.context,
            moved: self.moved + other.moved,
        }
    }
}

impl std::iter::Sum for StepShape {
    fn sum<I: Iterator<Item = Self>>(shapes: I) -> Self {
        shapes.fold(Self::default(), |sum, shape| sum + shape)
    }
}

/// Seconds of a step ≈ a + b·tokens + c·context + d·moved, fitted while running.
///
/// The fit is of *relative* errors, so that steps of 10 ms and of 10 s count alike. Beside the mean it follows the
/// 95th percentile of the ratio measured ÷ predicted, by stochastic approximation.
#[derive(Debug, Clone, PartialEq)]
pub struct CostModel {
    /// Of coefficients in units of [`PRIOR`].
    fit: Fit,
    observed: u64,
    /// Steps in a row that were far off.
    surprises: u32,
    /// 95th percentile of measured ÷ predicted.
    spread: f64,
}

/// Seconds of a step, per token, per attended position and per block: a small model on a few CPU cores.
const PRIOR: Vector = [5e-3, 1e-3, 5e-7, 5e-4];
/// The least of each, in the same units: nothing is free.
const LEAST: f64 = 1e-6;
/// A step longer than this many predictions (the machine slept) counts as one of this length.
const OUTLIER: f64 = 4.0;
/// So many steps in a row that are off by as much are no outliers: it starts anew.
const SURPRISES: u32 = 8;
/// Steps after which predictions are good enough to call something an outlier.
const WARM: u64 = 16;
/// A step of the percentile's approximation.
const SPREAD_STEP: f64 = 0.02;

impl Default for CostModel {
    fn default() -> Self {
        Self { fit: Fit::new([1.0; N]), observed: 0, surprises: 0, spread: 1.1 }
    }
}

impl CostModel {
    /// Expected seconds of a step.
    pub fn seconds(&self, shape: StepShape) -> f64 {
        features(shape).iter().enumerate().map(|(i, feature)| self.coefficient(i) * feature).sum()
    }

    /// Expected seconds that `shape` adds to a step that is run anyway.
    pub fn added_seconds(&self, shape: StepShape) -> f64 {
        self.seconds(shape) - self.coefficient(0)
    }

    /// Expected seconds of a step whatever is in it.
    pub fn fixed_seconds(&self) -> f64 {
        self.coefficient(0)
    }

    fn coefficient(&self, i: usize) -> f64 {
        self.fit.solution()[i].max(LEAST) * PRIOR[i]
    }

    /// What a step may be expected to take so that 95 % of such steps stay within `target`.
    pub fn budget_seconds(&self, target: Duration) -> f64 {
        target.as_secs_f64() / self.spread
    }

    /// Most tokens from position `start` on that add at most `seconds`.
    pub fn tokens_within(&self, seconds: f64, start: u32) -> u32 {
        if seconds <= 0.0 {
            return 0;
        }
        let per_context = self.coefficient(2);
        let linear = self.coefficient(1) + per_context * (f64::from(start) + 0.5);
        // n·linear + n²·per_context/2 = seconds, in the form that does not cancel.
        let root = (linear * linear + 2.0 * per_context * seconds).sqrt();
        let tokens = 2.0 * seconds / (linear + root);
        tokens.min(f64::from(u32::MAX)) as u32
    }

    /// Whether bringing a block of `block_tokens` back costs less than computing it at position `start`.
    pub fn filling_pays(&self, start: u32, block_tokens: u32) -> bool {
        let fill = StepShape { moved: 1.0, ..StepShape::default() };
        self.added_seconds(fill) < self.added_seconds(StepShape::chunk(start, block_tokens))
    }

    /// Learns from a step that took `elapsed`.
    pub fn observe(&mut self, shape: StepShape, elapsed: Duration) {
        let predicted = self.seconds(shape);
        let mut measured = elapsed.as_secs_f64();
        if measured <= 0.0 || shape.tokens <= 0.0 {
            return;
        }
        if self.observed >= WARM {
            let is_surprise = !(1.0 / OUTLIER..=OUTLIER).contains(&(measured / predicted));
            self.surprises = if is_surprise { self.surprises + 1 } else { 0 };
            if self.surprises > SURPRISES {
                *self = Self { spread: self.spread, ..Self::default() };
            } else {
                measured = measured.min(OUTLIER * predicted);
                self.follow_spread(measured / predicted);
            }
        }
        // Relative to what is expected rather than to what was measured, whose noise would favour short steps;
        // but not to an expectation that is far off, beside which nothing measured would count.
        let scale = predicted.clamp(measured / OUTLIER, measured * OUTLIER);
        self.observed += 1;
        let features = features(shape);
        let x = std::array::from_fn(|i| PRIOR[i] * features[i] / scale);
        self.fit.observe(&x, measured / scale);
    }

    fn follow_spread(&mut self, ratio: f64) {
        self.spread += if ratio > self.spread { SPREAD_STEP * 0.95 } else { -SPREAD_STEP * 0.05 };
        self.spread = self.spread.clamp(1.0, OUTLIER);
    }
}

fn features(shape: StepShape) -> Vector {
    [1.0, shape.tokens, shape.context, shape.moved]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine: seconds = a + b·tokens + c·context, times 1 ± noise.
    fn machine([a, b, c]: [f64; 3], shape: StepShape, noise: f64) -> Duration {
        Duration::from_secs_f64((a + b * shape.tokens + c * shape.context) * (1.0 + noise))
    }

    /// Shapes and noises of a busy hour, the same every time.
    fn steps(count: usize) -> impl Iterator<Item = (StepShape, f64)> {
        let mut state = 7u64;
        let mut random = move || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as u32
        };
        std::iter::repeat_with(move || {
            let decodes: StepShape = (0..random() % 40).map(|_| StepShape::chunk(random() % 2000, 1)).sum();
            let prefill = StepShape::chunk(random() % 4000, 1 + random() % 300);
            (decodes + prefill, f64::from(random() % 2000) / 10_000.0 - 0.1)
        })
        .take(count)
    }

    #[test]
    fn learns_machines_a_thousand_times_apart() {
        for truth in [[0.03, 0.01, 2e-6], [0.004, 2e-5, 1e-9], [0.0, 0.001, 0.0]] {
            let mut model = CostModel::default();
            for (shape, noise) in steps(300) {
                model.observe(shape, machine(truth, shape, noise));
            }
            for (shape, _) in steps(20) {
                let ratio = model.seconds(shape) / machine(truth, shape, 0.0).as_secs_f64();
                assert!((0.93..1.07).contains(&ratio), "{truth:?}: off by {ratio} at {shape:?}");
            }
            assert!((0..N).all(|i| model.coefficient(i) > 0.0), "{model:?}");
        }
    }

    #[test]
    fn follows_a_machine_that_slows_down_and_forgives_one_that_slept() {
        let truth = [0.02, 0.001, 1e-7];
        let mut model = CostModel::default();
        for (shape, noise) in steps(300) {
            model.observe(shape, machine(truth, shape, noise));
        }
        let shape = StepShape::chunk(100, 64);
        let before = model.seconds(shape);
        model.observe(shape, Duration::from_secs(3600));
        assert!(model.seconds(shape) < 1.5 * before);
        let slow = truth.map(|coefficient| 3.0 * coefficient);
        for (shape, noise) in steps(600) {
            model.observe(shape, machine(slow, shape, noise));
        }
        let ratio = model.seconds(shape) / machine(slow, shape, 0.0).as_secs_f64();
        assert!((0.9..1.1).contains(&ratio), "{ratio}");
    }

    #[test]
    fn does_not_run_away_when_steps_tell_little() {
        let truth = [0.016, 0.001, 1e-7];
        for tokens in [1, 8, 100] {
            let mut model = CostModel::default();
            for (step, (_, noise)) in steps(20_000).enumerate() {
                // Ever the same tokens, a context that creeps, a block moved once in a while.
                let moved = if step % 97 == 0 { 3.0 } else { 0.0 };
                let shape = StepShape { moved, ..StepShape::chunk(step as u32 % 500, tokens) };
                let ratio = model.seconds(shape) / machine(truth, shape, 0.0).as_secs_f64();
                assert!(step < 50 || (0.5..2.0).contains(&ratio), "{tokens} tokens, step {step}: {ratio}");
                model.observe(shape, machine(truth, shape, noise));
            }
        }
    }

    #[test]
    fn comes_back_from_a_wrong_idea() {
        let truth = [0.016, 0.001, 1e-7];
        for wrong in [1e-5, 1e5] {
            let mut model = CostModel { fit: Fit::new([wrong; N]), observed: 1000, ..CostModel::default() };
            for (shape, noise) in steps(500) {
                model.observe(shape, machine(truth, shape, noise));
            }
            let shape = StepShape::chunk(100, 64);
            let ratio = model.seconds(shape) / machine(truth, shape, 0.0).as_secs_f64();
            assert!((0.7..1.4).contains(&ratio), "{wrong}: {ratio}");
        }
    }

    #[test]
    fn the_spread_is_the_95th_percentile() {
        let truth = [0.02, 0.001, 1e-7];
        let mut model = CostModel::default();
        let mut over = 0;
        for (step, (shape, noise)) in steps(4000).enumerate() {
            let measured = machine(truth, shape, noise);
            over += u32::from(step >= 2000 && measured.as_secs_f64() > model.seconds(shape) * model.spread);
            model.observe(shape, measured);
        }
        assert!((40..=160).contains(&over), "{over} of 2000 steps were longer than foreseen");
    }

    #[test]
    fn tokens_within_inverts_the_prediction() {
        let model = CostModel::default();
        for (start, tokens) in [(0, 1), (0, 500), (8000, 40), (100_000, 3)] {
            let seconds = model.added_seconds(StepShape::chunk(start, tokens));
            assert_eq!(model.tokens_within(seconds * 1.0001, start), tokens);
            assert_eq!(model.tokens_within(seconds * 0.9999, start), tokens - 1);
        }
        assert_eq!(model.tokens_within(-1.0, 0), 0);
    }
}
