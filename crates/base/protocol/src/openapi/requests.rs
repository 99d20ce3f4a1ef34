//! Schemas of requests, from the tables and bounds that they are read with.

use serde_json::{Map, Value, json};

use super::{nullable, object, reference};
use crate::{IGNORED, MAX_CHOICES, MAX_MESSAGES, MAX_STOP_STRINGS, MAX_STOP_TOKENS, Neutral, UNSUPPORTED};

/// `POST /v1/chat/completions`.
pub(super) fn chat() -> Value {
    let mut properties = shared();
    properties.insert(
        "messages".to_owned(),
        json!({"type": "array", "minItems": 1, "maxItems": MAX_MESSAGES, "items": reference("Message")}),
    );
    properties
        .insert("logprobs".to_owned(), optional(json!({"type": "boolean"}), "Report log-probabilities."));
    let top = json!({"type": "integer", "minimum": 0, "maximum": 20});
    properties
        .insert("top_logprobs".to_owned(), optional(top, "Likeliest tokens to report; needs `logprobs`."));
    properties.insert(
        "add_generation_prompt".to_owned(),
        optional(
            json!({"type": "boolean"}),
            "Whether the template opens the assistant's turn; true by default.",
        ),
    );
    properties.insert(
        "chat_template_kwargs".to_owned(),
        optional(json!({"type": "object"}), "More variables for the chat template."),
    );
    object(&["model", "messages"], properties.into())
}

