//! What is given up, and in which order, when there is too much to do.
//!
//! ```text
//!          pressure above `up` for `climb_after`: one rung up ─►
//!  Normal ─ PauseBackground ─ ShortenOutput ─ SmallerModel ─ QueueWithEta ─ ShedFree
//!          ◄─ pressure below `down` for `descend_after`: one rung down
//! ```
//!
//! The pressure is that of the paid lanes, whose promises the ladder is there to keep: what the worst of them would let a
//! newcomer wait, as a part of its promise, or how full its line is where that is more. KV memory that runs out shows in it,
//! since the wait is estimated from the places there are.

use std::time::Duration;

/// What a lane is worth when there is too much to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Its promise is kept at the cost of the others: no measure affects it.
    Paid,
    /// Gets shorter replies, and nothing worse.
    Ordinary,
    /// Is degraded step by step, and refused last of all.
    Free,
    /// Runs in what the others leave, and is paused first of all.
    Background,
}

/// The state of the ladder: each rung keeps the measures of those before it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rung {
    /// Nothing is given up.
    #[default]
    Normal,
    /// See [`Measures::pause_background`].
    PauseBackground,
    /// See [`Measures::shorten_output`].
    ShortenOutput,
    /// See [`Measures::smaller_model`].
    SmallerModel,
    /// See [`Measures::queue_with_eta`].
    QueueWithEta,
    /// See [`Measures::shed_free`].
    ShedFree,
}

/// What is given up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Measures {
    /// Background lanes take nothing, and start nothing of what they took.
    pub pause_background: bool,
    /// In ordinary and free lanes a request that does not say how long its reply may be gets a short one.
    pub shorten_output: bool,
    /// In free lanes a smaller model answers where there is one.
    pub smaller_model: bool,
    /// In free lanes a request waits in line, however long its promise is, and is told its place.
    pub queue_with_eta: bool,
    /// In free lanes nobody is taken but those who were told to come now.
    pub shed_free: bool,
}

/// When the ladder moves.
#[derive(Debug, Clone, PartialEq)]
pub struct LadderConfig {
    /// Pressure above which it climbs. Lanes refuse what would break their promise, so it hardly passes 1.
    pub up: f64,
    /// Pressure below which it descends; lowered to `up` where it is more.
    pub down: f64,
    /// How long the pressure has to stay above `up` for one rung.
    pub climb_after: Duration,
    /// How long it has to stay below `down` for one rung; raised to `climb_after` where it is less.
    pub descend_after: Duration,
    /// Time constant of the average that stands for the pressure.
    pub smoothing: Duration,
    /// What each lane is worth, in the order of the lanes.
    pub lanes: Vec<Standing>,
}

impl Default for LadderConfig {
    /// No lanes.
    fn default() -> Self {
        Self {
            up: 0.7,
            down: 0.3,
            climb_after: Duration::from_secs(2),
            descend_after: Duration::from_secs(10),
            smoothing: Duration::from_secs(1),
            lanes: Vec::new(),
        }
    }
}

/// What is seen of a lane.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LaneSignal {
    /// When its first tokens should come.
    pub promise: Option<Duration>,
    /// What is before a newcomer, in time.
    pub wait: Duration,
    /// Requests that wait.
    pub waiting: u32,
    /// Most that may.
    pub bound: u32,
}

/// What is seen of a backend.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Signals {
    /// By lane.
    pub lanes: Vec<LaneSignal>,
}

/// A step of the ladder.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Change {
    /// Where it was.
    pub from: Rung,
    /// Where it is: one above or one below.
    pub to: Rung,
    /// The smoothed pressure.
    pub pressure: f64,
}

/// Most pressure that counts: a moment of endless waits must not be felt for minutes.
const MOST_PRESSURE: f64 = 4.0;
/// Most time between two observations that counts as seen: what was not looked at is neither busy nor calm.
pub const LONGEST_GAP: Duration = Duration::from_secs(1);

/// Where the pressure is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Zone {
    Above,
    Between,
    Below,
}

/// The ladder of a backend.
///
/// # Invariants
/// - A change is by one rung. Between two changes at least `climb_after` of observed time passes before a climb, at least
///   `descend_after` before a descent, all of it on the same side of the thresholds.
/// - Time that goes back, stands still or jumps counts for nothing, or for [`LONGEST_GAP`] at most.
#[derive(Debug)]
pub struct Ladder {
    config: LadderConfig,
    rung: Rung,
    pressure: f64,
    zone: Zone,
    /// How long it has been in its zone, since the last change.
    held: Duration,
    seen: Option<Duration>,
}

impl Ladder {
    /// At the bottom.
    pub fn new(mut config: LadderConfig) -> Self {
        config.down = config.down.min(config.up);
        config.descend_after = config.descend_after.max(config.climb_after);
        Self {
            config,
            rung: Rung::Normal,
            pressure: 0.0,
            zone: Zone::Below,
            held: Duration::ZERO,
            seen: None,
        }
    }

