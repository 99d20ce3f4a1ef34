use std::time::Duration;

use crate::TokenId;

/// What a backend is asked to do: continue `prompt`.
///
/// Whoever builds one has checked every token id against the vocabulary; a backend checks again at
/// [`Backend::submit`](crate::Backend::submit), before anything reaches a batch.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// The whole prompt, at least one token.
    pub prompt: Vec<TokenId>,
    /// Most tokens to generate, at least 1.
    pub max_tokens: u32,
    /// How each token is drawn, one per parallel sample; at least one. The prompt is computed once for all.
    pub samples: Vec<SamplingParams>,
    /// Which tokens end the reply.
    pub stop: StopTokens,
    /// `Some(k)`: report each token's log-probability and those of the `k` likeliest.
    pub logprobs: Option<u8>,
    /// On whose behalf.
    pub origin: Origin,
    /// When, from now, the reply is of no use any more.
    pub deadline: Option<Duration>,
}

/// On whose behalf a request runs: what it may share, and whose turn it takes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origin {
    /// Cached prefixes are shared inside a tenant and never beyond; set by whoever authenticated it.
    pub tenant: String,
    /// Who takes turns inside a lane.
    pub user: u64,
    /// Index into the backend's lanes; 0 where there is one.
    pub lane: usize,
    /// Divides the tenant's cache further, as the client asked (`prompt_cache_key`).
    pub cache_namespace: Option<String>,
    /// Whether it waits longer than its lane promises, so that only a full line refuses it.
    pub is_patient: bool,
}

/// How a token is drawn from logits. Transforms apply in the order of the fields, then the token is
/// drawn with the random number of (seed, token index).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SamplingParams {
    /// 0 takes the likeliest token (ties: the lowest id) and ignores everything below.
    pub temperature: f32,
    /// Keep the `k` likeliest tokens; 0 keeps all.
    pub top_k: u32,
    /// Keep the smallest set of likeliest tokens with at least this probability together; 1 keeps all.
    pub top_p: f32,
    /// Keep tokens with at least this share of the likeliest one's probability; 0 keeps all.
    pub min_p: f32,
    /// Key of the counter-based random numbers.
    pub seed: u64,
}

impl SamplingParams {
    /// Largest temperature: beyond it a distribution is flat for every purpose.
    pub const MAX_TEMPERATURE: f32 = 100.0;

    /// The first parameter that is outside its range: its name, its value and the range in words.
    pub fn invalid(&self) -> Option<(&'static str, f32, &'static str)> {
        let is_in = |value: f32, range: std::ops::RangeInclusive<f32>| range.contains(&value);
        if !is_in(self.temperature, 0.0..=Self::MAX_TEMPERATURE) {
            return Some(("temperature", self.temperature, "from 0 to 100"));
        }
        if !is_in(self.top_p, f32::MIN_POSITIVE..=1.0) {
            return Some(("top_p", self.top_p, "above 0 and at most 1"));
        }
        (!is_in(self.min_p, 0.0..=1.0)).then_some(("min_p", self.min_p, "from 0 to 1"))
    }

    /// The likeliest token every time.
    pub const GREEDY: Self = Self { temperature: 0.0, top_k: 0, top_p: 1.0, min_p: 0.0, seed: 0 };
}

impl Default for SamplingParams {
    /// Samples from the model's own distribution, as the OpenAI API does when nothing is asked.
    fn default() -> Self {
        Self { temperature: 1.0, ..Self::GREEDY }
    }
}

/// Which tokens end a reply. The ending token counts as output but is no part of the text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StopTokens {
    /// Caller-supplied ids, besides the model's own end-of-turn tokens.
    pub ids: Vec<TokenId>,
    /// Go on past the model's own end-of-turn tokens.
    pub ignore_eos: bool,
    /// Draw no ending token before this many tokens are out.
    pub min_tokens: u32,
}
