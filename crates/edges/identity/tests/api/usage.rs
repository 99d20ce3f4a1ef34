//! Reports of what was used.

use motet_store::{KeyId, OrgId, Role, UsageEvent, UsageFinish, UsageId, UserId};
use serde_json::{Value, json};

use crate::support::{Browser, DAY, NOW, World};

fn event(n: i64, org: &OrgId, user: &UserId) -> UsageEvent {
    UsageEvent {
        id: UsageId::from_text(format!("e{n}")),
        at: NOW - n * DAY,
        org: org.clone(),
        user: user.clone(),
        key: (n % 2 == 0).then(|| KeyId::new("key_a")),
        request_id: format!("req{n}"),
        model: if n == 1 { "=large".into() } else { "small".into() },
        tier: "free".into(),
        finish: UsageFinish::Stop,
        prompt_tokens: 100,
        cached_tokens: 64,
        output_tokens: 10,
        reasoning_tokens: 0,
        queue_ms: 1,
        ttft_ms: Some(8),
        duration_ms: 40,
        cost_micros: 5,
    }
}

/// Ada with four requests on four days, Bob with one long ago and one yesterday.
async fn world() -> World {
    let world = World::new().await;
    let ada = world.store.user_by_login("ada").await.unwrap().unwrap();
    let bob = world.user("bob", Role::Member).await;
    let mut events: Vec<_> = (0..4).map(|n| event(n, &ada.org, &ada.id)).collect();
    events.push(UsageEvent { id: UsageId::from_text("old"), ..event(40, &bob.org, &bob.id) });
    events.push(UsageEvent { id: UsageId::from_text("bob"), ..event(1, &bob.org, &bob.id) });
    events.push(UsageEvent { id: UsageId::from_text("away"), org: OrgId::new("org_x"), ..events[0].clone() });
    world.store.insert_usage(&events).await.unwrap();
    world
}

fn counts(list: &Value) -> Vec<(String, i64)> {
    let count = |entry: &Value| {
        assert_eq!(entry["object"], "usage");
        (entry["id"].as_str().unwrap().to_owned(), entry["requests"].as_i64().unwrap())
    };
    list["data"].as_array().unwrap().iter().map(count).collect()
}

#[tokio::test]
async fn sums_by_group() {
    let world = world().await;
    let bob = world.store.user_by_login("bob").await.unwrap().unwrap();
    let bob_id = bob.id.as_str();
    let check = async |browser: &mut Browser<'_>, query: &str, want: &[(&str, i64)]| {
        let got = counts(&browser.get(&format!("/v1/usage?{query}")).await.ok());
        let want: Vec<_> = want.iter().map(|&(id, count)| (id.to_owned(), count)).collect();
        assert_eq!(got, want, "{query}");
    };
    let mut ada = world.signed_in("ada").await;
    let days = [("2026-11-27", 1), ("2026-11-28", 1), ("2026-11-29", 1), ("2026-11-30", 1)];
    check(&mut ada, "", &days).await;
    check(&mut ada, "group_by=day&from=2026-11-28&to=2026-11-29", &days[1..3]).await;
    check(&mut ada, "group_by=model", &[("=large", 1), ("small", 3)]).await;
    check(&mut ada, "group_by=key", &[("none", 2), ("key_a", 2)]).await;
    check(&mut ada, "user=all&group_by=model", &[("=large", 2), ("small", 3)]).await;
    check(&mut ada, &format!("user={bob_id}"), &[("2026-11-29", 1)]).await;
    check(&mut ada, &format!("user={bob_id}&from=2026-10-01"), &[("2026-10-21", 1), ("2026-11-29", 1)]).await;
    let all = counts(&ada.get("/v1/usage?user=all&group_by=user").await.ok());
    assert_eq!(all.iter().map(|(_, count)| count).sum::<i64>(), 5);
    // Pages.
    check(&mut ada, "limit=3", &days[..3]).await;
    check(&mut ada, "limit=3&after=2026-11-29", &days[3..]).await;
    check(&mut ada, "limit=1&group_by=key", &[("none", 2)]).await;
    check(&mut ada, "limit=1&group_by=key&after=none", &[("key_a", 2)]).await;
    let page = ada.get("/v1/usage?limit=3").await.ok();
    assert_eq!((&page["has_more"], &page["last_id"]), (&json!(true), &json!("2026-11-29")));
    let sum = json!({
        "object": "usage", "id": "2026-11-27", "requests": 1, "prompt_tokens": 100, "cached_tokens": 64,
        "output_tokens": 10, "reasoning_tokens": 0, "cost_micros": 5,
    });
    assert_eq!(page["data"][0], sum);
}

