//! Request bodies, good and bad: what is read, and which parameter an error names.

// Helpers of tests may fail as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use motet_protocol::{
    ChatRequest, CompletionRequest, MAX_CACHE_KEY_BYTES, MAX_MESSAGES, Problem, Prompt, RequestError,
    ServiceTier, Streaming,
};
use serde_json::{Map, Value, json};

/// A valid chat body with `extra` laid over it.
fn chat_body(extra: Value) -> Map<String, Value> {
    merged(json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]}), extra)
}

fn completion_body(extra: Value) -> Map<String, Value> {
    merged(json!({"model": "m", "prompt": "hi"}), extra)
}

fn merged(mut base: Value, extra: Value) -> Map<String, Value> {
    for (name, value) in extra.as_object().unwrap() {
        base[name] = value.clone();
    }
    base.as_object().unwrap().clone()
}

fn chat(extra: Value) -> Result<ChatRequest, RequestError> {
    ChatRequest::from_body(&chat_body(extra))
}

fn completion(extra: Value) -> Result<CompletionRequest, RequestError> {
    CompletionRequest::from_body(&completion_body(extra))
}

#[track_caller]
fn refused<T: std::fmt::Debug>(got: Result<T, RequestError>, param: &str, problem: Problem) {
    let error = got.expect_err(param);
    assert_eq!((error.param.as_deref(), error.problem), (Some(param), problem), "{}", error.message);
    assert!(error.message.contains(param), "{} does not name {param}", error.message);
    assert!(error.message.len() < 300, "{}", error.message);
}

use Problem::{BadValue, Missing, Unsupported, WrongType};

#[test]
fn bad_parameters_are_named() {
    let check = |extra: Value, param: &str, problem| {
        refused(chat(extra.clone()), param, problem);
        refused(completion(extra), param, problem);
    };
    check(json!({"model": null}), "model", Missing);
    check(json!({"model": 5}), "model", WrongType);
    check(json!({"temperature": "hot"}), "temperature", WrongType);
    check(json!({"temperature": 2.1}), "temperature", BadValue);
    check(json!({"temperature": -0.1}), "temperature", BadValue);
    check(json!({"top_p": 0}), "top_p", BadValue);
    check(json!({"top_p": 1.1}), "top_p", BadValue);
    check(json!({"min_p": -1}), "min_p", BadValue);
    check(json!({"top_k": -2}), "top_k", BadValue);
    check(json!({"top_k": 1.5}), "top_k", WrongType);
    check(json!({"seed": "x"}), "seed", WrongType);
    check(json!({"seed": 0.5}), "seed", BadValue);
    check(json!({"seed": 1e30}), "seed", BadValue);
    check(json!({"max_tokens": 0}), "max_tokens", BadValue);
    check(json!({"max_tokens": -5}), "max_tokens", BadValue);
    check(json!({"max_tokens": 1e30}), "max_tokens", BadValue);
    check(json!({"max_tokens": true}), "max_tokens", WrongType);
    check(json!({"max_completion_tokens": -1}), "max_completion_tokens", BadValue);
    check(json!({"max_tokens": 3, "min_tokens": 4}), "min_tokens", BadValue);
    check(json!({"n": 0}), "n", BadValue);
    check(json!({"n": 9}), "n", BadValue);
    check(json!({"stream": "yes"}), "stream", WrongType);
    check(json!({"stream_options": true}), "stream_options", WrongType);
    check(json!({"stream_options": {"include_usage": 1}}), "stream_options.include_usage", WrongType);
    check(json!({"stop": 1}), "stop", WrongType);
    check(json!({"stop": ""}), "stop", BadValue);
    check(json!({"stop": ["a", ""]}), "stop[1]", BadValue);
    check(json!({"stop": ["a", 2]}), "stop[1]", WrongType);
    check(json!({"stop": ["a", "b", "c", "d", "e"]}), "stop", BadValue);
    check(json!({"stop": "x".repeat(10_000)}), "stop", BadValue);
    check(json!({"stop_token_ids": [1, -1]}), "stop_token_ids[1]", BadValue);
    check(json!({"stop_token_ids": ["a"]}), "stop_token_ids[0]", WrongType);
    check(json!({"stop_token_ids": vec![1; 129]}), "stop_token_ids", BadValue);
    check(json!({"ignore_eos": "no"}), "ignore_eos", WrongType);
    check(json!({"prompt_cache_key": 7}), "prompt_cache_key", WrongType);
    let key = "k".repeat(MAX_CACHE_KEY_BYTES + 1);
    check(json!({"prompt_cache_key": key}), "prompt_cache_key", BadValue);
    check(json!({"service_tier": 1}), "service_tier", WrongType);
}

