use std::time::Duration;

use crate::TokenId;

/// One thing that happened to a reply, in order.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The next token.
    Token(TokenEvent),
    /// The reply ended as asked; nothing follows.
    Finished {
        /// Why it ended.
        reason: FinishReason,
        /// What it cost.
        usage: Usage,
    },
    /// The reply can't be continued; nothing follows.
    Failed(ReplyError),
}

/// A generated token.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenEvent {
    /// 0 for the first generated token; no gaps.
    pub index: u32,
    /// The token.
    pub token: TokenId,
    /// Present when the request asked for log-probabilities.
    pub logprobs: Option<Box<Logprobs>>,
}

/// Natural logarithms of the model's own distribution, before temperature and truncation.
#[derive(Debug, Clone, PartialEq)]
pub struct Logprobs {
    /// The drawn token's.
    pub chosen: f32,
    /// The likeliest tokens, likeliest first.
    pub top: Vec<(TokenId, f32)>,
}

/// Why a reply ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FinishReason {
    /// This stop token was drawn. It counts as output but is not sent as a [`TokenEvent`]: it is no
    /// part of the text.
    StopToken(TokenId),
    /// `max_tokens`, or the end of the context.
    Length,
}

/// What a reply cost: tokens, and how long it waited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt: u32,
    /// Those of them found in the prefix cache.
    pub cached: u32,
    /// Generated tokens, a stop token included.
    pub output: u32,
    /// From being submitted to the first step.
    pub queued: Duration,
}

/// Why a reply can't go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    /// The model produced NaN or infinity for this sequence.
    #[error("the model produced a value that is not a number at output token {index}; the reply can't go on")]
    NonFiniteLogits {
        /// Index of the token that could not be drawn.
        index: u32,
    },
    /// The request's deadline passed.
    #[error("the reply was not finished by its deadline")]
    DeadlinePassed,
    /// The backend stopped working.
    #[error("the engine stopped: {0}")]
    BackendDown(String),
}
