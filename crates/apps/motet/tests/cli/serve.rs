use serde_json::json;

use crate::support::{Server, World};

#[test]
fn serves_from_start_to_stop() {
    let world = World::new();
    let mut server = Server::start(&world, &world.model.path(), &["--no-auth", "--threads", "1"]);
    assert_eq!(server.get("/healthz").status, 200);
    let ready = server.line("Ready: ");
    let room = "room for 16,384 tokens, about 14 conversations of 1,149, in 4 MiB of f16";
    assert!(ready.contains("tiny") && ready.contains(room), "{ready}");
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
fn a_shutdown_lets_the_reply_in_flight_end() {
    let world = World::new();
    let mut server = Server::start(&world, &world.model.path(), &["--threads", "1"]);
    server.line("Ready: ");
    let body =
        json!({ "model": "tiny", "stream": true, "prompt": "hello", "max_tokens": 200, "ignore_eos": true });
    let mut reply = server.post("/v1/completions", &body);
    reply.line_with("data: ");
    server.signal("-TERM");
    let rest = reply.read_rest();
    assert!(rest.contains("\"finish_reason\":\"length\"") && rest.contains("data: [DONE]"), "{rest}");
    server.line("Motet stopped");
    assert_eq!(server.ended(), 0);
}

/// The text of a greedy completion, and how many tokens of its prompt were found in the cache.
fn completion(server: &Server, prompt: &str, more: &serde_json::Value) -> (String, u64) {
    let mut body =
        json!({ "model": "tiny", "max_tokens": 20, "temperature": 0, "ignore_eos": true, "prompt": prompt });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let answer = server.post("/v1/completions", &body).read();
    assert_eq!(answer.status, 200, "{}", answer.body);
    let json: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
    let cached = json["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap_or(0);
    (json["choices"][0]["text"].as_str().unwrap().to_owned(), cached)
}

fn started(world: &World, args: &[&str]) -> Server {
    let server = Server::start(world, &world.model.path(), args);
    server.line("Ready: ");
    server
}

#[test]
fn a_prompt_that_comes_again_is_found_in_the_cache() {
    let world = World::new();
    let prompt = "hello you and the user ".repeat(8);
    let check = |args: &[&str], is_found: bool| {
        let server = started(&world, args);
        let (first, cached) = completion(&server, &prompt, &json!({}));
        assert_eq!(cached, 0, "{args:?}");
        let (second, cached) = completion(&server, &prompt, &json!({}));
        assert_eq!(
            (cached > 0, second == first),
            (is_found, true),
            "{args:?}: {cached} {first:?} {second:?}"
        );
        let apart = json!({ "prompt_cache_key": "another" });
        assert_eq!(completion(&server, &prompt, &apart), (first.clone(), 0), "{args:?}");
        server.wait_until("no block is used", |server| server.metric("motet_kv_blocks_used") == 0.0);
        first
    };
    let reply = check(&[], true);
    assert_eq!(check(&["--prefix-cache", "off"], false), reply, "the cache changes no reply");
}

#[test]
fn embeddings_of_a_model_beside() {
    let world = World::new();
    let folder = world.home.path().join("tiny-bert");
    motet_testkit::TinyBert::default().write(&folder);
    let server = Server::start(&world, &world.model.path(), &["--embedding-model", folder.to_str().unwrap()]);
    server.line("Embeddings: tiny-bert gives vectors of 24 numbers");
    server.line("Ready: ");
    let models = server.get("/v1/models").body;
    assert!(models.contains("\"tiny\"") && models.contains("\"tiny-bert\""), "{models}");
    let embed = |input: serde_json::Value| {
        let body = json!({ "model": "tiny-bert", "input": input });
        let answer = server.post("/v1/embeddings", &body).read();
        assert_eq!(answer.status, 200, "{}", answer.body);
        serde_json::from_str::<serde_json::Value>(&answer.body).unwrap()
    };
    let two = embed(json!(["the cat", "a dog"]));
    assert_eq!(two["usage"]["total_tokens"], 8);
    assert_eq!(embed(json!("a dog"))["data"][0]["embedding"], two["data"][1]["embedding"]);
    assert_eq!(server.metric("motet_embedding_tokens_total"), 12.0);
    let chat = server.post("/v1/embeddings", &json!({ "model": "tiny", "input": "x" })).read();
    assert!(chat.status == 404 && chat.body.contains("use 'tiny-bert'"), "{}", chat.body);
}

#[test]
fn keys_and_values_may_be_int8() {
    let world = World::new();
    let server = Server::start(&world, &world.model.path(), &["--kv-format", "int8"]);
    let ready = server.line("Ready: ");
    assert!(ready.contains("room for 26,208 tokens") && ready.contains("4.0 MiB of int8"), "{ready}");
    let (first, _) = completion(&server, "hello you", &json!({}));
    assert!(!first.is_empty());
    assert_eq!(completion(&server, "hello you", &json!({})).0, first);
}

#[test]
fn a_small_arena_spills_and_answers_the_same() {
    let world = World::new();
    let small = ["--kv-memory", "256tok", "--cache-spill", "1MiB"];
    let server = Server::start(&world, &world.model.path(), &small);
    let ready = server.line("Ready: ");
    assert!(ready.contains("room for 256 tokens, less than one conversation of 1,149"), "{ready}");
    let roomy = started(&world, &["--prefix-cache", "off"]);
    let prompts: Vec<String> =
        ["hello ", "you and ", "the user ", "is in "].map(|text| text.repeat(60)).to_vec();
    for prompt in prompts.iter().chain(&prompts) {
        let expected = completion(&roomy, prompt, &json!({})).0;
        assert_eq!(completion(&server, prompt, &json!({})).0, expected, "{prompt:?}");
    }
    assert!(server.metric("motet_kv_blocks_spilled") > 0.0);
    let folder = world.home.path().join(".cache/motet/spill");
    assert_eq!(std::fs::read_dir(folder).unwrap().count(), 0, "the file has no name");
}

#[test]
fn requests_that_can_wait_have_their_lane() {
    let world = World::new();
    let server = started(&world, &[]);
    completion(&server, "hello", &json!({ "service_tier": "flex" }));
    completion(&server, "hello", &json!({}));
    for lane in ["default", "background"] {
        let name = format!("motet_lane_output_tokens_total{{lane=\"{lane}\"}}");
        // A reply's last token is counted after it is sent.
        server.wait_until(lane, |server| server.metric(&name) >= 20.0);
    }
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
