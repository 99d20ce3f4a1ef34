use std::time::Duration;

use crate::budget::step_seconds;
use crate::{Scheduler, StepShape};

/// What a lane has for a newcomer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outlook {
    /// Time to the first token of a prompt of one block: what is before it.
    pub wait: Duration,
    /// Time that the lane takes for one more request, with work enough for all its places.
    pub pace: Duration,
}

/// What the machine gives now.
struct Pace {
    /// Seconds of a step that is full of prompts.
    step: f64,
    /// Seconds of a step of decodes alone.
    base: f64,
    /// Prompt tokens in it.
    prompt_tokens: f64,
    /// Sequences that can be in the batch.
    slots: f64,
}

impl Scheduler {
    /// Time from now to the first token of a request that comes now, had it `prompt_tokens` of which
    /// `cached_tokens` are cached.
    ///
    /// It waits for those before it in its lane, in two lines at once: for prompts to be computed and for
    /// places in the batch. Its lane gets its share of both while other lanes have work, and what they leave.
    /// Turns among users are not foreseen: who has few requests waits less.
    pub fn estimate(&self, lane: usize, prompt_tokens: u32, cached_tokens: u32) -> Duration {
        let pace = self.pace(prompt_tokens);
        let own = f64::from(prompt_tokens.saturating_sub(cached_tokens).max(1));
        let chunks = self.prompt_seconds(lane, own, &pace);
        let place = self.places_before(lane, &pace) * self.place_seconds(lane, &pace);
        let steps = own / pace.prompt_tokens;
        let own_seconds = steps.ceil() * pace.base + steps * (pace.step - pace.base);
        let seconds = chunks.max(place + own_seconds) + self.rest_of_step(&pace);
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }

    /// The step under way is half done.
    fn rest_of_step(&self, pace: &Pace) -> f64 {
        let has_prompts = self.lanes.all.iter().any(|lane| lane.uncached > 0 || !lane.prefilling.is_empty());
        match (self.running.is_empty(), has_prompts) {
            (true, _) => 0.0,
            (false, true) => pace.step / 2.0,
            (false, false) => pace.base / 2.0,
        }
    }

    /// What a newcomer would find in a lane. None: no such lane.
    pub fn outlook(&self, lane: usize) -> Option<Outlook> {
        let _ = self.lanes.all.get(lane)?;
        let wait = self.estimate(lane, self.bounds.block_tokens, 0);
        let entry = &self.lanes.all[lane];
        let pace = self.pace(0);
        // What others have in the batch now they keep; the lane could have the rest.
        let rest = pace.slots - (self.running.len() - entry.running) as f64;
        let places = rest.max(pace.slots * self.share_or_rest(lane)).max(1.0);
        // While it has so many, each of them computes a prompt and then its reply.
        let prompt = entry.mean_prompt / pace.prompt_tokens * (pace.step - pace.base);
        let by_place = (entry.mean_output * pace.base / places + prompt)
            .max(entry.mean_output * self.mean_step / places);
        // Those whose prompts are under way are in the sum, too.
        let counted = (entry.waiting() + entry.returning.len() + entry.prefilling.len()).max(1) as f64;
        let seconds = by_place.max(self.prompt_seconds(lane, 0.0, &pace) / counted);
        Some(Outlook { wait, pace: Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX) })
    }

    /// Time until the lane's line is one shorter.
    pub(crate) fn place_frees_in(&self, lane: usize) -> Duration {
        let pace = self.pace(0);
        let waiting = self.lanes.all[lane].waiting().max(1) as f64;
        let seconds = self.place_seconds(lane, &pace).max(self.prompt_seconds(lane, 0.0, &pace) / waiting);
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }

    /// What a step is like with today's decodes, when there are prompts of about `prompt_tokens`.
    fn pace(&self, prompt_tokens: u32) -> Pace {
        let decodes =
            self.running.values().filter(|running| running.is_decoding()).map(|running| running.shape(1));
        let decodes: StepShape = decodes.sum();
        let fixed = self.cost.seconds(decodes);
        let whole = step_seconds(&self.cost, &self.bounds);
        let room = f64::from(self.cost.tokens_within(whole - fixed, prompt_tokens / 2));
        let room = room.clamp(f64::from(self.bounds.block_tokens), f64::from(self.bounds.tokens));
        let prefill = StepShape { tokens: room, context: room * f64::from(prompt_tokens) / 2.0, moved: 0.0 };
        let mut slots = self.config.max_running.min(self.batch_limit) as f64;
        if self.plans > 0 && self.lanes.all.iter().any(|lane| lane.shut == self.plans) {
            // Someone could not be admitted: blocks run out before slots do.
            slots = slots.min((self.running.len() as f64).max(1.0));
        }
        Pace { step: self.cost.seconds(decodes + prefill), base: fixed, prompt_tokens: room, slots }
    }

    /// Seconds until the prompts before it and its own are computed.
    fn prompt_seconds(&self, lane: usize, own: f64, pace: &Pace) -> f64 {
        let is_interactive = self.lanes.all[lane].is_interactive();
        let others = (0..self.lanes.all.len()).filter(|&other| other != lane);
        // Lanes before it don't wait for a background lane, and it does not wait for those.
        let others: f64 = others
            .filter(|&other| !is_interactive || self.lanes.all[other].is_interactive())
            .map(|other| self.ahead(other, f64::INFINITY))
            .sum();
        let mine = self.ahead(lane, own) + own;
        let share = self.share_or_rest(lane);
        let tokens = (mine / share).min(mine + others);
        tokens / pace.prompt_tokens * pace.step
    }

    /// Prompt tokens of a lane that are computed before a prompt of `own` tokens that comes now. One of no more than
    /// a turn goes before all those that have had theirs.
    fn ahead(&self, lane: usize, own: f64) -> f64 {
        let lane = &self.lanes.all[lane];
        let turn = self.config.turn_tokens;
        let behind = lane.prefilling.iter().filter_map(|order| self.running.get(order));
        if own > f64::from(turn) {
            return lane.uncached as f64 + behind.map(|running| f64::from(running.behind())).sum::<f64>();
        }
        let waiting = (lane.waiting() + lane.returning.len()) as u64;
        let behind = behind.map(|running| running.behind().min(turn.saturating_sub(running.attained)));
        lane.uncached.min(waiting * u64::from(turn)) as f64 + behind.map(f64::from).sum::<f64>()
    }

    /// Sequences of the lane that must leave the batch first.
    fn places_before(&self, lane: usize, pace: &Pace) -> f64 {
        let entry = &self.lanes.all[lane];
        let waiting = entry.waiting() + entry.returning.len() + 1;
        let own = pace.slots * self.share_or_rest(lane) - entry.running as f64;
        let free = pace.slots - self.running.len() as f64;
        (waiting as f64 - own.max(free).max(0.0)).max(0.0)
    }

    /// Seconds between two of the lane's sequences leaving the batch.
    fn place_seconds(&self, lane: usize, pace: &Pace) -> f64 {
        let entry = &self.lanes.all[lane];
        let places = (pace.slots * self.share_or_rest(lane)).max(entry.running as f64).max(1.0);
        entry.mean_output * pace.step / places
    }

    /// The lane's share; a background lane is taken to get at least a tenth of things.
    fn share_or_rest(&self, lane: usize) -> f64 {
        self.lanes.share(lane).max(0.1)
    }
}
