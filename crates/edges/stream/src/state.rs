//! All logs and what they take, without a lock and without waiting.
//!
//! Invariants, which [`State::check`] tests:
//! 1. `charge` is the sum of what the logs take; a log that is being written takes at least its reserve.
//! 2. A log holds no more than its own bound, or it holds a single chunk that somebody may still read.
//! 3. All logs together take no more than the total, but for the newest chunk of each.
//! 4. `names` leads to logs that have that name, and to nothing else.
//! 5. A log nobody writes and nobody reads has a name, is whole or says that it is not, and is in `idle`; no other is.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::{Notify, watch};

/// What a chunk counts besides its bytes: its place in the log and the allocator's.
pub const CHUNK_OVERHEAD: usize = 64;

/// How much logs may hold. Bytes are those of chunks, with [`CHUNK_OVERHEAD`] for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogLimits {
    /// Bytes of one log. 4 MiB by default: some 15,000 events of a streamed chat.
    pub reply_bytes: usize,
    /// Bytes of all logs. 256 MiB by default: small beside a model's weights.
    pub total_bytes: usize,
    /// What a log that is being written may hold whatever the others do, so that a reader that keeps up misses nothing.
    /// 64 KiB by default: 4,096 logs can be written at once.
    pub reserve: usize,
    /// Logs. 16,384 by default: a log without chunks takes some hundred bytes.
    pub logs: usize,
    /// How long a log stays after its end. 24 hours by default.
    pub life: Duration,
}

impl Default for LogLimits {
    fn default() -> Self {
        Self {
            reply_bytes: 4 << 20,
            total_bytes: 256 << 20,
            reserve: 64 << 10,
            logs: 16 << 10,
            life: Duration::from_secs(24 * 3600),
        }
    }
}

/// There is no room for another log: those there are are being written or read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{logs} replies are kept already and all of them are in use")]
pub struct Full {
    /// Logs there are.
    pub logs: usize,
}

pub(crate) type Serial = u64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Written,
    Ended(Instant),
    /// Its writer left without ending it.
    Broken,
}

pub(crate) struct Log<M> {
    name: Option<String>,
    pub(crate) meta: M,
    chunks: VecDeque<Bytes>,
    /// Chunks given up before the first one that is held.
    first: u64,
    bytes: usize,
    phase: Phase,
    pub(crate) readers: watch::Sender<usize>,
    pub(crate) grown: Arc<Notify>,
}

/// What a cursor finds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    Chunk(Bytes),
    NotYet,
    End,
    Trimmed,
    Broken,
}

/// A log by its name, and whether it is a new one.
pub(crate) enum Named {
    New(Serial),
    Known(Serial),
}

pub(crate) struct State<M> {
    limits: LogLimits,
    logs: HashMap<Serial, Log<M>>,
    names: HashMap<String, Serial>,
    /// Logs that have ended and that nobody reads, by their end.
    idle: BTreeSet<(Instant, Serial)>,
    charge: usize,
    next: Serial,
}

fn cost(chunk: &Bytes) -> usize {
    chunk.len() + CHUNK_OVERHEAD
}

impl<M> Log<M> {
    fn charge(&self, reserve: usize) -> usize {
        if self.phase == Phase::Written { self.bytes.max(reserve) } else { self.bytes }
    }

    fn is_read(&self) -> bool {
        *self.readers.borrow() > 0
    }

    fn drop_oldest(&mut self) {
        if let Some(chunk) = self.chunks.pop_front() {
            self.bytes -= cost(&chunk);
            self.first += 1;
        }
    }

    /// Gives up its oldest chunks until it holds `most`, but never the newest.
    fn trim(&mut self, most: usize) {
        while self.bytes > most && self.chunks.len() > 1 {
            self.drop_oldest();
        }
    }

    fn is_expired(&self, life: Duration, now: Instant) -> bool {
        matches!(self.phase, Phase::Ended(at) if now.saturating_duration_since(at) >= life)
    }
}

impl<M> State<M> {
    pub(crate) fn new(limits: LogLimits) -> Self {
        let (logs, names, idle) = (HashMap::new(), HashMap::new(), BTreeSet::new());
        Self { limits, logs, names, idle, charge: 0, next: 0 }
    }

