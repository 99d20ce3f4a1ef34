use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use motet_sched::{Capacity, SequenceSpec};
use motet_types::{Load, SubmitError};

use crate::reply::Reply;

/// A request on its way to the loop.
pub(crate) struct Submission {
    pub(crate) sequence: SequenceSpec,
    pub(crate) reply: Reply,
}

/// Where callers meet the loop: new requests one way, the load and the end the other way.
///
/// # Invariants
/// - Submissions here and sequences waiting in the schedule together never exceed `bound`: between
///   two visits of the loop the schedule's line only gets shorter, and `waiting` is what it was then.
/// - One lock, never held across a step or while another is taken.
pub(crate) struct Inbox {
    state: Mutex<State>,
    arrived: Condvar,
    bound: usize,
}

#[derive(Default)]
struct State {
    submissions: Vec<Submission>,
    /// Sequences waiting in the schedule when the loop last looked.
    waiting: usize,
    load: Load,
    step_began: Option<Instant>,
    is_closed: bool,
    /// Why the loop ended.
    down: Option<String>,
}

impl Inbox {
    pub(crate) fn new(bound: usize, capacity: Capacity) -> Self {
        let load = Load {
            kv_blocks_total: capacity.kv_blocks,
            kv_block_tokens: capacity.block_tokens,
            ..Load::default()
        };
        let state = State { load, ..State::default() };
        Self { state: Mutex::new(state), arrived: Condvar::new(), bound }
    }

    pub(crate) fn push(&self, submission: Submission) -> Result<(), SubmitError> {
        let mut state = self.lock();
        if let Some(why) = &state.down {
            return Err(SubmitError::Down(why.clone()));
        }
        let waiting = state.waiting + state.submissions.len();
        if waiting >= self.bound {
            let retry_after_seconds = seconds_until_a_place(&state.load);
            return Err(SubmitError::QueueFull { waiting: waiting as u32, retry_after_seconds });
        }
        state.submissions.push(submission);
        self.arrived.notify_one();
        Ok(())
    }

    /// What has arrived; when `is_idle`, waits for something to. `None`: the engine is closed.
    pub(crate) fn take(&self, is_idle: bool) -> Option<Vec<Submission>> {
        let mut state = self.lock();
        while is_idle && state.submissions.is_empty() && !state.is_closed {
            state = self.arrived.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.is_closed {
            return None; // `fail` ends what has arrived
        }
        let arrived = std::mem::take(&mut state.submissions);
        state.waiting += arrived.len();
        Some(arrived)
    }

    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.arrived.notify_one();
    }

    /// Refuses everything from now on and drops what had not been taken, which ends those replies too.
    /// The counters stay as they were last published; nothing runs or waits any more.
    pub(crate) fn fail(&self, why: &str, failed_replies: u64) {
        let mut state = self.lock();
        state.down = Some(why.to_owned());
        state.step_began = None;
        state.waiting = 0;
        let failed = state.load.failed + failed_replies + state.submissions.len() as u64;
        state.load = Load { running: 0, waiting: 0, kv_blocks_used: 0, failed, ..state.load };
        state.submissions.iter_mut().for_each(|submission| submission.reply.fail_down(why));
        state.submissions.clear();
    }

    pub(crate) fn step_begins(&self, now: Instant) {
        self.lock().step_began = Some(now);
    }

    pub(crate) fn publish(&self, load: Load) {
        let mut state = self.lock();
        state.waiting = load.waiting as usize;
        state.load = load;
        state.step_began = None;
    }

    pub(crate) fn load(&self) -> Load {
        let state = self.lock();
        Load {
            waiting: (state.waiting + state.submissions.len()) as u32,
            stalled_seconds: state.step_began.map_or(0.0, |began| began.elapsed().as_secs_f64()),
            ..state.load
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place in the line is free when a sequence ends: the time served so far per finished sequence.
fn seconds_until_a_place(load: &Load) -> u32 {
    if load.finished == 0 {
        return 1;
    }
    (load.step_seconds / load.finished as f64).ceil().clamp(1.0, 60.0) as u32
}
