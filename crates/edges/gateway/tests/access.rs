//! Callers, their limits, and what is settled when their requests end.

// Helpers of tests may fail as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::{StreamExt, pin_mut};
use http::{HeaderMap, HeaderValue, Method, Request};
use motet_gateway::{
    Access, Ask, Caller, ConnectionLimits, Denial, End, Gateway, GatewayConfig, Identified, Outcome, Permit,
    RateLimit, RateLimits, Scopes,
};
use motet_protocol::FinishReason;
use serde_json::json;
use support::client::{Reply, send};
use support::{Beat, Fake, MODEL, config, reply, say, served};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tower::ServiceExt;

/// Knows the keys of a table, refuses what it is told to, and writes down what it is asked and told.
#[derive(Default)]
struct Door {
    callers: Vec<(&'static str, Caller)>,
    denial: Mutex<Option<Denial>>,
    asked: Mutex<Vec<Ask>>,
    settled: Arc<Mutex<Vec<Option<Outcome>>>>,
}

const LIMITS: RateLimits = RateLimits {
    requests: Some(RateLimit { limit: 60, remaining: 59, reset: Duration::from_secs(1) }),
    tokens: Some(RateLimit { limit: 1000, remaining: 0, reset: Duration::from_secs(90) }),
};

impl Access for Door {
    fn identify<'a>(
        &'a self,
        method: &'a Method,
        headers: &'a HeaderMap,
    ) -> BoxFuture<'a, Result<Identified, Denial>> {
        let is_by_cookie = headers.contains_key("cookie");
        if is_by_cookie && method == Method::POST && !headers.contains_key("x-csrf-token") {
            return async { Err(Denial::Forged("no token".into())) }.boxed();
        }
        let key = headers.get("authorization").and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
        let known = self.callers.iter().find(|(name, _)| Some(*name) == key);
        let set_cookie = is_by_cookie.then(|| HeaderValue::from_static("session=next"));
        let found = known.map(|(_, caller)| Identified { caller: Arc::new(caller.clone()), set_cookie });
        async move { found.ok_or(Denial::Unknown) }.boxed()
    }

    fn reserve<'a>(&'a self, _: &'a Arc<Caller>, ask: Ask) -> BoxFuture<'a, Result<Box<dyn Permit>, Denial>> {
        self.asked.lock().unwrap().push(ask);
        let outcome = match self.denial.lock().unwrap().clone() {
            Some(denial) => Err(denial),
            None => Ok(Box::new(Note { settled: self.settled.clone(), outcome: None }) as Box<dyn Permit>),
        };
        async move { outcome }.boxed()
    }
}

struct Note {
    settled: Arc<Mutex<Vec<Option<Outcome>>>>,
    outcome: Option<Outcome>,
}

impl Permit for Note {
    fn limits(&self) -> RateLimits {
        LIMITS
    }

    fn settle(mut self: Box<Self>, outcome: Outcome) {
        self.outcome = Some(outcome);
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        self.settled.lock().unwrap().push(self.outcome.take());
    }
}

fn start(fake: &Arc<Fake>, door: Door) -> (Arc<Door>, Router) {
    let door = Arc::new(door);
    let gateway = Gateway::new(GatewayConfig { access: Some(door.clone()), ..config() });
    gateway.set_ready(served(fake.clone()));
    (door, gateway.router())
}

fn door() -> Door {
    let caller = Caller { tenant: "lab".into(), user: 7, ..Caller::default() };
    let program =
        Caller { scopes: Scopes { inference: true, batches: false, admin: false }, ..caller.clone() };
    let scraper =
        Caller { scopes: Scopes { inference: false, batches: false, admin: true }, ..caller.clone() };
    let small = Caller { max_context: Some(40), max_output: Some(3), ..caller.clone() };
    let other = Caller { models: Some(vec!["lab/other".into()]), ..caller.clone() };
    let callers =
        vec![("all", caller), ("program", program), ("scraper", scraper), ("small", small), ("other", other)];
    Door { callers, ..Door::default() }
}

fn request(key: &str, path: &str, body: Option<serde_json::Value>) -> Request<Body> {
    let builder = Request::builder().uri(path).header("authorization", format!("Bearer {key}"));
    match body {
        None => builder.body(Body::empty()).unwrap(),
        Some(body) => {
            let builder = builder.method("POST").header("content-type", "application/json");
            builder.body(Body::from(body.to_string())).unwrap()
        }
    }
}

async fn complete(router: &Router, key: &str, extra: serde_json::Value) -> Reply {
    let mut body = json!({"model": MODEL, "prompt": "hello"});
    extra.as_object().unwrap().iter().for_each(|(name, value)| body[name] = value.clone());
    send(router, request(key, "/v1/completions", Some(body))).await
}