    pub(crate) fn log(&self, serial: Serial) -> Option<&Log<M>> {
        self.logs.get(&serial)
    }

    /// Changes a log and counts what it takes by then.
    fn change(&mut self, serial: Serial, change: impl FnOnce(&mut Log<M>)) {
        let Some(log) = self.logs.get_mut(&serial) else { return };
        let before = log.charge(self.limits.reserve);
        change(log);
        self.charge = self.charge - before + log.charge(self.limits.reserve);
    }

    /// The log of this name, or a new one with a writer.
    pub(crate) fn begin(&mut self, name: &str, meta: M, now: Instant) -> Result<Named, Full> {
        self.sweep(now);
        if let Some(&serial) = self.names.get(name) {
            if !self.logs.get(&serial).is_some_and(|log| log.is_expired(self.limits.life, now)) {
                return Ok(Named::Known(serial));
            }
            self.forget(serial);
        }
        while self.logs.len() >= self.limits.logs
            || self.charge + self.limits.reserve > self.limits.total_bytes
        {
            self.evict_oldest().ok_or(Full { logs: self.logs.len() })?;
        }
        let serial = self.next;
        self.next += 1;
        self.names.insert(name.to_owned(), serial);
        let log = Log {
            name: Some(name.to_owned()),
            meta,
            chunks: VecDeque::new(),
            first: 0,
            bytes: 0,
            phase: Phase::Written,
            readers: watch::Sender::new(0),
            grown: Arc::default(),
        };
        self.charge += log.charge(self.limits.reserve);
        self.logs.insert(serial, log);
        Ok(Named::New(serial))
    }

    /// Removes what has been kept for its whole life.
    fn sweep(&mut self, now: Instant) {
        while let Some(&(ended, _)) = self.idle.first() {
            if now.saturating_duration_since(ended) < self.limits.life {
                break;
            }
            self.evict_oldest();
        }
    }

    /// Removes, of the logs that nobody writes and nobody reads, the one that ended first.
    fn evict_oldest(&mut self) -> Option<()> {
        let (_, serial) = self.idle.pop_first()?;
        self.forget(serial);
        Some(())
    }

    /// Makes room for what was just appended to a log, at the cost of what nobody reads and then of the log itself.
    fn make_room(&mut self, serial: Serial) {
        while self.charge > self.limits.total_bytes && self.evict_oldest().is_some() {}
        let over = self.charge.saturating_sub(self.limits.total_bytes);
        if over > 0 {
            let reserve = self.limits.reserve;
            self.change(serial, |log| log.trim(log.bytes.saturating_sub(over).max(reserve)));
        }
    }

    pub(crate) fn append(&mut self, serial: Serial, chunk: Bytes) {
        let most = self.limits.reply_bytes;
        self.change(serial, |log| {
            log.bytes += cost(&chunk);
            log.chunks.push_back(chunk);
            log.trim(most);
            log.grown.notify_waiters();
        });
        self.make_room(serial);
    }

    /// The reply is whole.
    pub(crate) fn end(&mut self, serial: Serial, now: Instant) {
        self.close(serial, Phase::Ended(now));
    }

    /// The reply is not whole and never will be: it keeps no name, so that it can be asked for again.
    pub(crate) fn break_off(&mut self, serial: Serial) {
        self.forget(serial);
        self.close(serial, Phase::Broken);
    }

    fn close(&mut self, serial: Serial, phase: Phase) {
        self.change(serial, |log| {
            log.phase = phase;
            log.grown.notify_waiters();
        });
        self.rest(serial);
    }

    /// Takes a log's name away: nobody finds it any more, and who reads it goes on.
    pub(crate) fn forget(&mut self, serial: Serial) {
        if let Some(name) = self.logs.get_mut(&serial).and_then(|log| log.name.take()) {
            self.names.remove(&name);
        }
        self.rest(serial);
    }