#[test]
fn what_cannot_be_honoured_is_refused() {
    let cases = json!({
        "tools": [{"type": "function"}], "tool_choice": "required", "functions": [{"name": "f"}],
        "response_format": {"type": "json_schema", "schema": {}}, "presence_penalty": 0.5, "frequency_penalty": -2,
        "repetition_penalty": 1.1, "logit_bias": {"999999": 5}, "modalities": ["text", "audio"],
        "audio": {"voice": "alloy"}, "suffix": "s", "echo": true, "use_beam_search": true, "guided_json": {},
        "structured_outputs": {"regex": "a"}, "continue_final_message": true, "documents": [{"text": "a"}],
    });
    for (name, value) in cases.as_object().unwrap() {
        refused(chat(json!({name: value})), name, Unsupported);
        refused(completion(json!({name: value})), name, Unsupported);
    }
    refused(completion(json!({"best_of": 9})), "best_of", BadValue);
    refused(completion(json!({"best_of": 2, "n": 3})), "best_of", BadValue);
    refused(completion(json!({"best_of": 2, "stream": true})), "best_of", BadValue);
    refused(completion(json!({"best_of": 0})), "best_of", BadValue);
}

#[test]
fn neutral_and_harmless_parameters_pass() {
    let harmless = json!({
        "tools": [], "tool_choice": "none", "response_format": {"type": "text"}, "presence_penalty": 0,
        "frequency_penalty": 0.0, "repetition_penalty": 1, "logit_bias": {}, "modalities": ["text"], "audio": null,
        "suffix": null, "echo": false, "prediction": {"type": "content", "content": "x"}, "store": true,
        "metadata": {"a": "b"}, "user": "u", "reasoning_effort": "low", "top_logprobs": null,
    });
    assert_eq!(chat(harmless.clone()).unwrap().generation, chat(json!({})).unwrap().generation);
    let got = completion(merged(harmless, json!({"best_of": 3, "n": 3})).into()).unwrap();
    assert_eq!((got.generation.n, got.generation.best_of), (3, 3));
    let got = completion(json!({"best_of": 5, "n": 2})).unwrap();
    assert_eq!((got.generation.n, got.generation.best_of), (2, 5));
    let got = chat(json!({"tempature": 1, "foo": [], "bar": null})).unwrap();
    assert_eq!(got.generation.unknown, ["tempature", "foo"]);
    assert_eq!(completion(json!({"messages": []})).unwrap().generation.unknown, ["messages"]);
}

#[test]
fn values_are_read() {
    let all = json!({
        "temperature": 0.5, "top_k": 40, "top_p": 0.9, "min_p": 0.05, "seed": -1, "stop": ["a", "b"],
        "stop_token_ids": [7], "ignore_eos": true, "min_tokens": 2, "max_tokens": 16.0, "n": 2, "stream": true,
        "stream_options": {"include_usage": true}, "logprobs": true, "top_logprobs": 20, "prompt_cache_key": "k",
        "service_tier": "flex",
    });
    insta::assert_debug_snapshot!(chat(all).unwrap().generation);
    insta::assert_debug_snapshot!(chat(json!({})).unwrap());
}

