//! The engine over an executor whose arithmetic is a hash: everything but the model.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use motet_engine::{CacheConfig, CacheKey, Engine, EngineConfig, SchedConfig, TierConfig};
use motet_kv::{BlockCopy, BlockId, GroupConfig};
use motet_sched::{Capacity, ExecuteError, Executor, LaneConfig, StepOutput, StepPlan};
use motet_types::{
    Backend, Event, EventStream, FinishReason, Origin, ReplyError, Request, SamplingParams, StopTokens,
    SubmitError, Usage,
};

const VOCAB: u32 = 50;
const BLOCK: usize = 16;

/// Remembers tokens in blocks as a model remembers keys; the logits are a hash of all tokens so far.
struct HashModel {
    arena: Vec<[u32; BLOCK]>,
    gate: Arc<Gate>,
}

/// Lets a test hold the loop before a step and count steps.
#[derive(Default)]
struct Gate {
    /// Steps that may begin; `None`: any number.
    allowed: Mutex<Option<u64>>,
    changed: Condvar,
    steps: AtomicU64,
    /// Tokens computed.
    tokens: AtomicU64,
}

impl Gate {
    fn allow(&self, steps: Option<u64>) {
        *self.allowed.lock().unwrap() = steps;
        self.changed.notify_all();
    }

    fn pass(&self) {
        let mut allowed = self.allowed.lock().unwrap();
        while *allowed == Some(0) {
            allowed = self.changed.wait(allowed).unwrap();
        }
        *allowed = allowed.map(|steps| steps - 1);
        self.steps.fetch_add(1, Ordering::Relaxed);
    }
}

/// A prompt that starts with one of these makes the step go wrong.
const NAN: u32 = 40;
const PANIC: u32 = 41;
const FAIL: u32 = 42;

impl Executor for HashModel {
    fn capacity(&self) -> Capacity {
        let groups = vec![GroupConfig { blocks: self.arena.len() as u32, window: None }];
        Capacity { groups, block_tokens: 16, context_length: 128, vocab_size: VOCAB + 3 }
    }

    fn read_block(&self, _: usize, block: BlockId, out: &mut Vec<u8>) {
        out.extend(self.arena[block as usize].iter().flat_map(|token| token.to_le_bytes()));
    }

    fn write_block(&mut self, _: usize, block: BlockId, bytes: &[u8]) {
        for (token, bytes) in self.arena[block as usize].iter_mut().zip(bytes.chunks_exact(4)) {
            *token = u32::from_le_bytes(bytes.try_into().unwrap());
        }
    }

    fn copy_block(&mut self, copy: &BlockCopy) {
        self.arena[copy.to as usize] = self.arena[copy.from as usize];
    }

    fn execute(&mut self, step: &StepPlan, output: &mut StepOutput) -> Result<(), ExecuteError> {
        self.gate.pass();
        self.gate.tokens.fetch_add(step.tokens() as u64, Ordering::Relaxed);
        let mut logits = Vec::new();
        for chunk in &step.chunks {
            let blocks = &chunk.tables[0];
            for (i, token) in chunk.tokens.iter().enumerate() {
                let at = chunk.start as usize + i;
                if at >= chunk.stored as usize {
                    self.arena[blocks[at / BLOCK] as usize][at % BLOCK] = *token;
                }
            }
            let len = chunk.start as usize + chunk.tokens.len();
            let all: Vec<u32> =
                (0..len).map(|at| self.arena[blocks[at / BLOCK] as usize][at % BLOCK]).collect();
            assert_ne!(all[0], PANIC, "asked to panic");
            if all[0] == FAIL {
                return Err(ExecuteError("asked to fail".into()));
            }
            if chunk.wants_logits {
                let hash = all.iter().fold(17u32, |h, t| (h ^ t).wrapping_mul(16_777_619).rotate_left(5));
                let nan = if all[0] == NAN && len > 3 { f32::NAN } else { 0.0 };
                logits.extend((0..VOCAB).map(|v| (hash.wrapping_mul(v + 1) >> 8) as f32 / 4e6 + nan));
                // Padding rows beyond the tokenizer: the likeliest, and never to be drawn.
                logits.extend([1e6; 3]);
            }
        }
        output.logits = logits;
        Ok(())
    }
}

