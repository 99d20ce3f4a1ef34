use std::path::PathBuf;

use serde_json::{Value, json};

use crate::support::{Response, Server, World};

fn ready(world: &World, args: &[&str]) -> Server {
    let server = Server::start(world, &world.model.path(), &[args, &["--threads", "1"]].concat());
    server.line("Ready: ");
    server
}

fn lines(count: usize) -> String {
    let line = |n| {
        let body = json!({
            "model": "tiny", "prompt": format!("hello {n}"), "max_tokens": 24, "temperature": 0, "ignore_eos": true,
        });
        json!({ "custom_id": format!("line-{n}"), "method": "POST", "url": "/v1/completions", "body": body })
            .to_string()
    };
    (0..count).map(line).collect::<Vec<_>>().join("\n")
}

fn json_of(response: &Response) -> Value {
    assert_eq!(response.status, 200, "{}", response.body);
    serde_json::from_str(&response.body).unwrap()
}

/// Uploads the lines and makes a batch of them; its id.
fn batch(server: &Server, key: &str, lines: &str) -> String {
    let file = json_of(&server.upload_as(key, lines))["id"].clone();
    let body = json!({ "input_file_id": file, "endpoint": "/v1/completions", "completion_window": "24h" });
    let made = json_of(&server.post_as(key, "/v1/batches", &body).read());
    made["id"].as_str().unwrap().to_owned()
}

fn state(server: &Server, key: &str, batch: &str) -> Value {
    json_of(&server.get_as(key, &format!("/v1/batches/{batch}")))
}

fn until_ended(server: &Server, key: &str, batch: &str) -> Value {
    let has_ended = |state: &Value| ["completed", "failed"].contains(&state["status"].as_str().unwrap());
    server.wait_until("the batch ends", |server| has_ended(&state(server, key, batch)));
    state(server, key, batch)
}

fn content(server: &Server, key: &str, file: &Value) -> Vec<Value> {
    let content = server.get_as(key, &format!("/v1/files/{}/content", file.as_str().unwrap()));
    assert_eq!(content.status, 200, "{}", content.body);
    content.body.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// How many answers are in the batch's file, whole or cut.
fn answered(world: &World, batch: &str) -> usize {
    let name = format!("file-{}o", batch.trim_start_matches("batch_"));
    let path: PathBuf = world.home.path().join(".local/share/motet/files/t-").join(name);
    std::fs::read(path).map_or(0, |bytes| bytes.iter().filter(|&&byte| byte == b'\n').count())
}

/// `kill -9` again and again: every line is answered once, with what it would have been answered anyway.
#[test]
fn a_killed_server_goes_on_where_it_was() {
    const LINES: usize = 300;
    let world = World::new();
    let mut server = ready(&world, &[]);
    let id = batch(&server, "none", &lines(LINES));
    for kill in 1..=3 {
        server.wait_until("some lines are answered", |_| answered(&world, &id) >= kill * 40);
        server.signal("-KILL");
        server.ended();
        assert!(answered(&world, &id) < LINES, "the batch was faster than the kill");
        server = ready(&world, &[]);
    }
    let ended = until_ended(&server, "none", &id);
    assert_eq!(ended["status"], "completed", "{ended}");
    assert_eq!(ended["request_counts"], json!({ "total": LINES, "completed": LINES, "failed": 0 }));
    let answers = content(&server, "none", &ended["output_file_id"]);
    let mut names: Vec<_> = answers.iter().map(|line| line["custom_id"].as_str().unwrap()).collect();
    names.sort_unstable();
    let mut expected: Vec<_> = (0..LINES).map(|n| format!("line-{n}")).collect();
    expected.sort_unstable();
    assert_eq!(names, expected);
    let answer = answers.iter().find(|line| line["custom_id"] == "line-7").unwrap();
    let body = json!({ "model": "tiny", "prompt": "hello 7", "max_tokens": 24, "temperature": 0, "ignore_eos": true });
    let direct = json_of(&server.post("/v1/completions", &body).read());
    assert_eq!(answer["response"]["body"]["choices"], direct["choices"]);
    assert_eq!(answer["response"]["body"]["service_tier"], "flex");
    server.wait_until("the engine is empty", |server| server.metric("motet_sequences_running") == 0.0);
}

#[test]
fn a_batch_is_its_owners_and_ends_with_the_key() {
    let world = World::new();
    let said = |args: &[&str]| {
        let (code, out, err) = world.run(args);
        assert_eq!(code, 0, "{err}");
        out.trim().to_owned()
    };
    let owners = said(&["keys", "create"]);
    said(&["users", "create", "ann"]);
    let anns = said(&["keys", "create", "--user", "ann", "--name", "laptop"]);
    let narrow = said(&["keys", "create", "--user", "ann", "--scopes", "chat"]);
    let mut server = ready(&world, &["--auth", "on"]);
    assert_eq!(server.get_as(&narrow, "/v1/files").status, 403);
    assert_eq!(server.get("/v1/files").status, 401);
    let id = batch(&server, &anns, &lines(3));
    assert_eq!(until_ended(&server, &anns, &id)["request_counts"]["completed"], 3);
    assert_eq!(server.get_as(&owners, &format!("/v1/batches/{id}")).status, 404);

    // What a batch computes is charged to its owner; with the key its lines end.
    let listed = said(&["keys", "list"]);
    let laptop = listed.lines().find(|line| line.contains("laptop")).unwrap().split(' ').next().unwrap();
    let id = batch(&server, &anns, &lines(2_000));
    server.wait_until("the batch runs", |server| {
        state(server, &anns, &id)["request_counts"]["completed"].as_u64() > Some(0)
    });
    let other = said(&["keys", "create", "--user", "ann"]);
    said(&["keys", "revoke", laptop]);
    let ended = until_ended(&server, &other, &id);
    let errors = content(&server, &other, &ended["error_file_id"]);
    assert!(errors.iter().all(|line| line["response"]["status_code"] == 401));
    let completed = ended["request_counts"]["completed"].as_u64().unwrap();
    assert_eq!(completed + errors.len() as u64, 2_000);
    server.signal("-TERM");
    server.line("Motet stopped");
    server.ended();
    let usage: Value = serde_json::from_str(&said(&["usage", "--user", "ann", "--json"])).unwrap();
    assert_eq!(usage[0]["requests"].as_u64().unwrap(), 3 + completed);
}

#[test]
fn without_a_database_the_rest_goes_on() {
    let world = World::new();
    std::fs::create_dir_all(world.home.path().join(".local/share")).unwrap();
    std::fs::write(world.home.path().join(".local/share/motet"), "in the way").unwrap();
    let server = ready(&world, &[]);
    let refused = server.get("/v1/files");
    assert!(refused.status == 503 && refused.body.contains("can't be made"), "{}", refused.body);
    assert_eq!(server.upload_as("none", "x").status, 503);
    let body = json!({ "model": "tiny", "prompt": "hello", "max_tokens": 2 });
    assert_eq!(server.post("/v1/completions", &body).read().status, 200);
}
