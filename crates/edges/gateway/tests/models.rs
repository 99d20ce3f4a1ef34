//! Several models behind one gateway: names, aliases, roles, `auto`, and models that come and go.

// Helpers of tests may fail as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use futures_util::future::{BoxFuture, FutureExt};
use http::{HeaderMap, Request};
use motet_fleet::Role;
use motet_gateway::{
    Access, Ask, Caller, Denial, Gateway, GatewayConfig, Identified, ModelCard, Outcome, Permit, RateLimits,
};
use motet_types::SubmitError;
use serde_json::{Value, json};
use support::client::{Reply, get, post, send};
use support::{Fake, config, reply, served_as};

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";

fn card(id: &str, aliases: &[&str], roles: &[Role]) -> ModelCard {
    ModelCard {
        id: Some(id.into()),
        aliases: aliases.iter().map(|alias| (*alias).to_owned()).collect(),
        roles: roles.to_vec(),
        description: format!("what {id} is good for"),
        ..ModelCard::default()
    }
}

/// A default model, a small and a big one; each says its name.
struct World {
    gateway: Arc<Gateway>,
    router: Router,
    fakes: Vec<Arc<Fake>>,
}

const IDS: [&str; 3] = ["lab/base", "lab/small", "lab/big"];

fn world(config: GatewayConfig) -> World {
    let cards = vec![
        card("lab/base", &["gpt-4o"], &[Role::Fast]),
        ModelCard { context: Some(300), ..card("lab/small", &[], &[Role::Mini]) },
        card("lab/big", &[], &[Role::Reasoning]),
    ];
    let gateway = Gateway::with_models(config, cards);
    let fakes: Vec<_> = IDS.iter().map(|id| Fake::new(move |_| reply(id))).collect();
    World { router: gateway.router(), gateway, fakes }
}

impl World {
    fn set_ready(&self, index: usize) {
        let size = [20, 10, 30][index];
        self.gateway.set_model_ready(index, served_as(IDS[index], size, self.fakes[index].clone()));
    }
}

fn ready() -> World {
    let world = world(config());
    (0..IDS.len()).for_each(|index| world.set_ready(index));
    world
}

fn chat_body(model: &str, content: &str, stream: bool) -> Value {
    json!({"model": model, "messages": [{"role": "user", "content": content}], "stream": stream})
}

async fn ask(router: &Router, model: &str, content: &str) -> Reply {
    post(router, CHAT, chat_body(model, content, false).to_string()).await
}

#[tokio::test]
async fn the_answer_says_who_gave_it_and_why() {
    let World { router, .. } = ready();
    let check = async |model: &str, content: &str, id: &str, why: &str| {
        for (path, stream) in [(CHAT, false), (CHAT, true), (COMPLETIONS, false), (COMPLETIONS, true)] {
            let body = match path {
                CHAT => chat_body(model, content, stream),
                _ => json!({"model": model, "prompt": content, "stream": stream}),
            };
            let got = post(&router, path, body.to_string()).await;
            assert_eq!(got.status, 200, "{model}: {}", got.text);
            let told = (got.header("x-motet-model"), got.header("x-motet-model-reason"));
            assert_eq!(told, (id, why), "{model} {path} {stream}");
            // What ran is what is named: each fake says its own name.
            let named = format!("\"model\":\"{id}\"");
            assert!(got.text.contains(&named), "{model}: {}", got.text);
            assert!(stream || got.text.contains(&format!("\"{id}\"")), "{model}: {}", got.text);
            let events = got.text.lines().filter(|line| line.starts_with("data: {"));
            assert!(events.clone().all(|line| line.contains(&named)), "{model}: {}", got.text);
        }
    };
    check("lab/small", "Prove it", "lab/small", "exact").await;
    check("lab/big", "hi", "lab/big", "exact").await;
    check("gpt-4o", "hi", "lab/base", "alias:gpt-4o").await;
    check("mini", "Prove it", "lab/small", "role:mini").await;
    check("fast", "hi", "lab/base", "role:fast").await;
    check("auto", "hi", "lab/small", "auto:easy").await;
    check("auto", "Prove that it holds", "lab/big", "auto:hard:math").await;
}

