//! Other people's accounts.

use motet_store::Role;
use serde_json::{Value, json};

use crate::support::{NOW, PASSWORD, World};

#[tokio::test]
async fn users_are_made_changed_and_removed() {
    let world = World::new().await;
    let mut ada = world.signed_in("ada").await;
    let made = ada.post("/api/users", json!({"login": "Bob", "tier": "pro", "role": "admin"})).await.ok();
    let id = made["id"].as_str().unwrap().to_owned();
    let password = made["password"].as_str().unwrap().to_owned();
    let mut shown = made.clone();
    shown.as_object_mut().unwrap().remove("password");
    let want = json!({
        "object": "user", "id": id, "org_id": made["org_id"], "login": "bob", "display_name": "Bob",
        "role": "admin", "tier": "pro", "is_disabled": false, "created_at": NOW / 1000,
    });
    assert_eq!(shown, want);
    let mut bob = world.browser();
    bob.sign_in("bob", &password).await.ok();
    let path = format!("/api/users/{id}");
    let reset = ada.patch(&path, json!({"reset_password": true, "display_name": "Robert"})).await.ok();
    assert_eq!(reset["display_name"], "Robert");
    bob.get("/api/devices").await.refused(401, "not_signed_in");
    bob.sign_in("bob", &password).await.refused(401, "wrong_login");
    bob.sign_in("bob", reset["password"].as_str().unwrap()).await.ok();
    // Whoever is disabled is out at once.
    assert_eq!(ada.patch(&path, json!({"is_disabled": true})).await.ok().get("password"), None);
    bob.get("/api/devices").await.refused(401, "not_signed_in");
    ada.patch(&path, json!({"is_disabled": false, "role": "member", "tier": "free"})).await.ok();
    ada.post("/api/users", json!({"login": "eve", "password": PASSWORD})).await.ok();
    world.signed_in("eve").await;
    let list = ada.get("/api/users").await.ok();
    let logins: Vec<_> = list["data"].as_array().unwrap().iter().map(|user| &user["login"]).collect();
    assert_eq!(logins, ["ada", "bob", "eve"]);
    let first = ada.get("/api/users?limit=1").await.ok();
    assert_eq!((first["has_more"].as_bool(), &first["data"][0]["login"]), (Some(true), &json!("ada")));
    let rest = format!("/api/users?limit=2&after={}", first["last_id"].as_str().unwrap());
    let rest = ada.get(&rest).await.ok();
    assert_eq!((rest["has_more"].as_bool(), &rest["data"][1]["login"]), (Some(false), &json!("eve")));
    ada.delete(&path).await.ok();
    ada.delete(&path).await.refused(404, "not_found");
}

/// Who may do what to whom.
#[tokio::test]
async fn roles_reach_so_far() {
    let world = World::new().await;
    let away = world.store.create_org("away", NOW).await.unwrap();
    let stranger = world.user_of(&away.id, "stranger", Role::Owner).await;
    let mut ids = vec![("stranger", stranger.id)];
    for (login, role) in [("max", Role::Member), ("amy", Role::Admin), ("oz", Role::Owner)] {
        ids.push((login, world.user(login, role).await.id));
        world.user(&format!("{login}2"), role).await;
    }
    let path = |login: &str| {
        let id = &ids.iter().find(|(name, _)| *name == login).unwrap().1;
        format!("/api/users/{}", id.as_str())
    };
    let none = "insufficient_permissions";
    for (actor, target, status, code) in [
        ("max2", "max", 403, none),
        ("max2", "stranger", 403, none),
        ("amy2", "max", 200, ""),
        ("amy2", "amy", 403, none),
        ("amy2", "oz", 403, none),
        ("amy2", "stranger", 404, "not_found"),
        ("oz2", "max", 200, ""),
        ("oz2", "amy", 200, ""),
        ("oz2", "oz", 200, ""),
        ("oz2", "stranger", 404, "not_found"),
    ] {
        let mut browser = world.signed_in(actor).await;
        for body in [json!({"display_name": "X"}), json!({"reset_password": true}), json!({})] {
            let got = browser.patch(&path(target), body).await;
            assert_eq!(got.status, status, "{actor} {target}: {}", got.text);
            if status != 200 {
                got.refused(status, code);
            }
        }
        if status != 200 {
            browser.delete(&path(target)).await.refused(status, code);
        }
    }
    let mut amy = world.signed_in("amy2").await;
    for role in ["admin", "owner"] {
        amy.post("/api/users", json!({"login": "new", "role": role})).await.refused(403, none);
        amy.patch(&path("max"), json!({"role": role})).await.refused(403, none);
    }
    amy.post("/api/users", json!({"login": "new"})).await.ok();
    let mut max = world.signed_in("max2").await;
    max.get("/api/users").await.refused(403, none);
    max.post("/api/users", json!({"login": "newer"})).await.refused(403, none);
    // By key, it is for those with the scope.
    world.program("oz2", json!(["chat", "usage"])).await.get("/api/users").await.refused(403, none);
    world.program("oz2", json!(["admin"])).await.get("/api/users").await.ok();
    // The list is the organisation's.
    let list = amy.get("/api/users").await;
    assert!(!list.text.contains("stranger"), "{}", list.text);
}

#[tokio::test]
async fn the_last_owner_stays() {
    let world = World::new().await;
    let ada = world.store.user_by_login("ada").await.unwrap().unwrap();
    let path = format!("/api/users/{}", ada.id.as_str());
    let mut browser = world.signed_in("ada").await;
    browser.delete(&path).await.refused(400, "last_owner");
    browser.patch(&path, json!({"role": "member"})).await.refused(400, "last_owner");
    browser.patch(&path, json!({"is_disabled": true})).await.refused(400, "last_owner");
    let other = world.user("oz", Role::Owner).await;
    // Of two owners who go at once, one stays.
    let mut oz = world.signed_in("oz").await;
    let others = format!("/api/users/{}", other.id.as_str());
    let (one, two) = tokio::join!(browser.delete(&path), oz.delete(&others));
    let went = [one, two].iter().filter(|reply| reply.status == 200).count();
    assert_eq!(went, 1);
}

#[tokio::test]
async fn people_name_themselves() {
    let world = World::new().await;
    world.user("bob", Role::Member).await;
    let mut bob = world.signed_in("bob").await;
    let changed: Value = bob.patch("/api/me", json!({"display_name": " Bob B. "})).await.ok();
    assert_eq!((&changed["display_name"], &changed["role"]), (&json!("Bob B."), &json!("member")));
    bob.patch("/api/me", json!({"role": "owner"})).await.refused(400, "unsupported_parameter");
    bob.patch("/api/me", json!({"tier": "pro"})).await.refused(400, "unsupported_parameter");
}
