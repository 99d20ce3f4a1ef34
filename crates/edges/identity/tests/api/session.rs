//! Sign-in, cookies, tokens of pages, devices.

use http::Method;
use motet_store::{Role, UserChange};
use serde_json::json;

use crate::support::{AWAY, Browser, DAY, HOUR, PASSWORD, World};

#[tokio::test]
async fn in_and_out() {
    let world = World::new().await;
    let mut browser = world.browser();
    let nobody = json!({
        "object": "session", "id": null, "user": null, "csrf_token": null, "setup": null,
        "providers": [{"name": "Lab", "url": "/api/sign-in/lab"}],
    });
    assert_eq!(browser.get("/api/session").await.ok(), nobody);
    let got = browser.sign_in(" ADA ", PASSWORD).await;
    let cookie = got.header("set-cookie").to_owned();
    assert!(cookie.contains("; HttpOnly; SameSite=Lax;") && cookie.contains("; Path=/;"), "{cookie}");
    assert!(!cookie.contains("Secure"));
    assert_eq!(got.header("cache-control"), "no-store");
    assert_eq!(got.header("access-control-allow-origin"), "");
    let signed_in = got.ok();
    assert_eq!(signed_in["user"]["login"], "ada");
    assert_eq!(browser.get("/api/session").await.ok(), signed_in);
    assert!(!signed_in.to_string().contains(browser.cookie.as_ref().unwrap()));
    let old = browser.clone();
    browser.delete("/api/session").await.ok();
    assert_eq!(browser.cookie, None);
    let mut old = old.clone();
    let got = old.get("/api/session").await;
    assert_eq!((got.cookie().as_deref(), got.ok()), (Some(""), nobody));
    browser.get("/api/devices").await.refused(401, "not_signed_in");
}

#[tokio::test]
async fn who_is_wrong_is_not_told() {
    let world = World::new().await;
    let off = world.user("off", Role::Member).await;
    let disable = UserChange { is_disabled: Some(true), ..UserChange::default() };
    world.store.update_user(&off.org, &off.id, &disable).await.unwrap();
    let mut answers = Vec::new();
    for (login, password) in [("ada", "wrong"), ("nobody", PASSWORD), ("off", PASSWORD), ("", "")] {
        let got = world.browser().sign_in(login, password).await;
        got.refused(401, "wrong_login");
        assert_eq!(got.header("set-cookie"), "");
        answers.push(got.text);
    }
    answers.dedup();
    assert_eq!(answers.len(), 1);
}

#[tokio::test]
async fn tries_are_throttled() {
    let world = World::new().await;
    let mut browser = world.browser();
    for _ in 0..5 {
        browser.sign_in("ada", "wrong").await.refused(401, "wrong_login");
    }
    // From anywhere, in any case, even with the right password.
    let mut other = world.browser();
    other.peer = "198.51.100.1:1";
    let got = other.sign_in("Ada ", PASSWORD).await;
    got.refused(429, "rate_limit_exceeded");
    assert_eq!((got.header("retry-after"), got.header("retry-after-ms")), ("1", "1000"));
    // Whoever waits as told gets in.
    world.wait(1000);
    other.sign_in("ada", PASSWORD).await.ok();
    // An address that tries many logins.
    for n in 0..15 {
        browser.sign_in(&format!("user{n}"), "wrong").await.refused(401, "wrong_login");
    }
    browser.sign_in("user99", "wrong").await.refused(429, "rate_limit_exceeded");
    // A session does not help to find its password out.
    for _ in 0..5 {
        other
            .post("/api/session/password", json!({"old": "x", "new": "y"}))
            .await
            .refused(403, "wrong_password");
    }
    let body = json!({"old": PASSWORD, "new": "battery staple"});
    other.post("/api/session/password", body).await.refused(429, "rate_limit_exceeded");
}

