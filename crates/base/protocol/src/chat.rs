use serde_json::{Map, Value};

use crate::error::RequestError;
use crate::fields::Fields;
use crate::generation::Generation;
use crate::message;

/// What a template sets itself; `chat_template_kwargs` must not replace it.
const TEMPLATE_NAMES: &[&str] =
    &["messages", "tools", "documents", "add_generation_prompt", "bos_token", "eos_token", "strftime_now"];

/// Parameters only chat has.
const OWN: &[&str] = &["messages", "top_logprobs", "add_generation_prompt", "chat_template_kwargs"];

/// The body of `POST /v1/chat/completions`.
#[derive(Debug, Clone, PartialEq)]
pub struct ChatRequest {
    /// What it shares with completions.
    pub generation: Generation,
    /// The conversation as chat templates take it: an array of objects with `role` and a string
    /// `content` (text parts joined by a newline), at least one. The role `developer` has become
    /// `system`, and `function` has become `tool`.
    pub messages: Value,
    /// Whether the template opens the assistant's turn.
    pub add_generation_prompt: bool,
    /// More variables for the template.
    pub template_kwargs: Map<String, Value>,
}

impl ChatRequest {
    /// Reads a body.
    ///
    /// # Errors
    /// Names the first parameter that is missing, wrong or unsupported.
    pub fn from_body(body: &Map<String, Value>) -> Result<Self, RequestError> {
        let fields = Fields::root(body);
        let mut generation = Generation::read(&fields, OWN)?;
        generation.logprobs = logprobs(&fields)?;
        let template_kwargs = fields.map("chat_template_kwargs")?.cloned().unwrap_or_default();
        if let Some(name) = TEMPLATE_NAMES.iter().find(|name| template_kwargs.contains_key(**name)) {
            let param = format!("chat_template_kwargs.{name}");
            return Err(RequestError::bad_value(param, "is set by the server and can't be replaced"));
        }
        Ok(Self {
            generation,
            messages: message::conversation(&fields)?,
            add_generation_prompt: fields.boolean("add_generation_prompt")?.unwrap_or(true),
            template_kwargs,
        })
    }
}

fn logprobs(fields: &Fields<'_>) -> Result<Option<u8>, RequestError> {
    let is_on = fields.boolean("logprobs")?.unwrap_or(false);
    let top = fields.integer("top_logprobs", 0..=20)?;
    match (is_on, top) {
        (true, top) => Ok(Some(top.unwrap_or(0) as u8)),
        (false, None | Some(0)) => Ok(None),
        (false, Some(_)) => Err(RequestError::bad_value("top_logprobs", "needs 'logprobs' to be true")),
    }
}
