//! The first account.

use serde_json::json;

use crate::support::{AWAY, HOME, PASSWORD, World};

#[tokio::test]
async fn on_this_machine_no_token_is_needed() {
    let world = World::empty().await;
    let mut browser = world.browser();
    browser.peer = HOME;
    assert_eq!(browser.get("/api/session").await.ok()["setup"], "open");
    let made = browser.post("/api/setup", json!({"login": "Ada", "password": PASSWORD})).await.ok();
    assert_eq!((&made["user"]["login"], &made["user"]["display_name"]), (&json!("ada"), &json!("Ada")));
    assert_eq!((&made["user"]["role"], &made["user"]["tier"]), (&json!("owner"), &json!("free")));
    // It is signed in, and there is no second first account.
    assert_eq!(browser.get("/api/users").await.ok()["data"][0]["login"], "ada");
    assert_eq!(browser.get("/api/session").await.ok()["setup"], json!(null));
    let again = browser.post("/api/setup", json!({"login": "eve", "password": PASSWORD})).await;
    again.refused(403, "setup_done");
}

#[tokio::test]
async fn elsewhere_the_token_is() {
    let world = World::empty().await;
    let token = world.identity.setup_token().await.unwrap().unwrap();
    let mut browser = world.browser();
    let body = |token: Option<&str>| json!({"login": "ada", "password": PASSWORD, "token": token});
    // What makes a request count as one from elsewhere.
    let foreign: [(&str, &[(&str, &str)]); 5] = [
        (AWAY, &[]),
        (HOME, &[("x-forwarded-for", "127.0.0.1")]),
        (HOME, &[("forwarded", "for=127.0.0.1")]),
        (HOME, &[("host", "evil.example:8080")]),
        (AWAY, &[("x-forwarded-for", "127.0.0.1")]),
    ];
    for (peer, headers) in foreign {
        browser.peer = peer;
        browser.extra = headers.iter().map(|&(name, value)| (name, value.to_owned())).collect();
        assert_eq!(browser.get("/api/session").await.ok()["setup"], "token", "{peer} {headers:?}");
        for wrong in [None, Some(""), Some("x"), Some(&token.expose()[1..])] {
            browser.post("/api/setup", body(wrong)).await.refused(403, "setup_token_required");
        }
    }
    // A refused password does not use it up.
    let short = json!({"login": "ada", "password": "short", "token": token.expose()});
    browser.post("/api/setup", short).await.refused(400, "invalid_value");
    browser.post("/api/setup", body(Some(token.expose()))).await.ok();
    assert!(world.identity.setup_token().await.unwrap().is_none());
    browser.post("/api/setup", body(Some(token.expose()))).await.refused(403, "setup_done");
}

#[tokio::test]
async fn accounts_that_others_make_end_it() {
    let world = World::empty().await;
    let token = world.identity.setup_token().await.unwrap().unwrap();
    world.owner().await;
    assert!(world.identity.setup_token().await.unwrap().is_none());
    let body = json!({"login": "eve", "password": PASSWORD, "token": token.expose()});
    world.browser().post("/api/setup", body).await.refused(403, "setup_done");
}

#[tokio::test]
async fn a_page_of_another_origin_makes_none() {
    let world = World::empty().await;
    let mut browser = world.browser();
    browser.peer = HOME;
    browser.extra = vec![("origin", "http://evil.example".into())];
    let body = json!({"login": "eve", "password": PASSWORD});
    browser.post("/api/setup", body).await.refused(403, "invalid_csrf_token");
    // Nor one whose name was pointed at this machine.
    browser.extra = vec![("origin", "http://evil.example:8080".into()), ("host", "evil.example:8080".into())];
    let body = json!({"login": "eve", "password": PASSWORD});
    browser.post("/api/setup", body).await.refused(403, "setup_token_required");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_those_who_race_one_wins() {
    let world = World::empty().await;
    let tries = (0..8).map(|n| {
        let world = &world;
        async move {
            let mut browser = world.browser();
            browser.peer = HOME;
            browser.post("/api/setup", json!({"login": format!("user{n}"), "password": PASSWORD})).await
        }
    });
    let replies = futures_util::future::join_all(tries).await;
    let winners = replies.iter().filter(|reply| reply.status == 200).count();
    assert_eq!(winners, 1);
    for reply in replies.iter().filter(|reply| reply.status != 200) {
        reply.refused(403, "setup_done");
    }
}
