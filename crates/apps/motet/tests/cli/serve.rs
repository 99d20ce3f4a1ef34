use serde_json::json;

use crate::support::{Server, World};

#[test]
fn serves_from_start_to_stop() {
    let world = World::new();
    let mut server = Server::start(&world, &world.model.path(), &["--no-auth", "--threads", "1"]);
    assert_eq!(server.get("/healthz").status, 200);
    let ready = server.line("Ready: ");
    assert!(ready.contains("tiny") && ready.contains("room for 16384 tokens in 4 MiB"), "{ready}");
    assert_eq!(server.get("/readyz").status, 200);
    let models = server.get("/v1/models");
    assert!(models.status == 200 && models.body.contains("\"tiny\""), "{}", models.body);

    let body = json!({
        "model": "tiny", "stream": true, "max_tokens": 8, "temperature": 0,
        "messages": [{ "role": "user", "content": "hello" }],
    });
    let mut reply = server.post("/v1/chat/completions", &body);
    assert!(reply.line().contains("200"));
    let first = reply.line_with("data: ");
    assert!(first.contains("chat.completion.chunk") && first.contains("\"tiny\""), "{first}");
    let rest = reply.read_rest();
    assert!(rest.contains("\"finish_reason\":\"length\"") && rest.contains("data: [DONE]"), "{rest}");

    let unknown = server.post("/v1/completions", &json!({ "model": "gpt", "prompt": "x" })).read();
    assert_eq!(unknown.status, 404, "{}", unknown.body);
    assert_eq!(server.metric("motet_sequences_failed_total"), 0.0);

    server.signal("-TERM");
    server.line("Motet stopped");
    assert_eq!(server.ended(), 0);
}

/// A client that leaves: its sequence is gone at the next step, and its blocks are free.
#[test]
fn a_client_that_leaves_frees_its_sequence() {
    let world = World::new();
    let server = Server::start(&world, &world.model.path(), &["--threads", "1"]);
    server.line("Ready: ");
    let body = json!({
        "model": "tiny", "stream": true, "max_tokens": 200, "prompt": "hello", "temperature": 1, "n": 4,
    });
    let before = server.metric("motet_sequences_cancelled_total");
    // The tiny model may end a reply before its client leaves; then another one is tried.
    server.wait_until("a sequence is cancelled", |server| {
        let mut reply = server.post("/v1/completions", &body);
        reply.line_with("data: ");
        drop(reply);
        server.metric("motet_sequences_cancelled_total") > before
    });
    server.wait_until("nothing runs", |server| server.metric("motet_sequences_running") == 0.0);
    assert_eq!(server.metric("motet_kv_blocks_used"), 0.0);
}

#[test]
fn interrupt_stops_too() {
    let world = World::new();
    let mut server = Server::start(&world, &world.model.path(), &[]);
    server.line("Ready: ");
    server.signal("-INT");
    assert_eq!(server.ended(), 0);
}

#[test]
fn the_real_model_is_ready_soon_and_answers() {
    let Some(model) = motet_testkit::default_model() else { return };
    let world = World::new();
    let server = Server::start(&world, &model, &["--kv-memory", "256MiB"]);
    server.line("Ready: ");
    let body = json!({
        "model": "SmolLM2-135M-Instruct.Q4_1", "max_tokens": 8, "temperature": 0, "prompt": "The capital of France is",
    });
    let answer = server.post("/v1/completions", &body).read();
    assert!(answer.status == 200 && answer.body.contains(" Paris."), "{}", answer.body);
}
