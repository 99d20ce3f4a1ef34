//! What is given up when there is too much to do, and what clients are told of it.

// Helpers of tests may fail as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use futures_util::future::{BoxFuture, FutureExt};
use http::{HeaderMap, Request};
use motet_fleet::{LadderConfig, Rung, Standing};
use motet_gateway::{
    Access, Ask, Caller, Denial, Gateway, GatewayConfig, Identified, Lanes, OverloadConfig, Permit,
};
use motet_types::{LaneLoad, SubmitError};
use serde_json::{Value, json};
use support::client::{Reply, get, send};
use support::{Beat, Fake, MODEL, config, reply, say, served};

const PAID: usize = 0;
const FREE: usize = 1;
const TEAM: usize = 2;
const BATCH: usize = 3;
const NAMES: [&str; 4] = ["paid", "free", "team", "batch"];
const SHORT: u32 = 5;

/// Lets everybody in, to the lane that is its key.
struct Door;

impl Access for Door {
    fn identify<'a>(
        &'a self,
        _: &'a http::Method,
        headers: &'a HeaderMap,
    ) -> BoxFuture<'a, Result<Identified, Denial>> {
        let lane = NAMES.iter().position(|name| headers["authorization"] == *name);
        async move { Ok(Arc::new(Caller { lane, ..Caller::default() }).into()) }.boxed()
    }

    fn reserve<'a>(&'a self, _: &'a Arc<Caller>, _: Ask) -> BoxFuture<'a, Result<Box<dyn Permit>, Denial>> {
        async { Err(Denial::Unavailable("there are no limits here".into())) }.boxed()
    }
}

/// As [`Door`], without limits.
struct Open;

struct Free;

impl Permit for Free {
    fn limits(&self) -> motet_gateway::RateLimits {
        motet_gateway::RateLimits::default()
    }

    fn settle(self: Box<Self>, _: motet_gateway::Outcome) {}
}

impl Access for Open {
    fn identify<'a>(
        &'a self,
        method: &'a http::Method,
        headers: &'a HeaderMap,
    ) -> BoxFuture<'a, Result<Identified, Denial>> {
        Door.identify(method, headers)
    }

    fn reserve<'a>(&'a self, _: &'a Arc<Caller>, _: Ask) -> BoxFuture<'a, Result<Box<dyn Permit>, Denial>> {
        async { Ok(Box::new(Free) as Box<dyn Permit>) }.boxed()
    }
}

/// A server with four lanes, and its clock.
struct Server {
    fake: Arc<Fake>,
    gateway: Arc<Gateway>,
    router: Router,
}

impl Server {
    fn new(fake: Arc<Fake>) -> Self {
        Self::with(fake, Arc::new(Open))
    }

    fn with(fake: Arc<Fake>, access: Arc<dyn Access>) -> Self {
        let lane = |name: &str| LaneLoad {
            name: name.into(),
            waiting_limit: 10,
            ttft_promise: Some(Duration::from_secs(10)),
            // With the margin, two seconds between two who come back.
            pace: Duration::from_secs_f64(2.0 / 1.5),
            ..LaneLoad::default()
        };
        fake.load.lock().unwrap().lanes = NAMES.map(lane).to_vec();
        let lanes = vec![Standing::Paid, Standing::Free, Standing::Ordinary, Standing::Background];
        let ladder = LadderConfig { smoothing: Duration::ZERO, lanes, ..LadderConfig::default() };
        let gateway = Gateway::new(GatewayConfig {
            overload: OverloadConfig {
                ladder: Some(ladder),
                short_output: SHORT,
                ..OverloadConfig::default()
            },
            lanes: Lanes { default: PAID, background: Some(BATCH) },
            access: Some(access),
            ..config()
        });
        gateway.set_ready(served(fake.clone()));
        Self { router: gateway.router(), fake, gateway }
    }

    fn set(&self, lane: usize, change: impl FnOnce(&mut LaneLoad)) {
        change(&mut self.fake.load.lock().unwrap().lanes[lane]);
    }

    /// Lets time pass, the load being looked at as the server's task would.
    async fn pass(&self, time: Duration) {
        for _ in 0..time.as_millis() / 250 {
            tokio::time::advance(Duration::from_millis(250)).await;
            self.gateway.look_at_load();
        }
    }

    /// Makes paid requests wait until the ladder is where it should be.
    async fn climb_to(&self, rung: Rung) {
        self.set(PAID, |lane| lane.wait = Duration::from_secs(9));
        for _ in 0..100 {
            if *self.gateway.rung().borrow() >= rung {
                break;
            }
            self.pass(Duration::from_millis(250)).await;
        }
        assert_eq!(*self.gateway.rung().borrow(), rung);
    }

