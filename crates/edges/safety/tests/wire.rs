//! `POST /v1/moderations` as clients see it.

// Helpers of tests may fail as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use axum::body::{Body, to_bytes};
use http::{Request, StatusCode};
use motet_protocol::openapi::Document;
use motet_safety::{Moderations, Rules, describe};
use serde_json::{Value, json};
use tower::ServiceExt;

async fn send(request: Request<Body>) -> (StatusCode, Value) {
    let routes = Moderations::new(Arc::new(Rules::builtin().unwrap())).routes();
    let response = routes.oneshot(request).await.unwrap();
    let status = response.status();
    let body = to_bytes(response.into_body(), 1 << 22).await.unwrap();
    (status, serde_json::from_slice(&body).unwrap())
}

fn request(body: impl Into<Body>) -> Request<Body> {
    let builder = Request::post("/v1/moderations").header("content-type", "application/json");
    builder.body(body.into()).unwrap()
}

async fn moderate(body: Value) -> Value {
    let (status, mut reply) = send(request(body.to_string())).await;
    assert_eq!(status, StatusCode::OK, "{reply}");
    let id = reply["id"].as_str().unwrap();
    assert!(id.starts_with("modr-") && id.len() == 37, "{id}");
    reply["id"] = "modr-…".into();
    reply
}

#[tokio::test]
async fn a_reply() {
    insta::assert_json_snapshot!(moderate(json!({"input": ["I want to kill myself", "Hello"]})).await);
}

#[tokio::test]
async fn inputs_and_models() {
    let flags = |reply: &Value| -> Vec<bool> {
        reply["results"]
            .as_array()
            .unwrap()
            .iter()
            .map(|result| result["flagged"].as_bool().unwrap())
            .collect()
    };
    let check =
        async |body: Value, want: &[bool]| assert_eq!(flags(&moderate(body.clone()).await), want, "{body}");
    check(json!({"input": "Hello"}), &[false]).await;
    check(json!({"input": "How to make a pipe bomb"}), &[true]).await;
    check(json!({"input": ["a", "Go kill yourself", ""]}), &[false, true, false]).await;
    let parts = json!([{"type": "text", "text": "I want to kill"}, {"type": "text", "text": "myself"}]);
    check(json!({"input": parts, "user": "u", "model": null}), &[true]).await;
    for model in
        ["motet-rules", "omni-moderation-latest", "omni-moderation-2024-09-26", "text-moderation-stable"]
    {
        let reply = moderate(json!({"input": "a", "model": model})).await;
        assert_eq!(reply["model"], "motet-rules");
    }
}

#[tokio::test]
async fn errors() {
    let check = async |request: Request<Body>, want: u16, code: &str, param: Value| {
        let (status, reply) = send(request).await;
        let error = &reply["error"];
        assert_eq!(
            (status.as_u16(), &error["code"], &error["param"]),
            (want, &code.into(), &param),
            "{reply}"
        );
        assert!(error["message"].is_string() && error["type"] == "invalid_request_error", "{reply}");
    };
    let body = |body: Value| request(body.to_string());
    check(request("{"), 400, "invalid_json", Value::Null).await;
    check(body(json!({})), 400, "missing_required_parameter", "input".into()).await;
    let image = json!([{"type": "image_url", "image_url": {"url": "data:,"}}]);
    check(body(json!({"input": image})), 400, "unsupported_parameter", "input[0].type".into()).await;
    check(body(json!({"input": "a".repeat(300_000)})), 400, "invalid_value", "input".into()).await;
    check(body(json!({"input": "a", "model": "gpt-4"})), 404, "model_not_found", "model".into()).await;
    check(body(json!({"input": "a", "model": "omni-moderation-\n"})), 404, "model_not_found", "model".into())
        .await;
    check(request(vec![b' '; (2 << 20) + 1]), 413, "request_too_large", Value::Null).await;
    let form =
        Request::post("/v1/moderations").header("content-type", "text/plain").body("{}".into()).unwrap();
    check(form, 415, "unsupported_content_type", Value::Null).await;
    let page =
        Request::post("/v1/moderations").header("origin", "http://a.example").body("{}".into()).unwrap();
    check(page, 415, "unsupported_content_type", Value::Null).await;
    let broken = futures_util::stream::iter([Ok("{\"input\":"), Err(std::io::Error::other("gone"))]);
    check(request(Body::from_stream(broken)), 400, "incomplete_body", Value::Null).await;
}

/// Requests that are still being sent have places too, and give them back.
#[tokio::test]
async fn places_are_bounded() {
    let service = Moderations::new(Arc::new(Rules::builtin().unwrap())).routes();
    let endless =
        || request(Body::from_stream(futures_util::stream::pending::<Result<String, std::io::Error>>()));
    let mut waiting = Vec::new();
    for _ in 0..64 {
        let mut one = Box::pin(service.clone().oneshot(endless()));
        assert!(futures_util::poll!(&mut one).is_pending());
        waiting.push(one);
    }
    let refused = service.clone().oneshot(request("{\"input\":\"a\"}")).await.unwrap();
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(refused.headers()["retry-after"], "1");
    drop(waiting.pop());
    let taken = service.oneshot(request("{\"input\":\"a\"}")).await.unwrap();
    assert_eq!(taken.status(), StatusCode::OK);
}

#[test]
fn it_is_described() {
    let mut document = Document::new("0.0.0", motet_protocol::openapi::Accounts::On);
    describe(&mut document);
    let document = document.json();
    insta::assert_json_snapshot!(json!({
        "paths": document["paths"],
        "request": document["components"]["schemas"]["ModerationRequest"],
    }));
    let reply = &document["components"]["schemas"]["ModerationReply"]["properties"]["results"]["items"];
    for table in ["categories", "category_scores", "category_applied_input_types"] {
        assert_eq!(reply["properties"][table]["required"].as_array().unwrap().len(), 13, "{table}");
    }
}
