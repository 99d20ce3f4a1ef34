use std::time::Duration;

/// How steps are filled and shared.
#[derive(Debug, Clone, PartialEq)]
pub struct SchedConfig {
    /// At least one.
    pub lanes: Vec<LaneConfig>,
    /// Most sequences in the batch: bounds the rows of logits a step produces.
    pub max_running: usize,
    /// Most tokens in a step: bounds the executor's buffers, and a step's time while nobody decodes.
    /// Raised to `max_running` and a block where it is less, so that every decode always fits.
    pub max_step_tokens: u32,
    /// What 95 % of the gaps between a reply's tokens stay within.
    pub itl_target: Duration,
    /// Share of the KV blocks kept free at admission, for running sequences to grow into. At least a
    /// block for each of them is kept.
    pub growth_reserve: f32,
    /// How long the scheduler may pass over someone: a background lane while others are busy, a
    /// prompt too large for the blocks that are free.
    pub ageing: Duration,
    /// Tokens a prompt is given before prompts that came later get their turn. Shorter prompts are
    /// thus computed in order of arrival, longer ones in turns.
    pub turn_tokens: u32,
}

/// A lane: requests that share by one weight.
#[derive(Debug, Clone, PartialEq)]
pub struct LaneConfig {
    /// For people.
    pub name: String,
    /// Its share of tokens is its weight by the sum over lanes that have work. 0 counts as 1.
    pub weight: u32,
    /// Whether it has a share at all.
    pub kind: LaneKind,
    /// Most tokens, prompt and reply together, that one request may keep in KV memory.
    pub kv_tokens_per_request: Option<u32>,
    /// Most requests that wait: bounds the memory of prompts, and how long the last one waits.
    pub waiting: usize,
    /// Requests estimated to wait longer for their first token are refused.
    pub ttft_promise: Option<Duration>,
}

/// What a lane is entitled to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaneKind {
    /// Someone waits: it has a share by weight.
    Interactive,
    /// Runs in what interactive lanes leave of a step, and gives its blocks back when they need them.
    Background,
}

impl Default for SchedConfig {
    fn default() -> Self {
        Self {
            lanes: vec![LaneConfig::interactive("default", 1)],
            max_running: 64,
            max_step_tokens: 512,
            itl_target: Duration::from_millis(50),
            growth_reserve: 0.02,
            ageing: Duration::from_secs(10),
            turn_tokens: 512,
        }
    }
}

impl LaneConfig {
    /// A lane with a share and no promise.
    pub fn interactive(name: &str, weight: u32) -> Self {
        Self {
            name: name.to_owned(),
            weight,
            kind: LaneKind::Interactive,
            kv_tokens_per_request: None,
            waiting: 256,
            ttft_promise: None,
        }
    }

    /// A lane that takes what is left.
    pub fn background(name: &str) -> Self {
        Self { kind: LaneKind::Background, ..Self::interactive(name, 1) }
    }
}

impl SchedConfig {
    /// Every lane's place in the order of claims, 0 first: interactive before background, then by weight,
    /// then as listed. Blocks are taken from the last first.
    pub(crate) fn ranks(&self) -> Vec<u32> {
        let mut order: Vec<usize> = (0..self.lanes.len()).collect();
        order.sort_by_key(|&lane| {
            let config = &self.lanes[lane];
            (config.kind == LaneKind::Background, std::cmp::Reverse(config.weight), lane)
        });
        let mut ranks = vec![0; order.len()];
        for (rank, lane) in order.into_iter().enumerate() {
            ranks[lane] = rank as u32;
        }
        ranks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heavier_lanes_come_first_and_background_last() {
        let lanes = vec![
            LaneConfig { weight: 99, ..LaneConfig::background("batch") },
            LaneConfig::interactive("free", 1),
            LaneConfig::interactive("paid", 8),
            LaneConfig::interactive("trial", 1),
        ];
        assert_eq!(SchedConfig { lanes, ..SchedConfig::default() }.ranks(), [3, 1, 0, 2]);
    }
}