    async fn ask(&self, lane: usize, extra: Value) -> Reply {
        send(&self.router, request(lane, extra)).await
    }
}

fn request(lane: usize, extra: Value) -> Request<Body> {
    let mut body = json!({"model": MODEL, "messages": [{"role": "user", "content": "hi"}]});
    extra.as_object().unwrap().iter().for_each(|(name, value)| body[name] = value.clone());
    let request = Request::post("/v1/chat/completions").header("content-type", "application/json");
    request.header("authorization", NAMES[lane]).body(Body::from(body.to_string())).unwrap()
}

fn retry_ms(reply: &Reply) -> u64 {
    let ms: u64 = reply.header("retry-after-ms").parse().unwrap();
    let seconds: u64 = reply.header("retry-after").parse().unwrap();
    assert_eq!(seconds, ms.div_ceil(1000), "seconds are rounded up");
    assert!(reply.text.contains(&format!("try again in {seconds} s")), "{}", reply.text);
    ms
}

#[tokio::test(start_paused = true)]
async fn the_ladder_is_told_and_undone() {
    let server = Server::new(Fake::new(|_| reply("ok")));
    let metric = async |text: &str| get_metrics(&server).await.lines().any(|line| line == text);
    assert!(metric("motet_ladder_rung{model=\"lab/tiny\"} 0").await);
    server.climb_to(Rung::ShedFree).await;
    assert!(metric("motet_ladder_rung{model=\"lab/tiny\"} 5").await);
    assert!(metric("motet_ladder_changes_total{model=\"lab/tiny\",to=\"shed-free\"} 1").await);
    assert!(server.fake.is_paused.load(Ordering::SeqCst));
    server.set(PAID, |lane| lane.wait = Duration::ZERO);
    server.pass(Duration::from_secs(41)).await;
    assert_eq!(*server.gateway.rung().borrow(), Rung::PauseBackground);
    assert!(server.fake.is_paused.load(Ordering::SeqCst));
    server.pass(Duration::from_secs(11)).await;
    assert!(!server.fake.is_paused.load(Ordering::SeqCst));
    assert!(metric("motet_ladder_rung{model=\"lab/tiny\"} 0").await);
    assert!(metric("motet_ladder_changes_total{model=\"lab/tiny\",to=\"shed-free\"} 1").await);
}

async fn get_metrics(server: &Server) -> String {
    let request = Request::get("/metrics").header("authorization", "paid").body(Body::empty()).unwrap();
    send(&server.router, request).await.text
}

#[tokio::test(start_paused = true)]
async fn the_background_is_paused_first() {
    let server = Server::new(Fake::new(|_| reply("ok")));
    server.climb_to(Rung::PauseBackground).await;
    for (lane, extra) in
        [(PAID, json!({})), (FREE, json!({})), (TEAM, json!({})), (PAID, json!({"service_tier": "default"}))]
    {
        let got = server.ask(lane, extra).await;
        assert_eq!((got.status.as_u16(), got.header("x-motet-degraded")), (200, ""), "{}", got.text);
    }
    let mut last = 0;
    // A tier that is spelt out is as good as one that is found without parsing.
    let unusual = "{\"model\": \"lab/tiny\", \"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \
                   \"service_tier\": \"fl\\u0065x\"}";
    let unusual =
        Request::post("/v1/chat/completions").header("authorization", "paid").body(Body::from(unusual));
    for request in [
        request(BATCH, json!({"seed": 1})),
        request(PAID, json!({"service_tier": "flex", "seed": 2})),
        unusual.unwrap(),
    ] {
        let got = send(&server.router, request).await;
        assert_eq!(got.error(), (503, None, Some("server_is_overloaded".into())));
        assert_eq!(got.header("x-motet-degraded"), "pause-background");
        let wait = retry_ms(&got);
        assert!(wait >= 10_000, "the pause lasts for the hold time at least: {wait}");
        assert!(wait >= last + 2000 || last == 0, "one after the other: {wait} after {last}");
        last = wait;
    }
    let shed = "motet_shed_total{model=\"lab/tiny\",lane=\"batch\",reason=\"pause-background\"} 3";
    assert!(get_metrics(&server).await.contains(shed));
    assert_eq!(server.fake.seen.lock().unwrap().len(), 4, "none was submitted");
    // Who comes back as told is taken, to wait in line if the pause goes on.
    server.pass(Duration::from_millis(last)).await;
    assert_eq!(server.ask(BATCH, json!({"seed": 1})).await.status, 200);
    assert_eq!(server.ask(BATCH, json!({"seed": 9})).await.status, 503);
}

