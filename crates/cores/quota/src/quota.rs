use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use crate::meter::{Change, Entry, Meter};
use crate::{
    Actual, Balances, Caps, Kind, Level, Millis, Need, Policy, Refusal, Request, Reservation, ReservationId,
    Scope, Settlement, Status, refusal, status,
};

/// Below this many meters it is not worth looking for idle ones.
const SWEEP_FLOOR: usize = 64;

/// Balances and the reservations that are alive. See the crate's documentation for what it decides.
///
/// Times never go back: an earlier one counts as the latest that was given.
///
/// # Invariants ([`Quota::check`])
/// - A request passes all limits that hold for it or is charged to none.
/// - A reservation ends once: settled or expired, it is gone.
/// - `expiries` names every reservation once, and none that was due at the latest time.
/// - A meter's `live` are the reservations whose policy limits concurrency at its level.
/// - No balance is above its bound.
/// - Memory: at most twice the meters that are in use, and a constant. One is in use while it has a
///   reservation, a bucket that is not full, or a window with something used in it.
#[derive(Debug, Clone)]
pub struct Quota {
    hold: u64,
    pub(crate) now: Millis,
    pub(crate) meters: HashMap<MeterKey, Meter>,
    pub(crate) reservations: HashMap<ReservationId, Held>,
    pub(crate) expiries: BTreeSet<(Millis, ReservationId)>,
    sweep_at: usize,
}

/// What a meter counts: all of a tenant, a user in it, that user's use of a model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct MeterKey {
    tenant: Arc<str>,
    user: Option<Arc<str>>,
    model: Option<Arc<str>>,
}

impl MeterKey {
    pub(crate) fn new(scope: &Scope, level: Level) -> Self {
        Self {
            tenant: Arc::clone(&scope.tenant),
            user: (level >= Level::User).then(|| Arc::clone(&scope.user)),
            model: (level >= Level::Model).then(|| Arc::clone(&scope.model)),
        }
    }
}

/// A reservation that is alive.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    pub(crate) scope: Scope,
    /// As they were when it was charged.
    pub(crate) caps: Caps,
    need: Need,
    charged_at: Millis,
    pub(crate) expires_at: Millis,
}

/// How much is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Reservations that are alive.
    pub reservations: usize,
    /// Levels of scopes with balances.
    pub meters: usize,
}

impl Quota {
    /// How long a reservation lives without being renewed unless configured otherwise: longer than a gateway
    /// that is alive ever goes without renewing, short enough that a crash does not lock anyone out for long.
    pub const HOLD: Duration = Duration::from_secs(600);

    /// With full balances. `hold`: how long a reservation lives without being renewed.
    pub fn new(hold: Duration) -> Self {
        Self {
            hold: u64::try_from(hold.as_millis()).unwrap_or(u64::MAX),
            now: 0,
            meters: HashMap::new(),
            reservations: HashMap::new(),
            expiries: BTreeSet::new(),
            sweep_at: SWEEP_FLOOR,
        }
    }

    /// Charges a request to all balances that limit it, or to none.
    ///
    /// For a reservation of that name that is alive it charges nothing and returns it as it is.
    pub fn reserve(
        &mut self,
        now: Millis,
        id: ReservationId,
        request: &Request,
    ) -> Result<Reservation, Refusal> {
        let now = self.advance(now);
        let (scope, caps, need) = (&request.scope, request.policy.caps(), request.need());
        if let Some(held) = self.reservations.get(&id) {
            let expires_at = held.expires_at;
            return Ok(Reservation { id, expires_at, status: status(&caps, &self.balances(scope, &caps)) });
        }
        if let Some(refusal) = refusal(&caps, &self.balances(scope, &caps), need) {
            return Err(refusal);
        }
        let expires_at = now.saturating_add(self.hold);
        self.book(scope, &caps, &Entry::charge(now, need));
        for level in limited(&caps) {
            self.meter(scope, level).live.insert((expires_at, id));
        }
        self.expiries.insert((expires_at, id));
        let held = Held { scope: scope.clone(), caps, need, charged_at: now, expires_at };
        self.reservations.insert(id, held);
        self.sweep();
        Ok(Reservation { id, expires_at, status: status(&caps, &self.balances(scope, &caps)) })
    }

