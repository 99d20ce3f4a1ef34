//! The engine with the default model: what batching, the prefix cache, chunking and paging give.
//!
//! `cargo bench -p motet-engine --bench engine`. Prints the tables of `docs/engine.md`; every ratio is
//! between two runs of the same process.
#![allow(clippy::print_stdout)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::future::join_all;
use motet_engine::{CacheConfig, CacheKey, Engine, EngineConfig, SchedConfig};
use motet_model::{CpuExecutor, CpuOptions, Gguf, Isa, KvFormat, ModelConfig, Precision};
use motet_types::{Backend, Event, Origin, Request, SamplingParams, StopTokens};

const PROMPT: u32 = 128;
const OUTPUT: u32 = 64;

#[derive(Clone, Copy)]
struct Setup {
    kv_tokens: usize,
    running: usize,
    step_tokens: u32,
    itl_target: Duration,
    is_cached: bool,
}

const PLAIN: Setup = Setup {
    kv_tokens: 32_768,
    running: 64,
    step_tokens: 512,
    itl_target: Duration::from_millis(200),
    is_cached: false,
};

/// When a reply's tokens came, counted from its submission.
type Times = Vec<Duration>;

fn main() {
    let Some(path) = motet_testkit::default_model() else { return };
    let Ok(gguf) = Gguf::open(&path) else { return };
    concurrency(&gguf);
    prefix_cache(&gguf);
    chunked_prefill(&gguf);
    paging(&gguf);
}

fn concurrency(gguf: &Gguf) {
    println!(
        "\n| chats at once ({PROMPT} + {OUTPUT} tokens) | output tokens/s | × one chat | mean TTFT |\n|---|---|---|---|"
    );
    let mut one = None;
    for chats in [1, 8, 32, 64] {
        let engine = engine(gguf, PLAIN);
        run(&engine, vec![request(999, PROMPT, 4)]);
        let began = Instant::now();
        let times = run(&engine, (0..chats).map(|seed| request(seed, PROMPT, OUTPUT)).collect());
        let rate = f64::from(chats * OUTPUT) / began.elapsed().as_secs_f64();
        let ratio = rate / *one.get_or_insert(rate);
        println!("| {chats} | {rate:.0} | {ratio:.1} | {:.0} ms |", mean_ttft(&times));
    }
}

fn prefix_cache(gguf: &Gguf) {
    println!("\n| history of 3,000 tokens | TTFT cold | TTFT warm | cold ÷ warm |\n|---|---|---|---|");
    for is_cached in [false, true] {
        let engine = engine(gguf, Setup { is_cached, ..PLAIN });
        let cold = mean_ttft(&run(&engine, vec![request(1, 3000, 2)]));
        let warm = mean_ttft(&run(&engine, vec![request(1, 3016, 2)]));
        println!("| cache {} | {cold:.0} ms | {warm:.0} ms | {:.1} |", on(is_cached), cold / warm);
    }
}

fn chunked_prefill(gguf: &Gguf) {
    println!(
        "\n| a 6,000-token prompt among 16 replies | largest gap | median gap | largest ÷ median |\n|---|---|---|---|"
    );
    let unbounded = Setup { step_tokens: 8192, itl_target: Duration::from_secs(3600), ..PLAIN };
    for (name, setup) in [("chunked", PLAIN), ("in one step", unbounded)] {
        let engine = engine(gguf, setup);
        let mut requests: Vec<_> = (0..16).map(|seed| request(seed, PROMPT, 100)).collect();
        run(&engine, vec![request(99, PROMPT, 40)]);
        requests.push(request(1000, 6000, 1));
        let times = run_with_late_last(&engine, requests);
        let mut gaps: Vec<_> = times[..16].iter().flat_map(|t| t.windows(2).map(|w| w[1] - w[0])).collect();
        gaps.sort();
        let (median, largest) = (gaps[gaps.len() / 2].as_secs_f64(), gaps[gaps.len() - 1].as_secs_f64());
        println!("| {name} | {:.0} ms | {:.0} ms | {:.1} |", largest * 1e3, median * 1e3, largest / median);
    }
}

