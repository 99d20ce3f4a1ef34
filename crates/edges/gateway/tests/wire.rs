//! The exact bytes of replies.

// Helpers of tests may fail as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::time::Duration;

use motet_gateway::{Gateway, GatewayConfig, Lanes};
use motet_types::{Origin, ReplyError};
use serde_json::{Value, json};
use support::client::{chat, complete, get};
use support::{Beat, CACHED, Fake, IM_END, MODEL, config, gateway, reply, say, served};

async fn chat_text(script: Vec<Beat>, extra: Value) -> String {
    let fake = Fake::new(move |_| script.clone());
    let got = chat(&gateway(&fake).router(), extra).await;
    assert_eq!(fake.live(), 0);
    got.stable()
}

async fn completion_text(script: Vec<Beat>, extra: Value) -> String {
    let fake = Fake::new(move |_| script.clone());
    complete(&gateway(&fake).router(), extra).await.stable()
}

#[tokio::test]
async fn chat_whole() {
    insta::assert_snapshot!(chat_text(reply("Hé!"), json!({})).await);
}

#[tokio::test]
async fn chat_stream() {
    insta::assert_snapshot!(chat_text(reply("Hé!"), json!({"stream": true})).await);
}

#[tokio::test]
async fn chat_stream_with_usage() {
    let extra = json!({"stream": true, "stream_options": {"include_usage": true}, "max_tokens": 2});
    insta::assert_snapshot!(chat_text(reply("Hé!"), extra).await);
}

#[tokio::test]
async fn chat_logprobs() {
    let extra = json!({"logprobs": true, "top_logprobs": 1});
    insta::assert_snapshot!(chat_text(reply("é"), extra).await);
    insta::assert_snapshot!(chat_text(reply("é"), json!({"logprobs": true, "stream": true})).await);
}

#[tokio::test]
async fn completion_whole() {
    let extra = json!({"prompt": ["ab", [104, 105]], "n": 2});
    insta::assert_snapshot!(completion_text(reply("ok"), extra).await);
}

#[tokio::test]
async fn completion_stream() {
    let extra = json!({"stream": true, "stream_options": {"include_usage": true}});
    insta::assert_snapshot!(completion_text(reply("ok"), extra).await);
}

#[tokio::test]
async fn completion_logprobs() {
    insta::assert_snapshot!(completion_text(reply("aé"), json!({"logprobs": 1})).await);
    insta::assert_snapshot!(completion_text(reply("a"), json!({"logprobs": 0})).await);
}

#[tokio::test]
async fn a_failure_in_mid_stream_is_an_error_and_no_done() {
    let script = [say("a"), vec![Beat::Fail(ReplyError::NonFiniteLogits { index: 1 })]].concat();
    insta::assert_snapshot!(chat_text(script, json!({"stream": true})).await);
    let script = [say("a"), vec![Beat::Vanish]].concat();
    insta::assert_snapshot!(completion_text(script, json!({"stream": true})).await);
}

#[tokio::test]
async fn a_failure_without_a_stream_is_a_status() {
    let check = async |end: Beat, status: u16, code: &str| {
        let fake = Fake::new(move |_| [say("a"), vec![end.clone()]].concat());
        let router = gateway(&fake).router();
        assert_eq!(chat(&router, json!({})).await.error(), (status, None, Some(code.into())));
        let stream = chat(&router, json!({"stream": true})).await.text;
        assert!(stream.contains(&format!("\"code\":\"{code}\"")) && !stream.contains("[DONE]"), "{stream}");
    };
    check(Beat::Fail(ReplyError::NonFiniteLogits { index: 1 }), 500, "reply_failed").await;
    check(Beat::Vanish, 500, "reply_truncated").await;
    check(Beat::Fail(ReplyError::DeadlinePassed), 504, "deadline_passed").await;
}

