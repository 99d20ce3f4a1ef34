//! Wire types of the OpenAI-compatible API: what requests say, what replies look like.
//!
//! Requests are read by hand from [`serde_json::Value`], because a client needs to be told *which*
//! parameter is wrong (`messages[2].content`), and serde's own errors carry no path. The rules:
//!
//! - `null` means absent, everywhere.
//! - Integers may be written as floats without a fraction (`16.0`); nothing else is converted.
//! - A parameter that would change the result and isn't supported is an error naming it
//!   ([`UNSUPPORTED`]); a known one that changes nothing is ignored ([`IGNORED`]); an unknown one is
//!   ignored too, and reported in [`Generation::unknown`] so that a typo can be shown.
//! - Of duplicate keys the last counts.
//!
//! Nothing here does I/O or knows HTTP: status codes are the gateway's business.

mod chat;
mod chat_reply;
mod completion;
mod completion_reply;
mod embedding;
mod error;
mod fields;
mod generation;
mod json;
mod message;
mod model;
mod moderation;
pub mod openapi;
mod unsupported;
mod usage;

pub use chat::ChatRequest;
pub use chat_reply::{
    ChatChoice, ChatChunk, ChatChunkChoice, ChatCompletion, ChatLogprobs, ChatTokenLogprob, ChatTopLogprob,
    Delta, ReplyMessage,
};
pub use completion::{CompletionRequest, MAX_SEQUENCES, Prompt};
pub use completion_reply::{Completion, CompletionChoice, CompletionLogprobs, TopLogprobs};
pub use embedding::{
    Embedding, EmbeddingList, EmbeddingRequest, EmbeddingUsage, EncodingFormat, MAX_EMBEDDING_INPUTS,
    MAX_EMBEDDING_TOKENS, Vector,
};
pub use error::{ErrorBody, ErrorObject, Problem, RequestError};
pub use generation::{
    Generation, MAX_CACHE_KEY_BYTES, MAX_CHOICES, MAX_STOP_BYTES, MAX_STOP_STRINGS, MAX_STOP_TOKENS,
    Sampling, ServiceTier, Streaming,
};
pub use json::{MAX_DEPTH, MAX_VALUES, parse_body};
pub use message::MAX_MESSAGES;
pub use model::{ModelDetails, ModelList, ModelObject};
pub use moderation::{
    MAX_MODERATION_BYTES, MAX_MODERATION_INPUTS, MODERATION_CATEGORIES, Moderation, ModerationRequest,
    ModerationResult,
};
pub use unsupported::{IGNORED, Neutral, UNSUPPORTED};
pub use usage::{CompletionTokensDetails, PromptTokensDetails, Usage};

/// The `data` of the last event of a stream that ended well.
pub const DONE: &str = "[DONE]";

/// Why a choice ended, as the wire spells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// An end-of-turn token, a stop token or a stop string.
    Stop,
    /// `max_tokens` or the end of the context.
    Length,
}