/// Reserving the model's maximum for each sequence lets in as many as the arena has room for.
fn paging(gguf: &Gguf) {
    println!(
        "\n| 32 chats in an arena of 32,768 tokens | at once | output tokens/s | mean TTFT |\n|---|---|---|---|"
    );
    for (name, running) in [("8,192 reserved for each", 4), ("paged", 64)] {
        let engine = engine(gguf, Setup { running, ..PLAIN });
        let began = Instant::now();
        let times = run(&engine, (0..32).map(|seed| request(seed, PROMPT, OUTPUT)).collect());
        let rate = f64::from(32 * OUTPUT) / began.elapsed().as_secs_f64();
        println!("| {name} | {} | {rate:.0} | {:.0} ms |", running.min(32), mean_ttft(&times));
    }
}

fn on(is_on: bool) -> &'static str {
    if is_on { "on" } else { "off" }
}

fn engine(gguf: &Gguf, setup: Setup) -> Arc<Engine> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let start = || {
        let block = ModelConfig::read(gguf).ok()?.kv_block_bytes(KvFormat::F16);
        let kv_bytes = setup.kv_tokens / 16 * block;
        let options = CpuOptions {
            threads,
            kv_bytes,
            precision: Precision::Fast,
            kv: KvFormat::F16,
            isa: Isa::detect(),
        };
        let executor = CpuExecutor::load(gguf, options).ok()?;
        let sched = SchedConfig {
            max_running: setup.running,
            max_step_tokens: setup.step_tokens,
            itl_target: setup.itl_target,
            ..SchedConfig::default()
        };
        let key = CacheKey::new([1; 32]);
        let cache = CacheConfig { is_on: setup.is_cached, key, model: "m".into(), second_tier: None };
        let config = EngineConfig { id: "m".into(), vocab_size: u32::MAX, eos_tokens: vec![2], sched, cache };
        Engine::start(Box::new(executor), config).ok()
    };
    let Some(engine) = start() else { std::process::exit(1) };
    engine
}

fn request(seed: u32, prompt: u32, output: u32) -> Request {
    Request {
        prompt: (0..prompt).map(|t| 1000 + (t * 37 + seed * 101) % 40_000).collect(),
        max_tokens: output,
        samples: vec![SamplingParams::GREEDY],
        stop: StopTokens { ignore_eos: true, ..StopTokens::default() },
        logprobs: None,
        origin: Origin::default(),
        deadline: None,
    }
}

fn run(engine: &Engine, requests: Vec<Request>) -> Vec<Times> {
    let replies = requests.into_iter().map(|request| reply(engine, request, Duration::ZERO));
    block_on(join_all(replies))
}

/// The last request comes when the others have been streaming for a while.
fn run_with_late_last(engine: &Engine, requests: Vec<Request>) -> Vec<Times> {
    let last = requests.len() - 1;
    let late = |i: usize| if i == last { Duration::from_millis(1500) } else { Duration::ZERO };
    let replies = requests.into_iter().enumerate().map(|(i, request)| reply(engine, request, late(i)));
    block_on(join_all(replies))
}

async fn reply(engine: &Engine, request: Request, after: Duration) -> Times {
    tokio::time::sleep(after).await;
    let began = Instant::now();
    let mut times = Vec::new();
    let streams = engine.submit(request).unwrap_or_default();
    for mut stream in streams {
        while let Some(event) = stream.next().await {
            if matches!(event, Event::Token(_)) {
                times.push(began.elapsed());
            }
        }
    }
    times
}

fn mean_ttft(times: &[Times]) -> f64 {
    let firsts: Vec<f64> = times.iter().filter_map(|t| t.first()).map(|t| t.as_secs_f64() * 1e3).collect();
    firsts.iter().sum::<f64>() / firsts.len() as f64
}

fn block_on<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    match runtime {
        Ok(runtime) => runtime.block_on(future),
        Err(_) => std::process::exit(1),
    }
}
