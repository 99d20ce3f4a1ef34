//! `POST /v1/embeddings`: what goes in, what comes out, what is refused, and what is settled.

// Helpers of tests may fail as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use futures_util::future::{BoxFuture, FutureExt};
use http::{HeaderMap, Request};
use motet_gateway::{
    Access, Ask, Caller, Denial, EmbeddingModel, End, Gateway, GatewayConfig, Identified, Outcome, Permit,
    RateLimit, RateLimits,
};
use motet_protocol::FinishReason;
use motet_text::{Casing, WordPiece};
use motet_types::{EmbedError, EmbedFuture, EmbedLoad, Embedder, EmbedderInfo, TokenId};
use serde_json::{Value, json};
use support::client::{Reply, get, post, send};
use support::{Fake, MODEL, config, reply, served};
use tower::ServiceExt;

const NAME: &str = "lab/vectors";
const VOCAB: &str = "[PAD]\n[UNK]\n[CLS]\n[SEP]\nhello\nworld\n##s";

/// Gives (number of tokens, sum of the ids ÷ 3) for each input; the first token of a request decides on its end.
struct FakeEmbedder(EmbedderInfo);

/// First tokens that ask for an end.
const FULL: TokenId = 4;
const HANG: TokenId = 5;
const BROKEN: TokenId = 6;

impl Embedder for FakeEmbedder {
    fn model(&self) -> &EmbedderInfo {
        &self.0
    }

    fn embed(&self, inputs: Vec<Vec<TokenId>>) -> Result<EmbedFuture, EmbedError> {
        match inputs[0][0] {
            FULL => return Err(EmbedError::QueueFull { waiting_tokens: 9, retry_after_seconds: 7 }),
            HANG => return Ok(std::future::pending().boxed()),
            BROKEN => return Ok(async { Err(EmbedError::NotFinite) }.boxed()),
            _ => {}
        }
        let vector = |ids: &Vec<TokenId>| vec![ids.len() as f32, ids.iter().sum::<TokenId>() as f32 / 3.0];
        let vectors = inputs.iter().map(vector).collect();
        Ok(async { Ok(vectors) }.boxed())
    }

    fn load(&self) -> EmbedLoad {
        EmbedLoad { requests: 2, inputs: 11, ..EmbedLoad::default() }
    }
}

fn model() -> EmbeddingModel {
    EmbeddingModel {
        id: NAME.into(),
        created: 5,
        tokenizer: Arc::new(WordPiece::from_vocab(VOCAB, Casing::Lower).unwrap()),
        embedder: Arc::new(FakeEmbedder(EmbedderInfo { dimensions: 2, context_length: 6, vocab_size: 7 })),
    }
}

fn router() -> Router {
    let gateway = support::gateway(&Fake::new(|_| reply("ok")));
    gateway.set_embedding_model(model());
    gateway.router()
}

async fn embed(router: &Router, extra: Value) -> Reply {
    let mut body = json!({"model": NAME, "input": "Hello worlds"});
    extra.as_object().unwrap().iter().for_each(|(name, value)| body[name] = value.clone());
    post(router, "/v1/embeddings", body.to_string()).await
}

#[tokio::test]
async fn the_whole_reply() {
    let got = embed(&router(), json!({"unheard_of": 1, "user": "me"})).await;
    assert_eq!((got.status.as_u16(), got.header("content-type")), (200, "application/json"));
    assert_eq!(got.header("x-motet-ignored-parameters"), "unheard_of");
    // [CLS] hello world ##s [SEP]
    let embedding = json!({"object": "embedding", "index": 0, "embedding": [5.0, 6.6666665]});
    assert_eq!(
        got.json(),
        json!({"object": "list", "data": [embedding], "model": NAME, "usage": {"prompt_tokens": 5, "total_tokens": 5}})
    );
}

#[tokio::test]
async fn inputs_of_all_shapes_in_both_formats() {
    let router = router();
    let check = async |input: Value, want: &[[f32; 2]], tokens: u64| {
        let floats = embed(&router, json!({"input": input, "dimensions": 2})).await.json();
        let packed = embed(&router, json!({"input": input, "encoding_format": "base64"})).await.json();
        assert_eq!(
            (&floats["usage"]["total_tokens"], &packed["usage"]["total_tokens"]),
            (&json!(tokens), &json!(tokens))
        );
        for (i, want) in want.iter().enumerate() {
            let numbers: Vec<f32> = serde_json::from_value(floats["data"][i]["embedding"].clone()).unwrap();
            assert_eq!(numbers, want, "{input}");
            let bytes = BASE64_STANDARD.decode(packed["data"][i]["embedding"].as_str().unwrap()).unwrap();
            let numbers: Vec<f32> =
                bytes.as_chunks().0.iter().map(|four| f32::from_le_bytes(*four)).collect();
            assert_eq!(numbers, want, "{input}");
        }
        assert_eq!(floats["data"].as_array().unwrap().len(), want.len());
    };
    check(json!("hello"), &[[3.0, 3.0]], 3).await;
    check(json!(["hello", "xyz world"]), &[[3.0, 3.0], [4.0, 11.0 / 3.0]], 7).await;
    // Token ids are taken as they are.
    check(json!([2, 2]), &[[2.0, 4.0 / 3.0]], 2).await;
    check(json!([[1], [2, 3]]), &[[1.0, 1.0 / 3.0], [2.0, 5.0 / 3.0]], 3).await;
}

