use serde_json::{Map, Value};

use crate::error::RequestError;
use crate::fields::Fields;
use crate::generation::{Generation, MAX_CHOICES, token_ids};

/// Most sequences (prompts × `n`) of one request: more would fill a waiting line alone.
pub const MAX_SEQUENCES: usize = 128;

/// Parameters only completions have.
const OWN: &[&str] = &["prompt", "best_of"];

/// The body of `POST /v1/completions`.
#[derive(Debug, Clone, PartialEq)]
pub struct CompletionRequest {
    /// What it shares with chat.
    pub generation: Generation,
    /// What to continue, at least one. Choice `p · n + i` is the `i`-th of prompt `p`.
    pub prompts: Vec<Prompt>,
}

/// One text to continue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prompt {
    /// Text, to be tokenized with special tokens recognised.
    Text(String),
    /// Token ids, taken as they are; at least one.
    Tokens {
        /// How errors name this array: `prompt` or `prompt[3]`.
        path: String,
        /// Not yet checked against a vocabulary.
        ids: Vec<u32>,
    },
}

impl CompletionRequest {
    /// Reads a body.
    ///
    /// # Errors
    /// Names the first parameter that is missing, wrong or unsupported.
    pub fn from_body(body: &Map<String, Value>) -> Result<Self, RequestError> {
        let fields = Fields::root(body);
        let mut generation = Generation::read(&fields, OWN)?;
        generation.logprobs = fields.integer("logprobs", 0..=5)?.map(|top| top as u8);
        if let Some(best_of) = fields.integer("best_of", 1..=i64::from(MAX_CHOICES))? {
            generation.best_of = best_of_at_least(&generation, best_of as u32)?;
        }
        let prompts = texts_or_tokens(&fields, "prompt")?;
        if prompts.len() * generation.best_of as usize > MAX_SEQUENCES {
            let rule = format!(
                "asks for {} × {} sequences; at most {MAX_SEQUENCES} are allowed in one request",
                prompts.len(),
                generation.best_of
            );
            return Err(RequestError::bad_value("prompt", rule));
        }
        Ok(Self { generation, prompts })
    }
}

fn best_of_at_least(generation: &Generation, best_of: u32) -> Result<u32, RequestError> {
    if best_of < generation.n {
        return Err(RequestError::bad_value(
            "best_of",
            format!("must be at least n, which is {}", generation.n),
        ));
    }
    if best_of > generation.n && generation.streaming.is_on() {
        let why = "must be equal to n in a stream: which choices are best is known at their end";
        return Err(RequestError::bad_value("best_of", why.to_owned()));
    }
    Ok(best_of)
}

/// The texts or lists of token ids under `name`, at least one.
pub(crate) fn texts_or_tokens(fields: &Fields<'_>, name: &str) -> Result<Vec<Prompt>, RequestError> {
    let wanted = "a string, an array of strings, an array of token ids or an array of such arrays";
    match fields.get(name) {
        None => Err(RequestError::missing(name)),
        Some(Value::String(text)) => Ok(vec![Prompt::Text(text.clone())]),
        Some(Value::Array(list)) => match list.first() {
            None => Err(RequestError::bad_value(name, "must not be empty")),
            Some(Value::Number(_)) => Ok(vec![token_prompt(list, name.to_owned())?]),
            Some(_) => {
                list.iter().enumerate().map(|(i, item)| list_item(item, format!("{name}[{i}]"))).collect()
            }
        },
        Some(other) => Err(RequestError::wrong_type(name, wanted, other)),
    }
}

fn list_item(item: &Value, path: String) -> Result<Prompt, RequestError> {
    match item {
        Value::String(text) => Ok(Prompt::Text(text.clone())),
        Value::Array(ids) => token_prompt(ids, path),
        other => Err(RequestError::wrong_type(path, "a string or an array of token ids", other)),
    }
}

fn token_prompt(list: &[Value], path: String) -> Result<Prompt, RequestError> {
    if list.is_empty() {
        return Err(RequestError::bad_value(path, "must hold at least one token id"));
    }
    let ids = token_ids(list, &path)?;
    Ok(Prompt::Tokens { path, ids })
}