#[tokio::test]
async fn auto_takes_a_model_with_room() {
    let World { router, fakes, .. } = ready();
    let text = "word ".repeat(30);
    let got = ask(&router, "auto", &text).await;
    assert_eq!(got.header("x-motet-model"), "lab/base", "{}", got.text);
    let mut body = chat_body("auto", "hi", false);
    body["max_tokens"] = 60.into();
    let got = post(&router, CHAT, body.to_string()).await;
    assert_eq!(got.header("x-motet-model"), "lab/small", "{}", got.text);
    // A configured context is the model's: what is left of it is what the backend may generate.
    let seen = fakes[1].seen.lock().unwrap().pop().unwrap();
    assert_eq!(seen.max_tokens, 60);
    let got = ask(&router, "lab/small", &"x".repeat(300)).await;
    assert_eq!(got.error().2.as_deref(), Some("context_length_exceeded"));
    assert!(got.text.contains("maximum context length is 300 tokens"), "{}", got.text);
}

/// X07: an unknown name is never served by what happens to be there.
#[tokio::test]
async fn names_that_are_no_models() {
    let World { router, fakes, .. } = ready();
    let long = "x".repeat(10_000);
    let unknown = [
        "no-such-model",
        "",
        "LAB/BASE",
        "Lab/base",
        "lab/base ",
        " lab/base",
        "lab/base\n",
        "AUTO",
        "Mini",
        "../x",
        &long,
    ];
    for (path, key, value) in
        [(CHAT, "messages", json!([{"role": "user", "content": "hi"}])), (COMPLETIONS, "prompt", json!("hi"))]
    {
        let post = async |model: Option<Value>| {
            let mut body = json!({});
            body[key] = value.clone();
            if let Some(model) = model {
                body["model"] = model;
            }
            post(&router, path, body.to_string()).await
        };
        for name in unknown {
            let got = post(Some(json!(name))).await;
            assert_eq!(got.error(), (404, Some("model".into()), Some("model_not_found".into())), "{name}");
            assert!(got.text.len() < 400, "{name}: the answer repeats at most a part of the name");
            assert_eq!(got.header("x-motet-model"), "");
        }
        for absent in [None, Some(Value::Null)] {
            let code = Some("missing_required_parameter".to_owned());
            assert_eq!(post(absent).await.error(), (400, Some("model".into()), code));
        }
        let got = post(Some(json!(["lab/base"]))).await;
        assert_eq!(got.error(), (400, Some("model".into()), Some("invalid_type".into())));
    }
    assert!(fakes.iter().all(|fake| fake.seen.lock().unwrap().is_empty()));
}

#[tokio::test]
async fn the_list_has_what_can_be_used() {
    let world = world(config());
    let ids = async || -> Vec<String> {
        let list = get(&world.router, "/v1/models").await.json();
        let id = |model: &Value| model["id"].as_str().unwrap().to_owned();
        list["data"].as_array().unwrap().iter().map(id).collect()
    };
    assert!(ids().await.is_empty());
    world.set_ready(2);
    assert_eq!(ids().await, ["lab/big"]);
    world.set_ready(0);
    world.gateway.set_model_failed(1, "no file".into());
    assert_eq!(ids().await, ["lab/base", "lab/big"]);
    insta::assert_snapshot!(get(&world.router, "/v1/models").await.text);
    let check = async |path: &str, id: &str| {
        let got = get(&world.router, path).await;
        assert_eq!((got.status.as_u16(), got.json()["id"].as_str()), (200, Some(id)), "{path}: {}", got.text);
    };
    check("/v1/models/lab/base", "lab/base").await;
    check("/v1/models/gpt-4o", "lab/base").await;
    check("/v1/models/reasoning", "lab/big").await;
    assert_eq!(get(&world.router, "/v1/models/nope").await.error().2.as_deref(), Some("model_not_found"));
    assert_eq!(get(&world.router, "/v1/models/lab/small").await.error().2.as_deref(), Some("engine_down"));
}