/// What varies between tests.
struct Setup {
    blocks: usize,
    sched: SchedConfig,
    is_cached: bool,
    second_tier: Option<TierConfig>,
}

impl Default for Setup {
    fn default() -> Self {
        Self { blocks: 64, sched: SchedConfig::default(), is_cached: true, second_tier: None }
    }
}

/// A schedule of at most `running` sequences and `step_tokens` per step, with a line of `waiting`.
fn sched(running: usize, waiting: usize, step_tokens: u32) -> SchedConfig {
    let lanes = vec![LaneConfig { waiting, ..LaneConfig::interactive("default", 1) }];
    SchedConfig { lanes, max_running: running, max_step_tokens: step_tokens, ..SchedConfig::default() }
}

fn engine(setup: Setup) -> (Arc<Engine>, Arc<Gate>) {
    let gate = Arc::<Gate>::default();
    let model = HashModel { arena: vec![[0; BLOCK]; setup.blocks], gate: Arc::clone(&gate) };
    (Engine::start(Box::new(model), config(setup)).unwrap(), gate)
}

fn config(setup: Setup) -> EngineConfig {
    let cache = CacheConfig {
        is_on: setup.is_cached,
        key: CacheKey::new([1; 32]),
        model: "hash".into(),
        second_tier: setup.second_tier,
    };
    EngineConfig { id: "hash".into(), vocab_size: VOCAB, eos_tokens: vec![3], sched: setup.sched, cache }
}

fn request(prompt: &[u32], max_tokens: u32) -> Request {
    Request {
        prompt: prompt.to_vec(),
        max_tokens,
        samples: vec![SamplingParams { seed: 5, ..SamplingParams::default() }],
        stop: StopTokens { ignore_eos: true, ..StopTokens::default() },
        logprobs: None,
        origin: Origin::default(),
        deadline: None,
    }
}

fn submit(engine: &Engine, request: Request) -> EventStream {
    engine.submit(request).unwrap().remove(0)
}

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

fn events(engine: &Engine, request: Request) -> Vec<Event> {
    block_on(submit(engine, request).collect())
}

fn tokens(events: &[Event]) -> Vec<u32> {
    let token = |event: &Event| match event {
        Event::Token(token) => Some(token.token),
        _ => None,
    };
    events.iter().filter_map(token).collect()
}