#[tokio::test]
async fn what_is_refused() {
    let router = router();
    let check = async |extra: Value, want: (u16, &str, &str), words: &str| {
        let got = embed(&router, extra).await;
        let (status, param, code) = got.error();
        assert_eq!(
            (status, param.as_deref().unwrap_or(""), code.as_deref().unwrap_or("")),
            want,
            "{}",
            got.text
        );
        assert!(got.text.contains(words), "{}", got.text);
        got
    };
    check(json!({"input": ""}), (400, "input", "invalid_value"), "empty text").await;
    check(json!({"input": [[1], [7]]}), (400, "input[1][0]", "invalid_value"), "vocabulary of 7").await;
    let long = "'input[1]' has 7; shorten or split it";
    check(json!({"input": ["a", "a b c d e"]}), (400, "input[1]", "context_length_exceeded"), long).await;
    check(json!({"input": "a b c d e"}), (400, "input", "context_length_exceeded"), "'input' has 7;").await;
    check(json!({"dimensions": 1}), (400, "dimensions", "invalid_value"), "have 2 numbers").await;
    check(json!({"encoding_format": "x"}), (400, "encoding_format", "invalid_value"), "'base64'").await;
    check(json!({"model": MODEL}), (404, "model", "model_not_found"), "use 'lab/vectors'").await;
    check(json!({"input": [HANG + 50]}), (400, "input[0]", "invalid_value"), "vocabulary").await;
    let many = json!({"input": vec!["a"; 2049]});
    check(many, (400, "input", "invalid_value"), "2049 entries").await;
    let full = check(json!({"input": [FULL]}), (503, "", "server_is_overloaded"), "9 tokens wait").await;
    assert_eq!(full.header("retry-after"), "7");
    check(json!({"input": [BROKEN]}), (500, "", "reply_failed"), "not finite").await;
    let chat = support::client::chat(&router, json!({"model": NAME})).await.error();
    assert_eq!(chat, (404, Some("model".into()), Some("model_not_found".into())));
}

#[tokio::test]
async fn without_an_embedding_model() {
    let gateway = Gateway::new(config());
    let router = gateway.router();
    assert_eq!(embed(&router, json!({})).await.error(), (503, None, Some("model_loading".into())));
    gateway.set_ready(served(Fake::new(|_| reply("ok"))));
    let got = embed(&router, json!({"model": MODEL})).await;
    assert_eq!(got.error(), (404, Some("model".into()), Some("model_not_found".into())));
    assert!(got.text.contains("--embedding-model FOLDER"), "{}", got.text);
    gateway.set_embedding_model(model());
    assert_eq!(embed(&router, json!({})).await.status, 200);
    let listed = get(&router, "/v1/models").await.json();
    let ids: Vec<&str> =
        listed["data"].as_array().unwrap().iter().map(|m| m["id"].as_str().unwrap()).collect();
    assert_eq!(ids, [MODEL, NAME]);
    let one = get(&router, "/v1/models/lab/vectors").await.json();
    assert_eq!((&one["max_model_len"], &one["created"]), (&json!(6), &json!(5)));
    let metrics = get(&router, "/metrics").await.text;
    assert!(
        metrics.contains("motet_embedding_inputs_total{model=\"lab/vectors\"} 11")
            && metrics.contains("motet_embedding_requests{model=\"lab/vectors\"} 2")
    );
    assert!(metrics.contains("route=\"/v1/embeddings\""), "{metrics}");
}

/// Lets everybody in as the same caller, and writes down what it is asked and told.
#[derive(Default)]
struct Door {
    caller: Arc<Caller>,
    asked: Mutex<Vec<Ask>>,
    settled: Arc<Mutex<Vec<Option<Outcome>>>>,
}

struct Note(Arc<Mutex<Vec<Option<Outcome>>>>, Option<Outcome>);

impl Permit for Note {
    fn limits(&self) -> RateLimits {
        let limit = RateLimit { limit: 60, remaining: 59, reset: Duration::from_secs(1) };
        RateLimits { requests: Some(limit), tokens: None }
    }

    fn settle(mut self: Box<Self>, outcome: Outcome) {
        self.1 = Some(outcome);
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        self.0.lock().unwrap().push(self.1.take());
    }
}

