use serde_json::Value;

use crate::error::RequestError;
use crate::fields::{Bounds, Fields, integer};
use crate::unsupported::{self, IGNORED, UNSUPPORTED};

/// Most choices (`n`) of one prompt. Each is a sequence of its own, and a batch holds few.
pub const MAX_CHOICES: u32 = 8;
/// Most stop strings, as in the OpenAI API.
pub const MAX_STOP_STRINGS: usize = 4;
/// Longest stop string in bytes: text that could still become one is held back from the client.
pub const MAX_STOP_BYTES: usize = 1024;
/// Most `stop_token_ids`.
pub const MAX_STOP_TOKENS: usize = 128;
/// Longest `prompt_cache_key` in bytes. The OpenAI API takes 64 characters, and clients that join ids
/// exceed that.
pub const MAX_CACHE_KEY_BYTES: usize = 256;

/// Up to here (2⁵³) a double names one whole number only.
const EXACT_FLOATS: f64 = 9_007_199_254_740_992.0;

/// The parameters that chat and completion requests share. Token ids are not yet checked against a
/// vocabulary, nor lengths against a context: only the model's host knows those.
#[derive(Debug, Clone, PartialEq)]
pub struct Generation {
    /// The model asked for.
    pub model: String,
    /// Most tokens to generate, at least 1; absent: what is left of the context. When a request has
    /// both `max_tokens` and `max_completion_tokens`, the smaller holds, so neither is exceeded.
    pub max_tokens: Option<u32>,
    /// Which of the two names errors about `max_tokens` use: the one that holds.
    pub max_tokens_name: &'static str,
    /// End no earlier than after this many tokens.
    pub min_tokens: u32,
    /// How tokens are drawn.
    pub sampling: Sampling,
    /// Texts that end a choice; they are not part of it.
    pub stop: Vec<String>,
    /// Tokens that end a choice besides the model's own.
    pub stop_token_ids: Vec<u32>,
    /// Go on past the model's end-of-turn tokens.
    pub ignore_eos: bool,
    /// Choices per prompt, 1 to [`MAX_CHOICES`].
    pub n: u32,
    /// Choices generated per prompt, `n` to [`MAX_CHOICES`]; the `n` with the highest log-probability per
    /// token are the reply.
    pub best_of: u32,
    /// Whether and how to stream.
    pub streaming: Streaming,
    /// `Some(k)`: report each token's log-probability and those of the `k` likeliest.
    pub logprobs: Option<u8>,
    /// What divides the cache further (`prompt_cache_key`): 1 to [`MAX_CACHE_KEY_BYTES`] bytes.
    pub cache_key: Option<String>,
    /// The tier asked for; absent: the reply does not say which one it had.
    pub service_tier: Option<ServiceTier>,
    /// Names of parameters that this API does not know, in the order sent. They are ignored.
    pub unknown: Vec<String>,
}

/// How tokens are drawn; the defaults are the OpenAI API's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// 0 to 2; 0 is greedy.
    pub temperature: f32,
    /// Keep the `k` likeliest; 0 keeps all (−1 on the wire means the same).
    pub top_k: u32,
    /// Above 0, at most 1.
    pub top_p: f32,
    /// 0 to 1.
    pub min_p: f32,
    /// Negative seeds are taken as their two's complement. Absent: a fresh one per request.
    pub seed: Option<u64>,
}

/// How soon a reply is wanted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ServiceTier {
    /// As usual: `auto`, `default`, and the tiers of other servers.
    #[default]
    Default,
    /// When there is nothing else to do: `flex`.
    Flex,
}

/// Whether a reply is streamed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Streaming {
    /// One JSON body.
    Off,
    /// Events.
    On,
    /// Events, then one with the usage.
    WithUsage,
}

impl Streaming {
    /// Whether events were asked for.
    pub fn is_on(self) -> bool {
        self != Self::Off
    }
}