#[tokio::test(start_paused = true)]
async fn replies_without_a_limit_are_shortened_and_say_so() {
    let server = Server::new(Fake::new(|_| say("0123456789")));
    let check = async |lane, extra: Value, tokens: usize, degraded: &str| {
        let got = server.ask(lane, extra.clone()).await;
        let choice = &got.json()["choices"][0];
        assert_eq!(choice["message"]["content"].as_str().unwrap().len(), tokens, "{lane} {extra}");
        assert_eq!(got.header("x-motet-degraded"), degraded, "{lane} {extra}");
    };
    check(FREE, json!({}), 10, "").await;
    server.climb_to(Rung::ShortenOutput).await;
    let told = "shorten-output;max-tokens=5";
    check(PAID, json!({}), 10, "").await;
    check(FREE, json!({}), 5, told).await;
    check(TEAM, json!({}), 5, told).await;
    check(FREE, json!({"max_tokens": 8}), 8, "").await;
    check(FREE, json!({"min_tokens": 7}), 7, "shorten-output;max-tokens=7").await;
    let long = "x".repeat(380);
    check(FREE, json!({"messages": [{"role": "user", "content": long}]}), 1, "").await;
    let got = server.ask(FREE, json!({"stream": true})).await;
    assert_eq!(got.header("x-motet-degraded"), told);
    let notice = ": motet {\"notice\":{\"degraded\":[\"shorten-output\"],\"max_tokens\":5}}\n\n";
    assert!(got.text.starts_with(notice), "{}", got.text);
    assert!(got.text.ends_with("data: [DONE]\n\n"));
}

#[tokio::test(start_paused = true)]
async fn a_smaller_model_is_only_a_fact_yet() {
    let server = Server::new(Fake::new(|_| reply("ok")));
    server.climb_to(Rung::SmallerModel).await;
    assert_eq!(server.ask(FREE, json!({"max_tokens": 3})).await.header("x-motet-degraded"), "");
}

#[tokio::test(start_paused = true)]
async fn who_waits_in_line_is_told_its_place() {
    let pause = vec![Beat::Pause(Duration::from_secs(5))];
    let server = Server::new(Fake::new(move |_| [pause.clone(), reply("ok")].concat()));
    server.climb_to(Rung::QueueWithEta).await;
    server.set(FREE, |lane| (lane.waiting, lane.started, lane.wait) = (4, 100, Duration::from_secs(30)));
    server.gateway.look_at_load();
    let reading = server.ask(FREE, json!({"stream": true, "max_tokens": 3}));
    let leaving = async {
        // Notices are at 0, 2 and 4 s.
        tokio::time::sleep(Duration::from_secs(1)).await;
        server.set(FREE, |lane| (lane.waiting, lane.started) = (4, 102));
        server.gateway.look_at_load();
        tokio::time::sleep(Duration::from_secs(2)).await;
        server.set(FREE, |lane| (lane.waiting, lane.started) = (1, 103));
        server.gateway.look_at_load();
    };
    let (got, ()) = tokio::join!(reading, leaving);
    assert_eq!(got.header("x-motet-degraded"), "queue-with-eta");
    let notices: Vec<_> = got.text.lines().filter_map(|line| line.strip_prefix(": motet ")).collect();
    let expected = [
        "{\"notice\":{\"degraded\":[\"queue-with-eta\"]}}",
        "{\"notice\":{\"queue\":{\"position\":4,\"eta_seconds\":24}}}",
        "{\"notice\":{\"queue\":{\"position\":3,\"eta_seconds\":18}}}",
        "{\"notice\":{\"queue\":{\"position\":1,\"eta_seconds\":15}}}",
    ];
    assert_eq!(notices, expected);
    assert!(server.fake.only_request().origin.is_patient, "its promise does not refuse it");
    assert_eq!(server.ask(PAID, json!({})).await.header("x-motet-degraded"), "");
    assert!(!server.fake.seen.lock().unwrap()[1].origin.is_patient);
}

