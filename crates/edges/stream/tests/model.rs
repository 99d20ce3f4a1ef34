//! Random histories of logs against a naive model that keeps a list and counts everything anew.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use motet_stream::{Begun, CHUNK_OVERHEAD, LogLimits, ReadError, Reader, ReplyLogs, Writer};
use proptest::collection::vec;
use proptest::prelude::*;

const LIMITS: LogLimits =
    LogLimits { reply_bytes: 500, total_bytes: 1200, reserve: 200, logs: 5, life: Duration::from_secs(10) };

#[derive(Debug, Clone)]
enum Step {
    Begin(u8),
    Append(usize, usize),
    End(usize),
    Forget(usize),
    DropWriter(usize),
    Abandon(usize),
    Read(usize),
    DropReader(usize),
    Advance(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let any = 0..8usize;
    prop_oneof![
        3 => (0..6u8).prop_map(Step::Begin),
        6 => (any.clone(), 0..300usize).prop_map(|(at, len)| Step::Append(at, len)),
        1 => (any.clone(), 300..700usize).prop_map(|(at, len)| Step::Append(at, len)),
        2 => any.clone().prop_map(Step::End),
        1 => any.clone().prop_map(Step::Forget),
        1 => any.clone().prop_map(Step::DropWriter),
        1 => any.clone().prop_map(Step::Abandon),
        6 => any.clone().prop_map(Step::Read),
        2 => any.prop_map(Step::DropReader),
        1 => (0..6u64).prop_map(Step::Advance),
    ]
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    Written,
    Ended(Instant, usize),
    Broken,
}

/// A log as it would be kept without a thought.
#[derive(Debug)]
struct Naive {
    id: usize,
    name: Option<String>,
    /// Its whole history, of which the first `lost` are given up.
    chunks: Vec<Bytes>,
    lost: usize,
    phase: Phase,
    readers: usize,
}

impl Naive {
    fn held(&self) -> usize {
        self.chunks[self.lost..].iter().map(|chunk| chunk.len() + CHUNK_OVERHEAD).sum()
    }

    fn charge(&self) -> usize {
        if self.phase == Phase::Written { self.held().max(LIMITS.reserve) } else { self.held() }
    }

    fn trim(&mut self, most: usize) {
        while self.held() > most && self.chunks.len() - self.lost > 1 {
            self.lost += 1;
        }
    }
}

#[derive(Default)]
struct Model {
    logs: Vec<Naive>,
    begun: usize,
}

impl Model {
    fn charge(&self) -> usize {
        self.logs.iter().map(Naive::charge).sum()
    }

    fn get(&mut self, id: usize) -> &mut Naive {
        self.logs.iter_mut().find(|log| log.id == id).unwrap()
    }

    /// Drops what nobody can reach, and what has no room, the first that ended first.
    fn tidy(&mut self) {
        self.logs.retain_mut(|log| {
            let is_idle = log.readers == 0 && log.phase != Phase::Written;
            if is_idle && log.held() > LIMITS.reply_bytes {
                log.lost += 1;
            }
            !is_idle || (log.phase != Phase::Broken && log.name.is_some())
        });
        while self.charge() > LIMITS.total_bytes && self.evict() {}
    }

    fn evict(&mut self) -> bool {
        let idle = |log: &&Naive| log.readers == 0 && matches!(log.phase, Phase::Ended(..));
        let when = |log: &&Naive| match log.phase {
            Phase::Ended(at, _) => (at, log.id),
            _ => unreachable!(),
        };
        let Some(id) = self.logs.iter().filter(idle).min_by_key(when).map(|log| log.id) else { return false };
        self.logs.retain(|log| log.id != id);
        true
    }

    /// The id of the log of that name and whether it is new; `None` if there is no room.
    fn begin(&mut self, name: &str, now: Instant) -> Option<(usize, bool)> {
        for log in &mut self.logs {
            if matches!(log.phase, Phase::Ended(at, _) if now - at >= LIMITS.life) {
                let is_asked = log.name.as_deref() == Some(name);
                if log.readers == 0 || is_asked {
                    log.name = None;
                }
            }
        }
        self.tidy();
        if let Some(log) = self.logs.iter_mut().find(|log| log.name.as_deref() == Some(name)) {
            log.readers += 1;
            return Some((log.id, false));
        }
        while self.logs.len() >= LIMITS.logs || self.charge() + LIMITS.reserve > LIMITS.total_bytes {
            if !self.evict() {
                return None;
            }
        }
        let id = self.begun;
        self.begun += 1;
        let (name, chunks) = (Some(name.to_owned()), Vec::new());
        self.logs.push(Naive { id, name, chunks, lost: 0, phase: Phase::Written, readers: 1 });
        Some((id, true))
    }

