use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::{FinishReason, ServiceTier, Usage};

/// The reply to a completion request, whole or one event of a stream: both have one shape.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Completion<'a> {
    /// Begins with `cmpl-`.
    pub id: &'a str,
    /// Always `text_completion`.
    pub object: &'static str,
    /// Unix seconds.
    pub created: u64,
    /// The model that ran.
    pub model: &'a str,
    /// Changes with the model and the server's version.
    pub system_fingerprint: &'a str,
    /// The tier it had, where the request named one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_tier: Option<ServiceTier>,
    /// In order of `index`; in a stream at most one.
    pub choices: Vec<CompletionChoice>,
    /// In a stream written only when asked for, and null but for the last event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Option<Usage>>,
}

/// One of the continuations, or what an event adds to it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CompletionChoice {
    /// The text, or the addition.
    pub text: String,
    /// From 0.
    pub index: u32,
    /// Present when asked for.
    pub logprobs: Option<CompletionLogprobs>,
    /// In a stream null until the last event of the choice.
    pub finish_reason: Option<FinishReason>,
}

/// Log-probabilities of a completion's tokens, from the model's own distribution. The four lists
/// have one entry per token of the text.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct CompletionLogprobs {
    /// Where each token begins in the choice's text, in characters.
    pub text_offset: Vec<u32>,
    /// Natural logarithms, always finite.
    pub token_logprobs: Vec<f32>,
    /// The token's text; part of a character is written `bytes:\xf0\x9f`.
    pub tokens: Vec<String>,
    /// The likeliest tokens at each place and the drawn one.
    pub top_logprobs: Vec<TopLogprobs>,
}

/// Texts and log-probabilities, written as an object. Of equal texts the first is kept.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TopLogprobs(Vec<(String, f32)>);

impl TopLogprobs {
    /// Adds a token unless its text is there already.
    pub fn insert(&mut self, token: String, logprob: f32) {
        if self.0.iter().all(|(known, _)| *known != token) {
            self.0.push((token, logprob));
        }
    }
}

impl Serialize for TopLogprobs {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (token, logprob) in &self.0 {
            map.serialize_entry(token, logprob)?;
        }
        map.end()
    }
}
