//! The vocabulary every layer shares: ids, requests, events and the [`Backend`] trait.
//!
//! Nothing here does I/O or knows a wire format. A request is a list of token ids and the
//! parameters that decide, with the weights, which tokens follow (contract 1); a reply is a stream
//! of [`Event`]s that ends in exactly one [`Event::Finished`] or [`Event::Failed`].

mod backend;
mod embedder;
mod event;
mod request;

pub use backend::{Backend, EventStream, LaneLoad, Load, ModelInfo, SubmitError};
pub use embedder::{EmbedError, EmbedFuture, EmbedLoad, Embedder, EmbedderInfo};
pub use event::{Event, FinishReason, Logprobs, ReplyError, TokenEvent, Usage};
pub use request::{Origin, Request, SamplingParams, StopTokens};

/// Index into a model's vocabulary.
pub type TokenId = u32;

/// A sequence inside one engine; never reused while the process lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SequenceId(pub u64);

impl std::fmt::Display for SequenceId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "seq-{}", self.0)
    }
}