#[tokio::test]
async fn who_may_do_what() {
    let fake = Fake::new(|_| reply("ok"));
    let (_, router) = start(&fake, door());
    let check = async |key, path, status, code: Option<&str>| {
        let got = send(&router, request(key, path, None)).await;
        assert_eq!(got.status, status, "{key} {path}: {}", got.text);
        if let Some(code) = code {
            assert_eq!(got.error().2.as_deref(), Some(code));
        }
        got
    };
    let unknown = check("nobody", "/v1/models", 401, Some("invalid_api_key")).await;
    assert_eq!(unknown.header("www-authenticate"), "Bearer");
    check("", "/v1/models", 401, Some("invalid_api_key")).await;
    assert!(check("all", "/v1/models", 200, None).await.text.contains(MODEL));
    check("scraper", "/v1/models", 403, Some("insufficient_permissions")).await;
    check("scraper", "/metrics", 200, None).await;
    check("program", "/metrics", 403, Some("insufficient_permissions")).await;
    check("nobody", "/metrics", 401, Some("invalid_api_key")).await;
    // What a caller may not use looks like what is not there.
    assert!(!check("other", "/v1/models", 200, None).await.text.contains(MODEL));
    check("other", "/v1/models/lab/tiny", 404, Some("model_not_found")).await;
    assert_eq!(complete(&router, "other", json!({})).await.error().2.as_deref(), Some("model_not_found"));
    // Whether the server is well is nobody's secret.
    for path in ["/healthz", "/readyz", "/"] {
        check("nobody", path, 200, None).await;
    }
}

#[tokio::test]
async fn a_new_cookie_goes_with_every_answer() {
    let fake = Fake::new(|_| reply("ok"));
    let (_, router) = start(&fake, door());
    let body = json!({"model": MODEL, "prompt": "hello"});
    let ask = async |key, path, body, with_token: bool| {
        let mut request = request(key, path, body);
        request.headers_mut().insert("cookie", HeaderValue::from_static("session=old"));
        if with_token {
            request.headers_mut().insert("x-csrf-token", HeaderValue::from_static("token"));
        }
        send(&router, request).await
    };
    for (key, path, body, status) in [
        ("all", "/v1/models", None, 200),
        ("all", "/metrics", None, 200),
        ("scraper", "/v1/models", None, 403),
        ("all", "/v1/models/none", None, 404),
        ("all", "/v1/completions", Some(body.clone()), 200),
    ] {
        let got = ask(key, path, body, true).await;
        assert_eq!((got.status.as_u16(), got.header("set-cookie")), (status, "session=next"), "{path}");
    }
    let stream = json!({"model": MODEL, "prompt": "hello", "stream": true});
    assert_eq!(ask("all", "/v1/completions", Some(stream), true).await.header("set-cookie"), "session=next");
    let forged = ask("all", "/v1/completions", Some(body), false).await;
    assert_eq!(forged.error(), (403, None, Some("invalid_csrf_token".into())));
}

#[tokio::test]
async fn reserved_then_settled_once() {
    let fake = Fake::new(|_| reply("abc"));
    let (door, router) = start(&fake, door());
    for stream in [false, true] {
        let got = complete(&router, "all", json!({"max_tokens": 9, "stream": stream, "n": 2})).await;
        assert_eq!(got.status, 200, "{}", got.text);
        assert_eq!(got.header("x-ratelimit-limit-requests"), "60");
        assert_eq!(got.header("x-ratelimit-remaining-tokens"), "0");
        assert_eq!(got.header("x-ratelimit-reset-tokens"), "1m30s");
        let ask = door.asked.lock().unwrap().pop().unwrap();
        assert_eq!((ask.prompt_tokens, ask.output_tokens, ask.model.as_str()), (5, 18, MODEL));
        assert_eq!(ask.request_id, got.header("x-request-id"));
        let [Some(outcome)] = &std::mem::take(&mut *door.settled.lock().unwrap())[..] else { panic!() };
        assert_eq!((outcome.prompt_tokens, outcome.output_tokens), (5, 8), "{outcome:?}");
        assert_eq!(outcome.end, End::Finished(FinishReason::Stop));
        assert!(outcome.ttft.is_some());
    }
    let origin = fake.seen.lock().unwrap().pop().unwrap().origin;
    assert_eq!((origin.tenant.as_str(), origin.user), ("lab", 7));
}