    /// What becomes of a log that nobody writes and nobody reads.
    fn rest(&mut self, serial: Serial) {
        let Some(log) = self.logs.get(&serial) else { return };
        if log.is_read() {
            return;
        }
        match (log.phase, &log.name) {
            (Phase::Written, _) => {}
            (Phase::Ended(at), Some(_)) => {
                self.idle.insert((at, serial));
                let most = self.limits.reply_bytes;
                self.change(serial, |log| {
                    // One chunk that is too long for the log; its readers have had it.
                    if log.bytes > most {
                        log.drop_oldest();
                    }
                });
                while self.charge > self.limits.total_bytes && self.evict_oldest().is_some() {}
            }
            (Phase::Ended(at), None) => {
                self.idle.remove(&(at, serial));
                self.discard(serial);
            }
            (Phase::Broken, _) => self.discard(serial),
        }
    }

    fn discard(&mut self, serial: Serial) {
        if let Some(log) = self.logs.remove(&serial) {
            self.charge -= log.charge(self.limits.reserve);
        }
    }

    pub(crate) fn attach(&mut self, serial: Serial) {
        let Some(log) = self.logs.get(&serial) else { return };
        log.readers.send_modify(|readers| *readers += 1);
        if let Phase::Ended(at) = log.phase {
            self.idle.remove(&(at, serial));
        }
    }

    pub(crate) fn detach(&mut self, serial: Serial) {
        let Some(log) = self.logs.get(&serial) else { return };
        log.readers.send_modify(|readers| *readers -= 1);
        self.rest(serial);
    }

    pub(crate) fn read(&self, serial: Serial, cursor: u64) -> Found {
        let Some(log) = self.logs.get(&serial) else { return Found::Trimmed };
        let Some(at) = cursor.checked_sub(log.first) else { return Found::Trimmed };
        match (log.chunks.get(usize::try_from(at).unwrap_or(usize::MAX)), log.phase) {
            (Some(chunk), _) => Found::Chunk(chunk.clone()),
            (None, Phase::Written) => Found::NotYet,
            (None, Phase::Ended(_)) => Found::End,
            (None, Phase::Broken) => Found::Broken,
        }
    }

    /// Whether a reader could begin at the first chunk.
    pub(crate) fn is_whole(&self, serial: Serial) -> bool {
        self.logs.get(&serial).is_some_and(|log| log.first == 0)
    }

    /// Logs, and the bytes they take.
    pub(crate) fn size(&self) -> (usize, usize) {
        (self.logs.len(), self.charge)
    }

    /// What is wrong with the invariants; `None` if nothing is.
    pub(crate) fn check(&self) -> Option<String> {
        let LogLimits { reply_bytes, total_bytes, reserve, logs, .. } = self.limits;
        let sum: usize = self.logs.values().map(|log| log.charge(reserve)).sum();
        let newest: usize = self.logs.values().filter_map(|log| log.chunks.back().map(cost)).sum();
        if sum != self.charge {
            return Some(format!("{} bytes are counted and {sum} are there", self.charge));
        }
        if sum > total_bytes + newest || self.logs.len() > logs {
            return Some(format!("{sum} bytes in {} logs are too many", self.logs.len()));
        }
        let is_named = |(name, serial): (&String, &Serial)| {
            self.logs.get(serial).is_some_and(|log| log.name.as_ref() == Some(name))
        };
        if !self.names.iter().all(is_named) {
            return Some("a name leads nowhere".to_owned());
        }
        let ill = |(&serial, log): (&Serial, &Log<M>)| {
            let held: usize = log.chunks.iter().map(cost).sum();
            let is_idle = match log.phase {
                Phase::Ended(at) => self.idle.contains(&(at, serial)),
                Phase::Written | Phase::Broken => false,
            };
            let is_at_rest = log.phase != Phase::Written && !log.is_read();
            held != log.bytes
                || (held > reply_bytes && (log.chunks.len() > 1 || is_at_rest))
                || is_idle != is_at_rest
                || (is_at_rest && log.name.is_none())
        };
        let count = self.idle.len();
        if count > self.logs.len() {
            return Some(format!("{count} logs are idle of {}", self.logs.len()));
        }
        self.logs.iter().find(|pair| ill(*pair)).map(|(serial, _)| format!("log {serial} is not in order"))
    }
}
