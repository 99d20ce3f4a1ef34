use serde_json::{Value, json};

use super::{
    Access, Document, IGNORED_HEADER, LIMIT_HEADERS, Operation, REPLY_HEADERS, embeddings, object, parameter,
    reference, replies, requests,
};

/// What routes of models may answer with besides a reply.
const REPLY: &[u16] = &[400, 401, 403, 404, 408, 409, 413, 415, 422, 429, 500, 503, 504];
/// The same for embeddings, which nobody gives a time.
const EMBEDDINGS: &[u16] = &[400, 401, 403, 404, 408, 409, 413, 415, 422, 429, 500, 503];

/// Adds the routes of the gateway itself: models, replies, embeddings, health.
pub fn inference(document: &mut Document) {
    document.schema("ChatRequest", requests::chat());
    document.schema("CompletionRequest", requests::completion());
    document.schema("Message", requests::message());
    document.schema("ChatReply", replies::chat());
    document.schema("CompletionReply", replies::completion());
    document.schema("Usage", replies::usage());
    document.schema("Model", replies::model());
    document.schema("Health", replies::health());
    replies_of_models(document);
    embeddings::describe(document, EMBEDDINGS);
    models(document);
    health(document);
    service(document);
}

fn replies_of_models(document: &mut Document) {
    let events =
        json!({"type": "string", "description": "Events with a chunk of the reply each, then `[DONE]`."});
    let reply = |id, summary, body, reply| {
        let bodies = vec![("application/json", reference(reply)), ("text/event-stream", events.clone())];
        let operation = Operation {
            parameters: vec![idempotency_key()],
            answers: vec![(200, "The reply, or its events where `stream` is true.", bodies)],
            headers: [LIMIT_HEADERS, REPLY_HEADERS, &[IGNORED_HEADER]].concat(),
            errors: REPLY,
            access: Access::Caller,
            ..Operation::new(id, "Replies", summary)
        };
        operation.takes(reference(body))
    };
    let chat = reply("createChatCompletion", "Continue a conversation", "ChatRequest", "ChatReply");
    document.route("post", "/v1/chat/completions", &chat);
    let text = reply("createCompletion", "Continue a text", "CompletionRequest", "CompletionReply");
    document.route("post", "/v1/completions", &text);
}

/// What makes a request one that may be sent again.
pub(super) fn idempotency_key() -> Value {
    let what = "Sent again with the same body, it gets the answer of the first request.";
    parameter("header", "Idempotency-Key", what, &json!({"type": "string", "minLength": 1, "maxLength": 255}))
}

fn models(document: &mut Document) {
    let list = object(
        &["object", "data"],
        json!({"object": {"const": "list"}, "data": {"type": "array", "items": reference("Model")}}),
    );
    let all = Operation {
        errors: &[401, 403, 500, 503],
        access: Access::Caller,
        ..Operation::new("listModels", "Models", "Models that may be asked for")
    };
    let what = "What can be used now, the default model first.";
    document.route("get", "/v1/models", &all.gives(what, list));
    let name = parameter(
        "path",
        "model",
        "Its id, an alias, a role or `auto`; slashes may be percent-encoded.",
        &json!({"type": "string", "minLength": 1}),
    );
    let one = Operation {
        parameters: vec![name],
        errors: &[401, 403, 404, 500, 503],
        access: Access::Caller,
        ..Operation::new("getModel", "Models", "One model")
    };
    document.route("get", "/v1/models/{model}", &one.gives("The model of that name.", reference("Model")));
}

fn health(document: &mut Document) {
    let health = |id, summary| {
        let bodies = vec![("application/json", reference("Health"))];
        Operation {
            answers: vec![(200, "It is.", bodies.clone()), (503, "It is not; `reason` says why.", bodies)],
            errors: &[403, 500],
            ..Operation::new(id, "Service", summary)
        }
    };
    let alive = health("isAlive", "Whether the process works; a restart helps otherwise");
    document.route("get", "/healthz", &alive);
    document.route("get", "/readyz", &health("isReady", "Whether requests can be answered now"));
}

fn service(document: &mut Document) {
    let text = || json!({"type": "string"});
    let media = vec![("application/openmetrics-text", text()), ("text/plain", text())];
    let summary = "Measurements in the text format of Prometheus; for admins, where there are accounts";
    let metrics = Operation {
        answers: vec![(200, "The metrics.", media)],
        errors: &[401, 403, 500, 503],
        access: Access::Caller,
        ..Operation::new("getMetrics", "Service", summary)
    };
    document.route("get", "/metrics", &metrics);
    let own = object(
        &["openapi", "info", "paths"],
        json!({
            "openapi": {"type": "string"},
            "info": {"type": "object"},
            "paths": {"type": "object"},
        }),
    );
    let document_of_all =
        Operation { errors: &[403, 500], ..Operation::new("getOpenApi", "Service", "This document") };
    document.route("get", "/openapi.json", &document_of_all.gives("The document.", own));
}
