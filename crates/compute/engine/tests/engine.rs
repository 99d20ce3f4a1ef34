//! The engine over an executor whose arithmetic is a hash: everything but the model.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use futures_util::StreamExt;
use motet_engine::{Engine, EngineConfig, Limits};
use motet_sched::{Capacity, ExecuteError, Executor, StepOutput, StepPlan};
use motet_types::{
    Backend, Event, FinishReason, ReplyError, Request, SamplingParams, StopTokens, SubmitError, Usage,
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
        Capacity {
            kv_blocks: self.arena.len() as u32,
            block_tokens: 16,
            context_length: 128,
            vocab_size: VOCAB + 3,
        }
    }

    fn execute(&mut self, step: &StepPlan) -> Result<StepOutput, ExecuteError> {
        self.gate.pass();
        let mut logits = Vec::new();
        for chunk in &step.chunks {
            for (i, token) in chunk.tokens.iter().enumerate() {
                let at = chunk.start as usize + i;
                self.arena[chunk.blocks[at / BLOCK] as usize][at % BLOCK] = *token;
            }
            let len = chunk.start as usize + chunk.tokens.len();
            let all: Vec<u32> =
                (0..len).map(|at| self.arena[chunk.blocks[at / BLOCK] as usize][at % BLOCK]).collect();
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
        Ok(StepOutput { logits })
    }
}

fn engine(limits: Limits, blocks: usize) -> (Arc<Engine>, Arc<Gate>) {
    let gate = Arc::<Gate>::default();
    let model = HashModel { arena: vec![[0; BLOCK]; blocks], gate: Arc::clone(&gate) };
    let config = EngineConfig { id: "hash".into(), vocab_size: VOCAB, eos_tokens: vec![3], limits };
    (Engine::start(Box::new(model), config).unwrap(), gate)
}

