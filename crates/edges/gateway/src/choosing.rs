//! Which model a request is for, decided between reading its body and making tokens of it.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};
use motet_fleet::{Facts, Pressure, Signs, Why, tokens_of};
use motet_protocol::{ChatRequest, CompletionRequest, Prompt};
use serde_json::Value;

use crate::access::Caller;
use crate::catalogue::Catalogue;
use crate::error::ApiError;
use crate::gateway::{Gateway, Served};

/// The id of the model that answers.
const MODEL: HeaderName = HeaderName::from_static("x-motet-model");
/// Why it is that one.
const MODEL_REASON: HeaderName = HeaderName::from_static("x-motet-model-reason");

/// What a model is chosen with.
pub(crate) struct Desk {
    pub(crate) catalogue: Catalogue,
    pub(crate) caller: Arc<Caller>,
    pub(crate) pressure: Pressure,
}

/// A chosen model.
pub(crate) struct Chosen {
    pub(crate) served: Arc<Served>,
    pub(crate) why: Why,
}

impl Gateway {
    /// What a request of `caller` is given a model with.
    pub(crate) fn desk(&self, caller: Arc<Caller>) -> Desk {
        let catalogue = self.catalogue();
        let (_, lane) = self.config.lanes.choose(None, &caller);
        // Models share the machine: where one has too much to do, there is too much to do.
        let smaller_model = catalogue.ready().any(|served| served.overload.measures(lane).smaller_model);
        Desk { catalogue, caller, pressure: Pressure { smaller_model } }
    }
}

impl Desk {
    /// The model that answers a request for `name`. Its text is looked at only where that decides.
    pub(crate) fn choose(&self, name: &str, facts: impl FnOnce() -> Facts) -> Result<Chosen, ApiError> {
        let (served, why) = self.catalogue.choose(name, &self.caller, self.pressure, facts)?;
        Ok(Chosen { served, why })
    }
}

/// Says in a response which model answers, and why.
pub(crate) fn write_headers(served: &Served, why: &Why, headers: &mut HeaderMap) {
    for (name, text) in [(MODEL, served.model.id.clone()), (MODEL_REASON, why.to_string())] {
        // Names of files may have any characters.
        if let Ok(value) = HeaderValue::from_str(&visible(&text)) {
            headers.insert(name, value);
        }
    }
}

/// `text` with what a header can't hold written as `%` and two hexadecimal digits for each byte.
fn visible(text: &str) -> String {
    let is_plain = |byte: u8| (byte.is_ascii_graphic() || byte == b' ') && byte != b'%';
    let letter =
        |byte: u8| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(letter).collect()
}

/// What is known of a conversation before it is tokenized.
pub(crate) fn facts_of_chat(request: &ChatRequest) -> Facts {
    let messages = request.messages.as_array().map_or(&[][..], Vec::as_slice);
    let content = |message: &Value| message["content"].as_str().map(str::len).unwrap_or(0);
    let questions = || messages.iter().filter(|message| message["role"] == "user");
    let question = questions().next_back().and_then(|message| message["content"].as_str()).unwrap_or("");
    let calls = |message: &Value| message["role"] == "tool" || message.get("tool_calls").is_some();
    Facts {
        prompt_tokens: tokens_of(messages.iter().map(content).sum()),
        question_tokens: tokens_of(question.len()),
        signs: Signs::of(question),
        turns: u32::try_from(questions().count()).unwrap_or(u32::MAX),
        max_tokens: request.generation.max_tokens,
        has_tools: messages.iter().any(calls),
    }
}

/// What is known of prompts before they are tokenized: the longest stands for all.
pub(crate) fn facts_of_completion(request: &CompletionRequest) -> Facts {
    let tokens = |prompt: &Prompt| match prompt {
        Prompt::Text(text) => tokens_of(text.len()),
        Prompt::Tokens { ids, .. } => ids.len() as u64,
    };
    let longest = request.prompts.iter().max_by_key(|prompt| tokens(prompt));
    let prompt_tokens = longest.map_or(0, tokens);
    let signs = match longest {
        Some(Prompt::Text(text)) => Signs::of(text),
        _ => Signs::default(),
    };
    Facts {
        prompt_tokens,
        question_tokens: prompt_tokens,
        signs,
        turns: 1,
        max_tokens: request.generation.max_tokens,
        has_tools: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_hold_any_name() {
        let check = |text: &str, want: &str| assert_eq!(visible(text), want);
        check("owner/name:Q8_0", "owner/name:Q8_0");
        check("degraded:overload, instead of a", "degraded:overload, instead of a");
        check("modèle 100%\n", "mod%C3%A8le 100%25%0A");
    }
}
