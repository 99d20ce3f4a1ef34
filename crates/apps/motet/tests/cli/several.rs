//! Several models in one server.

use std::path::PathBuf;

use motet_testkit::{TinyModel, TinyModelFile, tiny_model_file};
use serde_json::{Value, json};

use crate::support::{Response, Server, World};

/// A small and a large model, and a configuration with them.
struct Two {
    world: World,
    _large: TinyModelFile,
    config: PathBuf,
}

impl Two {
    /// `more` is added to the configuration.
    fn new(more: &str) -> Self {
        let world = World::new();
        let large = tiny_model_file(&TinyModel { layers: 4, seed: 2, ..TinyModel::default() });
        let config = world.home.path().join("motet.toml");
        let text = format!(
            "engine.kv_memory = \"8MiB\"\nengine.threads = 1\n\
             [[models]]\nname = \"small\"\nmodel = {:?}\nroles = [\"mini\", \"fast\"]\naliases = [\"gpt-4o-mini\"]\n\
             [[models]]\nname = \"large\"\nmodel = {:?}\nroles = [\"reasoning\"]\nsmaller = \"small\"\ncontext = 128\n\
             description = \"Code and mathematics\"\n{more}",
            world.model(),
            large.path(),
        );
        std::fs::write(&config, text).unwrap();
        Self { world, _large: large, config }
    }

    fn config(&self) -> &str {
        self.config.to_str().unwrap()
    }
}

fn ask(server: &Server, model: &str, prompt: &str) -> Response {
    let body = json!({
        "model": model, "prompt": prompt, "max_tokens": 12, "temperature": 0, "ignore_eos": true,
    });
    server.post("/v1/completions", &body).read()
}

fn text(answer: &Response) -> String {
    let json: Value = serde_json::from_str(&answer.body).unwrap();
    json["choices"][0]["text"].as_str().unwrap().to_owned()
}

#[test]
fn two_models_answer_beside_each_other() {
    let two = Two::new("");
    let mut server = Server::start_models(&two.world, &two.config);
    let ready = server.line("Ready: ");
    assert!(ready.contains("small on") && ready.contains("in 4 MiB of f16"), "half of the memory: {ready}");
    assert!(server.line("Ready: ").contains("large on"));
    let check = |asked: &str, prompt: &str, id: &str, why: &str| {
        let answer = ask(&server, asked, prompt);
        assert_eq!(answer.status, 200, "{asked}: {}", answer.body);
        assert_eq!(
            (answer.header("x-motet-model"), answer.header("x-motet-model-reason")),
            (id, why),
            "{asked}"
        );
        assert!(answer.body.contains(&format!("\"model\":\"{id}\"")), "{asked}: {}", answer.body);
        text(&answer)
    };
    let small = check("small", "hello you", "small", "exact");
    let large = check("large", "hello you", "large", "exact");
    assert_ne!(small, large, "each name has its own weights");
    assert_eq!(check("gpt-4o-mini", "hello you", "small", "alias:gpt-4o-mini"), small);
    assert_eq!(check("reasoning", "hello you", "large", "role:reasoning"), large);
    assert_eq!(check("auto", "hello you", "small", "auto:easy"), small);
    check("auto", "prove it step by step", "large", "auto:hard:math,steps");
    for unknown in ["tiny", "Small", "small ", "../small", ""] {
        assert_eq!(ask(&server, unknown, "hello").status, 404, "{unknown}");
    }
    assert_eq!(ask(&server, "large", &"hello ".repeat(100)).status, 400, "the configured context is 128");
    let list = server.get("/v1/models").body;
    let list: Value = serde_json::from_str(&list).unwrap();
    let motet = |i: usize| list["data"][i]["motet"].clone();
    assert_eq!((&list["data"][0]["id"], &motet(0)["roles"]), (&json!("small"), &json!(["mini", "fast"])));
    assert_eq!(
        (&motet(1)["context_length"], &motet(1)["description"]),
        (&json!(128), &json!("Code and mathematics"))
    );
    for model in ["small", "large"] {
        let name = format!("motet_output_tokens_total{{model=\"{model}\"}}");
        server.wait_until(model, |server| server.metric(&name) >= 24.0);
    }
    server.signal("-TERM");
    server.line("Motet stopped");
    assert_eq!(server.ended(), 0);
}

#[test]
fn a_model_that_is_not_there_leaves_the_others() {
    let two = Two::new("[[models]]\nname = \"lost\"\nmodel = \"/no/such/model.gguf\"\n");
    let server = Server::start_models(&two.world, &two.config);
    let warning = server.line("warning: lost is not served: ");
    assert!(warning.contains("/no/such/model.gguf"), "{warning}");
    assert_eq!(server.get("/readyz").status, 200);
    assert_eq!(ask(&server, "small", "hello").status, 200);
    assert_eq!(ask(&server, "lost", "hello").status, 503);
    assert_eq!(server.metric("motet_model_ready{model=\"lost\"}"), 0.0);
}

#[test]
fn none_that_can_be_loaded_is_the_end() {
    let world = World::new();
    let config = world.home.path().join("motet.toml");
    let text = "[[models]]\nmodel = \"/no/a.gguf\"\n[[models]]\nmodel = \"/no/b.gguf\"\n";
    std::fs::write(&config, text).unwrap();
    let (code, _, err) = world.run(&["serve", "--port", "0", "--config", config.to_str().unwrap()]);
    assert_eq!(code, 2, "{err}");
    assert!(err.contains("warning: a is not served") && err.contains("warning: b is not served"), "{err}");
    assert!(err.lines().last().unwrap().starts_with("error: ") && err.contains("/no/a.gguf"), "{err}");
}

#[test]
fn a_flag_takes_one_of_them() {
    let two = Two::new("");
    let answer = |model: &str| {
        let args = [
            "run",
            "--config",
            two.config(),
            "--model",
            model,
            "--raw",
            "--temperature",
            "0",
            "--max-tokens",
            "8",
            "hi",
        ];
        let (code, out, err) = two.world.run(&args);
        assert_eq!(code, 0, "{model}: {err}");
        out
    };
    let (small, large) = (answer("small"), answer("large"));
    assert_ne!(small, large);
    assert_eq!(answer("reasoning"), large);
    assert_eq!(answer(&two.world.model()), small);
}

#[test]
fn config_check_explains_models() {
    let two = Two::new("");
    let (code, out, err) = two.world.run(&["config", "check", "--config", two.config()]);
    assert_eq!(code, 0, "{err}");
    let line = |start: &str| {
        out.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{start}: {out}"))
    };
    assert!(line("model ").contains(&two.world.model()), "{out}");
    let small = line("models.small");
    assert!(small.contains("4 MiB for conversations, roles mini fast, also gpt-4o-mini"), "{small}");
    let large = line("models.large");
    assert!(large.contains("at most 128 tokens a request, under load small"), "{large}");
    assert!(large.ends_with("Code and mathematics"), "{large}");
}
