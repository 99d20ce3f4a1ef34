use std::any::Any;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use motet_sched::{Chunk, ExecuteError, Executor, Next, Outcome, StepOutput, StepPlan};
use motet_types::{ModelInfo, ReplyError, SequenceId};

use crate::moves;
use crate::reply::{self, Reply};
use crate::shared::{Arrived, Shared};
use crate::tier::Tier;

/// Plans without work, one after the other, before the loop gives up: a deadline or a preempted sequence
/// may need one more look, turning in circles would pass for work.
const IDLE_PLANS: u32 = 8;

/// The state of the engine's thread.
///
/// # Invariants
/// - `replies` has the sequences of the scheduler, less those that arrived since the last turn.
pub(crate) struct StepLoop {
    executor: Box<dyn Executor>,
    info: ModelInfo,
    replies: HashMap<SequenceId, Reply>,
    tier: Option<Tier>,
    shared: Arc<Shared>,
    /// Logits of one row as the executor returns them.
    row_len: usize,
    /// What the last step computed, kept for its memory.
    output: StepOutput,
    idle_plans: u32,
}

impl StepLoop {
    pub(crate) fn new(
        executor: Box<dyn Executor>,
        info: ModelInfo,
        tier: Option<Tier>,
        shared: Arc<Shared>,
    ) -> Self {
        let row_len = executor.capacity().vocab_size as usize;
        let output = StepOutput::default();
        Self { executor, info, replies: HashMap::new(), tier, shared, row_len, output, idle_plans: 0 }
    }

    /// Runs until the engine is closed. A panic or a failed step ends every reply with an error and
    /// refuses new ones: loud, never a silent hang.
    pub(crate) fn run(&mut self) {
        let end = catch_unwind(AssertUnwindSafe(|| self.steps()));
        let why = match &end {
            Ok(Ok(())) => "it was shut down".to_owned(),
            Ok(Err(error)) => format!("a step failed: {error}"),
            Err(panic) => format!("the step loop panicked: {}", message(&**panic)),
        };
        match end {
            Ok(Ok(())) => tracing::info!("the engine was shut down"),
            _ => tracing::error!(reason = why, "the engine stopped"),
        }
        let ids: Vec<SequenceId> = self.replies.keys().copied().collect();
        let arrived = self.shared.fail(&why, &ids);
        let replies = self.replies.drain().map(|(_, reply)| reply);
        replies
            .chain(arrived.into_iter().flat_map(|arrived| arrived.replies))
            .for_each(|mut reply| reply.fail_down(&why));
    }

    fn steps(&mut self) -> Result<(), ExecuteError> {
        while let Some(turn) = self.shared.wait() {
            for Arrived { ids, replies } in turn.arrived {
                self.replies.extend(ids.into_iter().zip(replies));
            }
            if turn.is_closed {
                return Ok(());
            }
            let gone = self.abandoned();
            let (plan, expired) = self.shared.plan(&gone, turn.now);
            for mut reply in expired.iter().filter_map(|id| self.replies.remove(id)) {
                reply.fail(ReplyError::DeadlinePassed);
            }
            if !plan.is_empty() {
                self.idle_plans = 0;
                self.step(plan)?;
            } else if turn.is_at_rest {
                self.idle_plans = 0;
            } else if !self.replies.is_empty() {
                self.idle_plans += 1;
                if self.idle_plans > IDLE_PLANS {
                    return Err(ExecuteError(format!("none of {} sequences can run", self.replies.len())));
                }
            }
        }
        Ok(())
    }

    /// Takes out the replies whose readers have left and names them.
    fn abandoned(&mut self) -> Vec<SequenceId> {
        let gone: Vec<_> = self.replies.iter().filter(|(_, r)| r.is_abandoned()).map(|(id, _)| *id).collect();
        gone.iter().for_each(|id| {
            self.replies.remove(id);
        });
        gone
    }

    fn step(&mut self, mut plan: StepPlan) -> Result<(), ExecuteError> {
        let began = Instant::now();
        let failed_fills = moves::carry_out(&plan, &mut *self.executor, self.tier.as_mut(), &self.shared);
        plan.drop_dependents(&failed_fills);
        let mut output = std::mem::take(&mut self.output);
        output.logits.clear();
        if !plan.chunks.is_empty() {
            self.executor.execute(&plan, &mut output)?;
        }
        let elapsed = began.elapsed();
        let results = self.sample(&plan, &mut output.logits)?;
        self.output = output;
        self.shared.commit(&plan, Outcome { elapsed, results, failed_fills });
        Ok(())
    }

    /// Draws the next token of every sequence that wanted logits.
    fn sample(
        &mut self,
        plan: &StepPlan,
        logits: &mut [f32],
    ) -> Result<Vec<(SequenceId, Next)>, ExecuteError> {
        let wanted = plan.chunks.iter().filter(|chunk| chunk.wants_logits).count();
        if logits.len() != wanted * self.row_len {
            let found = logits.len();
            return Err(ExecuteError(format!("{found} logits for {wanted} rows of {}", self.row_len)));
        }
        let mut results = Vec::new();
        let mut rows = logits.chunks_exact_mut(self.row_len);
        for chunk in &plan.chunks {
            self.note_cached(chunk);
            if !chunk.wants_logits {
                continue;
            }
            let Some(row) = rows.next() else { break };
            let row = &mut row[..self.info.vocab_size as usize];
            for id in chunk.siblings.iter().chain([&chunk.sequence]) {
                // A sample that forbids tokens changes its row, so all but the last get a copy.
                let mut copy;
                let logits = if *id == chunk.sequence {
                    &mut *row
                } else {
                    copy = row.to_vec();
                    &mut copy[..]
                };
                results.extend(self.advance(*id, logits).map(|next| (*id, next)));
            }
        }
        Ok(results)
    }

    fn advance(&mut self, id: SequenceId, logits: &mut [f32]) -> Option<Next> {
        let next = self.replies.get_mut(&id)?.advance(logits, &self.info.eos_tokens);
        Some(match next {
            reply::Next::Append(token) => Next::Append(token),
            reply::Next::Finished => {
                self.replies.remove(&id);
                Next::Finish
            }
            reply::Next::Failed => {
                self.replies.remove(&id);
                Next::Fail
            }
        })
    }

    /// A reply's first chunk begins where the cache ended, or one token before.
    fn note_cached(&mut self, chunk: &Chunk) {
        for id in chunk.siblings.iter().chain([&chunk.sequence]) {
            if let Some(reply) = self.replies.get_mut(id) {
                reply.note_cached(chunk.start);
            }
        }
    }
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
