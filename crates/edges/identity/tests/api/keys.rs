//! The caller's own keys.

use motet_store::Role;
use serde_json::json;

use crate::support::{NOW, World};

#[tokio::test]
async fn a_key_is_shown_once_and_works_until_revoked() {
    let world = World::new().await;
    let mut ada = world.signed_in("ada").await;
    let body = json!({"name": "laptop", "scopes": ["usage", "chat"], "expires_at": NOW / 1000 + 60});
    let made = ada.post("/api/keys", body).await.ok();
    let secret = made["key"].as_str().unwrap().to_owned();
    assert!(secret.starts_with(made["prefix"].as_str().unwrap()) && secret.len() == 47);
    let mut shown = made.clone();
    shown.as_object_mut().unwrap().remove("key");
    let want = json!({
        "object": "api_key", "id": made["id"], "name": "laptop", "prefix": made["prefix"],
        "scopes": ["chat", "usage"], "created_at": NOW / 1000, "expires_at": NOW / 1000 + 60,
        "last_used_at": null, "revoked_at": null,
    });
    assert_eq!(shown, want);
    let list = ada.get("/api/keys").await;
    assert!(!list.text.contains(&secret));
    assert_eq!(list.ok()["data"], json!([want]));
    let mut program = world.browser();
    program.key = Some(secret);
    program.get("/v1/usage").await.ok();
    assert_eq!(ada.get("/api/keys").await.ok()["data"][0]["last_used_at"], NOW / 1000);
    program.get("/api/keys").await.refused(403, "insufficient_permissions");
    let id = made["id"].as_str().unwrap();
    assert_eq!(ada.delete(&format!("/api/keys/{id}")).await.ok()["deleted"], true);
    program.get("/v1/usage").await.refused(401, "not_signed_in");
    ada.delete(&format!("/api/keys/{id}")).await.refused(404, "not_found");
    assert_eq!(ada.get("/api/keys").await.ok()["data"][0]["revoked_at"], NOW / 1000);
    // Left alone, it ends in its time.
    let body = json!({"name": "short", "expires_at": NOW / 1000 + 60});
    program.key = Some(ada.post("/api/keys", body).await.ok()["key"].as_str().unwrap().to_owned());
    program.get("/v1/usage").await.ok();
    world.wait(60_000);
    program.get("/v1/usage").await.refused(401, "not_signed_in");
}

#[tokio::test]
async fn keys_of_others_are_out_of_reach() {
    let world = World::new().await;
    world.user("bob", Role::Member).await;
    let (mut ada, mut bob) = (world.signed_in("ada").await, world.signed_in("bob").await);
    let made = bob.post("/api/keys", json!({"name": "bobs"})).await.ok();
    let id = made["id"].as_str().unwrap();
    assert_eq!(ada.get("/api/keys").await.ok()["data"], json!([]));
    ada.delete(&format!("/api/keys/{id}")).await.refused(404, "not_found");
    assert_eq!(bob.get("/api/keys").await.ok()["data"][0]["revoked_at"], json!(null));
    // A member has no key that could manage, and a key without the scope makes none.
    let body = json!({"name": "rise", "scopes": ["admin"]});
    bob.post("/api/keys", body.clone()).await.refused(403, "insufficient_permissions");
    let mut program = world.program("ada", json!(["chat", "usage"])).await;
    program.post("/api/keys", body.clone()).await.refused(403, "insufficient_permissions");
    let mut program = world.program("ada", json!(["admin"])).await;
    program.post("/api/keys", body).await.ok();
}

#[tokio::test]
async fn lists_come_in_pages() {
    let world = World::new().await;
    let mut ada = world.signed_in("ada").await;
    for n in 0..5 {
        ada.post("/api/keys", json!({"name": format!("key{n}")})).await.ok();
        world.wait(1);
    }
    let (mut names, mut after) = (Vec::new(), String::new());
    loop {
        let page = ada.get(&format!("/api/keys?limit=2&after={after}")).await.ok();
        let data = page["data"].as_array().unwrap();
        assert_eq!((&page["first_id"], &page["last_id"]), (&data[0]["id"], &data[data.len() - 1]["id"]));
        names.extend(data.iter().map(|key| key["name"].as_str().unwrap().to_owned()));
        if page["has_more"] == false {
            break;
        }
        after = page["last_id"].as_str().unwrap().to_owned();
    }
    assert_eq!(names, ["key4", "key3", "key2", "key1", "key0"]);
}
