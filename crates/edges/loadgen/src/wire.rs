//! The JSON that is sent and read: the part of the OpenAI API that servers share.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::workload::GivenText;

/// Which endpoint is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Endpoint {
    /// `/v1/completions`: the prompt reaches the model as it is.
    Completions,
    /// `/v1/chat/completions`: the server puts its chat template around it.
    Chat,
}

/// What requests say besides their prompt.
#[derive(Debug, Clone, Copy)]
pub struct RequestOptions {
    /// Which endpoint is asked.
    pub endpoint: Endpoint,
    /// Ask for exactly the number of tokens. vLLM, SGLang, llama.cpp and Motet know the field; the OpenAI API does not.
    pub ignore_eos: bool,
    /// Sampling temperature.
    pub temperature: f64,
    /// A request that takes longer has failed.
    pub timeout: std::time::Duration,
}

impl Endpoint {
    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Completions => "/v1/completions",
            Self::Chat => "/v1/chat/completions",
        }
    }
}

/// What a conversation holds when its next turn is sent.
#[derive(Debug, Clone, Default)]
pub(crate) struct History {
    /// Texts in turn: the user's, the reply, the user's…
    pub(crate) texts: Vec<String>,
    /// The prompt as token ids instead.
    pub(crate) tokens: Option<Vec<u32>>,
}

impl History {
    /// Adds what the user sends.
    pub(crate) fn ask(&mut self, given: GivenText) {
        match given {
            GivenText::Text(text) => self.texts.push(text),
            GivenText::Tokens(tokens) => self.tokens = Some(tokens),
        }
    }

    /// The request's body.
    pub(crate) fn body(&self, model: &str, output: u32, options: &RequestOptions) -> Vec<u8> {
        let mut body = json!({
            "model": model,
            "max_tokens": output,
            "temperature": options.temperature,
            "stream": true,
            "stream_options": {"include_usage": true},
        });
        if options.ignore_eos {
            body["ignore_eos"] = Value::Bool(true);
        }
        match options.endpoint {
            Endpoint::Completions => {
                body["prompt"] = match &self.tokens {
                    Some(tokens) => json!(tokens),
                    None => Value::String(self.texts.join("\n")),
                };
            }
            Endpoint::Chat => {
                let message = |(index, text): (usize, &String)| {
                    let role = if index % 2 == 0 { "user" } else { "assistant" };
                    json!({"role": role, "content": text})
                };
                body["messages"] = self.texts.iter().enumerate().map(message).collect();
            }
        }
        body.to_string().into_bytes()
    }
}

/// One event of a stream.
#[derive(Debug, Deserialize)]
pub(crate) struct Chunk<'a> {
    #[serde(default, borrow)]
    pub(crate) choices: Vec<Choice<'a>>,
    #[serde(default)]
    pub(crate) usage: Option<Usage>,
    #[serde(default)]
    pub(crate) error: Option<Value>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Choice<'a> {
    #[serde(default, borrow)]
    text: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    delta: Option<Delta<'a>>,
    #[serde(default, borrow)]
    pub(crate) finish_reason: Option<Cow<'a, str>>,
}

#[derive(Debug, Deserialize)]
struct Delta<'a> {
    #[serde(default, borrow)]
    content: Option<Cow<'a, str>>,
    /// Where vLLM and llama.cpp put what a model thinks before it answers.
    #[serde(default, borrow)]
    reasoning_content: Option<Cow<'a, str>>,
}

/// What the server counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct Usage {
    #[serde(default)]
    pub(crate) prompt_tokens: u32,
    #[serde(default)]
    pub(crate) completion_tokens: u32,
    #[serde(default)]
    prompt_tokens_details: Option<PromptDetails>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
struct PromptDetails {
    #[serde(default)]
    cached_tokens: Option<u32>,
}

impl Usage {
    /// Prompt tokens found in the server's cache, where it says so.
    pub(crate) fn cached(&self) -> Option<u32> {
        self.prompt_tokens_details.and_then(|details| details.cached_tokens)
    }
}

impl Choice<'_> {
    /// The text this event adds.
    pub(crate) fn added(&self) -> &str {
        let delta = self.delta.as_ref();
        let parts = [
            self.text.as_deref(),
            delta.and_then(|delta| delta.content.as_deref()),
            delta.and_then(|delta| delta.reasoning_content.as_deref()),
        ];
        parts.into_iter().flatten().find(|text| !text.is_empty()).unwrap_or_default()
    }
}

