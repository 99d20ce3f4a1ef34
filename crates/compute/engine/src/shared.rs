use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use motet_sched::{Outcome, Outlook, Refusal, Scheduler, StepPlan, Submission};
use motet_types::{LaneLoad, Load, SequenceId, SubmitError};

use crate::reply::Reply;

/// The replies of a request on their way to the loop.
pub(crate) struct Arrived {
    pub(crate) ids: Vec<SequenceId>,
    pub(crate) replies: Vec<Reply>,
}

/// What callers and the loop share.
///
/// # Invariants
/// - Every sequence of the scheduler has its reply in `arrived` or with the loop.
/// - One lock. It is held for a decision (submit, plan, commit), never across a step's arithmetic or I/O,
///   and no other lock of this crate is taken under it.
/// - What waits is bounded by the lanes' own bounds: `arrived` holds replies of admitted submissions only.
pub(crate) struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    /// Times given to the scheduler count from here.
    epoch: Instant,
}

struct State {
    scheduler: Scheduler,
    arrived: Vec<Arrived>,
    steps: u64,
    step_seconds: f64,
    /// Replies that failed because the loop ended; the scheduler counts them as cancelled.
    lost: u64,
    step_began: Option<Instant>,
    is_closed: bool,
    /// Why the loop ended.
    down: Option<String>,
}

/// What the loop is told before a step.
pub(crate) struct Turn {
    pub(crate) arrived: Vec<Arrived>,
    pub(crate) now: Duration,
    /// The engine is closed: what has arrived is only to be ended.
    pub(crate) is_closed: bool,
    /// All there is waits for the end of a pause; it is looked at for those who left or are past their deadline.
    pub(crate) is_at_rest: bool,
}

/// How often what waits for the end of a pause is looked at.
const REST: Duration = Duration::from_millis(100);

impl Shared {
    pub(crate) fn new(scheduler: Scheduler) -> Self {
        let state = State {
            scheduler,
            arrived: Vec::new(),
            steps: 0,
            step_seconds: 0.0,
            lost: 0,
            step_began: None,
            is_closed: false,
            down: None,
        };
        Self { state: Mutex::new(state), changed: Condvar::new(), epoch: Instant::now() }
    }

    /// Puts a request in its lane's line. Its deadline counts from now.
    pub(crate) fn submit(&self, mut submission: Submission, arrived: Arrived) -> Result<(), SubmitError> {
        let mut state = self.lock();
        if let Some(why) = &state.down {
            return Err(SubmitError::Down(why.clone()));
        }
        let now = self.epoch.elapsed();
        submission.deadline = submission.deadline.map(|after| now.saturating_add(after));
        let lane = submission.lane;
        state
            .scheduler
            .submit(submission, now)
            .map_err(|refusal| refused(refusal, lane, &state.scheduler))?;
        state.arrived.push(arrived);
        self.changed.notify_one();
        Ok(())
    }

    pub(crate) fn estimate(&self, lane: usize, prompt_tokens: u32) -> Duration {
        self.lock().scheduler.estimate(lane, prompt_tokens, 0)
    }

    /// What has arrived; waits while there is nothing to do, for a moment while nothing may be done. `None`: the engine
    /// is closed.
    pub(crate) fn wait(&self) -> Option<Turn> {
        let mut state = self.lock();
        while state.scheduler.is_idle() && state.arrived.is_empty() && !state.is_closed {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.scheduler.is_at_rest() && state.arrived.is_empty() && !state.is_closed {
            let rested = self.changed.wait_timeout(state, REST);
            state = rested.unwrap_or_else(PoisonError::into_inner).0;
        }
        let arrived = std::mem::take(&mut state.arrived);
        // What arrived before the close is handed out, so that the loop can end it.
        let (is_closed, is_empty) = (state.is_closed, arrived.is_empty());
        let is_at_rest = state.scheduler.is_at_rest();
        let turn = || Turn { arrived, now: self.epoch.elapsed(), is_closed, is_at_rest };
        (!is_closed || !is_empty).then(turn)
    }

    /// Ends what is named and what is past its deadline, then plans. Returns the plan and the expired.
    pub(crate) fn plan(&self, gone: &[SequenceId], now: Duration) -> (StepPlan, Vec<SequenceId>) {
        let mut state = self.lock();
        gone.iter().for_each(|id| {
            state.scheduler.cancel(*id);
        });
        let expired = state.scheduler.expired(now);
        let plan = state.scheduler.plan(now);
        state.step_began = (!plan.is_empty()).then(Instant::now);
        (plan, expired)
    }

    pub(crate) fn commit(&self, plan: &StepPlan, outcome: Outcome) {
        let mut state = self.lock();
        state.steps += 1;
        state.step_seconds += outcome.elapsed.as_secs_f64();
        state.step_began = None;
        state.scheduler.commit(plan, outcome, self.epoch.elapsed());
        debug_assert_eq!(state.scheduler.check(), Ok(()));
    }

    pub(crate) fn spill_failed(&self, spill: &motet_kv::Spill) {
        self.lock().scheduler.pool().spill_failed(spill);
    }

    pub(crate) fn pause_background(&self, is_paused: bool) {
        self.lock().scheduler.pause_background(is_paused);
        self.changed.notify_one();
    }

    pub(crate) fn drain(&self) {
        self.lock().scheduler.drain();
    }

    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_one();
    }

