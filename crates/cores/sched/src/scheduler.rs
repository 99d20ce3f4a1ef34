use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use motet_kv::{BlockCopy, Pool};
use motet_types::{SequenceId, TokenId};

use crate::budget::Bounds;
use crate::lane::Lanes;
use crate::sequence::{Order, Running, Sequence, Waiting};
use crate::states::End;
use crate::{Admitted, Capacity, CostModel, LaneConfig, Refusal, SchedConfig, Submission};

/// Sequences, their lanes and their blocks. See the crate's documentation for what it decides.
///
/// Times are `Duration`s since an epoch the caller chooses and never go back.
///
/// # Invariants ([`Scheduler::check`])
/// - A sequence is in `waiting` or in `running`; it has blocks exactly while it is in `running`.
/// - Every id in use names one sequence, and a sequence is named by at least one.
/// - A waiting sequence is in line in its lane, or among its returning ones.
/// - What a lane counts is what its sequences add up to.
/// - Blocks are conserved; without running sequences and pins none is used.
#[derive(Debug)]
pub struct Scheduler {
    pub(crate) config: SchedConfig,
    pub(crate) capacity: Capacity,
    pub(crate) pool: Pool,
    pub(crate) cost: CostModel,
    pub(crate) bounds: Bounds,
    pub(crate) lanes: Lanes,
    pub(crate) waiting: HashMap<Order, Waiting>,
    pub(crate) running: BTreeMap<Order, Running>,
    pub(crate) ids: HashMap<SequenceId, Order>,
    pub(crate) deadlines: BTreeSet<(Duration, SequenceId)>,
    /// Of forks since the last plan.
    pub(crate) copies: Vec<BlockCopy>,
    arrivals: u64,
    pub(crate) branches: u64,
    pub(crate) plans: u64,
    /// The last plan in which a running sequence lacked blocks and nobody gave up any, and the sequence's rank.
    pub(crate) starved: Option<(u64, u32)>,
    /// Most decodes that fit into a step, as of the last plan.
    pub(crate) batch_limit: usize,
    /// Part of its time that the last step was expected to use.
    pub(crate) budget_used: f64,
    /// Seconds of a step: a moving average.
    pub(crate) mean_step: f64,
    is_draining: bool,
    /// Whether background lanes start nothing.
    is_background_paused: bool,
}

impl Scheduler {
    /// An empty schedule over a pool whose groups are those of `capacity`. Without lanes it has one default lane.
    pub fn new(mut config: SchedConfig, pool: Pool, capacity: Capacity) -> Self {
        if config.lanes.is_empty() {
            config.lanes = SchedConfig::default().lanes;
        }
        config.max_running = config.max_running.max(1);
        let block_tokens = pool.config().block_tokens;
        let tokens = config.max_step_tokens.max((config.max_running as u32).saturating_add(block_tokens));
        Self {
            bounds: Bounds {
                tokens,
                itl_target: config.itl_target,
                block_tokens,
                chunk_tokens: capacity.chunk_tokens(),
            },
            lanes: Lanes::new(&config),
            batch_limit: config.max_running,
            config,
            capacity,
            pool,
            cost: CostModel::default(),
            waiting: HashMap::new(),
            running: BTreeMap::new(),
            ids: HashMap::new(),
            deadlines: BTreeSet::new(),
            copies: Vec::new(),
            arrivals: 0,
            branches: 0,
            plans: 0,
            starved: None,
            budget_used: 0.0,
            mean_step: 0.0,
            is_draining: false,
            is_background_paused: false,
        }
    }

    /// Puts a request in its lane's line, or says at once why not.
    ///
    /// A prompt that can never fit is refused here, with `max_tokens` counted in full: whoever wants "as
    /// much as there is room for" asks [`limit`](Self::limit) first.
    pub fn submit(&mut self, submission: Submission, now: Duration) -> Result<Admitted, Refusal> {
        let admitted = self.examine(&submission);
        match admitted {
            Ok(admitted) => self.take(submission, admitted.cached_tokens, now),
            Err(_) if submission.lane < self.lanes.all.len() => {
                self.lanes.all[submission.lane].totals.refused += 1;
            }
            Err(_) => {}
        }
        admitted
    }

    fn examine(&self, submission: &Submission) -> Result<Admitted, Refusal> {
        self.examine_shape(submission)?;
        if self.is_draining {
            return Err(Refusal::Draining);
        }
        let lane = &self.lanes.all[submission.lane];
        if lane.waiting() >= lane.config.waiting {
            let retry_after = self.place_frees_in(submission.lane);
            return Err(Refusal::QueueFull { waiting: lane.waiting(), retry_after });
        }
        let cached_tokens = self.pool.probe(&submission.scope, &submission.prompt);
        let estimate = self.estimate(submission.lane, submission.prompt.len() as u32, cached_tokens);
        match lane.config.ttft_promise {
            Some(promise) if estimate > promise && !submission.is_patient => {
                Err(Refusal::PromiseBroken { estimate, promise, retry_after: estimate - promise })
            }
            _ => Ok(Admitted { estimated_ttft: estimate, cached_tokens }),
        }
    }