#[tokio::test(start_paused = true)]
async fn silence_is_filled_with_comments() {
    let script = [vec![Beat::Pause(Duration::from_secs(12))], say("a"), vec![Beat::Token(IM_END)]].concat();
    let text = chat_text(script, json!({"stream": true})).await;
    let (comments, events) = text.split_once("data: ").unwrap();
    assert_eq!(comments, ": keep-alive\n\n: keep-alive\n\n");
    assert!(events.ends_with("data: [DONE]\n\n"));
}

#[tokio::test(start_paused = true)]
async fn stream_headers() {
    let fake = Fake::new(|_| reply("a"));
    let got = chat(&gateway(&fake).router(), json!({"stream": true, "tempature": 2})).await;
    assert_eq!(got.header("content-type"), "text/event-stream");
    assert_eq!(got.header("cache-control"), "no-cache, no-transform");
    assert_eq!(got.header("x-accel-buffering"), "no");
    assert_eq!(got.header("x-motet-ignored-parameters"), "tempature");
    assert!(got.header("x-request-id").starts_with("req_"));
    assert_eq!(got.header("openai-processing-ms"), "0");
}

/// The texts of each choice of a streamed chat, their reasons, and the order in which they opened.
fn collect(stream: &str, choices: usize) -> (Vec<String>, Vec<Value>, Vec<u64>) {
    let (mut texts, mut reasons, mut order) =
        (vec![String::new(); choices], vec![Value::Null; choices], vec![]);
    for line in stream.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|data| *data != "[DONE]")
    {
        let chunk: Value = serde_json::from_str(line).unwrap();
        for choice in chunk["choices"].as_array().unwrap() {
            let index = choice["index"].as_u64().unwrap();
            if choice["delta"]["role"] == "assistant" {
                order.push(index);
            }
            assert!(order.contains(&index), "choice {index} began without an opening chunk");
            texts[index as usize] += choice["delta"]["content"].as_str().unwrap_or_default();
            if !choice["finish_reason"].is_null() {
                reasons[index as usize] = choice["finish_reason"].clone();
            }
        }
    }
    (texts, reasons, order)
}

#[tokio::test]
async fn choices_open_in_order_and_have_their_own_seeds() {
    // Choice 0 is slow, so the others have text before it.
    let fake = Fake::new(|request| match request.samples[0].seed {
        7 => [vec![Beat::Pause(Duration::from_millis(20))], reply("slow")].concat(),
        _ => reply("fast"),
    });
    let router = gateway(&fake).router();
    let got = chat(&router, json!({"stream": true, "n": 3, "seed": 7})).await;
    let (texts, reasons, order) = collect(&got.text, 3);
    assert_eq!(texts, ["slow", "fast", "fast"]);
    assert_eq!(reasons, ["stop", "stop", "stop"]);
    assert_eq!(order, [0, 1, 2]);
    let seeds: Vec<u64> = fake.only_request().samples.iter().map(|sample| sample.seed).collect();
    assert_eq!((seeds.len(), seeds[0]), (3, 7));
    assert!(seeds[1] != 7 && seeds[2] != 7 && seeds[1] != seeds[2]);
    let usage = &chat(&router, json!({"n": 3})).await.json()["usage"];
    assert_eq!(usage["completion_tokens"], 15);
}

/// Choices of one prompt are one request to the backend, so the prompt is computed and counted once.
#[tokio::test]
async fn choices_share_their_prompt() {
    let fake = Fake::new(|_| reply("ok"));
    let router = gateway(&fake).router();
    let got = complete(&router, json!({"prompt": ["abc", "de"], "n": 3, "seed": 7})).await.json();
    let indices: Vec<_> = got["choices"].as_array().unwrap().iter().map(|c| c["index"].clone()).collect();
    assert_eq!(indices, [0, 1, 2, 3, 4, 5]);
    let usage = &got["usage"];
    assert_eq!((&usage["prompt_tokens"], &usage["completion_tokens"]), (&json!(5), &json!(18)));
    assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], 2 * CACHED);
    let seen = fake.seen.lock().unwrap();
    assert_eq!(seen.iter().map(|request| request.samples.len()).collect::<Vec<_>>(), [3, 3]);
    assert_eq!(seen[0].samples, seen[1].samples);
}

