use std::pin::Pin;
use std::time::Duration;

use futures_core::Stream;

use crate::{Event, Request, TokenId};

/// A reply's events. Dropping it cancels the reply: its sequence is gone at the next step.
pub type EventStream = Pin<Box<dyn Stream<Item = Event> + Send>>;

/// Anything that continues token sequences: the in-process engine, a replica, an upstream.
pub trait Backend: Send + Sync {
    /// The model behind it.
    fn model(&self) -> &ModelInfo;

    /// Queues `request`; never waits. The prompt is checked before it can reach a batch. One stream per
    /// sample, in order.
    fn submit(&self, request: Request) -> Result<Vec<EventStream>, SubmitError>;

    /// When the first token of such a request is to be expected, from now.
    fn estimate(&self, lane: usize, prompt_tokens: u32) -> Duration;

    /// What it is doing now.
    fn load(&self) -> Load;

    /// Whether background lanes start nothing of what waits in them, until told otherwise. What they have running may
    /// go on. A backend without such lanes has nothing to do.
    fn pause_background(&self, is_paused: bool) {
        let _ = is_paused;
    }
}

/// What callers need to know of a model to build requests for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelInfo {
    /// The name clients ask for.
    pub id: String,
    /// Most tokens of prompt and reply together.
    pub context_length: u32,
    /// Rows of the output head; token ids are below it.
    pub vocab_size: u32,
    /// Tokens that end a reply unless `ignore_eos`.
    pub eos_tokens: Vec<TokenId>,
}

/// A snapshot of a backend's work. Counters only grow.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Load {
    /// Sequences in the batch.
    pub running: u32,
    /// Sequences that wait for room.
    pub waiting: u32,
    /// Sequences that gave up their blocks and wait to come back.
    pub preempted: u32,
    /// KV blocks of the arena: used, cached and free ones.
    pub kv_blocks_total: u32,
    /// KV blocks that hold tokens of live sequences.
    pub kv_blocks_used: u32,
    /// KV blocks that hold no live sequence's tokens and can be hit or reused.
    pub kv_blocks_cached: u32,
    /// Blocks in the second tier.
    pub kv_blocks_spilled: u32,
    /// Tokens in a KV block.
    pub kv_block_tokens: u32,
    /// Counter: steps run.
    pub steps: u64,
    /// Counter: seconds spent in steps.
    pub step_seconds: f64,
    /// Part of its time that the last step was expected to use; above 1 where decodes alone take longer.
    pub budget_used: f64,
    /// Counter: prompt tokens found in the prefix cache.
    pub cached_tokens: u64,
    /// Counter: prompt tokens computed.
    pub prompt_tokens: u64,
    /// Counter: tokens generated.
    pub output_tokens: u64,
    /// Counter: sequences that ended as asked.
    pub finished: u64,
    /// Counter: sequences whose reader left.
    pub cancelled: u64,
    /// Counter: sequences that failed.
    pub failed: u64,
    /// Counter: times a sequence gave up its blocks.
    pub preemptions: u64,
    /// Seconds since the last step began while there is work; 0 when idle.
    pub stalled_seconds: f64,
    /// By lane, as configured.
    pub lanes: Vec<LaneLoad>,
}

/// One lane's part of a [`Load`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LaneLoad {
    /// Its name.
    pub name: String,
    /// Sequences in the batch.
    pub running: u32,
    /// Sequences that wait for room.
    pub waiting: u32,
    /// Sequences that gave up their blocks and wait to come back.
    pub preempted: u32,
    /// Counter: prompt tokens computed.
    pub prompt_tokens: u64,
    /// Counter: tokens generated.
    pub output_tokens: u64,
    /// Counter: sequences that left the line for the batch for the first time.
    pub started: u64,
    /// Most sequences that may wait; 0: not known.
    pub waiting_limit: u32,
    /// When first tokens should come at the latest, for requests that are not patient.
    pub ttft_promise: Option<Duration>,
    /// What is before a newcomer, in time.
    pub wait: Duration,
    /// Time that the lane takes for one more request, with work enough for all its places.
    pub pace: Duration,
}

/// Why a request was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// Nothing to continue.
    #[error("the prompt is empty; send at least one token")]
    EmptyPrompt,
    /// `max_tokens` is 0.
    #[error("max_tokens must be at least 1")]
    NoOutput,
    /// A sampling parameter outside its range.
    #[error("{field} is {value}; it must be {allowed}")]
    BadSampling {
        /// The parameter.
        field: &'static str,
        /// Its value, as text.
        value: String,
        /// The range, in words.
        allowed: &'static str,
    },
    /// A token id outside the vocabulary.
    #[error("token id {token} is outside the vocabulary of {vocab_size}")]
    UnknownToken {
        /// The offending id.
        token: TokenId,
        /// Ids are below this.
        vocab_size: u32,
    },
    /// Prompt and reply together exceed what a sequence may hold.
    #[error(
        "prompt ({prompt} tokens) and max_tokens ({max_tokens}) together exceed the {limit} tokens a sequence may hold"
    )]
    TooLong {
        /// Prompt tokens.
        prompt: u32,
        /// Requested output.
        max_tokens: u32,
        /// The limit.
        limit: u32,
    },
    /// The waiting line is full.
    #[error("{waiting} requests are waiting already; try again in {retry_after_seconds} s")]
    QueueFull {
        /// Length of the line.
        waiting: u32,
        /// A guess at when a place is free.
        retry_after_seconds: u32,
    },
    /// The first token would come later than the lane promises.
    #[error(
        "the first token is expected in {estimate_seconds} s, later than promised; try again in {retry_after_seconds} s"
    )]
    TooSlow {
        /// When it would come.
        estimate_seconds: u32,
        /// When the promise is likely to hold again.
        retry_after_seconds: u32,
    },
    /// More samples than can run together, or none.
    #[error("{samples} samples were asked for; at least 1 and at most {limit} can run at once")]
    Samples {
        /// How many.
        samples: usize,
        /// How many can be.
        limit: usize,
    },
    /// No such lane.
    #[error("lane {lane} does not exist; there are {lanes}")]
    UnknownLane {
        /// The lane asked for.
        lane: usize,
        /// How many there are.
        lanes: usize,
    },
    /// The backend is shutting down: what it has taken ends as asked, and it takes no more.
    #[error("the engine is shutting down and takes no more requests")]
    Draining,
    /// The backend stopped and takes no work.
    #[error("the engine stopped: {0}")]
    Down(String),
}
