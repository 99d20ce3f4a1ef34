use std::time::Duration;

use crate::{CostModel, StepShape};

/// What a step may still take on: tokens, and the seconds they are expected to take.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Budget {
    tokens: u32,
    seconds: f64,
    /// Tokens that a prompt is given when time is up but none has been given any: prompts always get on.
    floor: u32,
    chunk: u32,
    /// Seconds at the start, for the gauge.
    whole: f64,
    has_prefill: bool,
}

/// Bounds of all steps.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) tokens: u32,
    pub(crate) itl_target: Duration,
    pub(crate) block_tokens: u32,
    /// Most tokens of one chunk.
    pub(crate) chunk_tokens: u32,
}

/// A target that a lone decode misses is replaced by this many times what it takes.
const UNATTAINABLE: f64 = 2.0;
/// Without decodes nobody waits for a step's end but new arrivals: steps may take this many targets.
const IDLE_STRETCH: f64 = 4.0;
/// Below this many tokens of room it does not pay to add a prompt to a step.
const WORTHWHILE: u32 = 8;
/// Part of a step's time that is lent: a lane that returns waits for the step under way.
const LENT_PART: f64 = 0.5;
/// Part of a step's time that decodes may take; the rest is for prompts.
const DECODE_PART: f64 = 0.85;

/// Seconds a step with decodes may be expected to take.
pub(crate) fn step_seconds(cost: &CostModel, bounds: &Bounds) -> f64 {
    let alone = cost.seconds(StepShape::chunk(0, 1));
    cost.budget_seconds(bounds.itl_target).max(UNATTAINABLE * alone)
}

/// Most decodes that fit into a step when each attends to `context` positions; at least 1.
pub(crate) fn batch_limit(cost: &CostModel, bounds: &Bounds, context: u32) -> usize {
    let left = step_seconds(cost, bounds) * DECODE_PART - cost.fixed_seconds();
    let decode = cost.added_seconds(StepShape::chunk(context, 1));
    (left / decode).max(1.0) as usize
}

impl Budget {
    pub(crate) fn new(cost: &CostModel, bounds: &Bounds, has_decodes: bool) -> Self {
        let stretch = if has_decodes { 1.0 } else { IDLE_STRETCH };
        let whole = step_seconds(cost, bounds) * stretch;
        Self {
            tokens: bounds.tokens,
            seconds: whole - cost.fixed_seconds(),
            floor: bounds.block_tokens,
            chunk: bounds.chunk_tokens,
            whole,
            has_prefill: false,
        }
    }

    /// A part of what is left.
    pub(crate) fn part(&self, share: f64) -> Self {
        Self { seconds: self.seconds * share, ..self.clone() }
    }

    /// What prompts of a lane may take of it, when the lane runs in time that is only lent to it.
    pub(crate) fn lent(&self) -> Self {
        Self { seconds: self.seconds - self.whole * (1.0 - LENT_PART), ..self.clone() }
    }

    /// Whether a chunk of a prompt can be added.
    pub(crate) fn has_room(&self, cost: &CostModel) -> bool {
        self.tokens > 0 && (!self.has_prefill || cost.tokens_within(self.seconds, 0) >= WORTHWHILE)
    }

    /// Whether a decode that need not run now can be added.
    pub(crate) fn has_room_for(&self, cost: &CostModel, shape: StepShape) -> bool {
        self.tokens > 0 && cost.added_seconds(shape) <= self.seconds
    }

    /// From now on prompts are given only what there is time for.
    pub(crate) fn end_floor(&mut self) {
        self.has_prefill = true;
    }

    /// Tokens of a prompt that is `behind` by so many, the next at `start`; at least 1 where there is room.
    pub(crate) fn grant(&self, cost: &CostModel, start: u32, behind: u32) -> u32 {
        let floor = if self.has_prefill { 1 } else { self.floor };
        behind.min(cost.tokens_within(self.seconds, start).max(floor)).min(self.tokens).min(self.chunk)
    }

    /// A decode is added whatever the time.
    pub(crate) fn spend(&mut self, cost: &CostModel, shape: StepShape) {
        self.tokens = self.tokens.saturating_sub(shape.tokens as u32);
        self.seconds -= cost.added_seconds(shape);
    }

    /// A prompt's chunk is added.
    pub(crate) fn spend_prefill(&mut self, cost: &CostModel, shape: StepShape) {
        self.has_prefill = true;
        self.spend(cost, shape);
    }

    /// Part of the time that is used, by expectation; above 1 where decodes alone take longer.
    pub(crate) fn used(&self, cost: &CostModel) -> f64 {
        (self.whole - self.seconds.min(self.whole - cost.fixed_seconds())) / self.whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds {
        tokens: 512,
        itl_target: Duration::from_millis(200),
        block_tokens: 16,
        chunk_tokens: u32::MAX,
    };

    #[test]
    fn decodes_leave_less_for_prompts_and_prompts_always_get_something() {
        let cost = CostModel::default();
        let mut last = u32::MAX;
        for decodes in [1, 10, 100, 400] {
            let mut budget = Budget::new(&cost, &BOUNDS, true);
            (0..decodes).for_each(|_| budget.spend(&cost, StepShape::chunk(100, 1)));
            let granted = budget.grant(&cost, 0, 10_000);
            assert!(granted <= last && granted >= 16 && budget.has_room(&cost), "{decodes}: {granted}");
            budget.spend_prefill(&cost, StepShape::chunk(0, granted));
            assert!(!budget.has_room(&cost), "one prompt takes all the time there is");
            last = granted;
        }
        assert_eq!(last, 16);
    }

    #[test]
    fn the_batch_limit_falls_with_context_and_never_below_one() {
        let cost = CostModel::default();
        let limits = [0, 1000, 100_000, u32::MAX].map(|context| batch_limit(&cost, &BOUNDS, context));
        assert!(limits.is_sorted_by(|a, b| a >= b) && limits[0] > 100, "{limits:?}");
        assert_eq!(limits[3], 1);
        let hopeless = Bounds { itl_target: Duration::from_micros(1), ..BOUNDS };
        assert!(batch_limit(&cost, &hopeless, 0) >= 4);
    }
}
