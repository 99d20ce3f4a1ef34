use std::collections::BTreeSet;
use std::time::Duration;

use crate::sequence::Order;
use crate::turns::Turns;
use crate::{LaneConfig, LaneKind, SchedConfig, UserKey};

/// A lane's sequences and its account.
///
/// Lanes share as users do (see [`Turns`]), by weight: an account counts tokens ÷ weight.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) config: LaneConfig,
    pub(crate) rank: u32,
    /// Tokens served or prepaid, by weight.
    account: f64,
    /// Those that wait for the first time.
    pub(crate) turns: Turns,
    /// Those that were preempted: first to be admitted, in order.
    pub(crate) returning: BTreeSet<Order>,
    /// Those in the batch that are more than one token behind.
    pub(crate) prefilling: BTreeSet<Order>,
    /// Sequences in any state.
    pub(crate) sequences: usize,
    pub(crate) running: usize,
    /// Tokens of those in the batch.
    pub(crate) kv_tokens: u64,
    /// Tokens to be computed for those not in the batch, as far as known.
    pub(crate) uncached: u64,
    /// Output tokens of finished sequences: a moving average.
    pub(crate) mean_output: f64,
    /// Prompt tokens that sequences had to compute: a moving average.
    pub(crate) mean_prompt: f64,
    /// When it last had a chunk, or got its first sequence after having none.
    served: Duration,
    /// Whether it ever had a sequence.
    was_served: bool,
    /// In this step it takes part as interactive lanes do.
    pub(crate) shares: bool,
    /// Number of the last plan in which its next sequence could not be admitted.
    pub(crate) shut: u64,
    pub(crate) totals: LaneTotals,
}

/// What a lane did since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LaneTotals {
    /// Prompt tokens computed; recomputed ones are not counted again.
    pub prompt_tokens: u64,
    /// Sequences that left the line for the batch for the first time.
    pub started: u64,
    /// Prompt tokens found in the cache when first admitted.
    pub cached_tokens: u64,
    /// Tokens generated.
    pub output_tokens: u64,
    /// Sequences that ended as asked.
    pub finished: u64,
    /// Sequences that were cancelled or expired.
    pub cancelled: u64,
    /// Sequences that failed.
    pub failed: u64,
    /// Times a sequence gave up its blocks and came back later.
    pub preemptions: u64,
    /// Requests refused.
    pub refused: u64,
}

/// Tokens (by weight) that a lane is ahead when it comes back from having no work: what it had lent is
/// served to it at once, and no more than this is saved up.
const CREDIT: f64 = 4096.0;
/// Tokens a reply is assumed to have before the first one ended.
const FIRST_OUTPUT: f64 = 64.0;
/// Tokens a prompt is assumed to have before the first one came.
const FIRST_PROMPT: f64 = 256.0;
/// Weight of the latest sequence in the moving averages.
const OUTPUT_STEP: f64 = 0.05;

impl Lane {
    fn weight(&self) -> f64 {
        f64::from(self.config.weight.max(1))
    }

    pub(crate) fn is_interactive(&self) -> bool {
        self.config.kind == LaneKind::Interactive
    }

    /// Weight by which it claims a share of what others hold.
    fn claim(&self) -> f64 {
        if self.is_interactive() { self.weight() } else { 0.0 }
    }

    pub(crate) fn waiting(&self) -> usize {
        self.turns.waiting()
    }

    /// Output tokens that a sequence with at most `max` more of them is expected to generate.
    pub(crate) fn foreseen_output(&self, max: u32) -> u32 {
        (self.mean_output as u32).clamp(1, max.max(1))
    }

    pub(crate) fn note_prompt(&mut self, tokens: u32) {
        self.mean_prompt += OUTPUT_STEP * (f64::from(tokens) - self.mean_prompt);
    }

    pub(crate) fn note_output(&mut self, tokens: u32) {
        self.mean_output += OUTPUT_STEP * (f64::from(tokens) - self.mean_output);
    }
}

/// All lanes.
#[derive(Debug)]
pub(crate) struct Lanes {
    pub(crate) all: Vec<Lane>,
    /// Account of the interactive lane, and of the background lane, that was served last.
    clocks: [f64; 2],
    ageing: Duration,
}

impl Lanes {
    pub(crate) fn new(config: &SchedConfig) -> Self {
        let ranks = config.ranks();
        let lane = |(config_of_lane, rank): (&LaneConfig, u32)| Lane {
            config: config_of_lane.clone(),
            rank,
            account: 0.0,
            turns: Turns::new(config.turn_tokens),
            returning: BTreeSet::new(),
            prefilling: BTreeSet::new(),
            sequences: 0,
            running: 0,
            kv_tokens: 0,
            uncached: 0,
            mean_output: FIRST_OUTPUT,
            mean_prompt: FIRST_PROMPT,
            served: Duration::ZERO,
            was_served: false,
            shares: false,
            shut: 0,
            totals: LaneTotals::default(),
        };
        let all = config.lanes.iter().zip(ranks).map(lane).collect();
        Self { all, clocks: [0.0; 2], ageing: config.ageing }
    }

    fn clock(&mut self, lane: usize) -> &mut f64 {
        &mut self.clocks[usize::from(self.all[lane].is_interactive())]
    }

    /// A sequence came into being.
    pub(crate) fn enter(&mut self, lane: usize, user: UserKey, now: Duration) {
        let clock = *self.clock(lane);
        let entry = &mut self.all[lane];
        if entry.sequences == 0 {
            entry.account = entry.account.max(clock - CREDIT / entry.weight());
            entry.served = now;
            entry.was_served = true;
        }
        entry.sequences += 1;
        entry.turns.enter(user);
    }

