use std::future::Future;
use std::pin::Pin;

use crate::TokenId;

/// The vectors of a request, in the order of its inputs, once they are there. Dropping it cancels what isn't computed.
pub type EmbedFuture = Pin<Box<dyn Future<Output = Result<Vec<Vec<f32>>, EmbedError>> + Send>>;

/// Anything that turns token sequences into vectors of length 1.
pub trait Embedder: Send + Sync {
    /// The model behind it.
    fn model(&self) -> &EmbedderInfo;

    /// Queues `inputs`; never waits. They are checked before they can reach a batch.
    fn embed(&self, inputs: Vec<Vec<TokenId>>) -> Result<EmbedFuture, EmbedError>;

    /// Takes no more requests; those that were taken end as asked.
    fn drain(&self) {}

    /// What it is doing now.
    fn load(&self) -> EmbedLoad;
}

/// What callers need to know of an embedding model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmbedderInfo {
    /// Numbers of a vector.
    pub dimensions: u32,
    /// Most tokens of one input.
    pub context_length: u32,
    /// Token ids are below it.
    pub vocab_size: u32,
}

/// A snapshot of an embedder's work. Counters only grow.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct EmbedLoad {
    /// Requests that are not answered yet.
    pub requests: u32,
    /// Their tokens that are in no batch yet.
    pub waiting_tokens: u64,
    /// Counter: batches computed.
    pub batches: u64,
    /// Counter: seconds spent in them.
    pub batch_seconds: f64,
    /// Counter: inputs computed.
    pub inputs: u64,
    /// Counter: tokens computed.
    pub tokens: u64,
}

/// Why there are no vectors.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EmbedError {
    /// An input without tokens.
    #[error("input {0} has no tokens; send at least one")]
    Empty(usize),
    /// An input that the model can't read at once.
    #[error("input {index} has {tokens} tokens; at most {limit} fit")]
    TooLong {
        /// Which one.
        index: usize,
        /// How many it has.
        tokens: usize,
        /// How many may be.
        limit: u32,
    },
    /// A token id outside the vocabulary.
    #[error("token id {token} of input {index} is outside the vocabulary of {vocab_size}")]
    UnknownToken {
        /// Which input.
        index: usize,
        /// The offending id.
        token: TokenId,
        /// Ids are below this.
        vocab_size: u32,
    },
    /// The waiting line is full.
    #[error("{waiting_tokens} tokens wait to be computed already; try again in {retry_after_seconds} s")]
    QueueFull {
        /// Length of the line.
        waiting_tokens: u64,
        /// A guess at when there is room.
        retry_after_seconds: u32,
    },
    /// A vector with a NaN or an infinity, which damaged weights give.
    #[error("the model gave a vector that is not finite; its weights are damaged")]
    NotFinite,
    /// It is shutting down.
    #[error("the embedding model is shutting down and takes no more requests")]
    Draining,
    /// It stopped and takes no work.
    #[error("the embedding model stopped: {0}")]
    Down(String),
}
