//! Contract 1 through the whole stack: the tokens of a reply depend on its request alone.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use motet_engine::{CacheConfig, CacheKey, Engine, EngineConfig, SchedConfig, TierConfig};
use motet_model::{CpuExecutor, CpuOptions, Gguf, Isa, KvFormat, Precision};
use motet_testkit::{Head, TinyGemma3, TinyModel, WeightType, tiny_model};
use motet_types::{Backend, Event, EventStream, Load, Logprobs, Origin, Request, SamplingParams, StopTokens};

/// Everything that must not change a token.
#[derive(Debug, Clone)]
struct Setup {
    threads: usize,
    isa: Isa,
    /// Tokens of a step: small ones cut prompts into chunks.
    step_tokens: u32,
    running: usize,
    /// Tokens of the arena; few force preemption.
    kv_tokens: usize,
    cache: Cache,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cache {
    Off,
    On,
    /// With a second tier, so that preempted sequences come back by filling.
    TwoTiers,
}

impl Setup {
    fn plain() -> Self {
        Self {
            threads: 1,
            isa: Isa::detect(),
            step_tokens: 512,
            running: 16,
            kv_tokens: 1 << 14,
            cache: Cache::Off,
        }
    }
}

struct Model<'a> {
    gguf: &'a Gguf,
    precision: Precision,
    kv: KvFormat,
}

impl Model<'_> {
    fn engine(&self, setup: &Setup) -> Arc<Engine> {
        let probe = CpuOptions {
            threads: 1,
            kv_bytes: 1 << 26,
            precision: self.precision,
            kv: self.kv,
            isa: setup.isa,
        };
        let block = motet_model::ModelConfig::read(self.gguf).unwrap().kv_block_bytes(self.kv);
        let options = CpuOptions { threads: setup.threads, kv_bytes: setup.kv_tokens / 16 * block, ..probe };
        let executor = CpuExecutor::load(self.gguf, options).unwrap();
        let tier = TierConfig { folder: std::env::temp_dir(), max_bytes: 1 << 24, max_age: Duration::MAX };
        let cache = CacheConfig {
            is_on: setup.cache != Cache::Off,
            key: CacheKey::new([3; 32]),
            model: "model".into(),
            second_tier: (setup.cache == Cache::TwoTiers).then_some(tier),
        };
        let sched = SchedConfig {
            max_running: setup.running,
            max_step_tokens: setup.step_tokens,
            ..SchedConfig::default()
        };
        let config =
            EngineConfig { id: "model".into(), vocab_size: u32::MAX, eos_tokens: vec![2], sched, cache };
        Engine::start(Box::new(executor), config).unwrap()
    }
}

/// `count` requests of different lengths, temperatures and seeds; many share a beginning.
fn requests(count: u32, vocab: u32, longest: u32, output: u32) -> Vec<Request> {
    let sampling = |i: u32| match i % 4 {
        0 => SamplingParams::GREEDY,
        1 => SamplingParams { seed: u64::from(i), ..SamplingParams::default() },
        2 => SamplingParams { temperature: 0.8, top_k: 40, top_p: 0.95, min_p: 0.01, seed: u64::from(i) },
        _ => SamplingParams { temperature: 1.5, top_p: 0.9, seed: u64::from(i), ..SamplingParams::default() },
    };
    let request = |i: u32| Request {
        prompt: (0..1 + i * 37 % longest).map(|t| 3 + (t * 31 + i % 5 * 17) % (vocab - 3)).collect(),
        max_tokens: output + i % 11,
        samples: vec![sampling(i)],
        stop: StopTokens { ignore_eos: true, ..StopTokens::default() },
        logprobs: Some(2),
        origin: Origin::default(),
        deadline: None,
    };
    (0..count).map(request).collect()
}

/// A reply's tokens with their log-probabilities: equal logits, not only equal choices.
type Reply = Vec<(u32, Option<Box<Logprobs>>)>;

/// The replies of the requests, run one after the other or at once.
fn run(engine: &Engine, requests: &[Request], together: bool) -> Vec<Reply> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let collect = |stream: EventStream| -> Reply {
        let events: Vec<Event> = runtime.block_on(stream.collect());
        assert!(matches!(events.last(), Some(Event::Finished { .. })), "{:?}", events.last());
        let token = |event| match event {
            Event::Token(token) => Some((token.token, token.logprobs)),
            _ => None,
        };
        events.into_iter().filter_map(token).collect()
    };
    let submit = |request: &Request| engine.submit(request.clone()).unwrap().remove(0);
    if !together {
        return requests.iter().map(|request| collect(submit(request))).collect();
    }
    let streams: Vec<_> = requests.iter().map(submit).collect();
    streams.into_iter().map(collect).collect()
}