    fn examine_shape(&self, submission: &Submission) -> Result<(), Refusal> {
        let Submission { samples, prompt, max_tokens, lane, .. } = submission;
        let Some(limit) = self.limit(*lane) else { return Err(Refusal::Malformed("there is no such lane")) };
        let distinct: BTreeSet<_> = samples.iter().collect();
        let is_fresh = distinct.len() == samples.len() && !samples.iter().any(|id| self.ids.contains_key(id));
        let length = u32::try_from(prompt.len()).unwrap_or(u32::MAX);
        match () {
            () if prompt.is_empty() => Err(Refusal::Malformed("the prompt is empty")),
            () if *max_tokens == 0 => Err(Refusal::Malformed("max_tokens must be at least 1")),
            () if !is_fresh => Err(Refusal::Malformed("a sequence id is in use")),
            () if samples.is_empty() || samples.len() > self.config.max_running => {
                Err(Refusal::Samples { samples: samples.len(), limit: self.config.max_running })
            }
            () if length.saturating_add(*max_tokens) > limit => {
                Err(Refusal::NeverFits { prompt: length, max_tokens: *max_tokens, limit })
            }
            () => Ok(()),
        }
    }

    fn take(&mut self, submission: Submission, cached_tokens: u32, now: Duration) {
        let Submission { samples, prompt, max_tokens, lane, user, scope, deadline, .. } = submission;
        self.arrivals += 1;
        let order = Order { rank: self.lanes.all[lane].rank, arrival: self.arrivals, branch: 0 };
        self.ids.extend(samples.iter().map(|id| (*id, order)));
        self.deadlines.extend(samples.iter().filter_map(|id| deadline.map(|deadline| (deadline, *id))));
        let prompt_tokens = prompt.len() as u32;
        let sequence = Sequence {
            order,
            lane,
            user,
            scope,
            samples,
            tokens: prompt,
            prompt: prompt_tokens,
            max_tokens,
            deadline,
            reached: 0,
            prepaid: 0,
            reclaimed: 0,
        };
        self.lanes.enter(lane, user, now);
        let uncached = (prompt_tokens - cached_tokens).max(1);
        self.queue(Waiting { sequence, uncached, blocked: None });
    }

    /// A lane as configured. None: no such lane.
    pub fn lane(&self, lane: usize) -> Option<&LaneConfig> {
        self.lanes.all.get(lane).map(|lane| &lane.config)
    }

    /// Most tokens that prompt and reply may have together in a lane. None: no such lane.
    pub fn limit(&self, lane: usize) -> Option<u32> {
        let lane = self.lanes.all.get(lane)?;
        let tokens = self.capacity.sequence_tokens();
        Some(lane.config.kv_tokens_per_request.map_or(tokens, |cap| cap.min(tokens)))
    }

    /// Ends a sequence, whatever it is doing. Its blocks are free at once, in the next plan it is gone, and
    /// what a step under way computes for it is ignored. False: not known, or ended already.
    pub fn cancel(&mut self, id: SequenceId) -> bool {
        self.end(id, End::Cancelled)
    }

    /// Ends the sequences whose deadline is not after `now`, whatever they are doing, and names them.
    pub fn expired(&mut self, now: Duration) -> Vec<SequenceId> {
        let mut expired = Vec::new();
        while let Some(&(deadline, id)) = self.deadlines.first() {
            if deadline > now {
                break;
            }
            self.deadlines.pop_first();
            if self.end(id, End::Cancelled) {
                expired.push(id);
            }
        }
        expired
    }

    /// Takes no more requests; those that were taken end as asked.
    pub fn drain(&mut self) {
        self.is_draining = true;
    }

    /// Whether [`drain`](Self::drain) was called.
    pub fn is_draining(&self) -> bool {
        self.is_draining
    }

    /// Whether background lanes start nothing of what waits in them. What they have running goes on in what others
    /// leave, which costs those nothing; what gives up its blocks does not come back before the pause ends.
    pub fn pause_background(&mut self, is_paused: bool) {
        self.is_background_paused = is_paused;
    }

    /// Whether a lane may start what waits in it.
    pub(crate) fn is_held(&self, lane: usize) -> bool {
        self.is_background_paused && !self.lanes.all[lane].is_interactive()
    }

    /// Whether there are sequences, and none of them can run before the pause of the background ends.
    pub fn is_at_rest(&self) -> bool {
        let has_work = |lane: &usize| self.lanes.all[*lane].sequences > 0;
        !self.is_idle()
            && self.running.is_empty()
            && (0..self.lanes.all.len()).filter(has_work).all(|lane| self.is_held(lane))
    }

    /// Whether no sequence is left.
    pub fn is_idle(&self) -> bool {
        self.ids.is_empty()
    }

    /// Prompt and reply so far. None: not known, or ended.
    pub fn tokens(&self, id: SequenceId) -> Option<&[TokenId]> {
        let order = self.ids.get(&id)?;
        let running = self.running.get(order).map(|running| &running.sequence);
        let sequence = running.or_else(|| self.waiting.get(order).map(|waiting| &waiting.sequence))?;
        Some(&sequence.tokens)
    }

    /// The pool whose blocks it hands out.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// What steps are expected to take.
    pub fn cost(&self) -> &CostModel {
        &self.cost
    }
}
