//! Health, readiness, metrics and the models list through a server's life.

// Helpers of tests may fail as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use axum::Router;
use motet_gateway::Gateway;
use motet_types::{LaneLoad, Load, ReplyError, SubmitError};
use serde_json::json;
use support::client::{Reply, chat, get};
use support::{Beat, Fake, MODEL, config, gateway, reply, say, served};

/// Status and state of `/healthz` and `/readyz`.
async fn health(router: &Router) -> [(u16, String); 2] {
    let read = |got: Reply| (got.status.as_u16(), got.json()["state"].as_str().unwrap().to_owned());
    [read(get(router, "/healthz").await), read(get(router, "/readyz").await)]
}

fn states(alive: u16, ready: u16, state: &str) -> [(u16, String); 2] {
    [(alive, state.to_owned()), (ready, state.to_owned())]
}

#[tokio::test]
async fn from_loading_to_ready() {
    let gateway = Gateway::new(config());
    let router = gateway.router();
    assert_eq!(health(&router).await, states(200, 503, "loading"));
    assert_eq!(get(&router, "/v1/models").await.json(), json!({"object": "list", "data": []}));
    let got = chat(&router, json!({})).await;
    assert_eq!(got.error(), (503, None, Some("model_loading".into())));
    assert_eq!((got.header("retry-after"), got.header("retry-after-ms")), ("2", "2000"));
    assert_eq!(get(&router, "/v1/models/lab/tiny").await.status, 503);
    assert!(get(&router, "/metrics").await.text.contains("motet_ready 0"));

    gateway.set_failed("no file model.gguf".into());
    assert_eq!(health(&router).await, states(503, 503, "failed"));
    let got = chat(&router, json!({})).await;
    assert_eq!(got.error(), (503, None, Some("engine_down".into())));
    assert!(got.text.contains("no file model.gguf"));

    gateway.set_ready(served(Fake::new(|_| reply("ok"))));
    assert_eq!(health(&router).await, states(200, 200, "ready"));
    assert_eq!(chat(&router, json!({})).await.status, 200);
    insta::assert_snapshot!(get(&router, "/v1/models").await.text);
}

#[tokio::test]
async fn a_step_that_takes_long() {
    let fake = Fake::new(|_| reply("ok"));
    let router = gateway(&fake).router();
    let check = async |seconds: f64, alive: (u16, &str), ready: (u16, &str)| {
        fake.load.lock().unwrap().stalled_seconds = seconds;
        let want = [(alive.0, alive.1.to_owned()), (ready.0, ready.1.to_owned())];
        assert_eq!(health(&router).await, want, "{seconds}");
    };
    check(0.0, (200, "ready"), (200, "ready")).await;
    check(9.0, (200, "ready"), (200, "ready")).await;
    check(11.0, (200, "ready"), (503, "stalled")).await;
    check(61.0, (503, "stalled"), (503, "stalled")).await;
    check(0.5, (200, "ready"), (200, "ready")).await;
}

#[tokio::test]
async fn a_backend_that_stops_is_noticed() {
    let down = SubmitError::Down("gone".into());
    let refusing = Fake::refusing(|_| vec![], move |_| Some(down.clone()));
    let failing =
        Fake::new(|_| [say("a"), vec![Beat::Fail(ReplyError::BackendDown("gone".into()))]].concat());
    for (fake, stream) in [(&refusing, false), (&failing, false), (&failing, true)] {
        let router = gateway(fake).router();
        assert_eq!(health(&router).await, states(200, 200, "ready"));
        chat(&router, json!({"stream": stream})).await;
        assert_eq!(health(&router).await, states(503, 503, "failed"));
    }
}

