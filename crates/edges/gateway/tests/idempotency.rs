//! Requests that are sent again with the same `Idempotency-Key`.

// Helpers of tests may fail as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, BodyDataStream};
use futures_util::future::{BoxFuture, FutureExt, join_all};
use futures_util::{StreamExt, stream};
use http::{HeaderMap, Method, Request};
use motet_gateway::{
    Access, Ask, Caller, Denial, End, Gateway, GatewayConfig, IdempotencyConfig, Identified, LogLimits,
    Outcome, Permit, RateLimit, RateLimits,
};
use motet_protocol::FinishReason;
use motet_types::{ReplyError, SubmitError};
use serde_json::{Value, json};
use support::client::{Reply, send};
use support::{Beat, Fake, MODEL, config, reply, say, served};
use tokio::time::{advance, timeout};
use tower::ServiceExt;

const CHAT: &str = "/v1/chat/completions";
const TEXT: &str = "/v1/completions";
const LIMITS: RateLimits = RateLimits {
    requests: Some(RateLimit { limit: 60, remaining: 59, reset: Duration::from_secs(1) }),
    tokens: None,
};

/// Knows everybody by a key `tenant/user`, and writes down what it is told.
#[derive(Default)]
struct Door {
    denial: Mutex<Option<Denial>>,
    reserved: Mutex<usize>,
    settled: Arc<Mutex<Vec<Option<End>>>>,
}

impl Access for Door {
    fn identify<'a>(
        &'a self,
        _: &'a Method,
        headers: &'a HeaderMap,
    ) -> BoxFuture<'a, Result<Identified, Denial>> {
        let key = headers["authorization"].to_str().unwrap().strip_prefix("Bearer ").unwrap();
        let (tenant, user) = key.split_once('/').unwrap();
        let caller = Caller { tenant: tenant.into(), user: user.parse().unwrap(), ..Caller::default() };
        async move { Ok(Arc::new(caller).into()) }.boxed()
    }

    fn reserve<'a>(&'a self, _: &'a Arc<Caller>, _: Ask) -> BoxFuture<'a, Result<Box<dyn Permit>, Denial>> {
        let note = || Box::new(Note { settled: self.settled.clone(), end: None }) as Box<dyn Permit>;
        let outcome = self.denial.lock().unwrap().take().map_or_else(|| Ok(note()), Err);
        *self.reserved.lock().unwrap() += 1;
        async move { outcome }.boxed()
    }
}

struct Note {
    settled: Arc<Mutex<Vec<Option<End>>>>,
    end: Option<End>,
}

impl Permit for Note {
    fn limits(&self) -> RateLimits {
        LIMITS
    }

    fn settle(mut self: Box<Self>, outcome: Outcome) {
        self.end = Some(outcome.end);
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        self.settled.lock().unwrap().push(self.end.take());
    }
}

struct Server {
    fake: Arc<Fake>,
    door: Arc<Door>,
    gateway: Arc<Gateway>,
    router: Router,
}

fn start(script: impl Fn() -> Vec<Beat> + Send + Sync + 'static) -> Server {
    start_with(Fake::new(move |_| script()), IdempotencyConfig::default())
}

fn start_with(fake: Arc<Fake>, idempotency: IdempotencyConfig) -> Server {
    let door = Arc::<Door>::default();
    let gateway = Gateway::new(GatewayConfig { access: Some(door.clone()), idempotency, ..config() });
    gateway.set_ready(served(fake.clone()));
    let router = gateway.router();
    Server { fake, door, gateway, router }
}

fn request(who: &str, key: &str, path: &str, body: &Value) -> Request<Body> {
    let builder = Request::post(path).header("content-type", "application/json");
    let builder = builder.header("authorization", format!("Bearer {who}")).header("idempotency-key", key);
    builder.body(Body::from(body.to_string())).unwrap()
}

fn text(extra: Value) -> Value {
    let mut body = json!({"model": MODEL, "prompt": "hello", "max_tokens": 300});
    extra.as_object().unwrap().iter().for_each(|(name, value)| body[name] = value.clone());
    body
}