/// Waits, in bounded time, until the engine has nothing left.
fn settle(engine: &Engine) {
    for _ in 0..2000 {
        let load = engine.load();
        if load.running + load.waiting + load.kv_blocks_used == 0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("still busy: {:?}", engine.load());
}

#[test]
fn a_reply_has_every_index_once_and_ends_with_its_usage() {
    let (engine, _) = engine(Setup::default());
    let events = events(&engine, request(&[1, 2, 3], 5));
    let indices: Vec<_> =
        events.iter().filter_map(|e| if let Event::Token(t) = e { Some(t.index) } else { None }).collect();
    assert_eq!(indices, [0, 1, 2, 3, 4]);
    let Some(Event::Finished { reason: FinishReason::Length, usage }) = events.last() else {
        panic!("{events:?}")
    };
    assert_eq!(*usage, Usage { prompt: 3, cached: 0, output: 5, queued: usage.queued });
    assert!(tokens(&events).iter().all(|token| *token < VOCAB));
    settle(&engine);
}

#[test]
fn the_same_tokens_alone_and_in_company() {
    let (engine, _) = engine(Setup { blocks: 400, sched: sched(6, 64, 22), ..Setup::default() });
    let requests: Vec<_> = (0..16u32).map(|i| request(&vec![i + 1; 1 + 5 * i as usize], 20 + i)).collect();
    let alone: Vec<_> = requests.iter().map(|r| events(&engine, r.clone())).collect();
    let streams: Vec<_> = requests.iter().map(|r| submit(&engine, r.clone())).collect();
    for (stream, alone) in streams.into_iter().zip(alone) {
        assert_eq!(tokens(&block_on(stream.collect::<Vec<_>>())), tokens(&alone));
    }
}

#[test]
fn stop_tokens_end_a_reply_and_are_not_sent() {
    let (engine, _) = engine(Setup::default());
    let all = tokens(&events(&engine, request(&[1], 20)));
    let stop = all[4];
    let expected: Vec<_> = all.iter().copied().take_while(|t| *t != stop).collect();
    let check = |stop: StopTokens, expected: &[u32], reason: FinishReason| {
        let events = events(&engine, Request { stop, ..request(&[1], 20) });
        assert_eq!(tokens(&events), expected);
        let Some(Event::Finished { reason: r, usage }) = events.last() else { panic!("{events:?}") };
        let counted = expected.len() as u32 + u32::from(matches!(reason, FinishReason::StopToken(_)));
        assert_eq!((*r, usage.output), (reason, counted));
    };
    let ids = StopTokens { ids: vec![stop], ignore_eos: true, min_tokens: 0 };
    check(ids.clone(), &expected, FinishReason::StopToken(stop));
    // Where an ending token is forbidden, another one is drawn.
    let events = events(&engine, Request { stop: StopTokens { min_tokens: 20, ..ids }, ..request(&[1], 20) });
    assert!(tokens(&events).len() == 20 && !tokens(&events).contains(&stop));
}

#[test]
fn logprobs_come_with_every_token() {
    let (engine, _) = engine(Setup::default());
    let events = events(&engine, Request { logprobs: Some(2), ..request(&[1], 3) });
    for event in &events[..3] {
        let Event::Token(token) = event else { panic!("{event:?}") };
        let logprobs = token.logprobs.as_ref().unwrap();
        assert_eq!(logprobs.top.len(), 2);
        assert!(logprobs.chosen <= logprobs.top[0].1 && logprobs.top[0].1 <= 0.0);
    }
}

#[test]
fn a_reader_that_leaves_is_gone_at_the_next_step() {
    let (engine, gate) = engine(Setup { sched: sched(1, 64, 64), ..Setup::default() });
    gate.allow(Some(2));
    let mut running = submit(&engine, request(&[1], 100));
    block_on(running.next());
    let waiting = submit(&engine, request(&[2], 100));
    drop((running, waiting));
    gate.allow(None);
    settle(&engine);
    // The step that was under way ends; none follows it.
    assert!(gate.steps.load(Ordering::Relaxed) <= 3);
    assert_eq!((engine.load().cancelled, engine.load().finished), (2, 0));
}

#[test]
fn bad_requests_are_refused_before_the_batch() {
    let (engine, _) = engine(Setup { blocks: 4, ..Setup::default() });
    let check = |request: Request, expected: SubmitError| {
        assert_eq!(engine.submit(request).map(|_| ()), Err(expected));
    };
    check(request(&[], 5), SubmitError::EmptyPrompt);
    check(request(&[1], 0), SubmitError::NoOutput);
    check(request(&[50], 5), SubmitError::UnknownToken { token: 50, vocab_size: VOCAB });
    let stop = StopTokens { ids: vec![u32::MAX], ..StopTokens::default() };
    check(
        Request { stop, ..request(&[1], 5) },
        SubmitError::UnknownToken { token: u32::MAX, vocab_size: VOCAB },
    );
    // The arena of 4 blocks is smaller than the context.
    check(request(&[1; 60], 5), SubmitError::TooLong { prompt: 60, max_tokens: 5, limit: 64 });
    let bad = |sampling: SamplingParams| Request { samples: vec![sampling], ..request(&[1], 5) };
    for (sampling, field, value) in [
        (SamplingParams { temperature: f32::NAN, ..SamplingParams::GREEDY }, "temperature", "NaN"),
        (SamplingParams { top_p: 0.0, ..SamplingParams::GREEDY }, "top_p", "0"),
        (SamplingParams { min_p: 1.5, ..SamplingParams::GREEDY }, "min_p", "1.5"),
    ] {
        let refused = engine.submit(bad(sampling)).map(|_| ());
        let Err(SubmitError::BadSampling { field: f, value: v, .. }) = refused else { panic!("{refused:?}") };
        assert_eq!((f, v.as_str()), (field, value));
    }
    check(request(&[1], u32::MAX), SubmitError::TooLong { prompt: 1, max_tokens: u32::MAX, limit: 64 });
    assert_eq!(tokens(&events(&engine, request(&[1; 60], 4))).len(), 4);
}

#[test]
fn the_line_is_bounded() {
    let (engine, gate) = engine(Setup { sched: sched(1, 2, 64), ..Setup::default() });
    gate.allow(Some(0));
    let mut taken = Vec::new();
    let refused = loop {
        match engine.submit(request(&[1], 5)) {
            Ok(streams) => taken.extend(streams),
            Err(refused) => break refused,
        }
    };
    assert!(matches!(refused, SubmitError::QueueFull { waiting: 2, .. }), "{refused:?}");
    assert!(taken.len() <= 3, "{} taken", taken.len());
    gate.allow(None);
    for stream in taken {
        assert_eq!(tokens(&block_on(stream.collect::<Vec<_>>())).len(), 5);
    }
    settle(&engine);
}

#[test]
fn a_value_that_is_not_a_number_fails_that_sequence_alone() {
    let (engine, _) = engine(Setup::default());
    let undisturbed = events(&engine, request(&[1], 30));
    let neighbour = submit(&engine, request(&[1], 30));
    let failed = events(&engine, request(&[NAN, 1], 30));
    assert_eq!(failed.last(), Some(&Event::Failed(ReplyError::NonFiniteLogits { index: 2 })));
    assert_eq!(tokens(&block_on(neighbour.collect::<Vec<_>>())), tokens(&undisturbed));
    settle(&engine);
    assert_eq!(engine.load().failed, 1);
}

#[test]
fn a_broken_step_fails_every_reply_and_refuses_new_ones() {
    for (poison, why) in [(PANIC, "panicked"), (FAIL, "asked to fail")] {
        let (engine, gate) = engine(Setup::default());
        gate.allow(Some(0));
        let neighbour = submit(&engine, request(&[1], 100));
        let poisoned = submit(&engine, request(&[poison], 5));
        gate.allow(None);
        for stream in [neighbour, poisoned] {
            let events: Vec<_> = block_on(stream.collect());
            let Some(Event::Failed(ReplyError::BackendDown(text))) = events.last() else {
                panic!("{events:?}")
            };
            assert!(text.contains(why), "{text}");
        }
        let refused = engine.submit(request(&[1], 5)).map(|_| ());
        assert!(matches!(refused, Err(SubmitError::Down(_))), "{refused:?}");
        let load = engine.load();
        let left = (load.running, load.waiting, load.kv_blocks_used);
        assert_eq!((left, load.failed, load.cancelled), ((0, 0, 0), 2, 0));
    }
}

#[test]
fn what_could_not_run_does_not_start() {
    let start = |config: EngineConfig| {
        let model = HashModel { arena: vec![[0; BLOCK]; 4], gate: Arc::default() };
        Engine::start(Box::new(model), config).map(|_| ()).map_err(|e| e.to_string())
    };
    let eos = start(EngineConfig { eos_tokens: vec![50], ..config(Setup::default()) });
    assert_eq!(eos.unwrap_err(), "end-of-reply token 50 is outside the vocabulary of 50");
    let tier = TierConfig { folder: "/does/not/exist".into(), max_bytes: 1 << 20, max_age: Duration::MAX };
    let tier = start(config(Setup { second_tier: Some(tier), ..Setup::default() })).unwrap_err();
    assert!(tier.starts_with("the second tier of the cache can't use /does/not/exist"), "{tier}");
}

#[test]
fn a_second_turn_computes_only_what_is_new() {
    let (engine, gate) = engine(Setup::default());
    let history: Vec<u32> = (0..90).map(|i| 4 + i % 30).collect();
    let first = events(&engine, request(&history, 10));
    let turn: Vec<u32> = history.iter().copied().chain(tokens(&first)).chain([7, 8, 9]).collect();
    let before = gate.tokens.load(Ordering::Relaxed);
    let second = events(&engine, request(&turn, 1));
    // New are three tokens, and of the ten before the last was never computed; a part of a block more.
    let computed = gate.tokens.load(Ordering::Relaxed) - before;
    assert!(computed <= 4 + BLOCK as u64, "{computed} tokens computed");
    let Some(Event::Finished { usage, .. }) = second.last() else { panic!("{second:?}") };
    assert_eq!(u64::from(usage.cached), u64::from(usage.prompt) - computed);
    // The same prompt again: all but one token are there.
    let whole = [history.as_slice(), &[1; 6]].concat();
    events(&engine, request(&whole, 1));
    let before = gate.tokens.load(Ordering::Relaxed);
    events(&engine, request(&whole, 1));
    assert_eq!(gate.tokens.load(Ordering::Relaxed) - before, 1);
}

#[test]
fn tenants_and_namespaces_share_nothing() {
    let (engine, _) = engine(Setup::default());
    let cached = |tenant: &str, namespace: Option<&str>| {
        let origin =
            Origin { tenant: tenant.into(), cache_namespace: namespace.map(Into::into), ..Origin::default() };
        let events = events(&engine, Request { origin, ..request(&[5; 60], 1) });
        let Some(Event::Finished { usage, .. }) = events.last() else { panic!("{events:?}") };
        usage.cached
    };
    assert_eq!(cached("a", None), 0);
    assert_eq!(cached("a", None), 48);
    assert_eq!(cached("b", None), 0);
    assert_eq!(cached("b", Some("a")), 0);
    assert_eq!(cached("a", Some("x")), 0);
    assert_eq!(cached("a", Some("x")), 48);
}

#[test]
fn samples_share_their_prompt_and_are_what_they_are_alone() {
    let (engine, gate) = engine(Setup { is_cached: false, ..Setup::default() });
    let sampling = |seed: u64| SamplingParams { seed, ..SamplingParams::default() };
    let alone: Vec<_> = (0..4)
        .map(|seed| {
            tokens(&events(&engine, Request { samples: vec![sampling(seed)], ..request(&[9; 50], 20) }))
        })
        .collect();
    let before = gate.tokens.load(Ordering::Relaxed);
    let samples = (0..4).map(sampling).collect();
    let streams = engine.submit(Request { samples, ..request(&[9; 50], 20) }).unwrap();
    let together: Vec<_> = streams.into_iter().map(|s| tokens(&block_on(s.collect::<Vec<_>>()))).collect();
    assert_eq!(together, alone);
    // The prompt once, then each sample's own tokens but its last.
    assert_eq!(gate.tokens.load(Ordering::Relaxed) - before, 50 + 4 * 19);
    settle(&engine);
}

/// Preemption, by recomputing and by the second tier, and a cache too small to keep anything: the same tokens.
#[test]
fn the_same_tokens_when_blocks_are_scarce() {
    let requests: Vec<_> =
        (0..24u32).map(|i| request(&vec![i % 7 + 1; 20 + (i as usize % 5) * 9], 40 + i)).collect();
    let (plenty, _) = engine(Setup { blocks: 400, is_cached: false, ..Setup::default() });
    let alone: Vec<_> = requests.iter().map(|r| tokens(&events(&plenty, r.clone()))).collect();
    let tier = TierConfig { folder: std::env::temp_dir(), max_bytes: 1 << 14, max_age: Duration::MAX };
    for (is_cached, second_tier) in [(false, None), (true, None), (true, Some(tier))] {
        let has_tier = second_tier.is_some();
        let (scarce, _) = engine(Setup { blocks: 24, is_cached, second_tier, ..Setup::default() });
        let streams: Vec<_> = requests.iter().map(|r| submit(&scarce, r.clone())).collect();
        for (stream, alone) in streams.into_iter().zip(&alone) {
            assert_eq!(
                &tokens(&block_on(stream.collect::<Vec<_>>())),
                alone,
                "cache {is_cached}, tier {has_tier}"
            );
        }
        settle(&scarce);
        assert!(scarce.load().preemptions > 0, "nothing was preempted");
        assert!(!has_tier || scarce.load().kv_blocks_spilled > 0, "nothing was spilled");
    }
}

#[test]
fn a_deadline_ends_a_reply() {
    let (engine, gate) = engine(Setup { sched: sched(1, 8, 64), ..Setup::default() });
    gate.allow(Some(1));
    let deadline = Some(Duration::from_millis(20));
    let running = submit(&engine, Request { deadline, ..request(&[1], 100) });
    let waiting = submit(&engine, Request { deadline, ..request(&[2], 100) });
    std::thread::sleep(Duration::from_millis(40));
    gate.allow(None);
    for stream in [running, waiting] {
        let last = block_on(stream.collect::<Vec<_>>()).pop();
        assert_eq!(last, Some(Event::Failed(ReplyError::DeadlinePassed)));
    }
    settle(&engine);
}

#[test]
fn draining_ends_what_was_taken_and_takes_no_more() {
    let (engine, gate) = engine(Setup::default());
    gate.allow(Some(0));
    let taken = submit(&engine, request(&[1], 10));
    engine.drain();
    assert_eq!(engine.submit(request(&[1], 10)).map(|_| ()), Err(SubmitError::Draining));
    gate.allow(None);
    assert_eq!(tokens(&block_on(taken.collect::<Vec<_>>())).len(), 10);
}

#[test]
fn dropping_the_engine_ends_its_replies() {
    let (engine, _) = engine(Setup::default());
    let stream = submit(&engine, request(&[1], 100));
    drop(engine);
    let last = block_on(stream.collect::<Vec<_>>()).pop();
    assert!(matches!(last, Some(Event::Failed(_) | Event::Finished { .. })), "{last:?}");
}

#[test]
fn nothing_is_left_after_ten_thousand_comings_and_goings() {
    let (engine, _) = engine(Setup { blocks: 40, sched: sched(4, 16, 24), ..Setup::default() });
    let mut streams = Vec::new();
    let mut state = 1u32;
    for _ in 0..10_000 {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let (kind, n) = (state >> 29, (state >> 16) % 40);
        if kind < 5 {
            streams.extend(engine.submit(request(&vec![1; 1 + n as usize], 1 + n)).into_iter().flatten());
        } else if !streams.is_empty() {
            drop(streams.swap_remove(n as usize % streams.len()));
        }
    }
    drop(streams);
    settle(&engine);
}

#[test]
fn a_paused_background_waits_and_is_no_standstill() {
    let lanes = vec![LaneConfig::interactive("chat", 1), LaneConfig::background("batch")];
    let (engine, _) =
        engine(Setup { sched: SchedConfig { lanes, ..SchedConfig::default() }, ..Setup::default() });
    let batch = |deadline| {
        let origin = Origin { lane: 1, ..Origin::default() };
        Request { origin, deadline, ..request(&[1, 2], 5) }
    };
    engine.pause_background(true);
    let waiting = submit(&engine, batch(None));
    let left = submit(&engine, batch(None));
    // More of them than the loop has patience for where nothing can run: each is looked at and ended.
    for _ in 0..12 {
        let late = submit(&engine, batch(Some(Duration::ZERO)));
        let ended = block_on(late.collect::<Vec<_>>());
        assert_eq!(ended, [Event::Failed(ReplyError::DeadlinePassed)]);
    }
    drop(left);
    assert_eq!(tokens(&events(&engine, request(&[1, 2], 5))).len(), 5, "others are served");
    let load = engine.load();
    assert_eq!((load.lanes[1].started, load.lanes[1].waiting, load.lanes[0].started), (0, 1, 1));
    engine.pause_background(false);
    assert_eq!(tokens(&block_on(waiting.collect::<Vec<_>>())).len(), 5);
    settle(&engine);
    assert_eq!(engine.load().lanes[1].started, 1);
}