#[test]
fn limits_and_seeds() {
    let limit = |extra| chat(extra).unwrap().generation.max_tokens;
    assert_eq!(limit(json!({"max_completion_tokens": 16})), Some(16));
    assert_eq!(limit(json!({"max_tokens": 10, "max_completion_tokens": 20})), Some(10));
    assert_eq!(limit(json!({"max_tokens": 30, "max_completion_tokens": 20})), Some(20));
    assert_eq!(limit(json!({"max_tokens": 1e9})), Some(1_000_000_000));
    let name = |extra| chat(extra).unwrap().generation.max_tokens_name;
    assert_eq!(name(json!({"max_tokens": 10, "max_completion_tokens": 20})), "max_tokens");
    assert_eq!(name(json!({"max_tokens": 30, "max_completion_tokens": 20})), "max_completion_tokens");
    assert_eq!(name(json!({"max_completion_tokens": 20})), "max_completion_tokens");
    let sampling = |extra| chat(extra).unwrap().generation.sampling;
    assert_eq!(sampling(json!({"seed": u64::MAX})).seed, Some(u64::MAX));
    assert_eq!(sampling(json!({"seed": -1})).seed, Some(u64::MAX));
    assert_eq!(sampling(json!({"seed": 42.0})).seed, Some(42));
    assert_eq!(sampling(json!({"seed": i64::MIN})).seed, Some(1 << 63));
    assert_eq!(sampling(json!({"top_k": -1})).top_k, 0);
    assert_eq!(sampling(json!({"top_k": 1e12})).top_k, u32::MAX);
    assert!(sampling(json!({"top_p": 1e-60})).top_p > 0.0);
    let streaming = |extra| chat(extra).unwrap().generation.streaming;
    assert_eq!(streaming(json!({"stream": true, "stream_options": {}})), Streaming::On);
    assert_eq!(streaming(json!({"stream_options": {"include_usage": true}})), Streaming::Off);
}

#[test]
fn cache_keys_and_tiers() {
    let key = |extra| chat(extra).unwrap().generation.cache_key;
    let long = "k".repeat(MAX_CACHE_KEY_BYTES);
    assert_eq!(key(json!({"prompt_cache_key": long})), Some(long));
    assert_eq!(key(json!({"prompt_cache_key": " é"})), Some(" é".into()));
    assert_eq!(key(json!({"prompt_cache_key": ""})), None);
    assert_eq!(key(json!({"prompt_cache_key": null})), None);
    let tier = |name: Value| completion(json!({"service_tier": name})).unwrap().generation.service_tier;
    assert_eq!(tier(json!("flex")), Some(ServiceTier::Flex));
    assert_eq!(tier(json!("auto")), Some(ServiceTier::Default));
    assert_eq!(tier(json!("priority")), Some(ServiceTier::Default));
    assert_eq!(tier(json!(null)), None);
}

#[test]
fn chat_logprobs() {
    let read = |extra| chat(extra).map(|request| request.generation.logprobs);
    assert_eq!(read(json!({})).unwrap(), None);
    assert_eq!(read(json!({"logprobs": true})).unwrap(), Some(0));
    assert_eq!(read(json!({"logprobs": true, "top_logprobs": 20})).unwrap(), Some(20));
    assert_eq!(read(json!({"logprobs": false, "top_logprobs": 0})).unwrap(), None);
    refused(read(json!({"logprobs": true, "top_logprobs": 21})), "top_logprobs", BadValue);
    refused(read(json!({"top_logprobs": 3})), "top_logprobs", BadValue);
    refused(read(json!({"logprobs": 2})), "logprobs", WrongType);
}

#[test]
fn completion_logprobs() {
    let read = |extra| completion(extra).map(|request| request.generation.logprobs);
    assert_eq!(read(json!({})).unwrap(), None);
    assert_eq!(read(json!({"logprobs": 0})).unwrap(), Some(0));
    assert_eq!(read(json!({"logprobs": 5})).unwrap(), Some(5));
    refused(read(json!({"logprobs": 6})), "logprobs", BadValue);
    refused(read(json!({"logprobs": true})), "logprobs", WrongType);
}

#[test]
fn good_messages() {
    let calls =
        json!([{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"a\": \"b"}}]);
    let got = chat(json!({"messages": [
        {"role": "developer", "content": "Be brief."},
        {"role": "system", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "user", "content": "", "name": "ada"},
        {"role": "assistant", "content": null, "refusal": null, "audio": null, "function_call": null, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "42"}]},
        {"role": "assistant", "tool_calls": calls},
        {"role": "function", "name": "f", "content": "43"},
        {"role": "assistant", "content": "nul \u{0} is text", "tool_calls": []},
    ]}));
    insta::assert_json_snapshot!(got.unwrap().messages);
}

