//! What is wrong with a request, and what the client is told: status, parameter, code.

// Helpers of tests may fail as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use futures_util::StreamExt;
use http::Request;
use motet_gateway::{Gateway, GatewayConfig, Hosts};
use motet_text::ChatTemplate;
use motet_types::SubmitError;
use serde_json::{Value, json};
use support::client::{Reply, chat, complete, get, post, post_request, send};
use support::{CONTEXT, Fake, MODEL, VOCAB, config, gateway, reply, served};

fn ready() -> (Arc<Fake>, Router) {
    let fake = Fake::new(|_| reply("ok"));
    let router = gateway(&fake).router();
    (fake, router)
}

#[track_caller]
fn refused(got: &Reply, status: u16, param: Option<&str>, code: &str) {
    let want = (status, param.map(str::to_owned), Some(code.to_owned()));
    assert_eq!(got.error(), want, "{}", got.text);
    assert!(!got.text.contains(": -"), "a negative number in {}", got.text);
}

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";

#[tokio::test]
async fn bodies_that_are_no_request() {
    let (fake, router) = ready();
    let long = format!("{{\"a\":\"{}\"}}", "x".repeat(1 << 20));
    let wide = format!("{{\"a\":[0{}]}}", ",0".repeat(500_000));
    let deep = "[".repeat(50_000);
    for path in [CHAT, COMPLETIONS] {
        let check = async |body: &str, status, param, code| {
            refused(&post(&router, path, body.to_owned()).await, status, param, code);
        };
        check("", 400, None, "invalid_json").await;
        check("hello", 400, None, "invalid_json").await;
        check("{\"model\":", 400, None, "invalid_json").await;
        check("[]", 400, None, "invalid_json").await;
        check("{\"temperature\": NaN}", 400, None, "invalid_json").await;
        check("{\"model\": \"\\ud800\"}", 400, None, "invalid_json").await;
        check(&deep, 400, None, "invalid_json").await;
        check(&wide, 400, None, "invalid_json").await;
        check(&long, 413, None, "request_too_large").await;
        check("{}", 400, Some("model"), "missing_required_parameter").await;
        check("{\"model\": null}", 400, Some("model"), "missing_required_parameter").await;
        check("{\"model\": 5}", 400, Some("model"), "invalid_type").await;
    }
    assert!(fake.seen.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_huge_body_is_read_to_its_end() {
    let (_, router) = ready();
    let chunk = axum::body::Bytes::from(vec![b' '; 1 << 20]);
    let chunks = futures_util::stream::iter((0..50).map(move |_| Ok::<_, std::io::Error>(chunk.clone())));
    refused(&post(&router, CHAT, Body::from_stream(chunks)).await, 413, None, "request_too_large");
}

#[tokio::test(start_paused = true)]
async fn a_body_that_never_comes() {
    let (_, router) = ready();
    let never = Body::from_stream(futures_util::stream::pending::<Result<Vec<u8>, std::io::Error>>());
    refused(&post(&router, CHAT, never).await, 408, None, "request_timeout");
    let broken = futures_util::stream::iter([Err::<Vec<u8>, _>(std::io::Error::other("reset"))]);
    refused(&post(&router, CHAT, Body::from_stream(broken)).await, 400, None, "incomplete_body");
}

/// A client that writes before it reads would see a broken connection, not the answer.
#[tokio::test]
async fn what_is_refused_unread_is_read_to_its_end() {
    let (_, router) = ready();
    let loading = Gateway::new(config()).router();
    let check = async |router: &Router, path: &str, content_type: &str, host: &str, want: (u16, &str)| {
        let left = Arc::new(AtomicUsize::new(100));
        let taken = Arc::clone(&left);
        let chunks = futures_util::stream::iter(0..100).map(move |_| {
            taken.fetch_sub(1, Ordering::SeqCst);
            Ok::<_, std::io::Error>(vec![b' '; 1 << 16])
        });
        let request = Request::post(path).header("content-type", content_type).header("host", host);
        let got = send(router, request.body(Body::from_stream(chunks)).unwrap()).await;
        refused(&got, want.0, None, want.1);
        assert_eq!(left.load(Ordering::SeqCst), 0, "{path} {content_type} {host}");
    };
    let json = "application/json";
    check(&router, CHAT, "text/plain", "localhost", (415, "unsupported_content_type")).await;
    check(&router, "/v1/nope", json, "localhost", (404, "unknown_url")).await;
    check(&router, "/v1/models", json, "localhost", (405, "method_not_allowed")).await;
    check(&router, CHAT, json, "evil.example", (403, "host_not_allowed")).await;
    check(&loading, CHAT, json, "localhost", (503, "model_loading")).await;
}

/// A page of another site can point its own name at this machine; then its requests have that name.
#[tokio::test]
async fn hosts() {
    let check = async |hosts: Hosts, path: &str, host: &str, status: u16| {
        let gateway = Gateway::new(GatewayConfig { hosts, ..config() });
        gateway.set_ready(served(Fake::new(|_| reply("ok"))));
        let request = Request::get(path).header("host", host).body(Body::empty()).unwrap();
        let got = send(&gateway.router(), request).await;
        assert_eq!(got.status.as_u16(), status, "{path} {host}");
        if status == 403 {
            refused(&got, 403, None, "host_not_allowed");
            assert!(got.text.contains(host), "{}", got.text);
        }
    };
    for path in ["/", "/v1/models", "/metrics", "/nope.js"] {
        check(Hosts::default(), path, "evil.example", 403).await;
    }
    check(Hosts::default(), "/v1/models", "localhost:8080", 200).await;
    check(Hosts::default(), "/v1/models", "[::1]:8080", 200).await;
    check(Hosts::Local(vec!["chat.example".into()]), "/v1/models", "chat.example", 200).await;
    check(Hosts::Any, "/v1/models", "evil.example", 200).await;
}

/// A web page may leave the content type out without asking the server first.
#[tokio::test]
async fn a_page_has_to_name_the_content_type() {
    let (_, router) = ready();
    let check = async |content_type: Option<&str>, want: u16| {
        let body = json!({"model": MODEL, "prompt": "a"}).to_string();
        let mut request = Request::post(COMPLETIONS).body(Body::from(body)).unwrap();
        let headers = request.headers_mut();
        headers.insert("origin", "http://localhost:8080".parse().unwrap());
        headers.extend(content_type.map(|value| (http::header::CONTENT_TYPE, value.parse().unwrap())));
        assert_eq!(send(&router, request).await.status.as_u16(), want, "{content_type:?}");
    };
    check(None, 415).await;
    check(Some("application/json"), 200).await;
}

/// Messages that a reply with tool calls left in the history, for a template that adds texts.
#[tokio::test]
async fn messages_without_content() {
    let fake = Fake::new(|_| reply("ok"));
    let gateway = Gateway::new(config());
    let adding = "{% for m in messages %}{{ m.role + ': ' + m.content + ';' }}{% endfor %}";
    let template = Some(Arc::new(ChatTemplate::new(adding, "", "").unwrap()));
    gateway.set_ready(motet_gateway::ServedModel { template, ..served(fake.clone()) });
    let router = gateway.router();
    let call = json!({"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{"}});
    for content in [json!({"content": null}), json!({})] {
        let mut calling = json!({"role": "assistant", "tool_calls": [call]});
        calling.as_object_mut().unwrap().extend(content.as_object().unwrap().clone());
        let answer =
            json!({"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "42"}]});
        let messages = json!([{"role": "user", "content": "a"}, calling, answer]);
        let got = chat(&router, json!({"messages": messages})).await;
        assert_eq!(got.status, 200, "{}", got.text);
    }
    let want: Vec<u32> = "user: a;assistant: ;tool: 42;".bytes().map(u32::from).collect();
    assert!(fake.seen.lock().unwrap().iter().all(|request| request.prompt == want));
}

#[tokio::test]
async fn content_types() {
    let (_, router) = ready();
    let body = json!({"model": MODEL, "prompt": "a"}).to_string();
    let check = async |content_type: Option<&str>, want: u16| {
        let mut request = Request::post(COMPLETIONS).body(Body::from(body.clone())).unwrap();
        if let Some(value) = content_type {
            request.headers_mut().insert("content-type", value.parse().unwrap());
        }
        assert_eq!(send(&router, request).await.status.as_u16(), want, "{content_type:?}");
    };
    check(None, 200).await;
    check(Some("application/json"), 200).await;
    check(Some("Application/JSON; charset=UTF-8"), 200).await;
    check(Some("application/vnd.api+json"), 200).await;
    check(Some("text/plain"), 415).await;
    check(Some("application/x-www-form-urlencoded"), 415).await;
    check(Some("multipart/form-data; boundary=a"), 415).await;
    check(Some(""), 415).await;
}

#[tokio::test]
async fn oddities_that_are_fine() {
    let (_, router) = ready();
    let with_bom = format!("\u{feff}{}", json!({"model": MODEL, "prompt": "a"}));
    assert_eq!(post(&router, COMPLETIONS, with_bom).await.status, 200);
    let twice = format!("{{\"model\": \"x\", \"prompt\": \"a\", \"model\": \"{MODEL}\"}}");
    assert_eq!(post(&router, COMPLETIONS, twice).await.status, 200);
    let nul = json!({"messages": [{"role": "user", "content": "a\u{0}b"}]});
    assert_eq!(chat(&router, nul).await.status, 200);
    let alone = json!({"messages": [{"role": "assistant", "content": "I begin."}]});
    assert_eq!(chat(&router, alone).await.status, 200);
}

#[tokio::test]
async fn unknown_models() {
    let (fake, router) = ready();
    let long = "x".repeat(10_000);
    for name in ["no-such-model", "", "LAB/TINY", "lab/tiny ", "../x", &long] {
        let got = chat(&router, json!({"model": name})).await;
        refused(&got, 404, Some("model"), "model_not_found");
        assert!(got.text.len() < 500);
        refused(&complete(&router, json!({"model": name})).await, 404, Some("model"), "model_not_found");
    }
    assert!(fake.seen.lock().unwrap().is_empty());
    for path in ["/v1/models/nope", "/v1/models/%ff", "/v1/models/%2e%2e%2fx"] {
        refused(&get(&router, path).await, 404, Some("model"), "model_not_found");
    }
    for path in ["/v1/models/lab/tiny", "/v1/models/lab%2Ftiny", "/v1/models/lab%2ftiny"] {
        assert_eq!(get(&router, path).await.json()["id"], MODEL, "{path}");
    }
}

#[tokio::test]
async fn routes_and_methods() {
    let (_, router) = ready();
    refused(&get(&router, "/v1/nope").await, 404, None, "unknown_url");
    refused(&get(&router, "/v1").await, 404, None, "unknown_url");
    refused(&post(&router, "/nope", "{}").await, 404, None, "unknown_url");
    // What a base address without /v1, or with a slash too many, leads to.
    refused(&get(&router, "/models").await, 404, None, "unknown_url");
    refused(&get(&router, "//v1/models").await, 404, None, "unknown_url");
    refused(&get(&router, "/no-such-file.js").await, 404, None, "unknown_url");
    let check = async |got: Reply, allow: &str| {
        refused(&got, 405, None, "method_not_allowed");
        assert_eq!(got.header("allow"), allow);
    };
    check(get(&router, CHAT).await, "POST").await;
    check(get(&router, COMPLETIONS).await, "POST").await;
    check(post(&router, "/v1/models", "{}").await, "GET,HEAD").await;
    check(post(&router, "/healthz", "{}").await, "GET,HEAD").await;
    check(post(&router, "/", "{}").await, "GET,HEAD").await;
    let page = get(&router, "/").await;
    assert_eq!(page.status, 200);
    assert!(page.header("content-type").starts_with("text/html"));
    assert!(page.header("content-security-policy").starts_with("default-src 'self'"));
    assert_eq!(page.header("x-content-type-options"), "nosniff");
    assert_eq!(page.header("referrer-policy"), "no-referrer");
}

#[tokio::test]
async fn request_ids() {
    let (_, router) = ready();
    let check = async |sent: &str, is_kept: bool| {
        let request = Request::get("/healthz").header("x-request-id", sent).body(Body::empty()).unwrap();
        assert_eq!(send(&router, request).await.header("x-request-id") == sent, is_kept, "{sent}");
    };
    check("client-1", true).await;
    check("bad id", false).await;
    check(&"x".repeat(129), false).await;
    let ids: std::collections::HashSet<Value> = [
        chat(&router, json!({})).await.json()["id"].clone(),
        chat(&router, json!({})).await.json()["id"].clone(),
        complete(&router, json!({})).await.json()["id"].clone(),
    ]
    .into();
    assert_eq!(ids.len(), 3);
}

/// The context holds 400 tokens, and a chat around a text of `n` bytes has `n + OVERHEAD`.
const OVERHEAD: usize = 19;

#[tokio::test]
async fn lengths() {
    let (fake, router) = ready();
    let context = CONTEXT as usize;
    let code = "context_length_exceeded";
    let text = |length: usize| "x".repeat(length);
    let check = async |prompt: usize, max_tokens: Value, want: Option<(u16, &str, &str)>| {
        let got = complete(&router, json!({"prompt": text(prompt), "max_tokens": max_tokens})).await;
        match want {
            None => assert_eq!(got.status, 200, "{prompt} {max_tokens}: {}", got.text),
            Some((status, param, code)) => refused(&got, status, Some(param), code),
        }
    };
    check(context - 96, json!(96), None).await;
    check(context - 96, json!(97), Some((400, "max_tokens", code))).await;
    check(context - 1, json!(null), None).await;
    check(context, json!(null), Some((400, "prompt", code))).await;
    check(context + 500, json!(null), Some((400, "prompt", code))).await;
    check(1, json!(1_000_000_000), Some((400, "max_tokens", code))).await;
    check(1, json!(0), Some((400, "max_tokens", "invalid_value"))).await;
    check(1, json!(-5), Some((400, "max_tokens", "invalid_value"))).await;
    check(0, json!(null), Some((400, "prompt", "invalid_value"))).await;
    assert_eq!(fake.seen.lock().unwrap()[1].max_tokens, 1);

    let message = |length: usize| json!({"messages": [{"role": "user", "content": text(length)}]});
    assert_eq!(chat(&router, message(1)).await.json()["usage"]["prompt_tokens"], OVERHEAD + 1);
    assert_eq!(chat(&router, message(context - OVERHEAD - 1)).await.status, 200);
    let got = chat(&router, message(context - OVERHEAD)).await;
    refused(&got, 400, Some("messages"), code);
    insta::assert_snapshot!(got.json()["error"]["message"].as_str().unwrap());
    let got = complete(&router, json!({"prompt": text(390), "max_tokens": 20})).await;
    insta::assert_snapshot!(got.json()["error"]["message"].as_str().unwrap());
}

#[tokio::test]
async fn token_ids_outside_the_vocabulary() {
    let (fake, router) = ready();
    let check = async |extra: Value, param: &str| {
        refused(&complete(&router, extra).await, 400, Some(param), "invalid_value");
    };
    check(json!({"prompt": [1, VOCAB]}), "prompt[1]").await;
    check(json!({"prompt": [[1], [2, 999_999]]}), "prompt[1][1]").await;
    check(json!({"prompt": [-1]}), "prompt[0]").await;
    check(json!({"prompt": [[]]}), "prompt[0]").await;
    check(json!({"stop_token_ids": [999_999], "min_tokens": 3}), "stop_token_ids[0]").await;
    check(json!({"stop_token_ids": [-1]}), "stop_token_ids[0]").await;
    check(json!({"stop_token_ids": [VOCAB]}), "stop_token_ids[0]").await;
    refused(
        &complete(&router, json!({"logit_bias": {"-1": -100}})).await,
        400,
        Some("logit_bias"),
        "unsupported_parameter",
    );
    assert!(fake.seen.lock().unwrap().is_empty());
    assert_eq!(complete(&router, json!({"top_k": 1_000_000})).await.status, 200);
}

/// Faults inside a body; the parser's own table is longer.
#[tokio::test]
async fn parameters() {
    let (_, router) = ready();
    let check = async |extra: Value, param: &str, code: &str| {
        refused(&chat(&router, extra).await, 400, Some(param), code);
    };
    check(json!({"messages": []}), "messages", "invalid_value").await;
    check(json!({"messages": null}), "messages", "missing_required_parameter").await;
    check(json!({"messages": [null]}), "messages[0]", "invalid_type").await;
    let user = json!({"role": "user", "content": "a"});
    let numbered = json!({"messages": [user, user, {"role": "user", "content": 5}]});
    check(numbered, "messages[2].content", "invalid_type").await;
    check(json!({"messages": [{"role": "banana", "content": "a"}]}), "messages[0].role", "invalid_value")
        .await;
    check(json!({"temperature": "hot"}), "temperature", "invalid_type").await;
    check(json!({"n": 100}), "n", "invalid_value").await;
    let key = "k".repeat(300);
    check(json!({"prompt_cache_key": key}), "prompt_cache_key", "invalid_value").await;
    check(json!({"tools": [{"type": "function"}]}), "tools", "unsupported_parameter").await;
    check(json!({"response_format": {"type": "json_object"}}), "response_format", "unsupported_parameter")
        .await;
    let many = vec![user; 5000];
    check(json!({"messages": many}), "messages", "invalid_value").await;
    let refuse = json!({"messages": [{"role": "system", "content": "refuse"}]});
    let got = chat(&router, refuse).await;
    refused(&got, 400, Some("messages"), "chat_template_error");
    assert!(got.text.contains("no such system prompt"), "{}", got.text);
}

#[tokio::test]
async fn a_model_without_a_template() {
    let fake = Fake::new(|_| reply("ok"));
    let gateway = Gateway::new(config());
    gateway.set_ready(motet_gateway::ServedModel { template: None, ..served(fake) });
    let router = gateway.router();
    refused(&chat(&router, json!({})).await, 400, Some("messages"), "chat_template_error");
    assert_eq!(complete(&router, json!({})).await.status, 200);
}

#[tokio::test]
async fn refusals_of_the_backend() {
    let check = async |error: SubmitError, status: u16, param: Option<&str>, code: &str| {
        let fake = Fake::refusing(|_| reply("ok"), move |_| Some(error.clone()));
        let got = chat(&gateway(&fake).router(), json!({"max_tokens": 9})).await;
        refused(&got, status, param, code);
        got
    };
    let full = SubmitError::QueueFull { waiting: 64, retry_after_seconds: 3 };
    let got = check(full, 503, None, "server_is_overloaded").await;
    assert_eq!((got.header("retry-after"), got.header("retry-after-ms")), ("3", "3000"));
    let slow = SubmitError::TooSlow { estimate_seconds: 41, retry_after_seconds: 17 };
    let got = check(slow, 503, None, "server_is_overloaded").await;
    assert_eq!((got.header("retry-after"), got.header("retry-after-ms")), ("17", "17000"));
    assert!(got.text.contains("41 s"), "{}", got.text);
    let got = check(SubmitError::Draining, 503, None, "server_shutting_down").await;
    assert_eq!(got.header("retry-after"), "5");
    check(SubmitError::Samples { samples: 8, limit: 4 }, 400, Some("n"), "invalid_value").await;
    let got = check(SubmitError::UnknownLane { lane: 3, lanes: 1 }, 500, None, "internal_error").await;
    assert!(!got.text.contains("lane"), "{}", got.text);
    check(SubmitError::Down("out of memory".into()), 503, None, "engine_down").await;
    let long = SubmitError::TooLong { prompt: 20, max_tokens: 9, limit: 24 };
    check(long, 400, Some("max_tokens"), "context_length_exceeded").await;
    let sampling = SubmitError::BadSampling { field: "min_p", value: "2".into(), allowed: "from 0 to 1" };
    check(sampling, 400, Some("min_p"), "invalid_value").await;
    let token = SubmitError::UnknownToken { token: 9, vocab_size: 8 };
    check(token, 400, Some("messages"), "invalid_value").await;
}

/// A sequence may hold less than the context. Without `max_tokens` the reply gets what there is.
#[tokio::test]
async fn a_small_arena_shortens_replies_of_open_length() {
    let limit = 64;
    let too_long = move |request: &motet_types::Request| {
        let prompt = request.prompt.len() as u32;
        let max_tokens = request.max_tokens;
        (prompt + max_tokens > limit).then_some(SubmitError::TooLong { prompt, max_tokens, limit })
    };
    let fake = Fake::refusing(|_| reply("ok"), too_long);
    let router = gateway(&fake).router();
    assert_eq!(complete(&router, json!({"prompt": "abcd"})).await.status, 200);
    assert_eq!(fake.only_request().max_tokens, 60);
    for (extra, param) in [
        (json!({"prompt": "abcd", "max_tokens": 61}), "max_tokens"),
        (json!({"prompt": "abcd", "max_completion_tokens": 61}), "max_completion_tokens"),
        (json!({"prompt": "x".repeat(64)}), "prompt"),
        (json!({"prompt": "x".repeat(64), "max_tokens": 1}), "prompt"),
    ] {
        let got = complete(&router, extra).await;
        refused(&got, 400, Some(param), "context_length_exceeded");
        assert!(got.text.contains("64 tokens"), "{}", got.text);
    }
}

/// Of a request with several sequences all are taken or none.
#[tokio::test]
async fn half_a_request_is_not_left_behind() {
    let full = SubmitError::QueueFull { waiting: 2, retry_after_seconds: 0 };
    let refuse = move |request: &motet_types::Request| (request.prompt == [99]).then(|| full.clone());
    let fake = Fake::refusing(|_| vec![support::Beat::Hang], refuse);
    let got = complete(&gateway(&fake).router(), json!({"prompt": ["a", "b", "c"]})).await;
    refused(&got, 503, None, "server_is_overloaded");
    assert_eq!((fake.seen.lock().unwrap().len(), fake.live()), (2, 0));
    assert_eq!(got.header("retry-after"), "1");
}

#[tokio::test]
async fn a_panic_is_a_500() {
    let fake = Fake::new(|_| panic!("for the test"));
    let got = chat(&gateway(&fake).router(), json!({})).await;
    refused(&got, 500, None, "internal_error");
    assert!(!got.text.contains("for the test"));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_announces_too_much_need_not_send_it() {
    let fake = Fake::new(|_| reply("ok"));
    let gateway = Gateway::new(GatewayConfig { body_timeout: Duration::from_secs(3600), ..config() });
    gateway.set_ready(served(fake));
    let never = Body::from_stream(futures_util::stream::pending::<Result<Vec<u8>, std::io::Error>>());
    let mut request = post_request(CHAT, never);
    request.headers_mut().insert("expect", "100-continue".parse().unwrap());
    request.headers_mut().insert("content-length", "50000000".parse().unwrap());
    refused(&send(&gateway.router(), request).await, 413, None, "request_too_large");
}