/// What an error of the server says, in whichever of the usual forms: `{"error": {"message": …}}`,
/// `{"message": …}`, `{"detail": …}` or text.
pub(crate) fn error_text(body: &[u8]) -> String {
    let parsed: Option<Value> = serde_json::from_slice(body).ok();
    let message = parsed.as_ref().and_then(message_of);
    clean(&message.unwrap_or_else(|| String::from_utf8_lossy(body).into_owned()))
}

fn message_of(value: &Value) -> Option<String> {
    let at = |key: &str| value.get(key).map(|inner| message_of(inner).unwrap_or_else(|| inner.to_string()));
    match value {
        Value::String(text) => Some(text.clone()),
        _ => ["error", "message", "detail"].iter().find_map(|key| at(key)),
    }
}

/// At most so much of a server's words goes into a message.
const MESSAGE_CHARS: usize = 300;

/// One short line without characters that steer a terminal.
pub(crate) fn clean(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut short: String = line.chars().filter(|c| !c.is_control()).take(MESSAGE_CHARS).collect();
    if short.len() < line.len() && line.chars().count() > MESSAGE_CHARS {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const OPTIONS: RequestOptions = RequestOptions {
        endpoint: Endpoint::Completions,
        ignore_eos: true,
        temperature: 0.0,
        timeout: Duration::from_secs(1),
    };

    #[test]
    fn bodies_are_as_servers_expect() {
        let mut history = History::default();
        history.ask(GivenText::Text("one".into()));
        let read = |options: &RequestOptions, history: &History| -> Value {
            serde_json::from_slice(&history.body("m", 5, options)).unwrap()
        };
        let body = read(&OPTIONS, &history);
        assert_eq!(body["prompt"], "one");
        assert_eq!((&body["max_tokens"], &body["ignore_eos"]), (&json!(5), &json!(true)));
        history.texts.extend(["reply".to_owned(), "two".to_owned()]);
        assert_eq!(read(&OPTIONS, &history)["prompt"], "one\nreply\ntwo");
        let chat = RequestOptions { endpoint: Endpoint::Chat, ignore_eos: false, ..OPTIONS };
        let body = read(&chat, &history);
        assert_eq!(body["messages"][1], json!({"role": "assistant", "content": "reply"}));
        assert_eq!(body.get("ignore_eos"), None);
        history.ask(GivenText::Tokens(vec![1, 2]));
        assert_eq!(read(&OPTIONS, &history)["prompt"], json!([1, 2]));
    }

    #[test]
    fn chunks_of_each_server_are_read() {
        let check = |text: &str, added: &str, is_last: bool| {
            let chunk: Chunk<'_> = serde_json::from_str(text).unwrap();
            assert_eq!(chunk.choices[0].added(), added, "{text}");
            assert_eq!(chunk.choices[0].finish_reason.is_some(), is_last, "{text}");
        };
        check(r#"{"choices":[{"text":" a\n","index":0,"finish_reason":null}]}"#, " a\n", false);
        check(r#"{"choices":[{"delta":{"role":"assistant","content":null}}]}"#, "", false);
        check(r#"{"choices":[{"delta":{"reasoning_content":"hm"}}]}"#, "hm", false);
        check(r#"{"choices":[{"delta":{},"finish_reason":"length"}]}"#, "", true);
        let usage = r#"{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":4}}}"#;
        let usage = serde_json::from_str::<Chunk<'_>>(usage).unwrap().usage.unwrap();
        assert_eq!((usage.prompt_tokens, usage.completion_tokens, usage.cached()), (7, 2, Some(4)));
    }

    #[test]
    fn errors_are_read() {
        let check = |body: &str, expected: &str| assert_eq!(error_text(body.as_bytes()), expected);
        check(r#"{"error":{"message":"too long","type":"x"}}"#, "too long");
        check(r#"{"object":"error","message":"no"}"#, "no");
        check(r#"{"detail":[{"msg":"x"}]}"#, r#"[{"msg":"x"}]"#);
        check("<html>\x1b[2J\nbad  gateway", "<html>[2J bad gateway");
        assert_eq!(clean(&"x".repeat(400)).chars().count(), 301);
    }
}
