//! Batches from their making to their end.

use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Json;
use axum::response::IntoResponse;
use http::StatusCode;
use motet_gateway::Denial;
use serde_json::{Value, json};

use crate::support::{World, asks, line, many, names};

#[tokio::test]
async fn every_line_is_answered() {
    let world = World::new();
    let client = world.server();
    let mut lines = many(30);
    lines.push(line("streamed", json!({ "stream": true })));
    lines.push(line("whole", json!({ "stream": false })));
    lines.push(line("bad", json!({})));
    *world.model.script.lock() = Some(Box::new(|prompt, _| {
        let error = json!({ "error": { "message": "no" } });
        (prompt == "bad").then(|| (StatusCode::BAD_REQUEST, Json(error)).into_response())
    }));
    let file = client.upload(lines.join("\n").as_bytes()).await;
    let mut body = asks(&file);
    body["metadata"] = json!({ "b": "2", "a": "1" });
    let made = client.post("/v1/batches", body.to_string()).await.json();
    assert_eq!((&made["status"], &made["object"]), (&json!("validating"), &json!("batch")));
    let id = made["id"].as_str().unwrap();
    let ended = client.ended(id).await;
    assert_eq!(ended["status"], "completed", "{ended}");
    assert_eq!(ended["request_counts"], json!({ "total": 33, "completed": 31, "failed": 2 }));
    assert_eq!(ended["metadata"].to_string(), r#"{"b":"2","a":"1"}"#);
    for name in ["in_progress_at", "finalizing_at", "completed_at"] {
        assert!(ended[name].as_i64() >= made["created_at"].as_i64(), "{name}");
    }
    for name in ["failed_at", "expired_at", "cancelling_at", "cancelled_at", "errors"] {
        assert_eq!(ended[name], Value::Null, "{name}");
    }
    assert_eq!(ended["expires_at"].as_i64().unwrap() - ended["created_at"].as_i64().unwrap(), 86_400);

    let (answers, errors) =
        (client.lines(&ended, "output_file_id").await, client.lines(&ended, "error_file_id").await);
    assert_eq!((answers.len(), names(&errors)), (31, vec!["bad", "streamed"]));
    for answer in &answers {
        assert_eq!(
            answer.as_object().unwrap().keys().collect::<Vec<_>>(),
            ["id", "custom_id", "response", "error"]
        );
        assert!(answer["id"].as_str().unwrap().starts_with("batch_req_") && answer["error"].is_null());
        let expected = json!({ "echo": answer["custom_id"], "user": "" });
        assert_eq!(
            answer["response"],
            json!({ "status_code": 200, "request_id": "req_1", "body": expected })
        );
    }
    let streamed = errors.iter().find(|line| line["custom_id"] == "streamed").unwrap();
    assert_eq!(streamed["response"]["status_code"], 400);
    assert_eq!(streamed["response"]["body"]["error"]["param"], "stream");
    assert!(world.model.asked.lock().values().all(|&times| times == 1));
    assert!(world.model.most.load(Ordering::SeqCst) <= 4);

    // Its files are listed, and are its owner's only.
    let listed = client.get("/v1/files?purpose=batch_output").await.json();
    assert_eq!(listed["data"].as_array().unwrap().len(), 2);
    assert_eq!(
        listed["data"][0]["expires_at"].as_i64().unwrap() - ended["completed_at"].as_i64().unwrap(),
        2_592_000
    );
    let other = client.user("org_a", "bob");
    let output = ended["output_file_id"].as_str().unwrap();
    for path in [format!("/v1/batches/{id}"), format!("/v1/files/{output}/content")] {
        assert_eq!(other.get(&path).await.status, 404);
    }
    assert_eq!(other.post(&format!("/v1/batches/{id}/cancel"), "").await.status, 404);
    assert_eq!(other.get("/v1/batches").await.json()["data"], json!([]));
    let late = client.post(&format!("/v1/batches/{id}/cancel"), "").await;
    assert_eq!(late.error(), (400, None, "batch_has_ended".to_owned()));
}

#[tokio::test]
async fn an_input_that_is_wrong_fails_with_its_lines() {
    let world = World::new();
    let client = world.server();
    let lines = [line("a", json!({})), line("a", json!({})), "{".to_owned(), line("b", json!({}))];
    let ended = client.ended(&client.batch(&lines).await).await;
    assert_eq!((&ended["status"], &ended["request_counts"]["total"]), (&json!("failed"), &json!(0)));
    assert_eq!(ended["errors"]["object"], "list");
    let problems = ended["errors"]["data"].as_array().unwrap();
    let told: Vec<_> = problems.iter().map(|problem| (&problem["code"], &problem["line"])).collect();
    assert_eq!(told, [(&json!("duplicate_custom_id"), &json!(2)), (&json!("invalid_json_line"), &json!(3))]);
    assert!(world.model.asked.lock().is_empty(), "nothing is sent before all is checked");
}

#[tokio::test]
async fn refusals_that_pass_are_waited_for() {
    let world = World::new();
    let client = world.server();
    *world.model.script.lock() = Some(Box::new(|prompt, before| {
        let (status, header) = match prompt.len() % 3 {
            0 => (StatusCode::TOO_MANY_REQUESTS, ("retry-after-ms", "3")),
            1 => (StatusCode::SERVICE_UNAVAILABLE, ("retry-after", "0")),
            _ => (StatusCode::SERVICE_UNAVAILABLE, ("x-other", "")),
        };
        (before < 2).then(|| (status, [header], Json(json!({}))).into_response())
    }));
    let ended = client.ended(&client.batch(&many(10)).await).await;
    assert_eq!(ended["request_counts"], json!({ "total": 10, "completed": 10, "failed": 0 }));
    assert_eq!(ended["error_file_id"], Value::Null);
    assert!(world.model.asked.lock().values().all(|&times| times == 3));
}

#[tokio::test]
async fn a_refusal_that_does_not_pass_is_an_answer() {
    let world = World::new();
    let client = world.server();
    *world.model.script.lock() = Some(Box::new(|_, _| {
        let (header, error) = ([("x-should-retry", "false")], json!({ "error": {} }));
        Some((StatusCode::TOO_MANY_REQUESTS, header, Json(error)).into_response())
    }));
    let ended = client.ended(&client.batch(&many(3)).await).await;
    assert_eq!(ended["request_counts"], json!({ "total": 3, "completed": 0, "failed": 3 }));
    assert_eq!(client.lines(&ended, "error_file_id").await[0]["response"]["status_code"], 429);
}

#[tokio::test]
async fn who_may_no_more_gets_no_more() {
    let world = World::new();
    let client = world.server();
    let door = std::sync::Arc::clone(&world.door);
    // The key is revoked while the batch runs.
    *world.model.script.lock() = Some(Box::new(move |prompt, _| {
        if prompt == "5" {
            *door.0.lock() = Some(Denial::Unknown);
        }
        None
    }));
    let ended = client.ended(&client.batch(&many(40)).await).await;
    assert_eq!(ended["status"], "completed");
    let (answers, errors) =
        (client.lines(&ended, "output_file_id").await, client.lines(&ended, "error_file_id").await);
    assert!(answers.len() < 15 && answers.len() + errors.len() == 40, "{}", answers.len());
    for line in &errors {
        assert_eq!(line["response"]["status_code"], 401);
        assert_eq!(line["response"]["body"]["error"]["code"], "invalid_api_key");
    }
    assert_eq!(world.model.asked.lock().len(), answers.len(), "nothing is sent for who is not known");

    // Who can't be looked up is waited for.
    *world.door.0.lock() = Some(Denial::Unavailable("the database is away".into()));
    let id = client.batch(&many(3)).await;
    client.until(&id, |state| state["status"] == "in_progress").await;
    *world.door.0.lock() = None;
    assert_eq!(client.ended(&id).await["request_counts"], json!({ "total": 3, "completed": 3, "failed": 0 }));
}

#[tokio::test]
async fn a_batch_is_cancelled_wherever_it_is() {
    let world = World::new();
    // Before anything runs.
    let client = world.idle();
    let early = client.batch(&many(5)).await;
    let reply = client.post(&format!("/v1/batches/{early}/cancel"), "").await.json();
    assert_eq!((reply["status"].as_str(), reply["cancelling_at"].is_i64()), (Some("cancelling"), true));
    let client = world.server();
    let ended = client.ended(&early).await;
    assert_eq!((&ended["status"], &ended["output_file_id"]), (&json!("cancelled"), &Value::Null));
    assert!(world.model.asked.lock().is_empty());

    // In the middle: what was answered stays.
    let id = client.batch(&many(20)).await;
    client.ended(&id).await;
    *world.model.script.lock() = Some(Box::new(|prompt, _| {
        let is_held = prompt.len() > 1;
        is_held.then(|| (StatusCode::SERVICE_UNAVAILABLE, [("retry-after-ms", "1")]).into_response())
    }));
    let id = client.batch(&many(5)).await;
    client.until(&id, |state| state["request_counts"]["completed"] == 1).await;
    client.post(&format!("/v1/batches/{id}/cancel"), "").await;
    let ended = client.ended(&id).await;
    assert_eq!((ended["status"].as_str(), ended["cancelled_at"].is_i64()), (Some("cancelled"), true));
    assert_eq!(ended["request_counts"], json!({ "total": 5, "completed": 1, "failed": 0 }));
    assert_eq!(names(&client.lines(&ended, "output_file_id").await), ["0"]);
    let again = client.post(&format!("/v1/batches/{id}/cancel"), "").await;
    assert_eq!(again.json()["status"], "cancelled");

    // With lines in flight that never end.
    world.model.room.store(0, Ordering::SeqCst);
    let id = client.batch(&many(5)).await;
    client.until(&id, |state| state["status"] == "in_progress").await;
    client.post(&format!("/v1/batches/{id}/cancel"), "").await;
    assert_eq!(client.ended(&id).await["status"], "cancelled");
}

#[tokio::test]
async fn a_day_is_what_a_batch_has() {
    let world = World::new();
    let client = world.server();
    *world.model.script.lock() = Some(Box::new(|prompt, _| {
        let is_held = prompt.len() > 1;
        is_held.then(|| (StatusCode::SERVICE_UNAVAILABLE, [("retry-after-ms", "1")]).into_response())
    }));
    let id = client.batch(&many(5)).await;
    client.until(&id, |state| state["request_counts"]["completed"] == 1).await;
    world.now.fetch_add(86_400_000, Ordering::SeqCst);
    let ended = client.ended(&id).await;
    assert_eq!((ended["status"].as_str(), ended["expired_at"].is_i64()), (Some("expired"), true));
    assert_eq!(ended["request_counts"], json!({ "total": 5, "completed": 1, "failed": 4 }));
    assert_eq!(names(&client.lines(&ended, "output_file_id").await), ["0"]);
    for line in client.lines(&ended, "error_file_id").await {
        assert_eq!((&line["response"], &line["error"]["code"]), (&Value::Null, &json!("batch_expired")));
    }
}

#[tokio::test]
async fn waiting_batches_are_bounded_and_listed() {
    let world = World::new();
    let mut config = world.config();
    config.batches.of_user = 3;
    config.batches.of_all = 4;
    world.model.room.store(0, Ordering::SeqCst);
    let client = world.server_with(config);
    let mut made = Vec::new();
    for _ in 0..3 {
        made.push(client.batch(&many(1)).await);
    }
    let file = client.upload(b"x").await;
    let refused = client.post("/v1/batches", asks(&file).to_string()).await;
    assert_eq!(refused.error(), (429, None, "storage_limit_reached".to_owned()));
    let other = client.user("org_b", "bob");
    other.batch(&many(1)).await;
    let third = client.user("org_c", "eve");
    let file = third.upload(b"x").await;
    let refused = third.post("/v1/batches", asks(&file).to_string()).await;
    assert_eq!(refused.error(), (503, None, "server_is_overloaded".to_owned()));
    assert_eq!(refused.headers["retry-after"], "60");

    let (mut found, mut after) = (Vec::new(), String::new());
    loop {
        let page = client.get(&format!("/v1/batches?limit=2{after}")).await.json();
        let data = page["data"].as_array().unwrap();
        found.extend(data.iter().map(|batch| batch["id"].as_str().unwrap().to_owned()));
        if page["has_more"] == false {
            break;
        }
        after = format!("&after={}", page["last_id"].as_str().unwrap());
    }
    found.reverse();
    assert_eq!(found, made);
}

/// Batches take turns line by line: a short one ends while a long one runs.
#[tokio::test]
async fn nobody_waits_for_a_long_batch() {
    let world = World::new();
    let mut config = world.config();
    config.lines_at_once = 1;
    let client = world.server_with(config);
    let long = client.batch(&many(2_000)).await;
    client.until(&long, |state| state["request_counts"]["completed"].as_i64() > Some(0)).await;
    let other = client.user("", "bob");
    let short = other.batch(&many(5)).await;
    assert_eq!(other.ended(&short).await["status"], "completed");
    assert_eq!(client.state(&long).await["status"], "in_progress");
    assert_eq!(world.model.most.load(Ordering::SeqCst), 1);
    client.post(&format!("/v1/batches/{long}/cancel"), "").await;
    client.ended(&long).await;
}

#[tokio::test]
async fn old_answers_go() {
    let world = World::new();
    let mut config = world.config();
    config.keep_output = Duration::from_secs(60);
    let client = world.server_with(config.clone());
    let ended = client.ended(&client.batch(&many(2)).await).await;
    let output = ended["output_file_id"].as_str().unwrap().to_owned();
    drop(client);
    world.now.fetch_add(61_000, Ordering::SeqCst);
    // A sweep comes with the start.
    let client = world.server_with(config);
    let begun = std::time::Instant::now();
    while client.get(&format!("/v1/files/{output}")).await.status != 404 {
        assert!(begun.elapsed() < Duration::from_secs(60));
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let input = ended["input_file_id"].as_str().unwrap();
    assert_eq!(
        client.get(&format!("/v1/files/{input}")).await.status,
        200,
        "inputs are their owner's to delete"
    );
}