    /// Takes note of what is seen at `now`, a time since any epoch, and moves by one rung at most.
    pub fn observe(&mut self, now: Duration, signals: &Signals) -> Option<Change> {
        let passed = self.seen.map_or(Duration::ZERO, |seen| now.saturating_sub(seen)).min(LONGEST_GAP);
        self.seen = Some(now);
        let (passed_seconds, smoothing) = (passed.as_secs_f64(), self.config.smoothing.as_secs_f64());
        if passed_seconds > 0.0 {
            let part = passed_seconds / (passed_seconds + smoothing);
            self.pressure += part * (self.pressure_of(signals) - self.pressure);
        }
        let zone = match self.pressure {
            pressure if pressure > self.config.up => Zone::Above,
            pressure if pressure < self.config.down => Zone::Below,
            _ => Zone::Between,
        };
        // The time before a crossing was on either side.
        self.held = if zone == self.zone { self.held.saturating_add(passed) } else { Duration::ZERO };
        self.zone = zone;
        let to = match zone {
            Zone::Above if self.held >= self.config.climb_after => self.rung.next(),
            Zone::Below if self.held >= self.config.descend_after => self.rung.previous(),
            _ => None,
        }?;
        self.held = Duration::ZERO;
        let from = std::mem::replace(&mut self.rung, to);
        Some(Change { from, to, pressure: self.pressure })
    }

    /// Where it stands.
    pub fn rung(&self) -> Rung {
        self.rung
    }

    /// What is given up.
    pub fn measures(&self) -> Measures {
        self.rung.measures()
    }

    /// The smoothed pressure: 1 is a wait as long as the promise.
    pub fn pressure(&self) -> f64 {
        self.pressure
    }

    /// How long it takes at least until `rung` is left, if there is calm from now on. It may be longer: pressure that is
    /// there has to go first.
    pub fn leaves_within(&self, rung: Rung) -> Duration {
        let steps = (self.rung as u32 + 1).saturating_sub(rung as u32);
        let calm = if self.zone == Zone::Below { self.held } else { Duration::ZERO };
        (self.config.descend_after * steps).saturating_sub(calm)
    }

    /// Of the worst paid lane; of all that are not for the background where none is paid. 0 without lanes.
    fn pressure_of(&self, signals: &Signals) -> f64 {
        let lanes = || self.config.lanes.iter().zip(&signals.lanes);
        let worst = |of: fn(Standing) -> bool| {
            let chosen = lanes().filter(|(standing, _)| of(**standing));
            chosen.map(|(_, signal)| signal.pressure()).reduce(f64::max)
        };
        let paid = worst(|standing| standing == Standing::Paid);
        paid.or_else(|| worst(|standing| standing != Standing::Background)).unwrap_or(0.0)
    }
}

impl LaneSignal {
    fn pressure(&self) -> f64 {
        let by_time = |promise: Duration| self.wait.as_secs_f64() / promise.as_secs_f64().max(1e-3);
        let by_length = f64::from(self.waiting) / f64::from(self.bound.max(1));
        self.promise.map_or(0.0, by_time).max(by_length).min(MOST_PRESSURE)
    }
}

impl Rung {
    /// All, from the bottom.
    pub const ALL: [Self; 6] = [
        Self::Normal,
        Self::PauseBackground,
        Self::ShortenOutput,
        Self::SmallerModel,
        Self::QueueWithEta,
        Self::ShedFree,
    ];

    fn next(self) -> Option<Self> {
        Self::ALL.get(self as usize + 1).copied()
    }

    fn previous(self) -> Option<Self> {
        Self::ALL.get((self as usize).checked_sub(1)?).copied()
    }

    /// Its name, as metrics and headers have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::PauseBackground => "pause-background",
            Self::ShortenOutput => "shorten-output",
            Self::SmallerModel => "smaller-model",
            Self::QueueWithEta => "queue-with-eta",
            Self::ShedFree => "shed-free",
        }
    }

    /// What is given up on it.
    pub fn measures(self) -> Measures {
        Measures {
            pause_background: self >= Self::PauseBackground,
            shorten_output: self >= Self::ShortenOutput,
            smaller_model: self >= Self::SmallerModel,
            queue_with_eta: self >= Self::QueueWithEta,
            shed_free: self >= Self::ShedFree,
        }
    }
}

impl Measures {
    /// Those that affect lanes of a standing.
    pub fn of(self, standing: Standing) -> Self {
        let is_free = standing == Standing::Free;
        Self {
            pause_background: self.pause_background && standing == Standing::Background,
            shorten_output: self.shorten_output && (is_free || standing == Standing::Ordinary),
            smaller_model: self.smaller_model && is_free,
            queue_with_eta: self.queue_with_eta && is_free,
            shed_free: self.shed_free && is_free,
        }
    }
}