#[tokio::test]
async fn rows_stream_as_csv() {
    let world = world().await;
    let mut ada = world.signed_in("ada").await;
    let got = ada.get("/v1/usage?format=csv").await;
    assert_eq!(got.header("content-type"), "text/csv; charset=utf-8");
    let lines: Vec<_> = got.text.lines().collect();
    assert_eq!(lines.len(), 5, "{}", got.text);
    assert!(lines[0].starts_with("id,time,") && lines[1].starts_with("e3,2026-11-27T"));
    assert_eq!(ada.get("/v1/usage?format=csv&user=all").await.text.lines().count(), 6);
    let sums = ada.get("/v1/usage?format=csv&group_by=model").await;
    let want = "model,requests,prompt_tokens,cached_tokens,output_tokens,reasoning_tokens,cost_micros\n\
                '=large,1,100,64,10,0,5\nsmall,3,300,192,30,0,15\n";
    assert_eq!(sums.text, want);
}

#[tokio::test]
async fn long_reports_stream_page_by_page() {
    let world = World::new().await;
    let ada = world.store.user_by_login("ada").await.unwrap().unwrap();
    let models = (0..1_203).map(|n| UsageEvent {
        model: format!("model-{n:05}"),
        at: NOW,
        ..event(n, &ada.org, &ada.id)
    });
    world.store.insert_usage(&models.collect::<Vec<_>>()).await.unwrap();
    let mut browser = world.signed_in("ada").await;
    let sums = browser.get("/v1/usage?format=csv&group_by=model").await.text;
    assert_eq!(sums.lines().count(), 1 + 1_203);
    assert!(sums.lines().skip(1).is_sorted());
    assert_eq!(browser.get("/v1/usage?format=csv").await.text.lines().count(), 1 + 1_203);
}

#[tokio::test]
async fn members_read_their_own() {
    let world = world().await;
    let ada = world.store.user_by_login("ada").await.unwrap().unwrap();
    let bob = world.store.user_by_login("bob").await.unwrap().unwrap();
    let none = "insufficient_permissions";
    let mut browser = world.signed_in("bob").await;
    let mut program = world.program("bob", json!(["usage"])).await;
    for reader in [&mut browser, &mut program] {
        assert_eq!(counts(&reader.get("/v1/usage").await.ok()), [("2026-11-29".to_owned(), 1)]);
        reader.get(&format!("/v1/usage?user={}", bob.id.as_str())).await.ok();
        for query in [format!("user={}", ada.id.as_str()), "user=all".into(), "user=nobody".into()] {
            reader.get(&format!("/v1/usage?{query}")).await.refused(403, none);
            reader.get(&format!("/v1/usage?format=csv&{query}")).await.refused(403, none);
        }
        assert_eq!(
            counts(&reader.get("/v1/usage?group_by=user").await.ok()),
            [(bob.id.as_str().to_owned(), 1)]
        );
    }
    world.program("bob", json!(["chat"])).await.get("/v1/usage").await.refused(403, none);
    world.program("ada", json!(["usage"])).await.get("/v1/usage?user=all").await.refused(403, none);
    world.program("ada", json!(["admin"])).await.get("/v1/usage?user=all").await.ok();
    let mut ada = world.signed_in("ada").await;
    ada.get("/v1/usage?user=user_nobody").await.refused(404, "not_found");
    world.browser().get("/v1/usage").await.refused(401, "not_signed_in");
}