    fn append(&mut self, id: usize, chunk: Bytes) {
        let log = self.get(id);
        log.chunks.push(chunk);
        log.trim(LIMITS.reply_bytes);
        self.tidy();
        let over = self.charge().saturating_sub(LIMITS.total_bytes);
        if over > 0 {
            let log = self.get(id);
            let most = log.held().saturating_sub(over).max(LIMITS.reserve);
            log.trim(most);
        }
    }
}

/// The real logs and the model, step by step.
struct World {
    logs: ReplyLogs<usize>,
    model: Model,
    writers: Vec<(Writer<usize>, usize)>,
    readers: Vec<(Reader<usize>, usize, usize)>,
    now: Instant,
    ends: usize,
}

impl World {
    fn new() -> Self {
        let (writers, readers) = (Vec::new(), Vec::new());
        let (logs, model, now) = (ReplyLogs::new(LIMITS), Model::default(), Instant::now());
        Self { logs, model, writers, readers, now, ends: 0 }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Begin(name) => self.begin(&format!("name {name}")),
            Step::Append(at, len) => {
                let Some((writer, id)) = pick(&mut self.writers, at) else { return };
                let chunk = Bytes::from(vec![(self.ends + len) as u8; len]);
                writer.append(chunk.clone());
                self.model.append(*id, chunk);
            }
            Step::End(at) => {
                let Some((writer, id)) = take(&mut self.writers, at) else { return };
                writer.end(self.now);
                self.ends += 1;
                self.model.get(id).phase = Phase::Ended(self.now, self.ends);
            }
            Step::Forget(at) => {
                let Some((writer, id)) = pick(&mut self.writers, at) else { return };
                writer.forget();
                self.model.get(*id).name = None;
            }
            Step::DropWriter(at) => {
                let Some((writer, id)) = take(&mut self.writers, at) else { return };
                drop(writer);
                self.break_off(id);
            }
            Step::Abandon(at) => {
                let Some((writer, id)) = take(&mut self.writers, at) else { return };
                let is_left = self.model.get(id).readers == 0;
                assert_eq!(writer.audience().abandon(), is_left);
                if is_left {
                    self.break_off(id);
                } else {
                    self.writers.push((writer, id));
                }
            }
            Step::Read(at) => self.read(at),
            Step::DropReader(at) => {
                let Some((_, id, _)) = take(&mut self.readers, at) else { return };
                self.model.get(id).readers -= 1;
            }
            Step::Advance(seconds) => self.now += Duration::from_secs(seconds),
        }
        self.model.tidy();
    }

    fn break_off(&mut self, id: usize) {
        let log = self.model.get(id);
        (log.phase, log.name) = (Phase::Broken, None);
    }

    fn begin(&mut self, name: &str) {
        let expected = self.model.begin(name, self.now);
        let id = self.model.begun.saturating_sub(1);
        match (self.logs.begin(name, id, self.now), expected) {
            (Ok(Begun::New(writer, reader)), Some((id, true))) => {
                self.writers.push((writer, id));
                self.readers.push((reader, id, 0));
            }
            (Ok(Begun::Known(reader, found)), Some((id, false))) => {
                assert_eq!(found, id);
                assert_eq!(reader.is_whole(), self.model.get(id).lost == 0);
                self.readers.push((reader, id, 0));
            }
            (Err(full), None) => assert_eq!(full.logs, self.model.logs.len()),
            (got, expected) => panic!("{} instead of {expected:?}", got.is_ok()),
        }
    }

    fn read(&mut self, at: usize) {
        let Some((reader, id, cursor)) = pick(&mut self.readers, at) else { return };
        let log = self.model.logs.iter().find(|log| log.id == *id).unwrap();
        let expected = match (log.chunks.get(*cursor), log.phase) {
            _ if *cursor < log.lost => Poll::Ready(Err(ReadError::Trimmed)),
            (Some(chunk), _) => Poll::Ready(Ok(Some(chunk.clone()))),
            (None, Phase::Written) => Poll::Pending,
            (None, Phase::Ended(..)) => Poll::Ready(Ok(None)),
            (None, Phase::Broken) => Poll::Ready(Err(ReadError::Broken)),
        };
        let got = pin!(reader.next()).poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(got, expected);
        *cursor += usize::from(matches!(got, Poll::Ready(Ok(Some(_)))));
    }

    fn check(&self) {
        assert_eq!(self.logs.check_integrity(), None);
        assert_eq!((self.logs.len(), self.logs.bytes()), (self.model.logs.len(), self.model.charge()));
        for (writer, id) in &self.writers {
            let readers = writer.audience().readers().map(|readers| *readers.borrow());
            assert_eq!(readers, self.model.logs.iter().find(|log| log.id == *id).map(|log| log.readers));
        }
    }
}

fn pick<T>(items: &mut [T], at: usize) -> Option<&mut T> {
    let at = at.checked_rem(items.len())?;
    items.get_mut(at)
}

fn take<T>(items: &mut Vec<T>, at: usize) -> Option<T> {
    let at = at.checked_rem(items.len())?;
    Some(items.swap_remove(at))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn histories(steps in vec(step(), 1..80)) {
        let mut world = World::new();
        for step in &steps {
            world.step(step);
            world.check();
        }
        // Who leaves leaves nothing behind.
        let World { logs, writers, readers, mut now, .. } = world;
        drop((writers, readers));
        now += LIMITS.life;
        drop(logs.begin("the last", 0, now));
        prop_assert!(logs.is_empty(), "{} logs are left", logs.len());
        prop_assert_eq!(logs.bytes(), 0);
    }
}