impl Generation {
    /// Reads what both kinds of request share. `own` names the parameters that this kind adds.
    pub(crate) fn read(fields: &Fields<'_>, own: &[&str]) -> Result<Self, RequestError> {
        let model = fields.required_string("model")?.to_owned();
        unsupported::check(fields)?;
        let (max_tokens, max_tokens_name) = max_tokens(fields)?;
        let n = fields.integer("n", 1..=i64::from(MAX_CHOICES))?.unwrap_or(1) as u32;
        let generation = Self {
            model,
            max_tokens,
            max_tokens_name,
            min_tokens: fields.count("min_tokens", 0)?.unwrap_or(0),
            sampling: Sampling::read(fields)?,
            stop: stop_strings(fields)?,
            stop_token_ids: stop_tokens(fields)?,
            ignore_eos: fields.boolean("ignore_eos")?.unwrap_or(false),
            n,
            best_of: n,
            streaming: streaming(fields)?,
            logprobs: None,
            cache_key: cache_key(fields)?,
            service_tier: service_tier(fields)?,
            unknown: unknown(fields, own),
        };
        generation.check_together()?;
        Ok(generation)
    }

    fn check_together(&self) -> Result<(), RequestError> {
        match self.max_tokens {
            Some(max) if self.min_tokens > max => {
                let rule = format!("({}) must not exceed {} ({max})", self.min_tokens, self.max_tokens_name);
                Err(RequestError::bad_value("min_tokens", rule))
            }
            _ => Ok(()),
        }
    }
}

impl Sampling {
    fn read(fields: &Fields<'_>) -> Result<Self, RequestError> {
        let top_k = fields.integer("top_k", -1..=i64::MAX)?.unwrap_or(0).max(0);
        let top_p = fields.number("top_p", Bounds::Above(0.0, 1.0))?.unwrap_or(1.0);
        Ok(Self {
            temperature: fields.number("temperature", Bounds::Closed(0.0, 2.0))?.unwrap_or(1.0),
            top_k: u32::try_from(top_k).unwrap_or(u32::MAX),
            // A positive double may be 0 as a float, and 0 would keep nothing.
            top_p: top_p.max(f32::MIN_POSITIVE),
            min_p: fields.number("min_p", Bounds::Closed(0.0, 1.0))?.unwrap_or(0.0),
            seed: seed(fields)?,
        })
    }
}

/// Parameters that [`Generation::read`] reads.
const SHARED: &[&str] = &[
    "model",
    "max_tokens",
    "max_completion_tokens",
    "min_tokens",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "seed",
    "stop",
    "stop_token_ids",
    "ignore_eos",
    "n",
    "stream",
    "stream_options",
    "logprobs",
    "prompt_cache_key",
    "service_tier",
];

fn unknown(fields: &Fields<'_>, own: &[&str]) -> Vec<String> {
    let is_known = |name: &&str| {
        SHARED.contains(name)
            || own.contains(name)
            || IGNORED.contains(name)
            || UNSUPPORTED.iter().any(|(known, _)| known == name)
    };
    fields.names().filter(|name| !is_known(name)).map(str::to_owned).collect()
}

/// The smaller of the two limits, and its name.
fn max_tokens(fields: &Fields<'_>) -> Result<(Option<u32>, &'static str), RequestError> {
    let (old, new) = ("max_tokens", "max_completion_tokens");
    Ok(match (fields.count(old, 1)?, fields.count(new, 1)?) {
        (Some(a), Some(b)) if b < a => (Some(b), new),
        (None, Some(b)) => (Some(b), new),
        (a, _) => (a, old),
    })
}

fn seed(fields: &Fields<'_>) -> Result<Option<u64>, RequestError> {
    let Some(value) = fields.get("seed") else { return Ok(None) };
    if let Some(seed) = value.as_u64() {
        return Ok(Some(seed));
    }
    if let Some(seed) = value.as_i64() {
        return Ok(Some(seed as u64));
    }
    match value.as_f64() {
        Some(float) if float.fract() == 0.0 && float.abs() <= EXACT_FLOATS => Ok(Some(float as i64 as u64)),
        Some(_) => {
            let rule = format!("must be a whole number of at most 64 bits, not {value}");
            Err(RequestError::bad_value("seed", rule))
        }
        None => Err(RequestError::wrong_type("seed", "an integer", value)),
    }
}