#[tokio::test]
async fn a_new_token_is_set_on_whatever_answer() {
    let world = World::new().await;
    let mut browser = world.signed_in("ada").await;
    for (method, path, status) in [
        (Method::GET, "/api/session", 200),
        (Method::GET, "/v1/usage", 200),
        (Method::DELETE, "/api/keys/none", 404),
        (Method::POST, "/api/keys", 400),
    ] {
        let before = browser.cookie.clone();
        assert_eq!(browser.get("/api/session").await.cookie(), None);
        world.wait(HOUR);
        let got = browser.send(method, path, "{}".into()).await;
        assert_eq!(got.status, status, "{path}: {}", got.text);
        assert!(got.cookie().is_some() && browser.cookie != before, "{path}");
    }
    // A copy of a token that was replaced ends the session, for both.
    let mut copy = browser.clone();
    world.wait(HOUR);
    browser.get("/api/session").await.ok();
    browser.get("/api/devices").await.ok();
    world.wait(HOUR / 2);
    assert_eq!(copy.get("/api/session").await.ok()["user"], json!(null));
    browser.get("/api/devices").await.refused(401, "not_signed_in");
}

#[tokio::test]
async fn changes_show_that_the_own_page_sends_them() {
    let world = World::new().await;
    let browser = world.signed_in("ada").await;
    let check = async |change: fn(&mut Browser<'_>), path, status: u16| {
        let mut browser = browser.clone();
        change(&mut browser);
        let got = match path {
            "/api/devices" => browser.get(path).await,
            "/api/keys/none" => browser.delete(path).await,
            _ => browser.patch(path, json!({"display_name": "Ada L."})).await,
        };
        if status == 403 { got.refused(403, "invalid_csrf_token") } else { assert_eq!(got.status, status) }
    };
    let without: fn(&mut Browser<'_>) = |browser| browser.csrf = None;
    let wrong: fn(&mut Browser<'_>) = |browser| browser.csrf = Some("x".repeat(27));
    let foreign: fn(&mut Browser<'_>) = |b| b.extra = vec![("origin", "http://evil.example".into())];
    let opaque: fn(&mut Browser<'_>) = |b| b.extra = vec![("origin", "null".into())];
    let port: fn(&mut Browser<'_>) = |b| b.extra = vec![("origin", "http://localhost:9".into())];
    let own: fn(&mut Browser<'_>) = |b| b.extra = vec![("origin", "http://LOCALHOST:8080".into())];
    for change in [without, wrong, foreign, opaque, port] {
        check(change, "/api/me", 403).await;
        check(change, "/api/keys/none", 403).await;
        check(change, "/api/devices", 200).await;
    }
    check(own, "/api/me", 200).await;
    check(own, "/api/keys/none", 404).await;
    // Another session's token is none of this one's.
    let mut mixed = Browser { csrf: world.signed_in("ada").await.csrf, ..browser.clone() };
    mixed.patch("/api/me", json!({})).await.refused(403, "invalid_csrf_token");
    // Signing in from another page would make people somebody else.
    let mut stranger = world.browser();
    stranger.extra = vec![("origin", "http://evil.example".into())];
    stranger.sign_in("ada", PASSWORD).await.refused(403, "invalid_csrf_token");
    // A form can't say that it is JSON.
    let mut form = world.browser();
    form.extra = vec![("content-type", "text/plain".into())];
    form.sign_in("ada", PASSWORD).await.refused(415, "unsupported_content_type");
    // A key needs no token, and counts before a cookie.
    let program = world.program("ada", json!(["admin"])).await;
    let mut both = Browser { key: program.key, csrf: None, ..browser.clone() };
    both.extra = vec![("origin", "http://evil.example".into())];
    both.patch("/api/me", json!({"display_name": "Countess"})).await.ok();
}

#[tokio::test]
async fn behind_a_proxy() {
    let world = World::at(Some("https://chat.example")).await;
    world.owner().await;
    let mut browser = world.browser();
    browser.peer = "127.0.0.1:9";
    browser.extra = vec![
        ("origin", "https://chat.example".into()),
        ("x-forwarded-for", "10.0.0.1, 203.0.113.9".into()),
        ("user-agent", "Lynx".into()),
    ];
    let got = browser.sign_in("ada", PASSWORD).await;
    assert!(got.header("set-cookie").ends_with("; Secure"), "{}", got.header("set-cookie"));
    browser.patch("/api/me", json!({"display_name": "Ada"})).await.ok();
    let device = browser.get("/api/devices").await.ok()["data"][0].clone();
    assert_eq!((&device["address"], &device["user_agent"]), (&json!("203.0.113.9"), &json!("Lynx")));
    world.wait(HOUR);
    assert!(browser.get("/api/session").await.header("set-cookie").ends_with("; Secure"));
    browser.extra[0].1 = "http://chat.example".into();
    browser.patch("/api/me", json!({})).await.refused(403, "invalid_csrf_token");
}

#[tokio::test]
async fn another_password_ends_the_other_sessions() {
    let world = World::new().await;
    let (mut one, mut other) = (world.signed_in("ada").await, world.signed_in("ada").await);
    let change = async |browser: &mut Browser<'_>, old: &str, new: &str| {
        browser.post("/api/session/password", json!({"old": old, "new": new})).await
    };
    change(&mut one, "wrong", "battery staple").await.refused(403, "wrong_password");
    let short = change(&mut one, PASSWORD, "short").await;
    short.refused(400, "invalid_value");
    assert_eq!(short.json()["error"]["param"], "new");
    other.get("/api/devices").await.ok();
    change(&mut one, PASSWORD, "battery staple").await.ok();
    one.get("/api/devices").await.ok();
    other.get("/api/devices").await.refused(401, "not_signed_in");
    world.browser().sign_in("ada", PASSWORD).await.refused(401, "wrong_login");
    world.browser().sign_in("ada", "battery staple").await.ok();
    // A key is no session.
    let mut program = world.browser();
    program.sign_in("ada", "battery staple").await.ok();
    let made = program.post("/api/keys", json!({"name": "k", "scopes": ["admin"]})).await.ok();
    let mut program =
        Browser { key: Some(made["key"].as_str().unwrap().to_owned()), cookie: None, csrf: None, ..program };
    change(&mut program, "battery staple", PASSWORD).await.refused(403, "session_required");
    program.delete("/api/session").await.refused(403, "session_required");
}

#[tokio::test]
async fn devices_are_the_users_own() {
    let world = World::new().await;
    world.user("bob", Role::Member).await;
    let mut bob = world.signed_in("bob").await;
    let mut ada = world.signed_in("ada").await;
    world.wait(1000);
    let mut laptop = world.signed_in("ada").await;
    let list = ada.get("/api/devices").await.ok();
    let devices = list["data"].as_array().unwrap();
    assert_eq!((devices.len(), &list["has_more"], &list["object"]), (2, &json!(false), &json!("list")));
    assert_eq!(devices[0]["address"], AWAY.split(':').next().unwrap());
    let current: Vec<_> = devices.iter().map(|device| device["is_current"].as_bool().unwrap()).collect();
    assert_eq!(current, [false, true]);
    let id = devices[0]["id"].as_str().unwrap().to_owned();
    bob.delete(&format!("/api/devices/{id}")).await.refused(404, "not_found");
    laptop.get("/api/devices").await.ok();
    assert_eq!(ada.delete(&format!("/api/devices/{id}")).await.ok()["id"], id.as_str());
    laptop.get("/api/devices").await.refused(401, "not_signed_in");
    let mut phone = world.signed_in("ada").await;
    assert_eq!(ada.delete("/api/devices").await.ok()["count"], 1);
    phone.get("/api/devices").await.refused(401, "not_signed_in");
    ada.get("/api/devices").await.ok();
    bob.get("/api/devices").await.ok();
    // What is not seen for two weeks is over.
    world.wait(14 * DAY);
    ada.get("/api/devices").await.refused(401, "not_signed_in");
}
