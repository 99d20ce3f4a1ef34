use std::fmt::Write;

use motet_protocol::{Completion, CompletionChoice, CompletionLogprobs, FinishReason, TopLogprobs, Usage};
use motet_types::TokenId;

use super::{Collected, Envelope, Shape, finite};
use crate::error::ApiError;
use crate::reply::ScoredToken;

/// The shape of `/v1/completions`.
pub(crate) struct TextCompletion(pub(crate) Envelope);

impl TextCompletion {
    fn body(&self, choices: Vec<CompletionChoice>, usage: Option<Option<Usage>>) -> Result<String, ApiError> {
        let Envelope { id, created, served, service_tier, .. } = &self.0;
        Ok(serde_json::to_string(&Completion {
            id,
            object: "text_completion",
            created: *created,
            model: &served.model.id,
            system_fingerprint: &served.fingerprint,
            service_tier: *service_tier,
            choices,
            usage,
        })?)
    }

    fn logprobs(&self, tokens: &[ScoredToken]) -> Option<CompletionLogprobs> {
        if !self.0.has_logprobs {
            return None;
        }
        let mut logprobs = CompletionLogprobs::default();
        for scored in tokens {
            let chosen = finite(scored.logprobs.chosen);
            let mut top = TopLogprobs::default();
            for &(id, logprob) in &scored.logprobs.top {
                top.insert(self.spelled(id), finite(logprob));
            }
            top.insert(self.spelled(scored.token), chosen);
            logprobs.text_offset.push(scored.offset);
            logprobs.token_logprobs.push(chosen);
            logprobs.tokens.push(self.spelled(scored.token));
            logprobs.top_logprobs.push(top);
        }
        Some(logprobs)
    }

    /// A token's text, or its bytes where they are part of a character.
    fn spelled(&self, id: TokenId) -> String {
        let bytes = self.0.tokenizer().token_bytes(id);
        std::str::from_utf8(bytes).map_or_else(|_| escaped(bytes), str::to_owned)
    }
}

fn escaped(bytes: &[u8]) -> String {
    bytes.iter().fold(String::from("bytes:"), |mut text, byte| {
        // Writing to a string can't fail.
        let _ = write!(text, "\\x{byte:02x}");
        text
    })
}

impl Shape for TextCompletion {
    fn opening(&self, _choice: u32) -> Result<Option<String>, ApiError> {
        Ok(None)
    }

    fn text(&self, index: u32, text: String, tokens: &[ScoredToken]) -> Result<String, ApiError> {
        let choice = CompletionChoice { text, index, logprobs: self.logprobs(tokens), finish_reason: None };
        self.body(vec![choice], self.0.pending_usage())
    }

    fn closing(&self, index: u32, finish: FinishReason) -> Result<String, ApiError> {
        let choice =
            CompletionChoice { text: String::new(), index, logprobs: None, finish_reason: Some(finish) };
        self.body(vec![choice], self.0.pending_usage())
    }

    fn usage(&self, usage: Usage) -> Result<String, ApiError> {
        self.body(Vec::new(), Some(Some(usage)))
    }

    fn whole(&self, choices: Vec<Collected>, usage: Usage) -> Result<String, ApiError> {
        let choice = |(index, choice): (usize, Collected)| CompletionChoice {
            logprobs: self.logprobs(&choice.tokens),
            text: choice.text,
            index: index as u32,
            finish_reason: Some(choice.finish),
        };
        self.body(choices.into_iter().enumerate().map(choice).collect(), Some(Some(usage)))
    }

    fn envelope(&self) -> &Envelope {
        &self.0
    }
}
