use serde::Serialize;

use crate::{FinishReason, ServiceTier, Usage};

/// The reply to a chat request that is not streamed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChatCompletion {
    /// Begins with `chatcmpl-`.
    pub id: String,
    /// Always `chat.completion`.
    pub object: &'static str,
    /// Unix seconds.
    pub created: u64,
    /// The model that ran.
    pub model: String,
    /// Changes with the model and the server's version.
    pub system_fingerprint: String,
    /// The tier it had, where the request named one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_tier: Option<ServiceTier>,
    /// In order of `index`.
    pub choices: Vec<ChatChoice>,
    /// What it cost.
    pub usage: Usage,
}

/// One of the replies.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChatChoice {
    /// From 0.
    pub index: u32,
    /// The reply.
    pub message: ReplyMessage,
    /// Present when asked for.
    pub logprobs: Option<ChatLogprobs>,
    /// Why it ended.
    pub finish_reason: FinishReason,
}

/// What the assistant says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReplyMessage {
    /// Always `assistant`.
    pub role: &'static str,
    /// The text.
    pub content: String,
    /// Always null: models here don't refuse through a channel of its own.
    pub refusal: Option<String>,
}

impl ReplyMessage {
    /// A message that says `content`.
    pub fn new(content: String) -> Self {
        Self { role: "assistant", content, refusal: None }
    }
}

/// One event of a chat stream.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChatChunk<'a> {
    /// The same in all chunks, as are the next four.
    pub id: &'a str,
    /// Always `chat.completion.chunk`.
    pub object: &'static str,
    /// Unix seconds.
    pub created: u64,
    /// The model that runs.
    pub model: &'a str,
    /// Changes with the model and the server's version.
    pub system_fingerprint: &'a str,
    /// The tier it had, where the request named one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_tier: Option<ServiceTier>,
    /// At most one; none in the usage chunk.
    pub choices: Vec<ChatChunkChoice>,
    /// Written only when usage was asked for; null but for the last chunk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Option<Usage>>,
}

/// What a chunk adds to a choice.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChatChunkChoice {
    /// From 0.
    pub index: u32,
    /// The addition.
    pub delta: Delta,
    /// Of the tokens in `delta`, when asked for.
    pub logprobs: Option<ChatLogprobs>,
    /// Null until the last chunk of the choice.
    pub finish_reason: Option<FinishReason>,
}

/// What a chunk adds to a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Delta {
    /// The first chunk of a choice.
    Opening(ReplyMessage),
    /// More text.
    Text {
        /// To be appended.
        content: String,
    },
    /// The last chunk of a choice.
    Closing {},
}

/// Log-probabilities of a chat reply's tokens, from the model's own distribution.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChatLogprobs {
    /// One entry per token of the text.
    pub content: Vec<ChatTokenLogprob>,
    /// Always null.
    pub refusal: Option<Vec<ChatTokenLogprob>>,
}

/// A token that was drawn, and its rivals.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChatTokenLogprob {
    /// Its text; where it is part of a character, with U+FFFD.
    pub token: String,
    /// Natural logarithm of its probability, always finite.
    pub logprob: f32,
    /// Its exact bytes.
    pub bytes: Vec<u8>,
    /// The likeliest tokens at this place, likeliest first; empty when none were asked for.
    pub top_logprobs: Vec<ChatTopLogprob>,
}

/// A token that could have been drawn.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChatTopLogprob {
    /// Its text; where it is part of a character, with U+FFFD.
    pub token: String,
    /// Natural logarithm of its probability, always finite.
    pub logprob: f32,
    /// Its exact bytes.
    pub bytes: Vec<u8>,
}