    /// A sequence that does not wait any more ended, `unused` tokens of what it prepaid not being generated.
    pub(crate) fn leave(&mut self, lane: usize, user: UserKey, unused: u32) {
        self.charge(lane, user, -i64::from(unused));
        self.all[lane].sequences -= 1;
        self.all[lane].turns.leave(user);
    }

    /// Tokens were served, or paid for in advance.
    pub(crate) fn charge(&mut self, lane: usize, user: UserKey, tokens: i64) {
        let lane = &mut self.all[lane];
        lane.account += tokens as f64 / lane.weight();
        lane.turns.charge(user, tokens);
    }

    /// A lane's and a user's turn has come. What is prepaid is not served yet.
    pub(crate) fn serve(&mut self, lane: usize, user: UserKey, prepaid: u32) {
        let account = self.all[lane].account - f64::from(prepaid) / self.all[lane].weight();
        let clock = self.clock(lane);
        *clock = clock.max(account);
        self.all[lane].turns.serve(user, prepaid);
    }

    /// A sequence of the lane has a chunk.
    pub(crate) fn touch(&mut self, lane: usize, now: Duration) {
        self.all[lane].served = now;
    }

    /// Decides which lanes share this step: interactive ones, and background ones passed over for too long.
    pub(crate) fn begin_step(&mut self, now: Duration) {
        for lane in &mut self.all {
            let is_aged = lane.sequences > 0 && now.saturating_sub(lane.served) >= self.ageing;
            lane.shares = lane.is_interactive() || is_aged;
        }
    }

    /// In plan number `plan`, nobody more is admitted in the lanes from `rank` on.
    pub(crate) fn shut_from(&mut self, rank: u32, plan: u64) {
        self.all.iter_mut().filter(|lane| lane.rank >= rank).for_each(|lane| lane.shut = plan);
    }

    /// Lanes that share the step (or those that don't), in the order in which it is their turn.
    pub(crate) fn in_turn(&self, shares: bool) -> Vec<usize> {
        let mut turn: Vec<usize> =
            (0..self.all.len()).filter(|&lane| self.all[lane].shares == shares).collect();
        turn.sort_by(|&a, &b| {
            let (a, b) = (&self.all[a], &self.all[b]);
            let aged_first = a.is_interactive().cmp(&b.is_interactive());
            aged_first.then(a.account.total_cmp(&b.account)).then(a.rank.cmp(&b.rank))
        });
        turn
    }

    /// Whether a lane runs in time that may be wanted back at any moment: one with a greater claim that has had
    /// less had a chunk a moment ago.
    pub(crate) fn is_borrowing(&self, lane: usize, now: Duration) -> bool {
        let Lane { rank, account, .. } = self.all[lane];
        let is_about = |lane: &Lane| lane.was_served && now.saturating_sub(lane.served) < self.ageing;
        self.all.iter().any(|lane| lane.rank < rank && lane.account < account && is_about(lane))
    }

    /// A lane's part of what there is, by weight among the interactive lanes with work. None of it for
    /// background lanes.
    pub(crate) fn share(&self, lane: usize) -> f64 {
        let claims = |(index, lane): (usize, &Lane)| (index, lane.claim(), lane.sequences > 0);
        let active =
            self.all.iter().enumerate().map(claims).filter(|&(index, _, active)| active || index == lane);
        let sum: f64 = active.map(|(_, claim, _)| claim).sum();
        if sum > 0.0 { self.all[lane].claim() / sum } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER: UserKey = UserKey(1);

    fn lanes() -> Lanes {
        let lanes = vec![
            LaneConfig::interactive("free", 1),
            LaneConfig::interactive("paid", 8),
            LaneConfig::background("batch"),
        ];
        Lanes::new(&SchedConfig { lanes, ..SchedConfig::default() })
    }

    fn serve(lanes: &mut Lanes, lane: usize, tokens: i64) {
        lanes.serve(lane, USER, 0);
        lanes.charge(lane, USER, tokens);
    }

    #[test]
    fn a_lane_that_returns_is_first_and_its_credit_is_bounded() {
        let mut lanes = lanes();
        lanes.enter(0, USER, Duration::ZERO);
        for _ in 0..1000 {
            serve(&mut lanes, 0, 1000);
        }
        lanes.enter(1, USER, Duration::ZERO);
        lanes.begin_step(Duration::ZERO);
        assert_eq!(lanes.in_turn(true), [1, 0]);
        let mut credit = 0;
        while lanes.in_turn(true) == [1, 0] {
            serve(&mut lanes, 1, 100);
            credit += 100;
        }
        // The last thousand tokens of the other lane count by its weight.
        assert!((12_000..=12_200).contains(&credit), "{credit}");
    }

    #[test]
    fn shares_are_by_weight_among_those_with_work() {
        let mut lanes = lanes();
        assert_eq!(lanes.share(0), 1.0);
        lanes.enter(1, USER, Duration::ZERO);
        assert_eq!([0, 1, 2].map(|lane| lanes.share(lane)), [1.0 / 9.0, 1.0, 0.0]);
    }

    #[test]
    fn background_joins_once_it_was_passed_over_for_long() {
        let mut lanes = lanes();
        lanes.enter(2, USER, Duration::from_secs(5));
        for (now, shares) in [(5, false), (14, false), (15, true)] {
            lanes.begin_step(Duration::from_secs(now));
            assert_eq!(lanes.all[2].shares, shares, "at {now} s");
        }
        assert_eq!(lanes.in_turn(true), [2, 1, 0]);
        lanes.touch(2, Duration::from_secs(16));
        lanes.begin_step(Duration::from_secs(16));
        assert!(!lanes.all[2].shares);
    }
}
