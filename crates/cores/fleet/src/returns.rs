//! When those who are refused may come back, such that they are taken then.
//!
//! All who are refused in one moment would come back in one moment, to be refused again; and whoever comes by chance would
//! take the place of one who waited as told. So a refusal books a place: a time at which the request comes back, later than
//! the one before it by as long as the lane needs for a request. Who comes at the time of its place is expected and taken;
//! a newcomer is taken where the lane's promise and line have room for it beside those who are expected.
//!
//! A request is known by a key that its sender makes of what is sent: a client that tries again sends the same bytes.
//! Clients that never come back are counted, and the more they are, the less room is kept.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

/// Bounds of the places.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ReturnsConfig {
    /// Longest wait that is told; who would have to wait longer is told this, without a place. An hour: nobody waits longer
    /// for a reply, and traffic of an hour ago says little.
    pub longest: Duration,
    /// How long a place is kept after its time. Clients round to whole seconds and networks are slow.
    pub lateness: Duration,
    /// How much earlier than told one may come: clocks differ.
    pub early: Duration,
    /// How far ahead places are kept free for those who are expected, in lanes that promise nothing.
    pub horizon: Duration,
    /// How much further apart than the pace places are, at least 1: the pace is an estimate, and times that are too close
    /// together fill the line. What is left is the newcomers'.
    pub margin: f64,
    /// Most places of a lane: bounds the memory, at some hundred bytes each.
    pub places: usize,
}

impl Default for ReturnsConfig {
    fn default() -> Self {
        Self {
            longest: Duration::from_secs(3600),
            lateness: Duration::from_secs(5),
            early: Duration::from_millis(250),
            horizon: Duration::from_secs(5),
            margin: 1.5,
            places: 1 << 14,
        }
    }
}

/// What a request that comes now would find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneView {
    /// When its first token would come.
    pub ttft: Duration,
    /// When it should, where that is a reason to refuse it.
    pub promise: Option<Duration>,
    /// Requests in the line.
    pub waiting: u32,
    /// Most there can be.
    pub bound: u32,
    /// Time that the lane needs for one more request.
    pub pace: Duration,
}

/// When one who is refused may come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// No sooner than this, from now.
    pub earliest: Duration,
    /// Time that the lane needs for one request.
    pub pace: Duration,
}

/// How a request stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// It was told to come now: its place is used up, and it is taken if there is any way.
    Expected,
    /// Nobody waits for it, and there is room beside those who are expected.
    Newcomer,
    /// The room there is belongs to those who are expected.
    Crowded,
}

/// Who is expected when, by lane.
///
/// # Invariants ([`Returns::check`])
/// - The places of a lane are at most as many as configured, and each is listed under its key.
/// - Nobody is told to wait for longer than configured, nor for no time at all.
/// - Two places of a lane are apart by the pace at the booking and the margin, as far as those who were expected came.
#[derive(Debug)]
pub struct Returns {
    config: ReturnsConfig,
    lanes: Vec<Lane>,
    /// Time never goes back here, whatever the caller's does.
    now: Duration,
    bookings: u64,
}

/// A place's time, and its number where times are equal.
type Slot = (Duration, u64);

#[derive(Debug)]
struct Lane {
    places: BTreeMap<Slot, u64>,
    by_key: HashMap<u64, BTreeSet<Slot>>,
    /// When the next place can be.
    next: Duration,
    /// Share of those expected who came: a moving average.
    come: f64,
}

/// Weight of the latest in the average of those who come.
const COME_STEP: f64 = 0.05;
/// Share of the expected for whom room is kept, however few came lately.
const LEAST_COME: f64 = 0.1;
/// The least that anybody waits: it takes this long to ask again.
const LEAST_WAIT: Duration = Duration::from_millis(100);

impl Returns {
    /// Nobody is expected.
    pub fn new(config: ReturnsConfig, lanes: usize) -> Self {
        let lane =
            || Lane { places: BTreeMap::new(), by_key: HashMap::new(), next: Duration::ZERO, come: 1.0 };
        Self { config, lanes: (0..lanes).map(|_| lane()).collect(), now: Duration::ZERO, bookings: 0 }
    }

    /// Whether anybody is expected in a lane: else every arrival is a newcomer, whatever its key.
    pub fn expects(&self, lane: usize) -> bool {
        self.lanes.get(lane).is_some_and(|lane| !lane.places.is_empty())
    }