#[tokio::test]
async fn ends_that_are_no_ends_settle_too() {
    // The client leaves in the middle of a stream.
    let fake = Fake::new(|_| [say("abc"), vec![Beat::Hang]].concat());
    let (door, router) = start(&fake, door());
    let body = json!({"model": MODEL, "prompt": "hello", "stream": true});
    let response = router.clone().oneshot(request("all", "/v1/completions", Some(body))).await.unwrap();
    let frames = response.into_body().into_data_stream();
    {
        pin_mut!(frames);
        let mut seen = String::new();
        while !seen.contains('c') || seen.matches("data:").count() < 3 {
            seen += std::str::from_utf8(&frames.next().await.unwrap().unwrap()).unwrap();
        }
    }
    let settled = door.settled.lock().unwrap().pop().unwrap().unwrap();
    assert_eq!((settled.output_tokens, settled.end), (3, End::Cancelled));
    // The backend fails.
    let fake = Fake::new(|_| [say("ab"), vec![Beat::Vanish]].concat());
    let (door, router) = start(&fake, self::door());
    assert_eq!(complete(&router, "all", json!({})).await.status, 500);
    let settled = door.settled.lock().unwrap().pop().unwrap().unwrap();
    assert_eq!((settled.output_tokens, settled.end), (2, End::Failed));
    // The backend refuses: nothing was computed.
    let full = motet_types::SubmitError::QueueFull { waiting: 9, retry_after_seconds: 4 };
    let fake = Fake::refusing(|_| reply("ok"), move |_| Some(full.clone()));
    let (door, router) = start(&fake, self::door());
    assert_eq!(complete(&router, "all", json!({})).await.status, 503);
    assert_eq!(*door.settled.lock().unwrap(), [None]);
}

#[tokio::test]
async fn denials() {
    let fake = Fake::new(|_| reply("ok"));
    let (door, router) = start(&fake, door());
    let check = async |denial: Denial, status, code: &str| {
        *door.denial.lock().unwrap() = Some(denial);
        let got = complete(&router, "all", json!({"stream": true})).await;
        assert_eq!((got.status.as_u16(), got.error().2.as_deref()), (status, Some(code)), "{}", got.text);
        got
    };
    let limited = Denial::Limited {
        what: "60 requests per minute".into(),
        retry_after: Duration::from_millis(1500),
        limits: LIMITS,
    };
    let got = check(limited, 429, "rate_limit_exceeded").await;
    assert_eq!((got.header("retry-after"), got.header("retry-after-ms")), ("2", "1500"));
    assert_eq!(got.header("x-ratelimit-remaining-requests"), "59");
    assert!(got.text.contains("60 requests per minute"), "{}", got.text);
    check(Denial::TooLarge("more than 100 tokens".into()), 400, "request_exceeds_limit").await;
    let budget = Denial::Budget("the budget is used up".into());
    assert_eq!(check(budget, 429, "insufficient_quota").await.header("x-should-retry"), "false");
    check(Denial::Unavailable("accounts can't be read".into()), 503, "accounts_unavailable").await;
    assert_eq!(fake.seen.lock().unwrap().len(), 0);
}

#[tokio::test]
async fn a_callers_own_bounds() {
    let fake = Fake::new(|_| reply("abcdefgh"));
    let (_, router) = start(&fake, door());
    let got = complete(&router, "small", json!({})).await;
    assert_eq!(got.json()["usage"]["completion_tokens"], 3, "{}", got.text);
    assert_eq!(got.json()["choices"][0]["finish_reason"], "length");
    let refused = complete(&router, "small", json!({"max_tokens": 4})).await.error();
    assert_eq!(refused, (400, Some("max_tokens".into()), Some("invalid_value".into())));
    let long = complete(&router, "small", json!({"prompt": "x".repeat(41)})).await;
    assert_eq!(long.error().2.as_deref(), Some("context_length_exceeded"));
    assert!(long.text.contains("Your account's maximum context length is 40 tokens"), "{}", long.text);
}

#[tokio::test]
async fn connections_that_only_occupy_a_place_are_closed() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let limits = ConnectionLimits {
        connections: 2,
        head_timeout: Duration::from_millis(300),
        head_bytes: 16 << 10,
        headers: 20,
        ..ConnectionLimits::default()
    };
    let router = support::gateway(&Fake::new(|_| reply("ok"))).router();
    let server = tokio::spawn(motet_gateway::serve(listener, router, limits, std::future::pending()));
    let answer = async |head: String| {
        let mut socket = TcpStream::connect(address).await.unwrap();
        socket.write_all(head.as_bytes()).await.unwrap();
        let mut text = Vec::new();
        let _ = socket.read_to_end(&mut text).await;
        String::from_utf8_lossy(&text).into_owned()
    };
    // One that sends nothing and one that never ends its head take both places until they are closed.
    let (silent, slow, patient) = tokio::join!(
        answer(String::new()),
        answer("GET /healthz HTTP/1.1\r\nhost: localhost\r\nx-".to_owned()),
        answer("GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".to_owned()),
    );
    assert!(!silent.contains("200 OK") && !slow.contains("200 OK"), "{silent} {slow}");
    assert!(patient.contains("200 OK"), "{patient}");
    let many = format!("GET /healthz HTTP/1.1\r\nhost: localhost\r\n{}\r\n", "x: y\r\n".repeat(30));
    assert!(answer(many).await.contains(" 431 "));
    let long = format!("GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "y".repeat(20 << 10));
    // The connection may be reset before the answer is read, since not all of the head was.
    assert!(!answer(long).await.contains("200 OK"));
    server.abort();
}