    /// Lets a reservation live for another hold from now and says until when. `None`: it has ended.
    pub fn renew(&mut self, now: Millis, id: ReservationId) -> Option<Millis> {
        let now = self.advance(now);
        let expires_at = now.saturating_add(self.hold);
        let held = self.reservations.get_mut(&id)?;
        let before = std::mem::replace(&mut held.expires_at, expires_at);
        let (scope, caps) = (held.scope.clone(), held.caps);
        for level in limited(&caps) {
            let live = &mut self.meter(&scope, level).live;
            live.remove(&(before, id));
            live.insert((expires_at, id));
        }
        self.expiries.remove(&(before, id));
        self.expiries.insert((expires_at, id));
        Some(expires_at)
    }

    /// Ends a reservation: gives back what was reserved and not used, or charges what was used beyond it.
    pub fn settle(&mut self, now: Millis, id: ReservationId, actual: Actual) -> Settlement {
        let now = self.advance(now);
        let Some(held) = self.end(id) else { return Settlement::Unknown };
        let used = actual.need();
        let entry = Entry {
            now,
            charged_at: held.charged_at,
            requests: if actual == Actual::NeverRan { Change::Refund(1) } else { Change::Charge(0) },
            tokens: Change::between(held.need.tokens, used.tokens),
            cost: Change::between(held.need.cost, used.cost),
        };
        self.book(&held.scope, &held.caps, &entry);
        self.sweep();
        Settlement::Settled
    }

    /// How the limits on a scope stand.
    pub fn status(&mut self, now: Millis, scope: &Scope, policy: &Policy) -> Status {
        self.advance(now);
        let caps = policy.caps();
        status(&caps, &self.balances(scope, &caps))
    }

    /// How much is kept.
    pub fn counts(&self) -> Counts {
        Counts { reservations: self.reservations.len(), meters: self.meters.len() }
    }

    /// Moves on to `now` and ends the reservations that are due.
    fn advance(&mut self, now: Millis) -> Millis {
        self.now = self.now.max(now);
        while let Some(&(due, id)) = self.expiries.first() {
            if due > self.now {
                break;
            }
            self.end(id);
        }
        self.now
    }

    /// Takes a reservation out, with its places among the concurrent; its tokens stay charged.
    fn end(&mut self, id: ReservationId) -> Option<Held> {
        let held = self.reservations.remove(&id)?;
        self.expiries.remove(&(held.expires_at, id));
        for level in limited(&held.caps) {
            self.meter(&held.scope, level).live.remove(&(held.expires_at, id));
        }
        Some(held)
    }

    fn book(&mut self, scope: &Scope, caps: &Caps, entry: &Entry) {
        for level in Level::ALL {
            if Kind::ALL.iter().any(|kind| caps.get(level, *kind).is_some()) {
                self.meter(scope, level).book(caps, level, entry);
            }
        }
    }

    fn meter(&mut self, scope: &Scope, level: Level) -> &mut Meter {
        self.meters.entry(MeterKey::new(scope, level)).or_default()
    }

    fn balances(&self, scope: &Scope, caps: &Caps) -> Balances {
        let levels = Level::ALL.map(|level| {
            let meter = self.meters.get(&MeterKey::new(scope, level));
            meter.map(|meter| meter.balance(caps, level, self.now)).unwrap_or_default()
        });
        Balances { now: self.now, levels }
    }

    /// Drops idle meters once there are twice as many as the last time left, so that its cost is constant per meter.
    fn sweep(&mut self) {
        if self.meters.len() >= self.sweep_at {
            let now = self.now;
            self.meters.retain(|_, meter| !meter.is_idle(now));
            self.sweep_at = SWEEP_FLOOR.max(2 * self.meters.len());
        }
    }
}

/// The levels at which concurrency is limited.
pub(crate) fn limited(caps: &Caps) -> impl Iterator<Item = Level> + use<> {
    let caps = *caps;
    Level::ALL.into_iter().filter(move |level| caps.get(*level, Kind::Concurrent).is_some())
}
