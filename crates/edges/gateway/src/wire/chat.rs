use motet_protocol::{
    ChatChoice, ChatChunk, ChatChunkChoice, ChatCompletion, ChatLogprobs, ChatTokenLogprob, ChatTopLogprob,
    Delta, FinishReason, ReplyMessage, Usage,
};
use motet_types::TokenId;

use super::{Collected, Envelope, Shape, finite};
use crate::error::ApiError;
use crate::reply::ScoredToken;

/// The shape of `/v1/chat/completions`.
pub(crate) struct Chat(pub(crate) Envelope);

impl Chat {
    fn chunk(&self, choices: Vec<ChatChunkChoice>, usage: Option<Option<Usage>>) -> Result<String, ApiError> {
        let Envelope { id, created, served, service_tier, .. } = &self.0;
        Ok(serde_json::to_string(&ChatChunk {
            id,
            object: "chat.completion.chunk",
            created: *created,
            model: &served.model.id,
            system_fingerprint: &served.fingerprint,
            service_tier: *service_tier,
            choices,
            usage,
        })?)
    }

    fn choice_chunk(&self, choice: ChatChunkChoice) -> Result<String, ApiError> {
        self.chunk(vec![choice], self.0.pending_usage())
    }

    fn logprobs(&self, tokens: &[ScoredToken]) -> Option<ChatLogprobs> {
        let content = || tokens.iter().map(|token| self.scored(token)).collect();
        self.0.has_logprobs.then(|| ChatLogprobs { content: content(), refusal: None })
    }

    fn scored(&self, scored: &ScoredToken) -> ChatTokenLogprob {
        let rival = |&(id, logprob): &(TokenId, f32)| {
            let (token, bytes) = self.spelled(id);
            ChatTopLogprob { token, logprob: finite(logprob), bytes }
        };
        let (token, bytes) = self.spelled(scored.token);
        let logprob = finite(scored.logprobs.chosen);
        ChatTokenLogprob {
            token,
            logprob,
            bytes,
            top_logprobs: scored.logprobs.top.iter().map(rival).collect(),
        }
    }

    fn spelled(&self, id: TokenId) -> (String, Vec<u8>) {
        let bytes = self.0.tokenizer().token_bytes(id);
        (String::from_utf8_lossy(bytes).into_owned(), bytes.to_vec())
    }
}

impl Shape for Chat {
    fn opening(&self, index: u32) -> Result<Option<String>, ApiError> {
        let delta = Delta::Opening(ReplyMessage::new(String::new()));
        self.choice_chunk(ChatChunkChoice { index, delta, logprobs: None, finish_reason: None }).map(Some)
    }

    fn text(&self, index: u32, content: String, tokens: &[ScoredToken]) -> Result<String, ApiError> {
        let delta = Delta::Text { content };
        self.choice_chunk(ChatChunkChoice {
            index,
            delta,
            logprobs: self.logprobs(tokens),
            finish_reason: None,
        })
    }

    fn closing(&self, index: u32, finish: FinishReason) -> Result<String, ApiError> {
        let delta = Delta::Closing {};
        self.choice_chunk(ChatChunkChoice { index, delta, logprobs: None, finish_reason: Some(finish) })
    }

    fn usage(&self, usage: Usage) -> Result<String, ApiError> {
        self.chunk(Vec::new(), Some(Some(usage)))
    }

    fn whole(&self, choices: Vec<Collected>, usage: Usage) -> Result<String, ApiError> {
        let choice = |(index, choice): (usize, Collected)| ChatChoice {
            index: index as u32,
            logprobs: self.logprobs(&choice.tokens),
            message: ReplyMessage::new(choice.text),
            finish_reason: choice.finish,
        };
        let Envelope { id, created, served, service_tier, .. } = &self.0;
        Ok(serde_json::to_string(&ChatCompletion {
            id: id.clone(),
            object: "chat.completion",
            created: *created,
            model: served.model.id.clone(),
            system_fingerprint: served.fingerprint.clone(),
            service_tier: *service_tier,
            choices: choices.into_iter().enumerate().map(choice).collect(),
            usage,
        })?)
    }

    fn envelope(&self) -> &Envelope {
        &self.0
    }
}
