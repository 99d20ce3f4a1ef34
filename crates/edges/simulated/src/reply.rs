use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_core::Stream;
use motet_types::{Event, EventStream, FinishReason, Logprobs, Request, SamplingParams, TokenEvent, Usage};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::{Counters, Pace, words};

/// One reply, written as it is read: nothing runs for a reply that nobody polls.
pub(crate) struct Reply {
    phase: Phase,
    pace: Pace,
    counters: Arc<Counters>,
    key: u64,
    prompt: u32,
    max_tokens: u32,
    logprobs: Option<u8>,
    output: u32,
    submitted: Instant,
    /// Time without a place.
    queued: Duration,
}

type Place = Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + Send>>;

enum Phase {
    Waiting(Place),
    Writing { next: Pin<Box<Sleep>>, _place: OwnedSemaphorePermit },
    Over,
}

impl Reply {
    pub(crate) fn start(
        request: &Request,
        sample: &SamplingParams,
        (pace, places, counters): (Pace, Arc<Semaphore>, Arc<Counters>),
    ) -> EventStream {
        let prompt = u32::try_from(request.prompt.len()).unwrap_or(u32::MAX);
        counters.waiting.fetch_add(1, Ordering::Relaxed);
        counters.tokens_held.fetch_add(u64::from(prompt), Ordering::Relaxed);
        let last = request.prompt.last().copied().unwrap_or(0);
        let seed = if sample.temperature > 0.0 { sample.seed } else { 0 };
        Box::pin(Self {
            phase: Phase::Waiting(Box::pin(places.acquire_owned())),
            pace,
            counters,
            key: mix(seed ^ mix(u64::from(prompt) << 32 | u64::from(last))),
            prompt,
            max_tokens: request.max_tokens,
            logprobs: request.logprobs,
            output: 0,
            submitted: Instant::now(),
            queued: Duration::ZERO,
        })
    }

    /// The event that is due.
    fn event(&mut self) -> Event {
        if self.output == self.max_tokens {
            self.over();
            self.counters.finished.fetch_add(1, Ordering::Relaxed);
            let (prompt, output, queued) = (self.prompt, self.output, self.queued);
            let usage = Usage { prompt, cached: 0, output, queued };
            return Event::Finished { reason: FinishReason::Length, usage };
        }
        let index = self.output;
        self.output += 1;
        self.counters.output_tokens.fetch_add(1, Ordering::Relaxed);
        self.counters.tokens_held.fetch_add(1, Ordering::Relaxed);
        let token = words::word(mix(self.key.wrapping_add(u64::from(index))));
        let rivals = |k: u8| (0..u64::from(k)).map(|i| (words::word(u64::from(token) + i), -1.0)).collect();
        let logprobs = self.logprobs.map(|k| Box::new(Logprobs { chosen: -1.0, top: rivals(k) }));
        Event::Token(TokenEvent { index, token, logprobs })
    }

    /// Gives back what the reply has.
    fn over(&mut self) {
        let counters = &self.counters;
        match std::mem::replace(&mut self.phase, Phase::Over) {
            Phase::Waiting(_) => counters.waiting.fetch_sub(1, Ordering::Relaxed),
            Phase::Writing { .. } => counters.running.fetch_sub(1, Ordering::Relaxed),
            Phase::Over => return,
        };
        counters.tokens_held.fetch_sub(u64::from(self.prompt + self.output), Ordering::Relaxed);
    }
}

impl Stream for Reply {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        let this = &mut *self;
        loop {
            match &mut this.phase {
                Phase::Waiting(place) => {
                    let Ok(place) = ready!(place.as_mut().poll(cx)) else {
                        this.over();
                        return Poll::Ready(None);
                    };
                    this.queued = this.submitted.elapsed();
                    this.counters.waiting.fetch_sub(1, Ordering::Relaxed);
                    this.counters.running.fetch_add(1, Ordering::Relaxed);
                    this.counters.prompt_tokens.fetch_add(u64::from(this.prompt), Ordering::Relaxed);
                    let next = Box::pin(sleep_until(Instant::now() + this.pace.ttft(this.prompt)));
                    this.phase = Phase::Writing { next, _place: place };
                }
                Phase::Writing { next, .. } => {
                    // A pace of nothing sleeps for nothing, not until the timer's next millisecond.
                    if next.deadline() > Instant::now() {
                        ready!(next.as_mut().poll(cx));
                    }
                    // From when it was due, so that a reader that comes late finds what was written meanwhile.
                    let due = next.deadline() + this.pace.itl;
                    let event = this.event();
                    if this.output < this.max_tokens
                        && let Phase::Writing { next, .. } = &mut this.phase
                    {
                        next.as_mut().reset(due);
                    }
                    return Poll::Ready(Some(event));
                }
                Phase::Over => return Poll::Ready(None),
            }
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if !matches!(self.phase, Phase::Over) {
            self.over();
            self.counters.cancelled.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// SplitMix64's finisher (Steele, Lea and Flood, 2014).
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