/// A choice that a stop string ends has not heard how much was cached; another one has.
#[tokio::test]
async fn the_best_of_several_are_the_reply() {
    let digits = std::sync::atomic::AtomicUsize::new(0);
    let fake = Fake::new(move |_| {
        let next = digits.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        reply(["9", "1", "5", "5", "2", "77"][next % 6])
    });
    let router = gateway(&fake).router();
    let got = complete(&router, json!({"prompt": ["abc", "de"], "best_of": 3, "n": 2})).await.json();
    let choices = got["choices"].as_array().unwrap();
    let texts: Vec<_> =
        choices.iter().map(|c| (c["index"].as_u64().unwrap(), c["text"].as_str().unwrap())).collect();
    // Of 9, 1, 5 and of 5, 2, 77 the likeliest per token; all six are paid for, an end of turn each.
    assert_eq!(texts, [(0, "1"), (1, "5"), (2, "2"), (3, "5")]);
    assert!(choices.iter().all(|choice| choice["logprobs"].is_null()));
    assert_eq!(got["usage"]["completion_tokens"], 13);
}

#[tokio::test]
async fn cached_tokens_of_choices_that_were_cut() {
    let fake = Fake::new(|request| match request.samples[0].seed {
        7 => [say("a,"), vec![Beat::Hang]].concat(),
        _ => reply("b"),
    });
    let router = gateway(&fake).router();
    let check = async |n: u32, cached: u32| {
        let got = chat(&router, json!({"n": n, "seed": 7, "stop": ","})).await.json();
        assert_eq!(got["usage"]["prompt_tokens_details"]["cached_tokens"], cached, "n = {n}");
    };
    check(2, CACHED).await;
    check(1, 0).await;
}

#[tokio::test]
async fn cache_keys_and_lanes() {
    let check = async |lanes: Lanes, extra: Value, lane: usize, key: Option<&str>, tier: Option<&str>| {
        let fake = Fake::new(|_| reply("a"));
        let gateway = Gateway::new(GatewayConfig { lanes, ..config() });
        gateway.set_ready(served(fake.clone()));
        let router = gateway.router();
        for got in [chat(&router, extra.clone()).await, complete(&router, extra.clone()).await] {
            assert_eq!(got.json()["service_tier"].as_str(), tier, "{}", got.text);
            assert_eq!(got.header("x-motet-ignored-parameters"), "");
        }
        let origin = Origin { lane, cache_namespace: key.map(str::to_owned), ..Origin::default() };
        assert!(fake.seen.lock().unwrap().iter().all(|r| r.origin == origin && r.deadline.is_none()));
        let metrics = get(&router, "/metrics").await.text;
        let name = ["main", "rest"][lane];
        let count =
            format!("motet_time_to_first_token_seconds_count{{model=\"{MODEL}\",lane=\"{name}\"}} 2\n");
        assert!(metrics.contains(&count), "{count} is not in\n{metrics}");
    };
    let two = Lanes { default: 0, background: Some(1) };
    let one = Lanes { default: 1, background: None };
    check(two, json!({}), 0, None, None).await;
    check(two, json!({"prompt_cache_key": "team-7"}), 0, Some("team-7"), None).await;
    check(two, json!({"prompt_cache_key": ""}), 0, None, None).await;
    check(two, json!({"service_tier": "auto"}), 0, None, Some("default")).await;
    check(two, json!({"service_tier": "flex"}), 1, None, Some("flex")).await;
    check(one, json!({"service_tier": "flex"}), 1, None, Some("default")).await;
    let fake = Fake::new(|_| reply("a"));
    let got = chat(&gateway(&fake).router(), json!({"stream": true, "service_tier": "auto"})).await.text;
    assert_eq!(got.matches("\"service_tier\":\"default\"").count(), got.matches("\"id\":").count());
}

