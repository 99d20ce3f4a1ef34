//! `POST /v1/embeddings`.

use serde_json::{Map, Value, json};

use super::inference::idempotency_key;
use super::{Access, Document, IGNORED_HEADER};
use super::{LIMIT_HEADERS, Operation, nullable, object, reference, with};
use crate::{IGNORED, MAX_EMBEDDING_INPUTS, MAX_EMBEDDING_TOKENS};

pub(super) fn describe(document: &mut Document, errors: &'static [u16]) {
    document.schema("EmbeddingRequest", request());
    document.schema("EmbeddingList", list());
    let operation = Operation {
        parameters: vec![idempotency_key()],
        headers: [LIMIT_HEADERS, &[IGNORED_HEADER]].concat(),
        errors,
        access: Access::Caller,
        ..Operation::new("createEmbeddings", "Replies", "Turn texts into vectors")
    };
    let operation =
        operation.takes(reference("EmbeddingRequest")).gives("The vectors.", reference("EmbeddingList"));
    document.route("post", "/v1/embeddings", &operation);
}

fn request() -> Value {
    let text = json!({"type": "string", "minLength": 1});
    let ids = json!({
        "type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 0, "maximum": u32::MAX},
    });
    let input = json!({
        "description": format!(
            "A text, token ids, or a list of either; at most {MAX_EMBEDDING_TOKENS} tokens in all, and what the model's \
             context holds in each."
        ),
        "anyOf": [
            text.clone(),
            ids.clone(),
            {
                "type": "array", "minItems": 1, "maxItems": MAX_EMBEDDING_INPUTS,
                "items": {"anyOf": [text, ids]},
            },
        ],
    });
    let dimensions = json!({"type": "integer", "minimum": 1, "maximum": u32::MAX});
    let mut properties = Map::new();
    properties.insert("model".into(), with(json!({"type": "string"}), "The embedding model, by its id."));
    properties.insert("input".into(), input);
    let formats = "How vectors are written; base64 is of little-endian 32-bit floats.";
    let format = nullable(json!({"type": "string", "enum": ["float", "base64"]}));
    properties.insert("encoding_format".into(), with(format, formats));
    let what = "How many numbers a vector has: the model's own number, or absent.";
    properties.insert("dimensions".into(), with(nullable(dimensions), what));
    for name in IGNORED {
        let what = "Known, and without influence on the vectors.";
        properties.entry(*name).or_insert_with(|| json!({"description": what}));
    }
    object(&["model", "input"], properties.into())
}

fn list() -> Value {
    let count = || json!({"type": "integer", "minimum": 0});
    let vector = json!({"anyOf": [{"type": "array", "items": {"type": "number"}}, {"type": "string"}]});
    let embedding = object(
        &["object", "index", "embedding"],
        json!({"object": {"const": "embedding"}, "index": count(), "embedding": vector}),
    );
    let usage = object(
        &["prompt_tokens", "total_tokens"],
        json!({"prompt_tokens": count(), "total_tokens": count()}),
    );
    object(
        &["object", "data", "model", "usage"],
        json!({
            "object": {"const": "list"},
            "data": {"type": "array", "minItems": 1, "maxItems": MAX_EMBEDDING_INPUTS, "items": embedding},
            "model": {"type": "string"},
            "usage": usage,
        }),
    )
}