#[tokio::test]
async fn each_model_has_a_state_of_its_own() {
    let world = world(config());
    let readyz = async || get(&world.router, "/readyz").await.status.as_u16();
    let code = async |model: &str| {
        let got = ask(&world.router, model, "hi").await;
        if got.status == 200 { got.header("x-motet-model").to_owned() } else { got.error().2.unwrap() }
    };
    assert_eq!((readyz().await, code("lab/base").await.as_str()), (503, "model_loading"));
    // One that is there answers, also for `auto`, while the default one loads; the server is not ready before that.
    world.set_ready(1);
    assert_eq!((readyz().await, code("lab/base").await.as_str()), (503, "model_loading"));
    assert_eq!(code("auto").await, "lab/small");
    assert_eq!(code("mini").await, "lab/small");
    assert_eq!(code("nope").await, "model_not_found");
    world.set_ready(0);
    world.gateway.set_model_failed(2, "no file".into());
    assert_eq!(readyz().await, 200);
    assert_eq!(code("lab/big").await, "engine_down");
    assert_eq!(code("reasoning").await, "engine_down");
    assert_eq!(code("lab/base").await, "lab/base");
    let text = get(&world.router, "/metrics").await.text;
    for line in
        ["motet_ready 1", "motet_model_ready{model=\"lab/base\"} 1", "motet_model_ready{model=\"lab/big\"} 0"]
    {
        assert!(
            text.lines().any(|had| had.strip_suffix(".0").unwrap_or(had) == line),
            "{line} is not in\n{text}"
        );
    }
    let running = |id: &str| format!("motet_sequences_running{{model=\"{id}\"}}");
    assert!(text.contains(&running("lab/base")) && text.contains(&running("lab/small")), "{text}");
    assert!(!text.contains(&running("lab/big")), "{text}");
    assert_eq!(text.matches("# TYPE motet_sequences_running gauge").count(), 1);
}

/// A backend that stops takes its model down and no other.
#[tokio::test]
async fn a_backend_that_stops_leaves_the_others() {
    let world = ready();
    let down = Fake::refusing(|_| vec![], |_| Some(SubmitError::Down("gone".into())));
    world.gateway.set_model_ready(2, served_as("lab/big", 30, down));
    for _ in 0..2 {
        assert_eq!(ask(&world.router, "lab/big", "hi").await.error().2.as_deref(), Some("engine_down"));
    }
    assert_eq!(get(&world.router, "/healthz").await.status, 200);
    assert_eq!(ask(&world.router, "lab/base", "hi").await.status, 200);
    // What was hard goes to the largest of the rest.
    assert_eq!(ask(&world.router, "auto", "Prove it").await.header("x-motet-model"), "lab/base");
}

/// Gives everybody the models of its list, and notes what is asked.
struct Door {
    models: Vec<String>,
    asked: Mutex<Vec<String>>,
}

struct Free;

impl Permit for Free {
    fn limits(&self) -> RateLimits {
        RateLimits::default()
    }

    fn settle(self: Box<Self>, _: Outcome) {}
}

impl Access for Door {
    fn identify<'a>(
        &'a self,
        _: &'a http::Method,
        _: &'a HeaderMap,
    ) -> BoxFuture<'a, Result<Identified, Denial>> {
        let caller = Caller { models: Some(self.models.clone()), ..Caller::default() };
        async move { Ok(Arc::new(caller).into()) }.boxed()
    }

    fn reserve<'a>(&'a self, _: &'a Arc<Caller>, ask: Ask) -> BoxFuture<'a, Result<Box<dyn Permit>, Denial>> {
        self.asked.lock().unwrap().push(ask.model);
        async move { Ok(Box::new(Free) as Box<dyn Permit>) }.boxed()
    }
}

#[tokio::test]
async fn what_a_caller_may_not_use_does_not_exist() {
    let door = Arc::new(Door { models: vec!["lab/base".into(), "lab/big".into()], asked: Mutex::default() });
    let world = world(GatewayConfig { access: Some(door.clone()), ..config() });
    (0..IDS.len()).for_each(|index| world.set_ready(index));
    let error = async |model: &str| {
        let got = ask(&world.router, model, "hi").await;
        (got.error(), got.text.replace(model, "NAME"))
    };
    // Not a letter of the answer depends on whether the model is there.
    let missing = error("lab/nope").await;
    assert_eq!(missing.0, (404, Some("model".into()), Some("model_not_found".into())));
    assert_eq!(error("lab/small").await, missing);
    assert_eq!(error("mini").await, missing);
    let list = get(&world.router, "/v1/models").await.text;
    assert!(list.contains("lab/big") && !list.contains("lab/small"), "{list}");
    let one = async |path: &str| {
        let request = Request::get(path).body(Body::empty()).unwrap();
        send(&world.router, request).await.error()
    };
    assert_eq!(one("/v1/models/lab/small").await, one("/v1/models/lab/nope").await);
    assert_eq!(one("/v1/models/mini").await, one("/v1/models/lab/nope").await);
    // Without the smallest, an easy request has the fast one; what is reserved is of the model that answers.
    for (model, id) in [("auto", "lab/base"), ("gpt-4o", "lab/base"), ("reasoning", "lab/big")] {
        assert_eq!(ask(&world.router, model, "hi").await.header("x-motet-model"), id);
        assert_eq!(door.asked.lock().unwrap().pop().as_deref(), Some(id), "{model}");
    }
}
