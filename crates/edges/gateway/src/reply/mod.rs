//! A reply in the making: one backend request per choice, merged into one sequence of updates.

mod choice;

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use motet_protocol::Usage;
use motet_types::{EventStream, Request, SamplingParams, StopTokens, SubmitError, TokenId};
use tokio::time::Instant;

pub(crate) use choice::{ScoredToken, Update};

use crate::error::ApiError;
use crate::gateway::Gateway;
use crate::ids::choice_seed;
use crate::metrics::Metrics;
use crate::prepare::Job;
use choice::Choice;

/// The choices of a request. Dropping it cancels what still runs.
pub(crate) struct Reply {
    choices: Vec<Choice>,
    /// Which choice is asked first, so that a busy one does not starve the others.
    turn: usize,
    prompt_tokens: u32,
    n: usize,
    meter: Meter,
}

/// Times tokens.
struct Meter {
    metrics: Arc<Metrics>,
    accepted: Instant,
    has_begun: bool,
}

impl Reply {
    /// Submits a job. Either all choices are taken or none.
    pub(crate) fn start(gateway: &Gateway, job: &Job, accepted: Instant) -> Result<Self, ApiError> {
        let generation = &job.generation;
        let seed = generation.sampling.seed.unwrap_or_else(|| (gateway.config.entropy)());
        let mut choices = Vec::with_capacity(job.prompts.len() * generation.n as usize);
        for prompt in &job.prompts {
            for i in 0..generation.n {
                let events = submit(job, prompt, choice_seed(seed, i));
                let events = events.inspect_err(|error| note_down(gateway, error))?;
                let tokenizer = Arc::clone(&job.served.model.tokenizer);
                choices.push(Choice::new(events, tokenizer, generation.stop.clone()));
            }
        }
        let prompt_tokens = job.prompts.iter().map(|prompt| prompt.len() as u32).sum();
        let meter = Meter { metrics: Arc::clone(&gateway.metrics), accepted, has_begun: false };
        Ok(Self { choices, turn: 0, prompt_tokens, n: generation.n as usize, meter })
    }

    /// Choices in all.
    pub(crate) fn choices(&self) -> usize {
        self.choices.len()
    }

    /// The next thing that happens to a choice, or `None` when all have ended.
    ///
    /// # Errors
    /// When a choice can't go on. The others are cancelled: a reply is whole or failed.
    pub(crate) async fn next(&mut self) -> Result<Option<(usize, Update)>, ApiError> {
        let next = poll_fn(|cx| self.poll_next(cx)).await;
        if next.is_err() {
            self.choices.iter_mut().for_each(Choice::cancel);
        }
        next
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<(usize, Update)>, ApiError>> {
        let count = self.choices.len();
        let mut has_live = false;
        for step in 0..count {
            let index = (self.turn + step) % count;
            match self.choices[index].poll_update(cx) {
                Poll::Ready(Some(Ok(update))) => {
                    self.turn = index + 1;
                    self.meter.record(&mut self.choices[index], &update);
                    return Poll::Ready(Ok(Some((index, update))));
                }
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(error)),
                Poll::Ready(None) => {}
                Poll::Pending => has_live = true,
            }
        }
        if has_live { Poll::Pending } else { Poll::Ready(Ok(None)) }
    }

    /// What it cost so far. A choice that ended at a stop string counts the tokens up to it.
    pub(crate) fn usage(&self) -> Usage {
        let output = self.choices.iter().map(Choice::output).sum();
        // Only a prompt's first choice can be compared with what the client sent.
        let cached = self.choices.iter().step_by(self.n.max(1)).map(Choice::cached).sum();
        Usage::new(self.prompt_tokens, cached, output)
    }
}

impl Meter {
    fn record(&mut self, choice: &mut Choice, update: &Update) {
        if !update.is_token {
            return;
        }
        let now = Instant::now();
        if !self.has_begun {
            self.has_begun = true;
            self.metrics.observe_first_token(now - self.accepted);
        }
        if let Some(before) = choice.last_token.replace(now) {
            self.metrics.observe_inter_token(now - before);
        }
    }
}

fn submit(job: &Job, prompt: &[TokenId], seed: u64) -> Result<EventStream, ApiError> {
    let backend = &job.served.model.backend;
    let request = request(job, prompt, seed, job.room(prompt)?);
    match backend.submit(request.clone()) {
        Ok(events) => Ok(events),
        // A sequence may hold less than the context, and the client did not say how much it needs.
        Err(SubmitError::TooLong { limit, .. })
            if job.generation.max_tokens.is_none() && limit > prompt.len() as u32 =>
        {
            let max_tokens = limit - prompt.len() as u32;
            let submitted = backend.submit(Request { max_tokens, ..request });
            submitted.map_err(|error| ApiError::from_submit(error, job.param))
        }
        Err(SubmitError::TooLong { limit, .. }) => Err(job.too_long(prompt, limit)),
        Err(error) => Err(ApiError::from_submit(error, job.param)),
    }
}

fn request(job: &Job, prompt: &[TokenId], seed: u64, max_tokens: u32) -> Request {
    let generation = &job.generation;
    let sampling = generation.sampling;
    Request {
        prompt: prompt.to_vec(),
        max_tokens,
        sampling: SamplingParams {
            temperature: sampling.temperature,
            top_k: sampling.top_k.min(job.served.model.backend.model().vocab_size),
            top_p: sampling.top_p,
            min_p: sampling.min_p,
            seed,
        },
        stop: StopTokens {
            ids: generation.stop_token_ids.clone(),
            ignore_eos: generation.ignore_eos,
            min_tokens: generation.min_tokens,
        },
        logprobs: generation.logprobs,
    }
}

/// A backend that is down takes nothing any more, so later requests need not try.
pub(crate) fn note_down(gateway: &Gateway, error: &ApiError) {
    match error {
        ApiError::Down(why) | ApiError::Reply(motet_types::ReplyError::BackendDown(why)) => {
            gateway.set_failed(why.clone());
        }
        _ => {}
    }
}