/// What the engine has done, once nothing is left in it, which must be soon after the last event.
fn settled(engine: &Engine) -> Load {
    for _ in 0..2000 {
        let load = engine.load();
        if (load.running, load.waiting, load.kv_blocks_used) == (0, 0, 0) {
            return load;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("still busy: {:?}", engine.load());
}

/// Compares every setup with the requests run alone; returns what the engines had done at the end.
fn check(model: &Model<'_>, requests: &[Request], setups: &[Setup]) -> Vec<Load> {
    let alone = run(&model.engine(&Setup::plain()), requests, false);
    let one = |setup: &Setup| {
        let engine = model.engine(setup);
        let together = run(&engine, requests, true);
        for (i, (alone, together)) in alone.iter().zip(&together).enumerate() {
            assert_eq!(alone, together, "request {i}, {:?} {:?}, {setup:?}", model.precision, model.kv);
        }
        settled(&engine)
    };
    setups.iter().map(one).collect()
}

fn tiny(weights: WeightType) -> Gguf {
    let head = if weights == WeightType::F16 { Head::Separate } else { Head::Tied };
    let bytes = tiny_model(&TinyModel { weights, head, ..TinyModel::default() });
    Gguf::from_bytes("tiny.gguf", bytes).unwrap()
}

#[test]
fn every_format_isa_and_number_of_threads() {
    let mut setups = Vec::new();
    for isa in Isa::available() {
        for (threads, step_tokens) in [(1, 128), (2, 128), (4, 33)] {
            setups.push(Setup { threads, isa, step_tokens, ..Setup::plain() });
        }
    }
    let requests = requests(16, 285, 110, 10);
    for weights in WeightType::ALL {
        check(
            &Model { gguf: &tiny(weights), precision: Precision::Fast, kv: KvFormat::F16 },
            &requests,
            &setups,
        );
    }
    let exact = tiny(WeightType::F32);
    check(&Model { gguf: &exact, precision: Precision::Exact, kv: KvFormat::F32 }, &requests, &setups);
}

/// 200 requests alone and together under whatever the scheduler and the cache do to them.
#[test]
fn two_hundred_requests() {
    let plain = Setup { threads: 2, ..Setup::plain() };
    let setups = [
        Setup { running: 64, ..plain.clone() },
        Setup { running: 1, step_tokens: 17, ..plain.clone() },
        Setup { running: 16, step_tokens: 32, cache: Cache::On, ..plain.clone() },
        Setup { threads: 4, running: 64, step_tokens: 80, cache: Cache::On, ..plain.clone() },
        Setup { running: 48, kv_tokens: 640, cache: Cache::Off, ..plain.clone() },
        Setup { running: 48, kv_tokens: 640, cache: Cache::On, ..plain.clone() },
        Setup { running: 48, kv_tokens: 640, cache: Cache::TwoTiers, ..plain.clone() },
        Setup { threads: 1, running: 5, kv_tokens: 512, step_tokens: 21, cache: Cache::TwoTiers, ..plain },
    ];
    let gguf = tiny(WeightType::Q4_1);
    let requests = requests(200, 285, 120, 60);
    for kv in [KvFormat::F16, KvFormat::Int8] {
        let loads = check(&Model { gguf: &gguf, precision: Precision::Fast, kv }, &requests, &setups);
        let what = |of: fn(&Load) -> u64| loads.iter().map(of).collect::<Vec<_>>();
        println!("{kv:?}: preemptions {:?}", what(|load| load.preemptions));
        println!("{kv:?}: cached tokens {:?}", what(|load| load.cached_tokens));
        assert!(loads[4].preemptions > 0 && loads[6].preemptions > 0, "nothing was preempted");
        assert!(
            loads[2].cached_tokens > 0 && loads[6].kv_blocks_spilled > 0,
            "nothing was cached or spilled"
        );
    }
}

/// Layers with a window share the step with layers without: prompts longer than the window, cut into
/// chunks, hit in the cache, preempted and filled from the second tier.
#[test]
fn a_model_with_windows() {
    let plain = Setup { threads: 2, ..Setup::plain() };
    let setups = [
        Setup { running: 32, ..plain.clone() },
        Setup { running: 1, step_tokens: 17, ..plain.clone() },
        Setup { running: 16, step_tokens: 32, cache: Cache::On, ..plain.clone() },
        Setup { running: 32, kv_tokens: 320, cache: Cache::Off, ..plain.clone() },
        Setup { running: 32, kv_tokens: 320, cache: Cache::On, ..plain.clone() },
        Setup { running: 32, kv_tokens: 320, cache: Cache::TwoTiers, ..plain.clone() },
        Setup { threads: 1, running: 5, kv_tokens: 288, step_tokens: 21, cache: Cache::TwoTiers, ..plain },
    ];
    let bytes = TinyGemma3 { weights: WeightType::Q8_0, ..TinyGemma3::default() }.builder().build();
    let gguf = Gguf::from_bytes("tiny.gguf", bytes).unwrap();
    let requests = requests(40, 300, 60, 110);
    for kv in [KvFormat::F16, KvFormat::Int8] {
        let loads = check(&Model { gguf: &gguf, precision: Precision::Fast, kv }, &requests, &setups);
        let what = |of: fn(&Load) -> u64| loads.iter().map(of).collect::<Vec<_>>();
        println!("{kv:?}: preemptions {:?}", what(|load| load.preemptions));
        println!("{kv:?}: cached tokens {:?}", what(|load| load.cached_tokens));
        println!("{kv:?}: spilled {:?}", what(|load| load.kv_blocks_spilled.into()));
        assert!(loads[3].preemptions > 0 && loads[5].preemptions > 0, "nothing was preempted");
        assert!(
            loads[2].cached_tokens > 0 && loads[5].kv_blocks_spilled > 0,
            "nothing was cached or spilled"
        );
    }
}

#[test]
fn the_default_model_alone_and_among_fifteen_others() {
    let Some(path) = motet_testkit::default_model() else { return };
    let gguf = Gguf::open(&path).unwrap();
    let plain = Setup { threads: 2, ..Setup::plain() };
    let setups = [
        Setup { threads: 1, ..plain.clone() },
        Setup { step_tokens: 33, cache: Cache::On, ..plain.clone() },
        Setup { kv_tokens: 512, cache: Cache::TwoTiers, ..plain },
    ];
    let model = Model { gguf: &gguf, precision: Precision::Fast, kv: KvFormat::F16 };
    check(&model, &requests(16, 49_152, 110, 16), &setups);
}