    /// Refuses everything from now on, ends every sequence and hands back replies not taken yet.
    pub(crate) fn fail(&self, why: &str, ids: &[SequenceId]) -> Vec<Arrived> {
        let mut state = self.lock();
        state.down = Some(why.to_owned());
        state.step_began = None;
        let arrived = std::mem::take(&mut state.arrived);
        for id in ids.iter().chain(arrived.iter().flat_map(|arrived| &arrived.ids)) {
            state.lost += u64::from(state.scheduler.cancel(*id));
        }
        arrived
    }

    pub(crate) fn load(&self) -> Load {
        let state = self.lock();
        let (counts, kv) = (state.scheduler.counts(), state.scheduler.pool().counts());
        let lane = |(index, counts)| lane_load(counts, index, &state.scheduler);
        let sum =
            |of: fn(&motet_sched::LaneTotals) -> u64| counts.lanes.iter().map(|lane| of(&lane.totals)).sum();
        Load {
            running: counts.running as u32,
            waiting: counts.waiting as u32,
            preempted: counts.preempted as u32,
            kv_blocks_total: kv.all.total,
            kv_blocks_used: kv.all.used,
            kv_blocks_cached: kv.all.cached,
            kv_blocks_spilled: kv.spilled,
            kv_block_tokens: state.scheduler.pool().config().block_tokens,
            steps: state.steps,
            step_seconds: state.step_seconds,
            budget_used: counts.budget_used,
            cached_tokens: sum(|totals| totals.cached_tokens),
            prompt_tokens: sum(|totals| totals.prompt_tokens),
            output_tokens: sum(|totals| totals.output_tokens),
            finished: sum(|totals| totals.finished),
            cancelled: sum(|totals| totals.cancelled) - state.lost,
            failed: sum(|totals| totals.failed) + state.lost,
            preemptions: sum(|totals| totals.preemptions),
            stalled_seconds: state.step_began.map_or(0.0, |began| began.elapsed().as_secs_f64()),
            lanes: counts.lanes.into_iter().enumerate().map(lane).collect(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn lane_load(lane: motet_sched::LaneCounts, index: usize, scheduler: &Scheduler) -> LaneLoad {
    let config = scheduler.lane(index);
    let Outlook { wait, pace } = scheduler.outlook(index).unwrap_or_default();
    LaneLoad {
        running: lane.running as u32,
        waiting: lane.waiting as u32,
        preempted: lane.preempted as u32,
        prompt_tokens: lane.totals.prompt_tokens,
        output_tokens: lane.totals.output_tokens,
        started: lane.totals.started,
        waiting_limit: config.map_or(0, |config| u32::try_from(config.waiting).unwrap_or(u32::MAX)),
        ttft_promise: config.and_then(|config| config.ttft_promise),
        wait,
        pace,
        name: lane.name,
    }
}

fn refused(refusal: Refusal, lane: usize, scheduler: &Scheduler) -> SubmitError {
    let seconds = |duration: Duration| duration.as_secs_f64().ceil().clamp(1.0, 3600.0) as u32;
    match refusal {
        Refusal::NeverFits { prompt, max_tokens, limit } => {
            SubmitError::TooLong { prompt, max_tokens, limit }
        }
        Refusal::QueueFull { waiting, retry_after } => {
            SubmitError::QueueFull { waiting: waiting as u32, retry_after_seconds: seconds(retry_after) }
        }
        Refusal::PromiseBroken { estimate, retry_after, .. } => SubmitError::TooSlow {
            estimate_seconds: seconds(estimate),
            retry_after_seconds: seconds(retry_after),
        },
        Refusal::Samples { samples, limit } => SubmitError::Samples { samples, limit },
        Refusal::Draining => SubmitError::Draining,
        // Prompt, length and ids were checked before: what is left is the lane.
        Refusal::Malformed(_) => SubmitError::UnknownLane { lane, lanes: scheduler.counts().lanes.len() },
    }
}
