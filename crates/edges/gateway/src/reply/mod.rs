//! A reply in the making: one backend request per prompt, its choices merged into one sequence of updates.

mod choice;

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use motet_protocol::{FinishReason, Usage};
use motet_types::{EventStream, Origin, Request, SamplingParams, StopTokens, SubmitError};
use tokio::time::Instant;

pub(crate) use choice::{ScoredToken, Update};

use crate::access::{End, Outcome, Permit};
use crate::error::ApiError;
use crate::gateway::{Gateway, Served};
use crate::ids::choice_seed;
use crate::metrics::Timings;
use crate::overload::Entry;
use crate::prepare::Job;
use choice::Choice;

/// The choices of a request. Dropping it cancels what still runs.
pub(crate) struct Reply {
    choices: Vec<Choice>,
    /// Which choice is asked first, so that a busy one does not starve the others.
    turn: usize,
    prompt_tokens: u32,
    /// Choices per prompt.
    per_prompt: usize,
    meter: Meter,
    /// Until it is told what was used.
    permit: Option<Box<dyn Permit>>,
    /// How the last choice that ended did.
    finish: Option<FinishReason>,
    end: End,
}

/// However a reply ends, it is dropped, and what it has used by then is what it costs.
impl Drop for Reply {
    fn drop(&mut self) {
        self.settle();
    }
}

/// Times tokens.
struct Meter {
    timings: Timings,
    accepted: Instant,
    first_token: Option<Instant>,
}

impl Reply {
    /// Submits a job. Either all choices are taken or none.
    ///
    /// `permit` is settled when the reply is dropped, or at once where nothing was submitted.
    pub(crate) fn start(
        gateway: &Gateway,
        job: &Job,
        entry: &Entry,
        accepted: Instant,
        permit: Option<Box<dyn Permit>>,
    ) -> Result<Self, ApiError> {
        let generation = &job.generation;
        let seed = generation.sampling.seed.unwrap_or_else(|| (gateway.config.entropy)());
        let common = request(job, seed, entry);
        let mut choices = Vec::with_capacity(job.prompts.len() * generation.best_of as usize);
        for prompt in &job.prompts {
            let mut refused = |error| gateway.refused(&job.served, entry, error);
            let streams = submit(job, Request { prompt: prompt.clone(), ..common.clone() }, &mut refused);
            for events in streams.inspect_err(|error| note_down(gateway, &job.served, error))? {
                let tokenizer = Arc::clone(&job.served.model.tokenizer);
                choices.push(Choice::new(events, tokenizer, generation.stop.clone()));
            }
        }
        let prompt_tokens = job.prompts.iter().map(|prompt| prompt.len() as u32).sum();
        let timings = gateway.metrics.timings(&job.served.model.id, job.served.lane_name(entry.lane));
        let meter = Meter { timings, accepted, first_token: None };
        let per_prompt = generation.best_of as usize;
        Ok(Self {
            choices,
            turn: 0,
            prompt_tokens,
            per_prompt,
            meter,
            permit,
            finish: None,
            end: End::Cancelled,
        })
    }

    /// The `n` choices of each prompt with the highest log-probability per token, best first; all of them, in
    /// order, where no more were generated. `items` belong to the choices.
    pub(crate) fn best<T>(&self, n: usize, items: Vec<T>) -> Vec<T> {
        if n >= self.per_prompt {
            return items;
        }
        let mut ranked: Vec<_> = self.choices.iter().zip(items).enumerate().collect();
        // Within a prompt by score, ties by index: a stable sort keeps the order of prompts.
        ranked.sort_by(|(i, (a, _)), (j, (b, _))| {
            let prompts = (i / self.per_prompt).cmp(&(j / self.per_prompt));
            prompts.then(b.mean_logprob().total_cmp(&a.mean_logprob()))
        });
        let kept = ranked.into_iter().enumerate().filter(|(rank, _)| rank % self.per_prompt < n);
        kept.map(|(_, (_, (_, item)))| item).collect()
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
        match &next {
            Ok(Some((_, update))) => self.finish = update.finish.or(self.finish),
            Ok(None) => {
                self.end = self.finish.map_or(End::Failed, End::Finished);
                // Before the client learns of the end: its next request may depend on what this one gives back.
                self.settle();
            }
            Err(_) => {
                self.choices.iter_mut().for_each(Choice::cancel);
                self.end = End::Failed;
            }
        }
        next
    }