/// `POST /v1/completions`.
pub(super) fn completion() -> Value {
    let mut properties = shared();
    let ids = json!({"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 0}});
    properties.insert(
        "prompt".to_owned(),
        json!({
            "description": "A text, token ids, or a list of either.",
            "anyOf": [
                {"type": "string"},
                {"type": "array", "minItems": 1, "items": {"type": "string"}},
                ids.clone(),
                {"type": "array", "minItems": 1, "items": ids},
            ],
        }),
    );
    let top = json!({"type": "integer", "minimum": 0, "maximum": 5});
    properties.insert("logprobs".to_owned(), optional(top, "Likeliest tokens to report at each place."));
    let best_of = json!({"type": "integer", "minimum": 1, "maximum": MAX_CHOICES});
    let what = "Choices to generate, of which the `n` likeliest are the reply; at least `n`.";
    properties.insert("best_of".to_owned(), optional(best_of, what));
    object(&["model", "prompt"], properties.into())
}

/// One message of a conversation.
pub(super) fn message() -> Value {
    let part = json!({"type": "object", "required": ["type"], "properties": {
        "type": {"type": "string", "enum": ["text", "refusal"]},
        "text": {"type": "string"},
        "refusal": {"type": "string"},
    }});
    let content = json!({"anyOf": [
        {"type": "string"},
        {"type": "array", "minItems": 1, "items": part},
        {"type": "null"},
    ]});
    let roles = ["system", "developer", "user", "assistant", "tool", "function"];
    let call = json!({
        "type": "object",
        "required": ["id", "function"],
        "properties": {
            "id": {"type": "string"},
            "type": {"type": "string"},
            "function": {
                "type": "object",
                "required": ["name", "arguments"],
                "properties": {"name": {"type": "string"}, "arguments": {"type": "string"}},
            },
        },
    });
    let mut message = object(
        &["role"],
        json!({
            "role": {"type": "string", "enum": roles},
            "content": content,
            "name": nullable(json!({"type": "string"})),
            "tool_call_id": nullable(json!({"type": "string"})),
            "tool_calls": nullable(json!({"type": "array", "items": call})),
        }),
    );
    message["description"] =
        "Content may be absent only where an assistant called tools. Text parts are joined by \
        newlines; `developer` is read as `system`, `function` as `tool`."
            .into();
    message
}

/// What both kinds of request take.
fn shared() -> Map<String, Value> {
    let count = |least: u32| json!({"type": "integer", "minimum": least, "maximum": u32::MAX});
    let tokens =
        "Most tokens to generate; the smaller of the two names holds. Absent: what the context leaves.";
    let stop = json!({"anyOf": [
        {"type": "string", "minLength": 1},
        {"type": "array", "maxItems": MAX_STOP_STRINGS, "items": {"type": "string", "minLength": 1}},
    ]});
    let stop_ids =
        json!({"type": "array", "maxItems": MAX_STOP_TOKENS, "items": {"type": "integer", "minimum": 0}});
    let options =
        json!({"type": "object", "properties": {"include_usage": nullable(json!({"type": "boolean"}))}});
    let fields = [
        ("max_tokens", count(1), tokens),
        ("max_completion_tokens", count(1), tokens),
        ("min_tokens", count(0), "No end before so many tokens."),
        (
            "temperature",
            json!({"type": "number", "minimum": 0, "maximum": 2}),
            "0 takes the likeliest token.",
        ),
        ("top_p", json!({"type": "number", "exclusiveMinimum": 0, "maximum": 1}), "Nucleus sampling."),
        (
            "top_k",
            json!({"type": "integer", "minimum": -1}),
            "Keep the k likeliest tokens; 0 or -1 keep all.",
        ),
        (
            "min_p",
            json!({"type": "number", "minimum": 0, "maximum": 1}),
            "Keep tokens this likely, of the likeliest.",
        ),
        ("seed", json!({"type": "integer"}), "The same request with the same seed has the same reply."),
        ("stop", stop, "Texts that end the reply and are not part of it."),
        ("stop_token_ids", stop_ids, "Tokens that end the reply."),
        ("ignore_eos", json!({"type": "boolean"}), "Go on past the model's own ends."),
        ("n", json!({"type": "integer", "minimum": 1, "maximum": MAX_CHOICES}), "Choices for each prompt."),
        ("stream", json!({"type": "boolean"}), "Answer with server-sent events."),
        ("stream_options", options, "`include_usage`: a last event with the usage."),
        (
            "prompt_cache_key",
            json!({"type": "string"}),
            "Divides the prefix cache further; at most 256 bytes.",
        ),
        ("service_tier", json!({"type": "string"}), "`flex` waits until there is nothing else to do."),
    ];
    let mut properties = Map::new();
    let model = "A model of `GET /v1/models`.";
    properties.insert("model".to_owned(), json!({"type": "string", "description": model}));
    for (name, schema, what) in fields {
        properties.insert(name.to_owned(), optional(schema, what));
    }
    for name in IGNORED {
        let what = "Known, and without influence on the reply.";
        properties.insert((*name).to_owned(), json!({"description": what}));
    }
    for (name, value) in UNSUPPORTED {
        properties.insert((*name).to_owned(), neutral(*value));
    }
    properties
}

fn optional(schema: Value, what: &str) -> Value {
    let mut schema = nullable(schema);
    schema["description"] = what.into();
    schema
}

/// The values of a parameter that is not supported which change nothing.
fn neutral(neutral: Neutral) -> Value {
    let schema = match neutral {
        Neutral::Never => json!({"type": "null"}),
        Neutral::False => json!({"enum": [false, null]}),
        Neutral::True => json!({"enum": [true, null]}),
        Neutral::Number(number) => json!({"enum": [number, null]}),
        Neutral::Empty => json!({"anyOf": [
            {"type": "array", "maxItems": 0},
            {"type": "object", "maxProperties": 0},
            {"type": "string", "maxLength": 0},
            {"type": "null"},
        ]}),
        Neutral::OneOf(texts) => {
            let texts = texts.iter().map(|text| Value::from(*text));
            json!({"enum": texts.chain([Value::Null]).collect::<Vec<_>>()})
        }
        Neutral::TextType => json!({"anyOf": [
            {"type": "object", "required": ["type"], "properties": {"type": {"const": "text"}}},
            {"type": "null"},
        ]}),
        Neutral::OnlyText => {
            json!({"anyOf": [{"type": "array", "items": {"const": "text"}}, {"type": "null"}]})
        }
    };
    let mut schema = schema;
    schema["description"] = "Not supported: only values that change nothing are taken.".into();
    schema
}