fn request(prompt: &[u32], max_tokens: u32) -> Request {
    Request {
        prompt: prompt.to_vec(),
        max_tokens,
        sampling: SamplingParams { seed: 5, ..SamplingParams::default() },
        stop: StopTokens { ignore_eos: true, ..StopTokens::default() },
        logprobs: None,
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

fn events(engine: &Engine, request: Request) -> Vec<Event> {
    block_on(engine.submit(request).unwrap().collect())
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
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    panic!("still busy: {:?}", engine.load());
}

#[test]
fn a_reply_has_every_index_once_and_ends_with_its_usage() {
    let (engine, _) = engine(Limits::default(), 64);
    let events = events(&engine, request(&[1, 2, 3], 5));
    let indices: Vec<_> =
        events.iter().filter_map(|e| if let Event::Token(t) = e { Some(t.index) } else { None }).collect();
    assert_eq!(indices, [0, 1, 2, 3, 4]);
    let usage = Usage { prompt: 3, cached: 0, output: 5 };
    assert_eq!(events.last(), Some(&Event::Finished { reason: FinishReason::Length, usage }));
    assert!(tokens(&events).iter().all(|token| *token < VOCAB));
    settle(&engine);
}

#[test]
fn the_same_tokens_alone_and_in_company() {
    let (engine, _) = engine(Limits { running: 6, step_tokens: 7, ..Limits::default() }, 400);
    let requests: Vec<_> = (0..16u32).map(|i| request(&vec![i + 1; 1 + 5 * i as usize], 20 + i)).collect();
    let alone: Vec<_> = requests.iter().map(|r| events(&engine, r.clone())).collect();
    let streams: Vec<_> = requests.iter().map(|r| engine.submit(r.clone()).unwrap()).collect();
    for (stream, alone) in streams.into_iter().zip(alone) {
        assert_eq!(block_on(stream.collect::<Vec<_>>()), alone);
    }
}

#[test]
fn stop_tokens_end_a_reply_and_are_not_sent() {
    let (engine, _) = engine(Limits::default(), 64);
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
    let (engine, _) = engine(Limits::default(), 64);
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
    let (engine, gate) = engine(Limits { running: 1, ..Limits::default() }, 64);
    gate.allow(Some(2));
    let mut running = engine.submit(request(&[1], 100)).unwrap();
    block_on(running.next());
    let waiting = engine.submit(request(&[2], 100)).unwrap();
    drop((running, waiting));
    gate.allow(None);
    settle(&engine);
    // The step that was under way ends; none follows it.
    assert!(gate.steps.load(Ordering::Relaxed) <= 3);
    assert_eq!((engine.load().cancelled, engine.load().finished), (2, 0));
}

#[test]
fn bad_requests_are_refused_before_the_batch() {
    let (engine, _) = engine(Limits::default(), 4);
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
    let bad = |sampling: SamplingParams| Request { sampling, ..request(&[1], 5) };
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
    let (engine, gate) = engine(Limits { running: 1, waiting: 2, ..Limits::default() }, 64);
    gate.allow(Some(0));
    let mut taken = Vec::new();
    let refused = loop {
        match engine.submit(request(&[1], 5)) {
            Ok(stream) => taken.push(stream),
            Err(refused) => break refused,
        }
    };
    assert_eq!(refused, SubmitError::QueueFull { waiting: 2, retry_after_seconds: 1 });
    assert!(taken.len() <= 3, "{} taken", taken.len());
    gate.allow(None);
    for stream in taken {
        assert_eq!(tokens(&block_on(stream.collect::<Vec<_>>())).len(), 5);
    }
    settle(&engine);
}

#[test]
fn a_value_that_is_not_a_number_fails_that_sequence_alone() {
    let (engine, _) = engine(Limits::default(), 64);
    let undisturbed = events(&engine, request(&[1], 30));
    let neighbour = engine.submit(request(&[1], 30)).unwrap();
    let failed = events(&engine, request(&[NAN, 1], 30));
    assert_eq!(failed.last(), Some(&Event::Failed(ReplyError::NonFiniteLogits { index: 2 })));
    assert_eq!(block_on(neighbour.collect::<Vec<_>>()), undisturbed);
    settle(&engine);
    assert_eq!(engine.load().failed, 1);
}

#[test]
fn a_broken_step_fails_every_reply_and_refuses_new_ones() {
    for (poison, why) in [(PANIC, "panicked"), (FAIL, "asked to fail")] {
        let (engine, gate) = engine(Limits::default(), 64);
        gate.allow(Some(0));
        let neighbour = engine.submit(request(&[1], 100)).unwrap();
        let poisoned = engine.submit(request(&[poison], 5)).unwrap();
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
        assert_eq!((load.running, load.waiting, load.kv_blocks_used, load.failed), (0, 0, 0, 2));
    }
}

#[test]
fn what_could_not_run_does_not_start() {
    let start = |limits: Limits, eos: u32| {
        let model = HashModel { arena: vec![[0; BLOCK]; 4], gate: Arc::default() };
        let config = EngineConfig { id: "hash".into(), vocab_size: VOCAB, eos_tokens: vec![eos], limits };
        Engine::start(Box::new(model), config).map(|_| ()).map_err(|e| e.to_string())
    };
    let limits = Limits::default();
    let check = |started: Result<(), String>, expected: &str| assert_eq!(started.unwrap_err(), expected);
    check(start(Limits { running: 0, ..limits }, 3), "running is 0; the engine needs at least 1");
    check(start(Limits { waiting: 0, ..limits }, 3), "waiting is 0; the engine needs at least 1");
    check(start(Limits { step_tokens: 64, ..limits }, 3), "step_tokens is 64; the engine needs at least 65");
    check(start(limits, 50), "end-of-reply token 50 is outside the vocabulary of 50");
}

#[test]
fn dropping_the_engine_ends_its_replies() {
    let (engine, _) = engine(Limits::default(), 64);
    let stream = engine.submit(request(&[1], 100)).unwrap();
    drop(engine);
    let last = block_on(stream.collect::<Vec<_>>()).pop();
    assert!(matches!(last, Some(Event::Failed(_) | Event::Finished { .. })), "{last:?}");
}

#[test]
fn nothing_is_left_after_a_thousand_comings_and_goings() {
    let (engine, _) = engine(Limits { running: 4, waiting: 16, step_tokens: 24 }, 40);
    let mut streams = Vec::new();
    let mut state = 1u32;
    for _ in 0..1000 {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let (kind, n) = (state >> 29, (state >> 16) % 40);
        if kind < 5 {
            streams.extend(engine.submit(request(&vec![1; 1 + n as usize], 1 + n)));
        } else if !streams.is_empty() {
            drop(streams.swap_remove(n as usize % streams.len()));
        }
    }
    drop(streams);
    settle(&engine);
}
