//! What happens to requests when there is too much to do: who is let in, what is given up, what they are told.
//!
//! Each backend has a ladder and a list of those who may come back later (`motet_fleet`). A task of the server's looks at the
//! load a few times a second ([`Gateway::watch_load`]). A request that has to be refused is, as far as possible, before
//! it waits for anything: its lane is known from its sender, and its `service_tier` is found without parsing the rest.

mod entry;
mod notice;
mod watch;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use motet_fleet::{
    Arrival, Ladder, LadderConfig, LaneView, Measures, Returns, ReturnsConfig, Standing, Terms,
};
use motet_types::{Backend, LaneLoad};
use tokio::time::Instant;

pub(crate) use entry::{Comer, Entry, peek_model, peek_tier};
pub(crate) use notice::Notices;
pub(crate) use watch::LadderMetrics;

/// What is given up when there is too much to do.
#[derive(Debug, Clone, PartialEq)]
pub struct OverloadConfig {
    /// When the ladder moves, and what the backend's lanes are worth. `None`: it stays at the bottom.
    pub ladder: Option<LadderConfig>,
    /// Most tokens of a reply whose request names no limit, while output is shortened.
    pub short_output: u32,
    /// How often the load is looked at. Four times a second: a ladder's hold times are seconds.
    pub sample_every: Duration,
    /// How often one who waits in line is told its place.
    pub notice_every: Duration,
}

impl Default for OverloadConfig {
    fn default() -> Self {
        Self {
            ladder: None,
            short_output: 512,
            sample_every: Duration::from_millis(250),
            notice_every: Duration::from_secs(2),
        }
    }
}

/// A load that was looked at longer ago than this is looked at again before anything is decided by it.
const STALE: Duration = Duration::from_secs(1);
/// Least time between two who may come back: a lane that seems to need none is one that nothing is known of.
const LEAST_PACE: Duration = Duration::from_millis(10);
/// Bytes of either end of a request by which it is known when it comes again.
const END_BYTES: usize = 8 << 10;
/// Bytes of a request per token of its prompt, for an estimate before it is tokenized.
const BYTES_PER_TOKEN: usize = 4;

/// A backend's ladder, and who may come back to it.
///
/// Two locks, never held together and never across a call of the backend.
pub(crate) struct Overload {
    config: OverloadConfig,
    seen: Mutex<Seen>,
    returns: Mutex<Returns>,
    /// Times of the ladder and of the returns count from here.
    epoch: Instant,
}

/// What was seen last.
struct Seen {
    ladder: Ladder,
    at: Option<Instant>,
    lanes: Vec<LaneLoad>,
}

/// Whether a request's sender says that it has tried before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tries {
    /// It does not.
    First,
    /// It does.
    Again,
}

/// Why a request is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shed {
    /// The room there is is for others who were told to come now.
    Crowded,
    /// Free lanes are shed.
    Free,
    /// Background lanes are paused.
    Background,
}

impl Overload {
    pub(crate) fn new(config: OverloadConfig, lanes: usize) -> Self {
        let ladder = Ladder::new(config.ladder.clone().unwrap_or_default());
        Self {
            config,
            seen: Mutex::new(Seen { ladder, at: None, lanes: Vec::new() }),
            returns: Mutex::new(Returns::new(ReturnsConfig::default(), lanes)),
            epoch: Instant::now(),
        }
    }

    /// What is given up in a lane.
    pub(crate) fn measures(&self, lane: usize) -> Measures {
        let Some(standing) = self.standing(lane) else { return Measures::default() };
        self.seen().ladder.measures().of(standing)
    }

    fn standing(&self, lane: usize) -> Option<Standing> {
        self.config.ladder.as_ref()?.lanes.get(lane).copied()
    }

    /// A lane's load, not long ago.
    fn lane(&self, backend: &dyn Backend, lane: usize) -> LaneLoad {
        let is_fresh = |at: Instant| at.elapsed() < STALE;
        let known = |seen: &Seen| seen.lanes.get(lane).cloned().filter(|_| seen.at.is_some_and(is_fresh));
        if let Some(known) = known(&self.seen()) {
            return known;
        }
        let lanes = backend.load().lanes;
        let mut seen = self.seen();
        (seen.at, seen.lanes) = (Some(Instant::now()), lanes);
        seen.lanes.get(lane).cloned().unwrap_or_default()
    }

    /// Lets a request in, or refuses it, before anything is spent on it.
    fn admit(&self, backend: &dyn Backend, lane: usize, comer: &Comer) -> Result<Entry, (Shed, Duration)> {
        let measures = self.measures(lane);
        let shed = match measures {
            Measures { shed_free: true, .. } => Some(Shed::Free),
            Measures { pause_background: true, .. } => Some(Shed::Background),
            _ => None,
        };
        let key = comer.mark;
        let mut entry = Entry { lane, key, measures, is_patient: measures.queue_with_eta };
        if shed.is_none() && !self.returns().expects(lane) {
            return Ok(entry);
        }
        let load = self.lane(backend, lane);
        let tokens = u32::try_from(comer.bytes / BYTES_PER_TOKEN).unwrap_or(u32::MAX);
        let view = LaneView {
            ttft: backend.estimate(lane, tokens),
            promise: load.ttft_promise.filter(|_| !entry.is_patient),
            waiting: load.waiting,
            bound: if load.waiting_limit == 0 { u32::MAX } else { load.waiting_limit },
            pace: load.pace.max(LEAST_PACE),
        };
        let arrival = self.returns().arrive(self.epoch.elapsed(), lane, key, &view);
        let shed = match (arrival, shed) {
            (Arrival::Expected, _) => {
                entry.is_patient = true;
                return Ok(entry);
            }
            (_, Some(shed)) => shed,
            (Arrival::Newcomer, None) => return Ok(entry),
            (Arrival::Crowded, None) => Shed::Crowded,
        };
        let earliest = match shed {
            Shed::Crowded => Duration::ZERO,
            Shed::Free => self.seen().ladder.leaves_within(motet_fleet::Rung::ShedFree),
            Shed::Background => self.seen().ladder.leaves_within(motet_fleet::Rung::PauseBackground),
        };
        Err((shed, self.book(lane, key, comer.tries, Terms { earliest, pace: view.pace })))
    }

    /// When one who is refused may come back, from now.
    fn book(&self, lane: usize, key: u64, tries: Tries, terms: Terms) -> Duration {
        let now = self.epoch.elapsed();
        let mut returns = self.returns();
        let kept = match tries {
            Tries::Again => returns.remaining(now, lane, key),
            Tries::First => None,
        };
        kept.unwrap_or_else(|| returns.refuse(now, lane, key, terms))
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn returns(&self) -> MutexGuard<'_, Returns> {
        self.returns.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shed {
    /// Its label in metrics; the rungs' names where it is a rung's.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::Crowded => "crowded",
            Self::Free => motet_fleet::Rung::ShedFree.name(),
            Self::Background => motet_fleet::Rung::PauseBackground.name(),
        }
    }
}