#[test]
fn bad_messages() {
    let one = |message: Value| chat(json!({"messages": [{"role": "user", "content": "a"}, message]}));
    refused(chat(json!({"messages": null})), "messages", Missing);
    refused(chat(json!({"messages": []})), "messages", BadValue);
    refused(chat(json!({"messages": "hi"})), "messages", WrongType);
    let message = json!({"role": "user", "content": "x"});
    refused(chat(json!({"messages": vec![message; MAX_MESSAGES + 1]})), "messages", BadValue);
    refused(one(json!(null)), "messages[1]", WrongType);
    refused(one(json!({"content": "a"})), "messages[1].role", Missing);
    refused(one(json!({"role": "banana", "content": "a"})), "messages[1].role", BadValue);
    refused(one(json!({"role": 1, "content": "a"})), "messages[1].role", WrongType);
    refused(one(json!({"role": "user"})), "messages[1].content", Missing);
    refused(one(json!({"role": "user", "content": null})), "messages[1].content", Missing);
    refused(
        one(json!({"role": "assistant", "content": null, "tool_calls": []})),
        "messages[1].content",
        Missing,
    );
    refused(one(json!({"role": "user", "content": 5})), "messages[1].content", WrongType);
    refused(one(json!({"role": "user", "content": []})), "messages[1].content", BadValue);
    refused(one(json!({"role": "user", "content": ["a"]})), "messages[1].content[0]", WrongType);
    refused(
        one(json!({"role": "user", "content": [{"type": "text"}]})),
        "messages[1].content[0].text",
        Missing,
    );
    let image = json!({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]});
    refused(one(image), "messages[1].content[0].type", Unsupported);
    let nameless = json!([{"id": "c", "type": "function", "function": {"arguments": "{}"}}]);
    let path = "messages[1].tool_calls[0].function.name";
    refused(one(json!({"role": "assistant", "tool_calls": nameless})), path, Missing);
    refused(
        one(json!({"role": "assistant", "content": "a", "audio": {"id": "x"}})),
        "messages[1].audio",
        Unsupported,
    );
    let kwargs = json!({"messages": []});
    refused(chat(json!({"chat_template_kwargs": kwargs})), "chat_template_kwargs.messages", BadValue);
}

#[test]
fn prompts() {
    let read = |prompt: Value| completion(json!({"prompt": prompt})).map(|request| request.prompts);
    let tokens = |path: &str, ids: &[u32]| Prompt::Tokens { path: path.into(), ids: ids.into() };
    assert_eq!(read(json!("")).unwrap(), [Prompt::Text(String::new())]);
    assert_eq!(read(json!(["a", "b"])).unwrap(), [Prompt::Text("a".into()), Prompt::Text("b".into())]);
    assert_eq!(read(json!([1, 2])).unwrap(), [tokens("prompt", &[1, 2])]);
    assert_eq!(
        read(json!([[1], [2, 3]])).unwrap(),
        [tokens("prompt[0]", &[1]), tokens("prompt[1]", &[2, 3])]
    );
    refused(read(json!(null)), "prompt", Missing);
    refused(read(json!(5)), "prompt", WrongType);
    refused(read(json!([])), "prompt", BadValue);
    refused(read(json!([[]])), "prompt[0]", BadValue);
    refused(read(json!([-1])), "prompt[0]", BadValue);
    refused(read(json!([1, "a"])), "prompt[1]", WrongType);
    refused(read(json!([[1], [-7]])), "prompt[1][0]", BadValue);
    refused(read(json!([{}])), "prompt[0]", WrongType);
    refused(completion(json!({"prompt": vec!["a"; 65], "n": 2})), "prompt", BadValue);
}

mod any_body {
    use super::*;
    use proptest::prelude::*;

    /// JSON of any shape, with the names this API reads more often than others.
    fn json_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            "\\PC{0,8}".prop_map(Value::from),
        ];
        let name = prop_oneof![
            "[a-z_]{1,6}",
            Just("role".into()),
            Just("content".into()),
            Just("type".into()),
            Just("text".into()),
        ];
        leaf.prop_recursive(4, 32, 6, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::vec((name.clone(), inner), 0..6)
                    .prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
            ]
        })
    }

    fn known_name() -> impl Strategy<Value = &'static str> {
        prop::sample::select(vec![
            "model",
            "messages",
            "prompt",
            "stop",
            "seed",
            "n",
            "top_k",
            "top_p",
            "logprobs",
            "top_logprobs",
            "tools",
            "stream_options",
            "stop_token_ids",
            "logit_bias",
            "modalities",
            "best_of",
            "chat_template_kwargs",
        ])
    }

    proptest! {
        #[test]
        fn reading_never_panics(name in known_name(), value in json_value()) {
            let extra = json!({name: value});
            let errors = [chat(extra.clone()).err(), completion(extra).err()];
            for error in errors.into_iter().flatten() {
                prop_assert!(!error.message.is_empty() && error.message.len() < 1000);
            }
        }
    }
}
