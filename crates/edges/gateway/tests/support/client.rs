//! Requests without a socket.

use axum::Router;
use axum::body::{Body, to_bytes};
use http::{HeaderMap, Request, StatusCode};
use serde_json::Value;
use tower::ServiceExt;

/// A whole response.
pub struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub text: String,
}

impl Reply {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("not JSON: {}", self.text))
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The text with what changes between versions replaced.
    pub fn stable(&self) -> String {
        let mut text = self.text.clone();
        while let Some(at) = text.find("\"fp_") {
            text.replace_range(at..at + 21, "\"FINGERPRINT\"");
        }
        text
    }

    /// Status, `param` and `code` of an error, whose shape is checked.
    pub fn error(&self) -> (u16, Option<String>, Option<String>) {
        let body = self.json();
        let error = body["error"].as_object().unwrap_or_else(|| panic!("no error in {}", self.text));
        let keys: Vec<&str> = error.keys().map(String::as_str).collect();
        assert_eq!(keys, ["message", "type", "param", "code"]);
        assert!(!error["message"].as_str().unwrap().is_empty());
        assert!(!self.header("x-request-id").is_empty());
        let text = |name: &str| error[name].as_str().map(str::to_owned);
        (self.status.as_u16(), text("param"), text("code"))
    }
}

pub async fn send(router: &Router, request: Request<Body>) -> Reply {
    let response = router.clone().oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let bytes = to_bytes(body, usize::MAX).await.unwrap();
    Reply { status: parts.status, headers: parts.headers, text: String::from_utf8(bytes.to_vec()).unwrap() }
}

pub async fn get(router: &Router, path: &str) -> Reply {
    send(router, Request::get(path).body(Body::empty()).unwrap()).await
}

pub async fn post(router: &Router, path: &str, body: impl Into<Body>) -> Reply {
    send(router, post_request(path, body)).await
}

pub fn post_request(path: &str, body: impl Into<Body>) -> Request<Body> {
    Request::post(path).header("content-type", "application/json").body(body.into()).unwrap()
}

/// Posts a chat about "hi" with `extra` laid over it.
pub async fn chat(router: &Router, extra: Value) -> Reply {
    let base = serde_json::json!({"model": "lab/tiny", "messages": [{"role": "user", "content": "hi"}]});
    post(router, "/v1/chat/completions", merged(base, extra).to_string()).await
}

/// Posts a completion of "hi" with `extra` laid over it.
pub async fn complete(router: &Router, extra: Value) -> Reply {
    let base = serde_json::json!({"model": "lab/tiny", "prompt": "hi"});
    post(router, "/v1/completions", merged(base, extra).to_string()).await
}

fn merged(mut base: Value, extra: Value) -> Value {
    for (name, value) in extra.as_object().unwrap() {
        base[name] = value.clone();
    }
    base
}