#[tokio::test]
async fn metrics() {
    let fake = Fake::new(|_| reply("ok"));
    let router = gateway(&fake).router();
    {
        let mut load = fake.load.lock().unwrap();
        let main = LaneLoad { waiting: 1, ..load.lanes[0].clone() };
        let rest = LaneLoad { preempted: 2, prompt_tokens: 5, output_tokens: 6, ..load.lanes[1].clone() };
        *load = Load {
            waiting: 1,
            preempted: 2,
            kv_blocks_cached: 10,
            kv_blocks_spilled: 7,
            step_seconds: 1.5,
            budget_used: 0.75,
            cached_tokens: 30,
            prompt_tokens: 70,
            preemptions: 4,
            lanes: vec![main, rest],
            ..load.clone()
        };
    }
    chat(&router, json!({})).await;
    chat(&router, json!({"model": "x"})).await;
    get(&router, "/made/up/path").await;
    let got = get(&router, "/metrics").await;
    assert_eq!(got.header("content-type"), "text/plain; version=0.0.4; charset=utf-8");
    for line in [
        "motet_ready 1",
        &format!("motet_model_ready{{model=\"{MODEL}\"}} 1"),
        &format!("motet_sequences_running{{model=\"{MODEL}\"}} 0"),
        &format!("motet_sequences_waiting{{model=\"{MODEL}\"}} 1"),
        &format!("motet_sequences_preempted{{model=\"{MODEL}\"}} 2"),
        &format!("motet_kv_blocks_used{{model=\"{MODEL}\"}} 0"),
        &format!("motet_kv_blocks_cached{{model=\"{MODEL}\"}} 10"),
        &format!("motet_kv_blocks_free{{model=\"{MODEL}\"}} 54"),
        &format!("motet_kv_blocks_capacity{{model=\"{MODEL}\"}} 64"),
        &format!("motet_kv_blocks_spilled{{model=\"{MODEL}\"}} 7"),
        &format!("motet_engine_budget_used{{model=\"{MODEL}\"}} 0.75"),
        &format!("motet_engine_step_seconds_total{{model=\"{MODEL}\"}} 1.5"),
        &format!("motet_cached_tokens_total{{model=\"{MODEL}\"}} 30"),
        &format!("motet_prompt_tokens_total{{model=\"{MODEL}\"}} 70"),
        &format!("motet_preemptions_total{{model=\"{MODEL}\"}} 4"),
        &format!("motet_lane_sequences_waiting{{model=\"{MODEL}\",lane=\"main\"}} 1"),
        &format!("motet_lane_sequences_waiting{{model=\"{MODEL}\",lane=\"rest\"}} 0"),
        &format!("motet_lane_sequences_preempted{{model=\"{MODEL}\",lane=\"rest\"}} 2"),
        &format!("motet_lane_prompt_tokens_total{{model=\"{MODEL}\",lane=\"rest\"}} 5"),
        &format!("motet_lane_output_tokens_total{{model=\"{MODEL}\",lane=\"rest\"}} 6"),
        &format!("vllm:prefix_cache_queries_total{{model_name=\"{MODEL}\"}} 100"),
        &format!("vllm:prefix_cache_hits_total{{model_name=\"{MODEL}\"}} 30"),
        &format!("vllm:num_preemptions_total{{model_name=\"{MODEL}\"}} 4"),
        &format!("vllm:num_requests_running{{model_name=\"{MODEL}\"}} 0"),
        &format!("vllm:num_requests_waiting{{model_name=\"{MODEL}\"}} 3"),
        &format!("vllm:kv_cache_usage_perc{{model_name=\"{MODEL}\"}} 0"),
        &format!("motet_sequences_cancelled_total{{model=\"{MODEL}\"}} 0"),
        "motet_http_requests_total{route=\"/v1/chat/completions\",method=\"POST\",status=\"200\"} 1",
        "motet_http_requests_total{route=\"/v1/chat/completions\",method=\"POST\",status=\"404\"} 1",
        "motet_http_requests_total{route=\"other\",method=\"GET\",status=\"404\"} 1",
        &format!("motet_time_to_first_token_seconds_count{{model=\"{MODEL}\",lane=\"main\"}} 1"),
        &format!("motet_inter_token_seconds_count{{model=\"{MODEL}\",lane=\"main\"}} 1"),
    ] {
        let is_there = got.text.lines().any(|had| had.strip_suffix(".0").unwrap_or(had) == line);
        assert!(is_there, "{line} is not in\n{}", got.text);
    }
}

#[tokio::test]
async fn the_api_describes_itself() {
    let got = get(&gateway(&Fake::new(|_| Vec::new())).router(), "/openapi.json").await;
    assert_eq!(got.status, 200);
    let document = got.json();
    assert_eq!(document["openapi"], "3.1.0");
    assert!(document["paths"]["/v1/chat/completions"]["post"].is_object());
}
