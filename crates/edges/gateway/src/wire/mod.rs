//! The two shapes a reply can have on the wire.

mod chat;
mod completion;

use std::sync::Arc;

use motet_protocol::{FinishReason, ServiceTier, Usage};
use motet_text::Tokenizer;

pub(crate) use chat::Chat;
pub(crate) use completion::TextCompletion;

use crate::error::ApiError;
use crate::gateway::Served;
use crate::reply::ScoredToken;

/// A log-probability that stands for "impossible", as JSON has no infinity.
const IMPOSSIBLE: f32 = -9999.0;

/// What is the same in every event of a reply.
pub(crate) struct Envelope {
    pub(crate) id: String,
    pub(crate) created: u64,
    pub(crate) served: Arc<Served>,
    /// Whether log-probabilities were asked for.
    pub(crate) has_logprobs: bool,
    /// Whether a stream says what it cost.
    pub(crate) has_usage: bool,
    /// The tier it has, if the request named one.
    pub(crate) service_tier: Option<ServiceTier>,
}

impl Envelope {
    fn tokenizer(&self) -> &Tokenizer {
        &self.served.model.tokenizer
    }

    /// The `usage` of an event that is not the last.
    fn pending_usage(&self) -> Option<Option<Usage>> {
        self.has_usage.then_some(None)
    }
}

/// A choice that has ended.
pub(crate) struct Collected {
    pub(crate) text: String,
    pub(crate) tokens: Vec<ScoredToken>,
    pub(crate) finish: FinishReason,
}

/// Writes replies in the shape of a route: JSON texts, whole or per event.
pub(crate) trait Shape: Send + 'static {
    /// The first event of a choice, where the route has one.
    fn opening(&self, choice: u32) -> Result<Option<String>, ApiError>;

    /// More text of a choice.
    fn text(&self, choice: u32, text: String, tokens: &[ScoredToken]) -> Result<String, ApiError>;

    /// The last event of a choice.
    fn closing(&self, choice: u32, finish: FinishReason) -> Result<String, ApiError>;

    /// The event after all choices, when usage was asked for.
    fn usage(&self, usage: Usage) -> Result<String, ApiError>;

    /// The reply as one body.
    fn whole(&self, choices: Vec<Collected>, usage: Usage) -> Result<String, ApiError>;

    /// What it shares with the other shape.
    fn envelope(&self) -> &Envelope;
}

fn finite(logprob: f32) -> f32 {
    if logprob.is_finite() { logprob } else { IMPOSSIBLE }
}
