//! What is refused, and what it is told.

use axum::body::Body;
use http::Method;
use motet_store::Role;
use serde_json::{Value, json};

use crate::support::World;

#[tokio::test]
async fn fields() {
    let world = World::new().await;
    let bob = world.user("bob", Role::Member).await;
    let ada = world.signed_in("ada").await;
    let bobs = format!("/api/users/{}", bob.id.as_str());
    let check = async |method: Method, path: &str, body: Value, param: &str, code: &str| {
        let got = ada.clone().send(method, path, Body::from(body.to_string())).await;
        got.refused(400, code);
        assert_eq!(got.json()["error"]["param"], param, "{path}: {}", got.text);
        assert!(!got.text.contains("hunter22"), "{}", got.text);
    };
    let (post, patch) = (|| Method::POST, || Method::PATCH);
    let (missing, kind, value) = ("missing_required_parameter", "invalid_type", "invalid_value");
    let unknown = "unsupported_parameter";
    check(post(), "/api/session", json!({"password": "x"}), "login", missing).await;
    check(post(), "/api/session", json!({"login": "x"}), "password", missing).await;
    check(post(), "/api/session", json!({"login": "x", "password": null}), "password", missing).await;
    check(post(), "/api/session", json!({"login": 3, "password": "x"}), "login", kind).await;
    check(post(), "/api/session", json!({"login": "x", "password": ["hunter22"]}), "password", kind).await;
    check(post(), "/api/session", json!({"login": "x", "password": "y", "more": 1}), "more", unknown).await;
    check(post(), "/api/session", json!({"login": "x", "password": "y", "more": null}), "more", unknown)
        .await;
    check(post(), "/api/session/password", json!({"new": "hunter22"}), "old", missing).await;
    check(patch(), "/api/me", json!({"display_name": " "}), "display_name", value).await;
    check(patch(), "/api/me", json!({"display_name": "x".repeat(255)}), "display_name", value).await;
    check(post(), "/api/keys", json!({}), "name", missing).await;
    check(post(), "/api/keys", json!({"name": ""}), "name", value).await;
    check(post(), "/api/keys", json!({"name": "k", "scopes": "chat"}), "scopes", kind).await;
    check(post(), "/api/keys", json!({"name": "k", "scopes": [1]}), "scopes", kind).await;
    check(post(), "/api/keys", json!({"name": "k", "scopes": []}), "scopes", value).await;
    check(post(), "/api/keys", json!({"name": "k", "scopes": ["chat", "all"]}), "scopes[1]", value).await;
    for at in [0, -1, 1_796_070_600, 1_796_070_600_000, i64::MAX, i64::MIN] {
        check(post(), "/api/keys", json!({"name": "k", "expires_at": at}), "expires_at", value).await;
    }
    for at in [json!("soon"), json!(1.5), json!(u64::MAX)] {
        check(post(), "/api/keys", json!({"name": "k", "expires_at": at}), "expires_at", kind).await;
    }
    check(post(), "/api/users", json!({}), "login", missing).await;
    check(post(), "/api/users", json!({"login": "a b"}), "login", value).await;
    check(post(), "/api/users", json!({"login": "ADA"}), "login", "login_taken").await;
    check(post(), "/api/users", json!({"login": "x", "tier": "gold"}), "tier", value).await;
    check(post(), "/api/users", json!({"login": "x", "role": "king"}), "role", value).await;
    check(post(), "/api/users", json!({"login": "x", "password": "short"}), "password", value).await;
    check(post(), "/api/users", json!({"login": "x", "password": "x".repeat(1025)}), "password", value).await;
    check(patch(), &bobs, json!({"tier": "gold"}), "tier", value).await;
    check(patch(), &bobs, json!({"is_disabled": "yes"}), "is_disabled", kind).await;
    check(patch(), &bobs, json!({"login": "bobby"}), "login", unknown).await;
}

#[tokio::test]
async fn queries() {
    let world = World::new().await;
    let mut ada = world.signed_in("ada").await;
    for (path, param) in [
        ("/v1/usage?from=yesterday", "from"),
        ("/v1/usage?to=2026-02-30", "to"),
        ("/v1/usage?from=2026-12-01&to=2026-11-30", "from"),
        ("/v1/usage?from=2020-01-01", "from"),
        ("/v1/usage?group_by=hour", "group_by"),
        ("/v1/usage?format=xml", "format"),
        ("/v1/usage?limit=0", "limit"),
        ("/v1/usage?limit=101", "limit"),
        ("/v1/usage?after=x", "after"),
        ("/api/keys?limit=many", "limit"),
        // Empty is not absent: whoever sends it meant something.
        ("/api/keys?limit=", "limit"),
        ("/v1/usage?from=", "from"),
        ("/v1/usage?to=", "to"),
        ("/v1/usage?group_by=", "group_by"),
        ("/v1/usage?format=", "format"),
        ("/api/keys?after=key_none", "after"),
        ("/api/users?after=user_none", "after"),
    ] {
        let got = ada.get(path).await;
        got.refused(400, "invalid_value");
        assert_eq!(got.json()["error"]["param"], param, "{path}");
    }
    assert_eq!(ada.get("/api/keys?after=").await.status, 200);
    for path in ["/api/keys/%ff", "/api/devices/%ff"] {
        ada.delete(path).await.refused(404, "not_found");
    }
}

#[tokio::test]
async fn bodies() {
    let world = World::new().await;
    let check = async |body: Vec<u8>, status: u16, code: &str| {
        let got = world.browser().send(Method::POST, "/api/session", Body::from(body)).await;
        got.refused(status, code);
    };
    for body in ["", "{", "[]", "3", "null", "\u{feff}", "{\"login\": \"x\"} more"] {
        check(body.into(), 400, "invalid_json").await;
    }
    check(vec![0xff; 10], 400, "invalid_json").await;
    check("[".repeat(10_000).into(), 400, "invalid_json").await;
    check(format!("{{\"login\":{}", "[".repeat(1_000)).into(), 400, "invalid_json").await;
    check(vec![b' '; 40_000], 413, "request_too_large").await;
    // Accounts are for those who are signed in.
    for (method, path) in [
        (Method::DELETE, "/api/session"),
        (Method::POST, "/api/session/password"),
        (Method::PATCH, "/api/me"),
        (Method::GET, "/api/devices"),
        (Method::DELETE, "/api/devices"),
        (Method::DELETE, "/api/devices/x"),
        (Method::GET, "/api/keys"),
        (Method::POST, "/api/keys"),
        (Method::DELETE, "/api/keys/x"),
        (Method::GET, "/api/users"),
        (Method::POST, "/api/users"),
        (Method::PATCH, "/api/users/x"),
        (Method::DELETE, "/api/users/x"),
        (Method::GET, "/v1/usage"),
    ] {
        let got = world.browser().send(method, path, Body::from("{}")).await;
        got.refused(401, "not_signed_in");
        assert_eq!(got.header("cache-control"), "no-store");
    }
}