    /// Says what was used, if that was not done before.
    fn settle(&mut self) {
        let Some(permit) = self.permit.take() else { return };
        let usage = self.usage();
        let Meter { accepted, first_token, .. } = self.meter;
        permit.settle(Outcome {
            prompt_tokens: u64::from(usage.prompt_tokens),
            cached_tokens: u64::from(usage.prompt_tokens_details.cached_tokens),
            output_tokens: u64::from(usage.completion_tokens),
            end: self.end,
            queued: self.choices.iter().map(Choice::queued).max().unwrap_or_default(),
            ttft: first_token.map(|first| first - accepted),
            took: accepted.elapsed(),
        });
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
        // A prompt is found in the cache once for all its choices. Where they differ, one of them began
        // from what another had computed.
        let cached = |choices: &[Choice]| choices.iter().filter_map(Choice::cached).min().unwrap_or(0);
        let cached = self.choices.chunks(self.per_prompt.max(1)).map(cached).sum();
        Usage::new(self.prompt_tokens, cached, output)
    }
}

impl Meter {
    fn record(&mut self, choice: &mut Choice, update: &Update) {
        if !update.is_token {
            return;
        }
        let now = Instant::now();
        if self.first_token.is_none() {
            self.first_token = Some(now);
            self.timings.first_token.observe((now - self.accepted).as_secs_f64());
        }
        if let Some(before) = choice.last_token.replace(now) {
            self.timings.inter_token.observe((now - before).as_secs_f64());
        }
    }
}

/// Submits one prompt with all its choices. `refused` makes of the backend's refusal what is told.
fn submit(
    job: &Job,
    mut request: Request,
    refused: &mut dyn FnMut(SubmitError) -> SubmitError,
) -> Result<Vec<EventStream>, ApiError> {
    let backend = &job.served.model.backend;
    request.max_tokens = job.room(&request.prompt)?;
    let prompt = request.prompt.len() as u32;
    match backend.submit(request.clone()) {
        Ok(streams) => Ok(streams),
        // A sequence may hold less than the context, and the client did not say how much it needs.
        Err(SubmitError::TooLong { limit, .. }) if job.generation.max_tokens.is_none() && limit > prompt => {
            let submitted = backend.submit(Request { max_tokens: limit - prompt, ..request });
            submitted.map_err(|error| ApiError::from_submit(refused(error), job.param))
        }
        Err(SubmitError::TooLong { limit, .. }) => Err(job.too_long(&request.prompt, limit)),
        Err(error) => Err(ApiError::from_submit(refused(error), job.param)),
    }
}

/// What the prompts of a job have in common; the prompt and its `max_tokens` are to be filled in.
fn request(job: &Job, seed: u64, entry: &Entry) -> Request {
    let generation = &job.generation;
    let sampling = generation.sampling;
    let sample = |index| SamplingParams {
        temperature: sampling.temperature,
        top_k: sampling.top_k.min(job.served.model.backend.model().vocab_size),
        top_p: sampling.top_p,
        min_p: sampling.min_p,
        seed: choice_seed(seed, index),
    };
    Request {
        prompt: Vec::new(),
        max_tokens: 0,
        samples: (0..generation.best_of).map(sample).collect(),
        stop: StopTokens {
            ids: generation.stop_token_ids.clone(),
            ignore_eos: generation.ignore_eos,
            min_tokens: generation.min_tokens,
        },
        // To rank candidates takes the log-probability of each token drawn.
        logprobs: generation.logprobs.or((generation.best_of > generation.n).then_some(0)),
        origin: Origin {
            tenant: job.caller.tenant.clone(),
            user: job.caller.user,
            lane: entry.lane,
            cache_namespace: generation.cache_key.clone(),
            is_patient: entry.is_patient,
        },
        deadline: None,
    }
}

/// A backend that is down takes nothing any more, so later requests need not try.
pub(crate) fn note_down(gateway: &Gateway, served: &Served, error: &ApiError) {
    match error {
        ApiError::Down(why) | ApiError::Reply(motet_types::ReplyError::BackendDown(why)) => {
            gateway.set_model_failed(served.index, why.clone());
        }
        _ => {}
    }
}
