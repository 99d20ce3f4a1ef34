use std::pin::Pin;

use futures_core::Stream;

use crate::{Event, Request, TokenId};

/// A reply's events. Dropping it cancels the reply: its sequence is gone at the next step.
pub type EventStream = Pin<Box<dyn Stream<Item = Event> + Send>>;

/// Anything that continues token sequences: the in-process engine, a replica, an upstream.
pub trait Backend: Send + Sync {
    /// The model behind it.
    fn model(&self) -> &ModelInfo;

    /// Queues `request`; never waits. The prompt is checked before it can reach a batch.
    fn submit(&self, request: Request) -> Result<EventStream, SubmitError>;

    /// What it is doing now.
    fn load(&self) -> Load;
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
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Load {
    /// Sequences in the batch.
    pub running: u32,
    /// Sequences that wait for room.
    pub waiting: u32,
    /// KV blocks of the arena.
    pub kv_blocks_total: u32,
    /// KV blocks that hold tokens of live sequences.
    pub kv_blocks_used: u32,
    /// Tokens in a KV block.
    pub kv_block_tokens: u32,
    /// Counter: steps run.
    pub steps: u64,
    /// Counter: seconds spent in steps.
    pub step_seconds: f64,
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
    /// Seconds since the last step began while there is work; 0 when idle.
    pub stalled_seconds: f64,
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
    /// The backend stopped and takes no work.
    #[error("the engine stopped: {0}")]
    Down(String),
}