#[tokio::test(start_paused = true)]
async fn free_requests_are_shed_last_and_told_when_to_come() {
    let server = Server::new(Fake::new(|_| reply("ok")));
    server.climb_to(Rung::ShedFree).await;
    let mut waits = Vec::new();
    for seed in 0..3 {
        let got = server.ask(FREE, json!({"seed": seed})).await;
        assert_eq!(got.error(), (503, None, Some("server_is_overloaded".into())));
        assert_eq!(got.header("x-motet-degraded"), "shed-free");
        waits.push(retry_ms(&got));
    }
    assert_eq!(
        waits,
        [10_000, 12_000, 14_000],
        "at the earliest when the rung can be left, then at the lane's pace"
    );
    for lane in [PAID, TEAM] {
        assert_eq!(server.ask(lane, json!({"max_tokens": 3})).await.status, 200);
    }
    // One that says it tries again has its place already; a new one gets a place of its own.
    let mut again = request(FREE, json!({"seed": 1}));
    again.headers_mut().insert("x-stainless-retry-count", "1".parse().unwrap());
    assert_eq!(retry_ms(&send(&server.router, again).await), 12_000);
    assert_eq!(retry_ms(&server.ask(FREE, json!({"seed": 7})).await), 16_000);
    // Paid requests still wait, so the rung stays; who comes as told is taken.
    server.pass(Duration::from_secs(10)).await;
    assert_eq!(*server.gateway.rung().borrow(), Rung::ShedFree);
    assert_eq!(server.ask(FREE, json!({"seed": 0})).await.status, 200);
    assert_eq!(server.ask(FREE, json!({"seed": 0})).await.status, 503, "once");
    assert_eq!(server.ask(FREE, json!({"seed": 2})).await.status, 503, "that is too early");
    let shed = "motet_shed_total{model=\"lab/tiny\",lane=\"free\",reason=\"shed-free\"} 7";
    assert!(get_metrics(&server).await.contains(shed), "{}", get_metrics(&server).await);
}

#[tokio::test(start_paused = true)]
async fn what_the_backend_refuses_comes_back_one_by_one() {
    let refusing = Arc::new(Mutex::new(true));
    let is_refusing = refusing.clone();
    let fake = Fake::refusing(
        |_| reply("ok"),
        move |request| {
            let slow = SubmitError::TooSlow { estimate_seconds: 13, retry_after_seconds: 3 };
            (*is_refusing.lock().unwrap() && !request.origin.is_patient).then_some(slow)
        },
    );
    let server = Server::new(fake);
    server.gateway.look_at_load();
    let mut waits = Vec::new();
    for seed in 0..3 {
        let got = server.ask(FREE, json!({"seed": seed})).await;
        assert_eq!(got.error(), (503, None, Some("server_is_overloaded".into())));
        waits.push(retry_ms(&got));
    }
    assert_eq!(waits, [3000, 5000, 7000]);
    let shed = "motet_shed_total{model=\"lab/tiny\",lane=\"free\",reason=\"too-slow\"} 3";
    assert!(get_metrics(&server).await.contains(shed));
    // There is room again, but less than those who were told to come need.
    *refusing.lock().unwrap() = false;
    server.set(FREE, |lane| lane.waiting = 8);
    server.pass(Duration::from_secs(3)).await;
    let got = server.ask(FREE, json!({"seed": 9})).await;
    assert_eq!(got.header("retry-after-ms"), "6000", "{}", got.text);
    assert!(got.text.contains("those who came before are taken first"));
    *refusing.lock().unwrap() = true;
    assert_eq!(server.ask(FREE, json!({"seed": 0})).await.status, 200, "it is expected");
    // Other lanes know nothing of it.
    *refusing.lock().unwrap() = false;
    assert_eq!(server.ask(TEAM, json!({"seed": 9})).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_waits_for_nothing() {
    // Limits can't be read, and all workers and their line are taken: neither is asked.
    let server = Server::with(Fake::new(|_| reply("ok")), Arc::new(Door));
    server.climb_to(Rung::ShedFree).await;
    let got = server.ask(FREE, json!({"messages": 3})).await;
    assert_eq!(got.header("x-motet-degraded"), "shed-free", "it is not even parsed: {}", got.text);
    assert_eq!(server.ask(PAID, json!({})).await.error().2.as_deref(), Some("accounts_unavailable"));
}

#[tokio::test(start_paused = true)]
async fn without_a_ladder_nothing_is_given_up() {
    let fake = Fake::new(|_| reply("ok"));
    let gateway = Gateway::new(config());
    gateway.set_ready(served(fake.clone()));
    fake.load.lock().unwrap().lanes[0] =
        LaneLoad { wait: Duration::MAX, ttft_promise: Some(Duration::from_secs(1)), ..LaneLoad::default() };
    for _ in 0..100 {
        tokio::time::advance(Duration::from_millis(250)).await;
        gateway.look_at_load();
    }
    assert_eq!(*gateway.rung().borrow(), Rung::Normal);
    assert!(
        get(&gateway.router(), "/metrics").await.text.contains("motet_ladder_rung{model=\"lab/tiny\"} 0")
    );
}