impl Access for Door {
    fn identify<'a>(
        &'a self,
        _: &'a http::Method,
        _: &'a HeaderMap,
    ) -> BoxFuture<'a, Result<Identified, Denial>> {
        async { Ok(Arc::clone(&self.caller).into()) }.boxed()
    }

    fn reserve<'a>(&'a self, _: &'a Arc<Caller>, ask: Ask) -> BoxFuture<'a, Result<Box<dyn Permit>, Denial>> {
        self.asked.lock().unwrap().push(ask);
        async { Ok(Box::new(Note(self.settled.clone(), None)) as Box<dyn Permit>) }.boxed()
    }
}

fn guarded(caller: Caller) -> (Arc<Door>, Router) {
    let door = Arc::new(Door { caller: Arc::new(caller), ..Door::default() });
    let gateway = Gateway::new(GatewayConfig { access: Some(door.clone()), ..config() });
    gateway.set_ready(served(Fake::new(|_| reply("ok"))));
    gateway.set_embedding_model(model());
    (door, gateway.router())
}

#[tokio::test]
async fn reserved_then_settled_once() {
    let (door, router) = guarded(Caller::default());
    let settled = || {
        let mut all = std::mem::take(&mut *door.settled.lock().unwrap());
        assert_eq!(all.len(), 1);
        all.remove(0)
    };
    let got = embed(&router, json!({"input": ["hello", "world"]})).await;
    assert_eq!((got.status.as_u16(), got.header("x-ratelimit-remaining-requests")), (200, "59"));
    let ask = door.asked.lock().unwrap().pop().unwrap();
    assert_eq!((ask.prompt_tokens, ask.output_tokens, ask.model.as_str()), (6, 0, NAME));
    assert_eq!(ask.request_id, got.header("x-request-id"));
    let outcome = settled().unwrap();
    assert_eq!((outcome.prompt_tokens, outcome.output_tokens), (6, 0));
    assert_eq!(outcome.end, End::Finished(FinishReason::Stop));
    // What was refused cost nothing; what failed or was left alone costs what was queued.
    assert_eq!(embed(&router, json!({"input": [FULL]})).await.status, 503);
    assert_eq!(settled(), None);
    assert_eq!(embed(&router, json!({"input": [BROKEN, 1]})).await.status, 500);
    assert_eq!(settled().map(|outcome| (outcome.prompt_tokens, outcome.end)), Some((2, End::Failed)));
    let body = json!({"model": NAME, "input": [HANG, 1, 1]}).to_string();
    let request =
        Request::post("/v1/embeddings").header("content-type", "application/json").body(Body::from(body));
    let mut answer = Box::pin(router.clone().oneshot(request.unwrap()));
    while door.asked.lock().unwrap().len() < 3 {
        assert!(answer.as_mut().now_or_never().is_none());
        tokio::task::yield_now().await;
    }
    // One more step takes it past the reservation.
    assert!(answer.as_mut().now_or_never().is_none());
    drop(answer);
    assert_eq!(settled().map(|outcome| (outcome.prompt_tokens, outcome.end)), Some((3, End::Cancelled)));
}

#[tokio::test]
async fn a_request_that_is_sent_again_with_its_key_is_charged_once() {
    let (door, router) = guarded(Caller::default());
    let ask = async |key, input: Value| {
        let body = json!({"model": NAME, "input": input}).to_string();
        let mut request = support::client::post_request("/v1/embeddings", body);
        request.headers_mut().insert("idempotency-key", http::HeaderValue::from_static(key));
        send(&router, request).await
    };
    // Whole, failed, and refused before any work.
    for (key, input, status, reserved) in
        [("a", json!("hello"), 200, 1), ("b", json!([BROKEN]), 500, 1), ("c", json!([FULL]), 503, 2)]
    {
        let (first, again) = (ask(key, input.clone()).await, ask(key, input).await);
        assert_eq!((first.status.as_u16(), &first.text), (status, &again.text));
        assert_eq!(std::mem::take(&mut *door.asked.lock().unwrap()).len(), reserved);
        assert_eq!(std::mem::take(&mut *door.settled.lock().unwrap()).len(), reserved);
    }
}

#[tokio::test]
async fn a_callers_own_bounds() {
    let (_, router) = guarded(Caller { max_context: Some(3), ..Caller::default() });
    let got = embed(&router, json!({})).await;
    assert_eq!(got.error(), (400, Some("input".into()), Some("context_length_exceeded".into())));
    assert!(got.text.contains("Your account's maximum context length is 3 tokens"), "{}", got.text);
    let (_, router) = guarded(Caller { models: Some(vec![MODEL.into()]), ..Caller::default() });
    assert_eq!(embed(&router, json!({})).await.error().2.as_deref(), Some("model_not_found"));
    assert!(
        !send(&router, Request::get("/v1/models").body(Body::empty()).unwrap()).await.text.contains(NAME)
    );
}