impl Server {
    async fn ask(&self, who: &str, key: &str, path: &str, body: &Value) -> Reply {
        send(&self.router, request(who, key, path, body)).await
    }

    async fn complete(&self, key: &str, extra: Value) -> Reply {
        self.ask("lab/1", key, TEXT, &text(extra)).await
    }

    async fn open(&self, key: &str, extra: Value) -> BodyDataStream {
        let request = request("lab/1", key, TEXT, &text(extra));
        self.router.clone().oneshot(request).await.unwrap().into_body().into_data_stream()
    }

    /// How often it ran, was charged, and how it ended each time.
    #[track_caller]
    fn ran(&self, ends: &[Option<End>]) {
        assert_eq!(*self.door.settled.lock().unwrap(), ends);
        assert_eq!(self.fake.live(), 0);
    }

    fn runs(&self) -> usize {
        self.fake.seen.lock().unwrap().len()
    }
}

const STOPPED: Option<End> = Some(End::Finished(FinishReason::Stop));

async fn read_until(frames: &mut BodyDataStream, part: &str) -> String {
    let mut text = String::new();
    while !text.contains(part) {
        let frame = frames.next().await.unwrap_or_else(|| panic!("no {part:?} in {text}"));
        text += std::str::from_utf8(&frame.unwrap()).unwrap();
    }
    text
}

#[track_caller]
fn same(first: &Reply, again: &Reply) {
    assert_eq!((first.status, &first.text), (again.status, &again.text));
    assert_eq!((first.header("idempotent-replayed"), again.header("idempotent-replayed")), ("", "true"));
    assert_eq!(first.header("content-type"), again.header("content-type"));
    assert_ne!(first.header("x-request-id"), again.header("x-request-id"));
    assert_eq!(again.header("x-ratelimit-limit-requests"), "", "they were true for the first request");
}

#[tokio::test]
async fn the_first_answer_is_given_again() {
    let chat = json!({"model": MODEL, "messages": [{"role": "user", "content": "hi"}]});
    let cases = [
        (CHAT, chat.clone(), End::Finished(FinishReason::Stop)),
        (
            CHAT,
            json!({"stream": true, "model": MODEL, "messages": chat["messages"]}),
            End::Finished(FinishReason::Stop),
        ),
        (TEXT, text(json!({})), End::Finished(FinishReason::Stop)),
        (TEXT, text(json!({"stream": true, "n": 2, "logprobs": 2})), End::Finished(FinishReason::Stop)),
        (TEXT, text(json!({"max_tokens": 2})), End::Finished(FinishReason::Length)),
        (TEXT, text(json!({"max_tokens": 2, "stream": true})), End::Finished(FinishReason::Length)),
    ];
    for (path, body, end) in cases {
        let server = start(|| reply("abc"));
        let first = server.ask("lab/1", "k 1", path, &body).await;
        assert_eq!(first.status, 200, "{}", first.text);
        assert_eq!(first.header("x-ratelimit-limit-requests"), "60");
        for _ in 0..3 {
            same(&first, &server.ask("lab/1", "k 1", path, &body).await);
        }
        server.ran(&[Some(end)]);
        assert_eq!((server.runs(), *server.door.reserved.lock().unwrap()), (1, 1));
    }
}

#[tokio::test]
async fn a_key_belongs_to_a_body_a_user_and_a_route() {
    let server = start(|| reply("abc"));
    let first = server.complete("k1", json!({})).await;
    let other = server.complete("k1", json!({"seed": 1})).await;
    assert_eq!(other.error(), (422, None, Some("idempotency_key_reused".into())));
    let chat = json!({"model": MODEL, "messages": [{"role": "user", "content": "hi"}]});
    for (who, key, path, body) in [
        ("other/1", "k1", TEXT, text(json!({}))),
        ("lab/2", "k1", TEXT, text(json!({}))),
        ("lab/1", "k2", TEXT, text(json!({}))),
        ("lab/1", "k1", CHAT, chat),
    ] {
        let got = server.ask(who, key, path, &body).await;
        assert_eq!((got.status.as_u16(), got.header("idempotent-replayed")), (200, ""), "{who} {key} {path}");
        assert_ne!(got.json()["id"], first.json()["id"]);
    }
    same(&first, &server.complete("k1", json!({})).await);
    server.ran(&[STOPPED; 5]);
}

