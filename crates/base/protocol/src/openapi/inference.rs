use serde_json::json;

use super::{Document, Operation, object, parameter, reference, replies, requests};

/// What every route that needs a caller may answer with besides its own.
const CALLER: &[u16] = &[401, 403, 404, 429, 500, 503];
/// The same for routes that take a body.
const BODY: &[u16] = &[400, 401, 403, 404, 408, 409, 413, 415, 422, 429, 500, 503];

/// Adds the routes of the gateway itself: models, replies, health.
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
    models(document);
    service(document);
}

fn replies_of_models(document: &mut Document) {
    let events =
        json!({"type": "string", "description": "Events with a chunk of the reply each, then `[DONE]`."});
    let key = || {
        parameter(
            "header",
            "Idempotency-Key",
            "Sent again with the same body, it gets the answer of the first request.",
            &json!({"type": "string", "minLength": 1, "maxLength": 255}),
        )
    };
    let reply = |id, summary, body, reply| Operation {
        id,
        summary,
        tag: "Replies",
        parameters: vec![key()],
        body: Some(("application/json", reference(body))),
        answers: vec![(
            200,
            "The reply, or its events where `stream` is true.",
            vec![("application/json", reference(reply)), ("text/event-stream", events.clone())],
        )],
        errors: BODY,
        has_key: true,
    };
    let chat = reply("createChatCompletion", "Continue a conversation", "ChatRequest", "ChatReply");
    document.route("post", "/v1/chat/completions", &chat);
    let text = reply("createCompletion", "Continue a text", "CompletionRequest", "CompletionReply");
    document.route("post", "/v1/completions", &text);
}

fn models(document: &mut Document) {
    let list = object(
        &["object", "data"],
        json!({"object": {"const": "list"}, "data": {"type": "array", "items": reference("Model")}}),
    );
    let read = |id, summary, parameters, schema| Operation {
        id,
        summary,
        tag: "Models",
        parameters,
        body: None,
        answers: vec![(200, "What is served.", vec![("application/json", schema)])],
        errors: CALLER,
        has_key: true,
    };
    document.route(
        "get",
        "/v1/models",
        &read("listModels", "Models that may be asked for", Vec::new(), list),
    );
    let id = parameter(
        "path",
        "model",
        "Its id; slashes may be percent-encoded.",
        &json!({"type": "string", "minLength": 1}),
    );
    let one = read("getModel", "One model", vec![id], reference("Model"));
    document.route("get", "/v1/models/{model}", &one);
}

fn service(document: &mut Document) {
    let health = |id, summary| {
        let bodies = vec![("application/json", reference("Health"))];
        Operation {
            id,
            summary,
            tag: "Service",
            parameters: Vec::new(),
            body: None,
            answers: vec![(200, "It is.", bodies.clone()), (503, "It is not; `reason` says why.", bodies)],
            errors: &[403],
            has_key: false,
        }
    };
    document.route(
        "get",
        "/healthz",
        &health("isAlive", "Whether the process works; a restart helps otherwise"),
    );
    document.route("get", "/readyz", &health("isReady", "Whether requests can be answered now"));
    let metrics = Operation {
        id: "getMetrics",
        summary: "Measurements in the text format of Prometheus; for admins, where there are accounts",
        tag: "Service",
        parameters: Vec::new(),
        body: None,
        answers: vec![(
            200,
            "The metrics.",
            vec![
                ("application/openmetrics-text", json!({"type": "string"})),
                ("text/plain", json!({"type": "string"})),
            ],
        )],
        errors: &[401, 403, 500, 503],
        has_key: true,
    };
    document.route("get", "/metrics", &metrics);
}
