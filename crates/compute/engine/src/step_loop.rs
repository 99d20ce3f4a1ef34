use std::any::Any;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use motet_sched::{ExecuteError, Executor, Fifo, Limits, StepOutput, StepPlan};
use motet_types::{Load, ModelInfo, SequenceId};

use crate::inbox::Inbox;
use crate::reply::{Next, Reply};

/// The state of the engine's thread.
///
/// # Invariants
/// - `replies` has exactly the sequences of the schedule, waiting and running.
/// - After every step the schedule's own invariants hold; debug builds check them.
pub(crate) struct StepLoop {
    executor: Box<dyn Executor>,
    info: ModelInfo,
    schedule: Fifo,
    replies: HashMap<SequenceId, Reply>,
    inbox: Arc<Inbox>,
    load: Load,
    /// Logits of one row as the executor returns them.
    row_len: usize,
}

impl StepLoop {
    pub(crate) fn new(
        executor: Box<dyn Executor>,
        info: ModelInfo,
        limits: Limits,
        inbox: Arc<Inbox>,
    ) -> Self {
        let capacity = executor.capacity();
        Self {
            executor,
            info,
            schedule: Fifo::new(capacity, limits),
            replies: HashMap::new(),
            load: inbox.load(),
            inbox,
            row_len: capacity.vocab_size as usize,
        }
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
        self.inbox.fail(&why, self.replies.len() as u64);
        self.replies.drain().for_each(|(_, mut reply)| reply.fail_down(&why));
    }

    fn steps(&mut self) -> Result<(), ExecuteError> {
        while let Some(arrived) = self.inbox.take(self.replies.is_empty()) {
            for submission in arrived {
                self.replies.insert(submission.sequence.id, submission.reply);
                // The inbox keeps the line within the schedule's bound, and has refused what never fits.
                self.schedule
                    .submit(submission.sequence)
                    .map_err(|full| ExecuteError(format!("{full:?}")))?;
            }
            self.drop_abandoned();
            let plan = self.schedule.plan();
            if !plan.chunks.is_empty() {
                self.step(&plan)?;
            } else if !self.replies.is_empty() {
                // Turning in circles would look like work; an error is heard.
                return Err(ExecuteError(format!("none of {} sequences can run", self.replies.len())));
            }
            debug_assert_eq!(self.schedule.check(), Ok(()));
            self.publish();
        }
        Ok(())
    }

    fn step(&mut self, plan: &StepPlan) -> Result<(), ExecuteError> {
        let began = Instant::now();
        self.inbox.step_begins(began);
        let output = self.executor.execute(plan)?;
        self.schedule.commit(plan);
        for chunk in &plan.chunks {
            let prompt = self.replies.get(&chunk.sequence).map_or(0, Reply::prompt_tokens);
            let end = chunk.start + chunk.tokens.len() as u32;
            self.load.prompt_tokens += u64::from(prompt.min(end) - prompt.min(chunk.start));
        }
        self.sample(plan, output)?;
        self.load.steps += 1;
        self.load.step_seconds += began.elapsed().as_secs_f64();
        Ok(())
    }

    fn sample(&mut self, plan: &StepPlan, mut output: StepOutput) -> Result<(), ExecuteError> {
        let vocab_size = self.info.vocab_size as usize;
        let wanted = plan.chunks.iter().filter(|chunk| chunk.wants_logits).count();
        if output.logits.len() != wanted * self.row_len {
            return Err(ExecuteError(format!(
                "{} logits for {wanted} rows of {}",
                output.logits.len(),
                self.row_len
            )));
        }
        let rows = output.logits.chunks_exact_mut(self.row_len);
        for (chunk, row) in plan.chunks.iter().filter(|chunk| chunk.wants_logits).zip(rows) {
            let Some(reply) = self.replies.get_mut(&chunk.sequence) else { continue };
            match reply.advance(&mut row[..vocab_size], &self.info.eos_tokens) {
                Next::Append(token) => {
                    self.load.output_tokens += 1;
                    self.schedule.append(chunk.sequence, token);
                }
                Next::Finished => {
                    self.load.output_tokens += 1;
                    self.load.finished += 1;
                    self.remove(chunk.sequence);
                }
                Next::Failed => {
                    self.load.failed += 1;
                    self.remove(chunk.sequence);
                }
            }
        }
        Ok(())
    }

    fn drop_abandoned(&mut self) {
        let gone: Vec<_> = self.replies.iter().filter(|(_, r)| r.is_abandoned()).map(|(id, _)| *id).collect();
        for id in gone {
            self.load.cancelled += 1;
            self.remove(id);
        }
    }

    fn remove(&mut self, id: SequenceId) {
        self.replies.remove(&id);
        self.schedule.remove(id);
    }

    fn publish(&mut self) {
        self.load.running = self.schedule.running() as u32;
        self.load.waiting = self.schedule.waiting() as u32;
        self.load.kv_blocks_used = self.schedule.blocks_used();
        self.inbox.publish(self.load);
    }
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
