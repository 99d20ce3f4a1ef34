use motet_protocol::openapi::{Access, Document, Operation, nullable, object, reference};
use motet_protocol::{MAX_MODERATION_BYTES, MAX_MODERATION_INPUTS, MODERATION_CATEGORIES};
use serde_json::{Map, Value, json};

use crate::routes::{ALIASES, MODEL};

/// Adds the route to the server's OpenAPI document.
pub fn describe(document: &mut Document) {
    document.schema("ModerationRequest", request());
    document.schema("ModerationReply", reply());
    let operation = Operation {
        errors: &[400, 401, 403, 404, 408, 413, 415, 429, 500, 503],
        access: Access::Caller,
        ..Operation::new("createModeration", "Moderations", "Look for what a text may be flagged for")
    };
    let operation = operation
        .takes(reference("ModerationRequest"))
        .gives("A result for each input.", reference("ModerationReply"));
    document.route("post", "/v1/moderations", &operation);
}

fn request() -> Value {
    let text = json!({"type": "string", "maxLength": MAX_MODERATION_BYTES});
    let part = object(&["type", "text"], json!({"type": {"const": "text"}, "text": text}));
    let list = |items: Value| json!({"type": "array", "minItems": 1, "maxItems": MAX_MODERATION_INPUTS, "items": items});
    let names: Vec<_> = ALIASES.iter().map(|start| format!("{start}[A-Za-z0-9.-]*")).collect();
    let model = json!({
        "type": "string",
        "pattern": format!("^({MODEL}|{})$", names.join("|")),
        "description": "Whichever is asked for, the same rules answer.",
    });
    let input = json!({
        "description": format!(
            "A text, texts with a result each, or the parts of one text; at most {MAX_MODERATION_BYTES} bytes of \
             UTF-8 in all."
        ),
        "anyOf": [text.clone(), list(text), list(part)],
    });
    object(&["input"], json!({"input": input, "model": nullable(model)}))
}

fn reply() -> Value {
    let by_name = |schema: &Value| {
        let properties: Map<_, _> =
            MODERATION_CATEGORIES.iter().map(|name| ((*name).to_owned(), schema.clone())).collect();
        object(&MODERATION_CATEGORIES, properties.into())
    };
    let result = object(
        &["flagged", "categories", "category_scores", "category_applied_input_types"],
        json!({
            "flagged": {"type": "boolean", "description": "Whether any category is."},
            "categories": by_name(&json!({"type": "boolean"})),
            "category_scores": by_name(&json!({"type": "number", "minimum": 0, "maximum": 1})),
            "category_applied_input_types": by_name(&json!({"type": "array", "items": {"const": "text"}})),
        }),
    );
    object(
        &["id", "model", "results"],
        json!({
            "id": {"type": "string"},
            "model": {"type": "string"},
            "results": {"type": "array", "minItems": 1, "items": result},
        }),
    )
}