/// A stop string ends the choice and its sequence, streamed or not, with the same text and usage.
#[tokio::test]
async fn stop_strings() {
    let check = async |script: Vec<Beat>, stop: Value, want: &str, reason: &str, tokens: u32| {
        let fake = Fake::new(move |_| script.clone());
        let router = gateway(&fake).router();
        let whole = chat(&router, json!({"stop": stop})).await.json();
        assert_eq!(whole["choices"][0]["message"]["content"], want);
        assert_eq!(whole["choices"][0]["finish_reason"], reason);
        assert_eq!(whole["usage"]["completion_tokens"], tokens);
        let options = json!({"stop": stop, "stream": true, "stream_options": {"include_usage": true}});
        let stream = chat(&router, options).await;
        let (texts, reasons, _) = collect(&stream.text, 1);
        assert_eq!((texts[0].as_str(), &reasons[0]), (want, &json!(reason)));
        assert!(stream.text.contains(&format!("\"completion_tokens\":{tokens},")), "{}", stream.text);
        assert_eq!(fake.live(), 0);
    };
    let endless = |text: &str| [say(text), vec![Beat::Hang]].concat();
    check(endless("four, five, six"), json!(["five, six"]), "four, ", "stop", 15).await;
    check(reply("four, five, seven"), json!(["five, six"]), "four, five, seven", "stop", 18).await;
    check(say("four, fi"), json!("five, six"), "four, fi", "length", 8).await;
    check(endless("xab"), json!(["abc", "ab"]), "x", "stop", 3).await;
}

#[tokio::test]
async fn logprobs_end_where_the_text_ends() {
    let fake = Fake::new(|_| [say("ab, five"), vec![Beat::Hang]].concat());
    let router = gateway(&fake).router();
    let whole = chat(&router, json!({"stop": ", five", "logprobs": true})).await.json();
    let tokens = whole["choices"][0]["logprobs"]["content"].as_array().unwrap().clone();
    let spelled: Vec<&str> = tokens.iter().map(|token| token["token"].as_str().unwrap()).collect();
    assert_eq!(spelled, ["a", "b"]);
    assert_eq!(tokens[0]["top_logprobs"], json!([]));
}

#[tokio::test]
async fn requests_say_what_was_asked() {
    let fake = Fake::new(|_| reply("a"));
    let router = gateway(&fake).router();
    let extra = json!({
        "prompt": "<|im_start|>é", "temperature": 0.5, "top_k": 10_000, "top_p": 0.9, "min_p": 0.1, "seed": -1,
        "stop_token_ids": [65], "ignore_eos": true, "min_tokens": 1, "max_tokens": 9, "logprobs": 5,
    });
    assert_eq!(complete(&router, extra).await.status, 200);
    insta::assert_debug_snapshot!(fake.only_request());
}

/// Control markers in a message stay text; the template's own are tokens.
#[tokio::test]
async fn markers_of_a_user_are_text() {
    let fake = Fake::new(|_| reply("a"));
    let messages = json!([{"role": "user", "content": "<|im_end|>"}]);
    chat(&gateway(&fake).router(), json!({"messages": messages})).await;
    let prompt = fake.only_request().prompt;
    assert_eq!(prompt.iter().filter(|&&id| id == IM_END).count(), 1);
    assert_eq!(prompt.iter().filter(|&&id| id >= 256).count(), 3);
}

#[tokio::test]
async fn ignored_end_of_turn_tokens_give_no_text() {
    let fake = Fake::new(|_| [say("a"), vec![Beat::Token(256)], say("b")].concat());
    let router = gateway(&fake).router();
    let got = chat(&router, json!({"ignore_eos": true, "logprobs": true})).await.json();
    assert_eq!(got["choices"][0]["message"]["content"], "ab");
    assert_eq!(got["choices"][0]["logprobs"]["content"].as_array().unwrap().len(), 3);
    // A stop token with a text of its own is counted and not shown.
    let got = complete(&router, json!({"stop_token_ids": [98]})).await.json();
    assert_eq!(got["choices"][0]["text"], "a");
    assert_eq!(got["usage"]["completion_tokens"], 3);
    assert_eq!(got["choices"][0]["finish_reason"], "stop");
}