#[tokio::test]
async fn keys_that_are_none() {
    let server = start(|| reply("abc"));
    let long = "x".repeat(256);
    for key in ["", &long, "tab\there"] {
        let got = server.complete(key, json!({})).await.error();
        assert_eq!(got, (400, Some("Idempotency-Key".into()), Some("invalid_value".into())), "{key:?}");
    }
    let mut twice = request("lab/1", "k1", TEXT, &text(json!({})));
    twice.headers_mut().append("idempotency-key", "k2".parse().unwrap());
    assert_eq!(send(&server.router, twice).await.status, 400);
    let mut letters = request("lab/1", "k", TEXT, &text(json!({})));
    letters.headers_mut().insert("idempotency-key", http::HeaderValue::from_bytes("é".as_bytes()).unwrap());
    assert_eq!(send(&server.router, letters).await.status, 400);
    assert_eq!(server.runs(), 0);
    assert_eq!(server.complete(&"x".repeat(255), json!({})).await.status, 200);
    assert_eq!(server.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_retry_after_a_timeout_waits_for_the_first_answer() {
    let server = start(|| [vec![Beat::Pause(Duration::from_secs(10))], reply("late")].concat());
    for _ in 0..3 {
        let ask = server.complete("k1", json!({}));
        assert!(timeout(Duration::from_secs(1), ask).await.is_err(), "the answer takes 10 s");
    }
    let answer = server.complete("k1", json!({})).await;
    assert_eq!(answer.json()["choices"][0]["text"], "late", "{}", answer.text);
    assert_eq!(answer.header("idempotent-replayed"), "true");
    assert_eq!(answer.text, server.complete("k1", json!({})).await.text);
    server.ran(&[STOPPED]);
    assert_eq!(server.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn fifty_at_once_run_once() {
    for stream in [false, true] {
        let beats =
            || say("0123456789").into_iter().flat_map(|beat| [Beat::Pause(Duration::from_millis(10)), beat]);
        let server = start(move || beats().chain(reply("end")).collect());
        let asked = (0..50).map(|_| server.complete("k1", json!({"stream": stream, "max_tokens": 100})));
        let answers = join_all(asked).await;
        assert!(answers.iter().all(|answer| answer.status == 200 && answer.text == answers[0].text));
        assert!(answers[0].text.contains(if stream { "[DONE]" } else { "0123456789end" }));
        let first = answers.iter().filter(|answer| answer.header("idempotent-replayed").is_empty());
        assert_eq!(first.count(), 1);
        server.ran(&[STOPPED]);
        assert_eq!(server.runs(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn who_comes_back_in_mid_stream_gets_all_of_it() {
    let script = || [say("abc"), vec![Beat::Pause(Duration::from_secs(20))], reply("def")].concat();
    let server = start(script);
    let streamed = json!({"stream": true, "stream_options": {"include_usage": true}});
    let mut first = server.open("k1", streamed.clone()).await;
    let begun = read_until(&mut first, "\"c\"").await;
    drop(first);
    assert_eq!(server.fake.live(), 1, "the reply goes on without its first reader");
    // One who comes to a reply that has paused gets what there is, and then comments of its own.
    let mut second = server.open("k1", streamed.clone()).await;
    assert_eq!(read_until(&mut second, "\"c\"").await, begun);
    let rest = read_until(&mut second, "[DONE]\n\n").await;
    let whole = begun.clone() + &rest.replace(": keep-alive\n\n", "");
    assert_ne!(begun.clone() + &rest, whole, "20 s of silence");
    let after = server.complete("k1", streamed).await;
    assert_eq!(after.text, whole);
    assert_eq!(after.header("idempotent-replayed"), "true");
    server.ran(&[STOPPED]);
    assert_eq!(server.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_nobody_reads_is_cancelled_after_a_while() {
    for stream in [false, true] {
        let server = start(|| [say("abc"), vec![Beat::Hang]].concat());
        let body = json!({"stream": stream});
        let visit = async || {
            let read = async {
                let mut frames = server.open("k1", body.clone()).await;
                while frames.next().await.is_some() {}
            };
            assert!(timeout(Duration::from_secs(1), read).await.is_err());
        };
        visit().await;
        advance(Duration::from_secs(29)).await;
        assert_eq!(server.fake.live(), 1);
        // Who comes within the time begins it anew.
        visit().await;
        advance(Duration::from_secs(29)).await;
        assert_eq!((server.fake.live(), server.runs()), (1, 1));
        until(|| server.fake.live() == 0).await;
        server.ran(&[Some(End::Cancelled)]);
        // It is forgotten: another body may have the key.
        assert!(timeout(Duration::from_secs(1), server.complete("k1", json!({"seed": 3}))).await.is_err());
        assert_eq!((server.fake.live(), server.runs()), (1, 2));
    }
}

/// Lets the clock go on, a second a time, until something has happened.
async fn until(mut has_happened: impl FnMut() -> bool) {
    for _ in 0..100 {
        if has_happened() {
            return;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    panic!("it does not happen");
}

#[tokio::test]
async fn what_fails_before_any_work_may_be_tried_again() {
    // What is refused by the first run of each key, and taken by the second.
    let busy = Arc::new(Mutex::new(false));
    let is_busy = busy.clone();
    let refuse = move |_: &motet_types::Request| {
        let full = SubmitError::QueueFull { waiting: 9, retry_after_seconds: 4 };
        std::mem::take(&mut *is_busy.lock().unwrap()).then_some(full)
    };
    let server = start_with(Fake::refusing(|_| reply("ok"), refuse), IdempotencyConfig::default());
    let limited =
        Denial::Limited { what: "60 a minute".into(), retry_after: Duration::from_secs(1), limits: LIMITS };
    *server.door.denial.lock().unwrap() = Some(limited);
    assert_eq!(server.complete("limited", json!({})).await.status, 429);
    assert_eq!(server.complete("limited", json!({})).await.status, 200);
    *busy.lock().unwrap() = true;
    let refused = server.complete("busy", json!({"stream": true})).await;
    assert_eq!((refused.status.as_u16(), refused.header("retry-after")), (503, "4"));
    assert_eq!(server.complete("busy", json!({"stream": true})).await.status, 200);
    // Another body is fine too: nothing was kept.
    assert_eq!(server.complete("bad", json!({"temperature": 9})).await.status, 400);
    assert_eq!(server.complete("bad", json!({})).await.status, 200);
    assert_eq!(server.runs(), 3);
    server.ran(&[STOPPED, None, STOPPED, STOPPED]);
}

#[tokio::test]
async fn what_fails_after_work_has_begun_is_the_answer() {
    let failures: [fn() -> Beat; 2] = [|| Beat::Vanish, || Beat::Fail(ReplyError::DeadlinePassed)];
    for (failure, status) in failures.into_iter().zip([500, 504]) {
        for stream in [false, true] {
            let server = start(move || [say("ab"), vec![failure()]].concat());
            let first = server.complete("k1", json!({"stream": stream})).await;
            let again = server.complete("k1", json!({"stream": stream})).await;
            same(&first, &again);
            assert_eq!(first.status, if stream { 200 } else { status });
            assert!(first.text.contains("\"error\"") && !first.text.contains("[DONE]"), "{}", first.text);
            for answer in [&first, &again] {
                assert_eq!(answer.header("x-should-retry"), if stream { "" } else { "false" });
            }
            assert_eq!(server.runs(), 1);
            server.ran(&[Some(End::Failed)]);
            server.complete("k2", json!({"stream": stream})).await;
            assert_eq!(server.runs(), 2);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_is_forgotten_after_a_day() {
    let server = start(|| reply("abc"));
    let first = server.complete("k1", json!({})).await;
    advance(Duration::from_secs(24 * 3600 - 1)).await;
    same(&first, &server.complete("k1", json!({})).await);
    advance(Duration::from_secs(1)).await;
    let anew = server.complete("k1", json!({"seed": 1})).await;
    assert_eq!((anew.status.as_u16(), anew.header("idempotent-replayed")), (200, ""), "{}", anew.text);
    server.ran(&[STOPPED; 2]);
}

#[tokio::test(start_paused = true)]
async fn what_there_is_no_room_for_is_refused_or_lost_but_not_run_twice() {
    let logs = LogLimits { reply_bytes: 1000, total_bytes: 3000, reserve: 1000, ..LogLimits::default() };
    let config = IdempotencyConfig { logs, ..IdempotencyConfig::default() };
    const MOMENT: Duration = Duration::from_millis(1);
    let script = |request: &motet_types::Request| match request.prompt.len() {
        1 => vec![Beat::Hang],
        length => say(&"x".repeat(length)).into_iter().flat_map(|beat| [Beat::Pause(MOMENT), beat]).collect(),
    };
    let server = start_with(Fake::new(script), config);
    // Answers of the past make room for new ones.
    for key in 0..20 {
        assert_eq!(server.complete(&format!("{key}"), json!({})).await.status, 200);
    }
    assert_eq!(server.complete("19", json!({})).await.header("idempotent-replayed"), "true");
    assert_eq!(server.complete("0", json!({})).await.header("idempotent-replayed"), "");
    // Each reader of a long answer that keeps up has all of it; it is not kept.
    for stream in [false, true] {
        let (key, body) = (
            format!("long {stream}"),
            json!({"prompt": "x".repeat(180), "max_tokens": 200, "stream": stream, "logprobs": 5}),
        );
        let first = server.complete(&key, body.clone()).await;
        assert_eq!(first.status, 200);
        assert!(first.text.len() > 1000 && (first.text.contains("[DONE]") || !stream), "{}", first.text);
        let again = server.complete(&key, body).await;
        assert_eq!(again.error(), (409, None, Some("idempotent_reply_lost".into())));
    }
    let runs = server.runs();
    // Three that run are as many as there is room for.
    let hanging: Vec<_> =
        stream::iter(0..3).then(|at| server.open_hanging(format!("hang {at}"))).collect().await;
    let refused = server.complete("one more", json!({})).await;
    assert_eq!(refused.error(), (503, None, Some("server_is_overloaded".into())));
    assert_eq!(refused.header("retry-after"), "1");
    assert_eq!(server.runs(), runs + 3);
    drop(hanging);
    until(|| server.fake.live() == 0).await;
    assert_eq!(server.complete("one more", json!({})).await.status, 200);
}

impl Server {
    /// A stream that never ends.
    async fn open_hanging(&self, key: String) -> BodyDataStream {
        self.open(&key, json!({"prompt": "h", "stream": true})).await
    }
}

#[tokio::test(start_paused = true)]
async fn the_servers_end_is_theirs() {
    let server = start(|| [say("abc"), vec![Beat::Hang]].concat());
    let mut frames = server.open("k1", json!({"stream": true})).await;
    read_until(&mut frames, "\"c\"").await;
    server.gateway.end_recorded().await;
    server.ran(&[Some(End::Cancelled)]);
    // A cut is not an end.
    let rest: Vec<_> = frames.collect().await;
    assert!(rest.last().unwrap().is_err(), "{rest:?}");
}

#[tokio::test]
async fn without_a_key_each_request_runs() {
    let server = start(|| reply("abc"));
    let ask = async || {
        let mut request = request("lab/1", "k1", TEXT, &text(json!({})));
        request.headers_mut().remove("idempotency-key");
        send(&server.router, request).await
    };
    let (first, second) = (ask().await, ask().await);
    assert_ne!(first.json()["id"], second.json()["id"]);
    assert_eq!(second.header("idempotent-replayed"), "");
    server.ran(&[STOPPED; 2]);
}