    /// A request comes. One that is expected gives up its place.
    pub fn arrive(&mut self, now: Duration, lane: usize, key: u64, view: &LaneView) -> Arrival {
        let now = self.pass(now);
        let config = self.config;
        let Some(lane) = self.lanes.get_mut(lane) else { return Arrival::Newcomer };
        if let Some(slot) = lane.first_of(key).filter(|slot| slot.0 <= now.saturating_add(config.early)) {
            lane.remove(slot);
            lane.come += COME_STEP * (1.0 - lane.come);
            return Arrival::Expected;
        }
        let horizon = view.promise.unwrap_or(config.horizon);
        let expected =
            lane.places.range(..(now.saturating_add(horizon), u64::MAX)).count() as f64 * lane.come;
        let breaks_promise = view.promise.is_some_and(|promise| {
            view.ttft.as_secs_f64() + expected * view.pace.as_secs_f64() > promise.as_secs_f64()
        });
        let fills_line = f64::from(view.waiting) + expected >= f64::from(view.bound);
        match expected > 0.0 && (breaks_promise || fills_line) {
            true => Arrival::Crowded,
            false => Arrival::Newcomer,
        }
    }

    /// Books a place for a request that is refused, and says when that is, from now.
    pub fn refuse(
        &mut self,
        now: Duration,
        lane: usize,
        key: u64,
        Terms { earliest, pace }: Terms,
    ) -> Duration {
        let now = self.pass(now);
        let config = self.config;
        let longest = config.longest.max(LEAST_WAIT);
        let earliest = earliest.clamp(LEAST_WAIT, longest);
        let Some(lane) = self.lanes.get_mut(lane) else { return earliest };
        let time = lane.next.max(now + earliest);
        if time > now + longest || lane.places.len() >= config.places {
            return (time - now).min(longest);
        }
        self.bookings += 1;
        lane.insert((time, self.bookings), key);
        lane.next = time + pace.min(longest).mul_f64(config.margin * lane.come);
        time - now
    }

    /// When a request that tries again before its time may come, from now: it keeps the place it has.
    pub fn remaining(&mut self, now: Duration, lane: usize, key: u64) -> Option<Duration> {
        let now = self.pass(now);
        let (time, _) = self.lanes.get(lane)?.first_of(key)?;
        Some(time.saturating_sub(now).max(LEAST_WAIT))
    }

    /// Drops the places of those who did not come.
    fn pass(&mut self, now: Duration) -> Duration {
        self.now = self.now.max(now);
        for lane in &mut self.lanes {
            while let Some((&slot, _)) = lane.places.first_key_value()
                && slot.0.saturating_add(self.config.lateness) < self.now
            {
                lane.remove(slot);
                lane.come = (lane.come - COME_STEP * lane.come).max(LEAST_COME);
            }
        }
        self.now
    }

    /// The invariants, for tests.
    pub fn check(&self) -> Result<(), String> {
        for (index, lane) in self.lanes.iter().enumerate() {
            let listed: usize = lane.by_key.values().map(BTreeSet::len).sum();
            let is_listed =
                |(slot, key): (&Slot, &u64)| lane.by_key.get(key).is_some_and(|of| of.contains(slot));
            if lane.places.len() > self.config.places || listed != lane.places.len() {
                return Err(format!("lane {index} has {} places and lists {listed}", lane.places.len()));
            }
            if !lane.places.iter().all(is_listed) || !(LEAST_COME..=1.0).contains(&lane.come) {
                return Err(format!("lane {index} lost a key: {lane:?}"));
            }
        }
        Ok(())
    }
}

impl Lane {
    fn first_of(&self, key: u64) -> Option<Slot> {
        self.by_key.get(&key)?.first().copied()
    }

    fn insert(&mut self, slot: Slot, key: u64) {
        self.places.insert(slot, key);
        self.by_key.entry(key).or_default().insert(slot);
    }

    fn remove(&mut self, slot: Slot) {
        let Some(key) = self.places.remove(&slot) else { return };
        if let Some(slots) = self.by_key.get_mut(&key) {
            slots.remove(&slot);
            if slots.is_empty() {
                self.by_key.remove(&key);
            }
        }
    }
}
