//! Contract 1 through the whole stack: the tokens of a reply depend on its request alone.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

use std::sync::Arc;

use futures_util::StreamExt;
use motet_engine::{Engine, EngineConfig, Limits};
use motet_model::{CpuExecutor, CpuOptions, Gguf, Isa, KvFormat, Precision};
use motet_testkit::{Head, TinyModel, WeightType, tiny_model};
use motet_types::{Backend, Event, Request, SamplingParams, StopTokens};

#[derive(Debug, Clone, Copy)]
struct Setup {
    threads: usize,
    isa: Isa,
    /// Tokens of a step: small ones cut prompts into chunks.
    step_tokens: usize,
}

fn engine(gguf: &Gguf, precision: Precision, setup: Setup) -> Arc<Engine> {
    let kv = if precision == Precision::Exact { KvFormat::F32 } else { KvFormat::F16 };
    let options = CpuOptions { threads: setup.threads, kv_bytes: 64 << 20, precision, kv, isa: setup.isa };
    let executor = CpuExecutor::load(gguf, options).unwrap();
    let limits = Limits { running: 16, step_tokens: setup.step_tokens, ..Limits::default() };
    let config = EngineConfig { id: "model".into(), vocab_size: u32::MAX, eos_tokens: vec![2], limits };
    Engine::start(Box::new(executor), config).unwrap()
}

/// Sixteen requests of different lengths, temperatures and seeds.
fn requests(vocab: u32, max_tokens: u32) -> Vec<Request> {
    let sampling = |i: u32| match i % 4 {
        0 => SamplingParams::GREEDY,
        1 => SamplingParams { seed: u64::from(i), ..SamplingParams::default() },
        2 => SamplingParams { temperature: 0.8, top_k: 40, top_p: 0.95, min_p: 0.01, seed: u64::from(i) },
        _ => SamplingParams { temperature: 1.5, top_p: 0.9, seed: u64::from(i), ..SamplingParams::default() },
    };
    let request = |i: u32| Request {
        prompt: (0..1 + i * 7).map(|t| 3 + (t * 31 + i * 17) % (vocab - 3)).collect(),
        max_tokens: max_tokens + i,
        sampling: sampling(i),
        stop: StopTokens { ignore_eos: true, ..StopTokens::default() },
        logprobs: Some(2),
    };
    (0..16).map(request).collect()
}

/// All events of the requests, log-probabilities included, run one after the other or at once.
fn run(engine: &Engine, requests: &[Request], together: bool) -> Vec<Vec<Event>> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let collect = |stream: motet_types::EventStream| runtime.block_on(stream.collect());
    let submit = |request: &Request| engine.submit(request.clone()).unwrap();
    if !together {
        return requests.iter().map(|request| collect(submit(request))).collect();
    }
    let streams: Vec<_> = requests.iter().map(submit).collect();
    streams.into_iter().map(collect).collect()
}

fn check(gguf: &Gguf, precision: Precision, requests: &[Request], setups: &[Setup]) {
    let plain = Setup { threads: 1, isa: Isa::detect(), step_tokens: 128 };
    let alone = run(&engine(gguf, precision, plain), requests, false);
    let ended = |events: &Vec<Event>| matches!(events.last(), Some(Event::Finished { .. }));
    assert!(alone.iter().all(ended), "{alone:?}");
    for setup in setups {
        let together = run(&engine(gguf, precision, *setup), requests, true);
        for (i, (alone, together)) in alone.iter().zip(&together).enumerate() {
            assert_eq!(alone, together, "request {i}, {precision:?}, {setup:?}");
        }
    }
}

#[test]
fn tiny_model_in_every_format() {
    let mut setups = Vec::new();
    for isa in Isa::available() {
        for (threads, step_tokens) in [(1, 128), (2, 128), (3, 17)] {
            setups.push(Setup { threads, isa, step_tokens });
        }
    }
    for weights in WeightType::ALL {
        let head = if weights == WeightType::F16 { Head::Separate } else { Head::Tied };
        let file = tiny_model(&TinyModel { weights, head, ..TinyModel::default() });
        let gguf = Gguf::from_bytes("tiny.gguf", file).unwrap();
        check(&gguf, Precision::Fast, &requests(285, 10), &setups);
    }
    let gguf = Gguf::from_bytes("tiny.gguf", tiny_model(&TinyModel::default())).unwrap();
    check(&gguf, Precision::Exact, &requests(285, 10), &setups);
}

#[test]
fn the_default_model_alone_and_among_fifteen_others() {
    let Some(path) = motet_testkit::default_model() else { return };
    let gguf = Gguf::open(&path).unwrap();
    let isa = Isa::detect();
    let setups = [
        Setup { threads: 1, isa, step_tokens: 128 },
        Setup { threads: 2, isa, step_tokens: 128 },
        Setup { threads: 2, isa, step_tokens: 33 },
    ];
    check(&gguf, Precision::Fast, &requests(49_152, 24), &setups);
}
