//! A replica without a model: it answers at a given [`Pace`], so that load tests measure what stands in front of it.
//!
//! Replies are seeded words: the same request gets the same reply. Places are given in the order in which requests
//! came; a reply that is dropped gives its place back at once.

mod pace;
mod reply;
mod words;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use motet_types::{Backend, EventStream, LaneLoad, Load, ModelInfo, Request, SubmitError};
use tokio::sync::Semaphore;

pub use pace::{Pace, PaceError};
pub use words::tokenizer;

/// Prompt and reply together: nothing here grows with it.
const CONTEXT: u32 = 131_072;
/// Tokens of a KV block, as the engine's.
const BLOCK: u32 = 16;

/// Answers like a replica of the given pace.
pub struct Simulated {
    info: ModelInfo,
    pace: Pace,
    lanes: Vec<String>,
    places: Arc<Semaphore>,
    counters: Arc<Counters>,
}

/// What replies count.
#[derive(Debug, Default)]
struct Counters {
    waiting: AtomicU32,
    running: AtomicU32,
    tokens_held: AtomicU64,
    prompt_tokens: AtomicU64,
    output_tokens: AtomicU64,
    finished: AtomicU64,
    cancelled: AtomicU64,
}

impl Simulated {
    /// A replica that calls its model `id` and has these lanes.
    pub fn new(id: &str, pace: Pace, lanes: Vec<String>) -> Self {
        let info = ModelInfo {
            id: id.to_owned(),
            context_length: CONTEXT,
            vocab_size: words::VOCAB,
            eos_tokens: vec![words::END],
        };
        let places = Arc::new(Semaphore::new(pace.places as usize));
        Self { info, pace, lanes, places, counters: Arc::default() }
    }

    fn check(&self, request: &Request) -> Result<(), SubmitError> {
        let prompt = u32::try_from(request.prompt.len()).unwrap_or(u32::MAX);
        let samples = request.samples.len();
        if prompt == 0 {
            return Err(SubmitError::EmptyPrompt);
        }
        if request.max_tokens == 0 {
            return Err(SubmitError::NoOutput);
        }
        if prompt.saturating_add(request.max_tokens) > CONTEXT {
            let max_tokens = request.max_tokens;
            return Err(SubmitError::TooLong { prompt, max_tokens, limit: CONTEXT });
        }
        if samples == 0 || samples > self.pace.places as usize {
            return Err(SubmitError::Samples { samples, limit: self.pace.places as usize });
        }
        if request.origin.lane >= self.lanes.len() {
            return Err(SubmitError::UnknownLane { lane: request.origin.lane, lanes: self.lanes.len() });
        }
        let waiting = self.counters.waiting.load(Ordering::Relaxed);
        if waiting >= self.pace.waiting {
            let wait = self.estimate(request.origin.lane, prompt).as_secs_f64().ceil();
            return Err(SubmitError::QueueFull { waiting, retry_after_seconds: wait as u32 });
        }
        Ok(())
    }
}

impl Backend for Simulated {
    fn model(&self) -> &ModelInfo {
        &self.info
    }

    fn submit(&self, request: Request) -> Result<Vec<EventStream>, SubmitError> {
        self.check(&request)?;
        let reply = |sample| {
            let places = Arc::clone(&self.places);
            reply::Reply::start(&request, sample, (self.pace, places, Arc::clone(&self.counters)))
        };
        Ok(request.samples.iter().map(reply).collect())
    }

    /// As if those that wait took as long as the reply that was asked for on average: 128 tokens.
    fn estimate(&self, _lane: usize, prompt_tokens: u32) -> Duration {
        let waiting = self.counters.waiting.load(Ordering::Relaxed);
        let rounds = waiting.div_ceil(self.pace.places.max(1));
        self.pace.ttft(prompt_tokens) + rounds * (self.pace.ttft(prompt_tokens) + self.pace.itl * 128)
    }

