use serde_json::Value;

use crate::error::RequestError;
use crate::fields::Fields;

/// When a parameter of [`UNSUPPORTED`] changes nothing, so that it may be given.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Neutral {
    /// Never, but for `null`.
    Never,
    /// `false`.
    False,
    /// `true`.
    True,
    /// This number.
    Number(f64),
    /// `[]`, `{}` or `""`.
    Empty,
    /// One of these strings.
    OneOf(&'static [&'static str]),
    /// `{"type": "text"}`.
    TextType,
    /// `["text"]`.
    OnlyText,
}

/// Parameters of the OpenAI API and of its common extensions that would change the reply and can't
/// be honoured yet: any but the neutral value is refused with the parameter's name.
pub const UNSUPPORTED: &[(&str, Neutral)] = &[
    ("allowed_token_ids", Neutral::Empty),
    ("audio", Neutral::Never),
    ("bad_words", Neutral::Empty),
    ("chat_template", Neutral::Never),
    ("continue_final_message", Neutral::False),
    ("documents", Neutral::Empty),
    ("dry_multiplier", Neutral::Number(0.0)),
    ("echo", Neutral::False),
    ("frequency_penalty", Neutral::Number(0.0)),
    ("function_call", Neutral::OneOf(&["none", "auto"])),
    ("functions", Neutral::Empty),
    ("grammar", Neutral::Empty),
    ("guided_choice", Neutral::Empty),
    ("guided_grammar", Neutral::Empty),
    ("guided_json", Neutral::Never),
    ("guided_regex", Neutral::Empty),
    ("include_stop_str_in_output", Neutral::False),
    ("json_schema", Neutral::Never),
    ("length_penalty", Neutral::Number(1.0)),
    ("logit_bias", Neutral::Empty),
    ("logits_processors", Neutral::Empty),
    ("mirostat", Neutral::Number(0.0)),
    ("modalities", Neutral::OnlyText),
    ("presence_penalty", Neutral::Number(0.0)),
    ("prompt_logprobs", Neutral::Never),
    ("repeat_penalty", Neutral::Number(1.0)),
    ("repetition_penalty", Neutral::Number(1.0)),
    ("response_format", Neutral::TextType),
    ("skip_special_tokens", Neutral::True),
    ("spaces_between_special_tokens", Neutral::True),
    ("structured_outputs", Neutral::Never),
    ("suffix", Neutral::Empty),
    ("tool_choice", Neutral::OneOf(&["none", "auto"])),
    ("tools", Neutral::Empty),
    ("truncate_prompt_tokens", Neutral::Never),
    ("typical_p", Neutral::Number(1.0)),
    ("use_beam_search", Neutral::False),
    ("web_search_options", Neutral::Never),
    ("xtc_probability", Neutral::Number(0.0)),
];

/// Known parameters that leave the reply as it is, whatever their value, and are ignored.
/// `prediction` only speeds a reply up; `reasoning_effort` and `verbosity` need a model trained for them.
pub const IGNORED: &[&str] = &[
    "cache_prompt",
    "metadata",
    "parallel_tool_calls",
    "prediction",
    "prompt_cache_retention",
    "reasoning_effort",
    "safety_identifier",
    "store",
    "user",
    "verbosity",
];

/// Refuses the first parameter that would change the result.
pub(crate) fn check(fields: &Fields<'_>) -> Result<(), RequestError> {
    for &(name, neutral) in UNSUPPORTED {
        let Some(value) = fields.get(name) else { continue };
        if !neutral.covers(value) {
            return Err(RequestError::unsupported(fields.path(name), &neutral.advice()));
        }
    }
    Ok(())
}

impl Neutral {
    fn covers(self, value: &Value) -> bool {
        match self {
            Self::Never => false,
            Self::False => value == &Value::Bool(false),
            Self::True => value == &Value::Bool(true),
            Self::Number(neutral) => value.as_f64() == Some(neutral),
            Self::OneOf(texts) => value.as_str().is_some_and(|text| texts.contains(&text)),
            Self::TextType => value.get("type").and_then(Value::as_str) == Some("text"),
            Self::OnlyText => {
                value.as_array().is_some_and(|list| list.iter().all(|item| item.as_str() == Some("text")))
            }
            Self::Empty => match value {
                Value::Array(list) => list.is_empty(),
                Value::Object(map) => map.is_empty(),
                Value::String(text) => text.is_empty(),
                _ => false,
            },
        }
    }

    fn advice(self) -> String {
        let instead = match self {
            Self::Never => "leave it out".into(),
            Self::False => "leave it out or send false".into(),
            Self::True => "leave it out or send true".into(),
            Self::Number(neutral) => format!("leave it out or send {neutral}"),
            Self::Empty => "leave it out or send it empty".into(),
            Self::OneOf(texts) => format!("leave it out or send \"{}\"", texts.join("\" or \"")),
            Self::TextType => "leave it out or send {\"type\": \"text\"}".into(),
            Self::OnlyText => "leave it out or send [\"text\"]".into(),
        };
        format!("is not supported by this server and would change the reply: {instead}")
    }
}