fn streaming(fields: &Fields<'_>) -> Result<Streaming, RequestError> {
    let is_on = fields.boolean("stream")?.unwrap_or(false);
    let options = fields.object("stream_options")?;
    let usage = options.map(|options| options.boolean("include_usage")).transpose()?.flatten();
    Ok(match (is_on, usage) {
        (false, _) => Streaming::Off,
        (true, Some(true)) => Streaming::WithUsage,
        (true, _) => Streaming::On,
    })
}

/// An empty key is no key: clients send one when they have none.
fn cache_key(fields: &Fields<'_>) -> Result<Option<String>, RequestError> {
    let key = fields.string("prompt_cache_key")?.filter(|key| !key.is_empty());
    match key {
        Some(key) if key.len() > MAX_CACHE_KEY_BYTES => {
            let rule = format!("must be at most {MAX_CACHE_KEY_BYTES} bytes long, not {}", key.len());
            Err(RequestError::bad_value("prompt_cache_key", rule))
        }
        key => Ok(key.map(str::to_owned)),
    }
}

fn service_tier(fields: &Fields<'_>) -> Result<Option<ServiceTier>, RequestError> {
    let tier = fields.string("service_tier")?;
    Ok(tier.map(|tier| if tier == "flex" { ServiceTier::Flex } else { ServiceTier::Default }))
}

fn stop_strings(fields: &Fields<'_>) -> Result<Vec<String>, RequestError> {
    let stops = match fields.get("stop") {
        None => return Ok(Vec::new()),
        Some(Value::String(text)) => return Ok(vec![stop_string(text, "stop")?]),
        Some(Value::Array(list)) => list,
        Some(other) => {
            return Err(RequestError::wrong_type("stop", "a string or an array of strings", other));
        }
    };
    if stops.len() > MAX_STOP_STRINGS {
        let rule = format!("takes at most {MAX_STOP_STRINGS} strings, not {}", stops.len());
        return Err(RequestError::bad_value("stop", rule));
    }
    let read = |(i, value): (usize, &Value)| {
        let path = format!("stop[{i}]");
        let text = value.as_str().ok_or_else(|| RequestError::wrong_type(&path, "a string", value))?;
        stop_string(text, &path)
    };
    stops.iter().enumerate().map(read).collect()
}

fn stop_string(text: &str, path: &str) -> Result<String, RequestError> {
    if text.is_empty() {
        return Err(RequestError::bad_value(path, "must not be empty"));
    }
    if text.len() > MAX_STOP_BYTES {
        let rule = format!("must be at most {MAX_STOP_BYTES} bytes long, not {}", text.len());
        return Err(RequestError::bad_value(path, rule));
    }
    Ok(text.to_owned())
}

fn stop_tokens(fields: &Fields<'_>) -> Result<Vec<u32>, RequestError> {
    let Some(list) = fields.array("stop_token_ids")? else { return Ok(Vec::new()) };
    if list.len() > MAX_STOP_TOKENS {
        let rule = format!("takes at most {MAX_STOP_TOKENS} ids, not {}", list.len());
        return Err(RequestError::bad_value("stop_token_ids", rule));
    }
    token_ids(list, "stop_token_ids")
}

/// An array of token ids; whether a vocabulary has them is checked later.
pub(crate) fn token_ids(list: &[Value], path: &str) -> Result<Vec<u32>, RequestError> {
    let read =
        |(i, value)| integer(value, &format!("{path}[{i}]"), 0..=i64::from(u32::MAX)).map(|id| id as u32);
    list.iter().enumerate().map(read).collect()
}