    fn load(&self) -> Load {
        let counters = &self.counters;
        let held = counters.tokens_held.load(Ordering::Relaxed) / u64::from(BLOCK);
        let (running, waiting) =
            (counters.running.load(Ordering::Relaxed), counters.waiting.load(Ordering::Relaxed));
        let lane = |(i, name): (usize, &String)| LaneLoad {
            name: name.clone(),
            // Lanes differ in name only.
            running: if i == 0 { running } else { 0 },
            waiting: if i == 0 { waiting } else { 0 },
            ..LaneLoad::default()
        };
        Load {
            running,
            waiting,
            kv_blocks_total: self.pace.places.saturating_mul(CONTEXT / BLOCK),
            kv_blocks_used: u32::try_from(held).unwrap_or(u32::MAX),
            kv_block_tokens: BLOCK,
            prompt_tokens: counters.prompt_tokens.load(Ordering::Relaxed),
            output_tokens: counters.output_tokens.load(Ordering::Relaxed),
            finished: counters.finished.load(Ordering::Relaxed),
            cancelled: counters.cancelled.load(Ordering::Relaxed),
            lanes: self.lanes.iter().enumerate().map(lane).collect(),
            ..Load::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt as _;
    use motet_types::{Event, FinishReason, Origin, SamplingParams, StopTokens};
    use tokio::time::Instant;

    use super::*;

    fn replica(pace: &str) -> Simulated {
        Simulated::new("simulated", pace.parse().unwrap(), vec!["main".to_owned()])
    }

    fn request(prompt: usize, max_tokens: u32) -> Request {
        Request {
            prompt: vec![65; prompt],
            max_tokens,
            samples: vec![SamplingParams::GREEDY],
            stop: StopTokens::default(),
            logprobs: None,
            origin: Origin::default(),
            deadline: None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_reply_comes_at_its_pace() {
        let replica = replica("ttft=20ms,prefill=1000,itl=5ms");
        let began = Instant::now();
        let mut stream = replica.submit(request(10, 3)).unwrap().remove(0);
        let mut at = Vec::new();
        let mut last = None;
        while let Some(event) = stream.next().await {
            at.push(began.elapsed().as_millis());
            last = Some(event);
        }
        assert_eq!(at, [30, 35, 40, 40]);
        assert!(
            matches!(last, Some(Event::Finished { reason: FinishReason::Length, usage }) if usage.output == 3)
        );
        assert_eq!(
            (replica.load().running, replica.load().finished, replica.load().kv_blocks_used),
            (0, 1, 0)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn places_are_given_in_order_and_given_back() {
        let replica = replica("itl=10ms,places=1,waiting=1");
        let mut first = replica.submit(request(1, 5)).unwrap().remove(0);
        assert!(first.next().await.is_some());
        let mut second = replica.submit(request(1, 1)).unwrap().remove(0);
        assert!(matches!(replica.submit(request(1, 1)), Err(SubmitError::QueueFull { waiting: 1, .. })));
        drop(first);
        assert!(matches!(second.next().await, Some(Event::Token(_))));
        drop(second);
        assert_eq!((replica.load().running, replica.load().cancelled), (0, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_request_gets_the_same_words() {
        let replica = replica("itl=0ms");
        let tokenizer = tokenizer().unwrap();
        let mut texts = Vec::new();
        for seed in [1, 1, 2] {
            let samples = vec![SamplingParams { seed, ..SamplingParams::default() }];
            let stream = replica.submit(Request { samples, ..request(4, 8) }).unwrap().remove(0);
            let events: Vec<_> = stream.collect().await;
            let tokens = events.into_iter().filter_map(|event| match event {
                Event::Token(token) => Some(token.token),
                _ => None,
            });
            texts.push(tokenizer.decode(&tokens.collect::<Vec<_>>()));
        }
        assert_eq!(texts[0], texts[1]);
        assert_ne!(texts[0], texts[2]);
    }

    #[test]
    fn what_a_replica_cannot_do_is_refused() {
        let replica = replica("places=2");
        let refused = |request| replica.submit(request).err().unwrap();
        assert_eq!(refused(request(0, 1)), SubmitError::EmptyPrompt);
        assert_eq!(refused(request(1, 0)), SubmitError::NoOutput);
        assert!(matches!(refused(request(1, CONTEXT)), SubmitError::TooLong { limit: CONTEXT, .. }));
        let samples = vec![SamplingParams::GREEDY; 3];
        let refused = refused(Request { samples, ..request(1, 1) });
        assert_eq!(refused, SubmitError::Samples { samples: 3, limit: 2 });
    }
}
