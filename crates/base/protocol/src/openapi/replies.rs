//! Schemas of answers.

use serde_json::{Value, json};

use super::{nullable, object, reference, with};

/// The body of every error.
pub(super) fn error() -> Value {
    let fields = json!({
        "message": {"type": "string", "minLength": 1},
        "type": {"type": "string", "minLength": 1},
        "param": {"type": ["string", "null"]},
        "code": {"type": ["string", "null"]},
    });
    object(&["error"], json!({"error": object(&["message", "type", "param", "code"], fields)}))
}

pub(super) fn usage() -> Value {
    let count = || json!({"type": "integer", "minimum": 0});
    object(
        &["prompt_tokens", "completion_tokens", "total_tokens"],
        json!({
            "prompt_tokens": count(),
            "completion_tokens": count(),
            "total_tokens": count(),
            "prompt_tokens_details": object(&["cached_tokens"], json!({"cached_tokens": count()})),
            "completion_tokens_details": object(
                &["reasoning_tokens"],
                json!({
                    "reasoning_tokens": count(),
                    "accepted_prediction_tokens": count(),
                    "rejected_prediction_tokens": count(),
                }),
            ),
        }),
    )
}

pub(super) fn chat() -> Value {
    let token = |more: Value| {
        let mut properties = json!({
            "token": {"type": "string"},
            "logprob": {"type": "number", "maximum": 0},
            "bytes": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 255}},
        });
        if let (Some(properties), Some(more)) = (properties.as_object_mut(), more.as_object()) {
            properties.extend(more.clone());
        }
        object(&["token", "logprob", "bytes"], properties)
    };
    let list = json!({"type": "array", "items": token(json!({
        "top_logprobs": {"type": "array", "items": token(json!({}))},
    }))});
    let logprobs = object(&["content"], json!({"content": list, "refusal": {"type": "null"}}));
    let message = object(
        &["role", "content", "refusal"],
        json!({
            "role": {"const": "assistant"},
            "content": {"type": ["string", "null"]},
            "refusal": {"type": ["string", "null"]},
        }),
    );
    let choice = object(
        &["index", "message", "logprobs", "finish_reason"],
        json!({
            "index": {"type": "integer", "minimum": 0},
            "message": message,
            "logprobs": nullable(logprobs),
            "finish_reason": finish(),
        }),
    );
    envelope("chat.completion", &choice)
}

pub(super) fn completion() -> Value {
    let logprobs = object(
        &["tokens", "token_logprobs", "top_logprobs", "text_offset"],
        json!({
            "tokens": {"type": "array", "items": {"type": "string"}},
            "token_logprobs": {"type": "array", "items": {"type": "number", "maximum": 0}},
            "top_logprobs": {"type": "array", "items": {"type": "object"}},
            "text_offset": {"type": "array", "items": {"type": "integer", "minimum": 0}},
        }),
    );
    let choice = object(
        &["index", "text", "logprobs", "finish_reason"],
        json!({
            "index": {"type": "integer", "minimum": 0},
            "text": {"type": "string"},
            "logprobs": nullable(logprobs),
            "finish_reason": finish(),
        }),
    );
    envelope("text_completion", &choice)
}

fn finish() -> Value {
    json!({"type": "string", "enum": ["stop", "length", "tool_calls", "content_filter"]})
}

fn envelope(kind: &str, choice: &Value) -> Value {
    object(
        &["id", "object", "created", "model", "choices", "usage"],
        json!({
            "id": {"type": "string"},
            "object": {"const": kind},
            "created": {"type": "integer"},
            "model": {"type": "string", "description": "The model that answered."},
            "system_fingerprint": {"type": "string"},
            "service_tier": {"type": "string"},
            "choices": {"type": "array", "minItems": 1, "items": choice},
            "usage": reference("Usage"),
        }),
    )
}

pub(super) fn model() -> Value {
    object(
        &["id", "object", "created", "owned_by", "max_model_len"],
        json!({
            "id": {"type": "string"},
            "object": {"const": "model"},
            "created": {"type": "integer"},
            "owned_by": {"type": "string"},
            "max_model_len": {"type": "integer", "minimum": 1, "description": "Most tokens of prompt and reply."},
            "motet": details(),
        }),
    )
}

/// What only this server tells of a model that generates.
fn details() -> Value {
    let names = |what: &str| with(json!({"type": "array", "items": {"type": "string"}}), what);
    object(
        &["roles", "aliases", "context_length", "description", "is_default"],
        json!({
            "roles": names("What it is for; each is a name for it, too."),
            "aliases": names("Other names for it."),
            "context_length": {"type": "integer", "minimum": 1},
            "description": {"type": "string"},
            "is_default": {"type": "boolean"},
        }),
    )
}

pub(super) fn health() -> Value {
    let count = || json!({"type": "integer", "minimum": 0});
    let age = "Seconds since the last step began while there is work; 0 when idle.";
    let progress = object(
        &["age_seconds", "steps", "running", "waiting", "preempted"],
        json!({
            "age_seconds": {"type": "number", "minimum": 0, "description": age},
            "steps": count(),
            "running": count(),
            "waiting": count(),
            "preempted": count(),
        }),
    );
    object(
        &["status", "state", "version"],
        json!({
            "status": {"enum": ["ok", "unavailable"]},
            "state": {"enum": ["loading", "ready", "stalled", "failed"]},
            "reason": {"type": "string"},
            "model": {"type": "string", "description": "The default one."},
            "progress": progress,
            "version": {"type": "string"},
        }),
    )
}
