//! The balances of one level, and their arithmetic.

use std::collections::BTreeSet;

use crate::{Balance, Caps, Kind, Level, Millis, Need, ReservationId, calendar};

pub(crate) const MINUTE: u64 = 60_000;
/// Most that a balance holds. With the greatest charge on top it is still below 2^53.
pub(crate) const MOST_USED: u64 = 1 << 52;

/// What was used of a limit per minute and has not come back: 0 is a full bucket.
///
/// Kept as what is used, not as what is left, so that a change of the limit needs no conversion and a bucket
/// that is full again needs no memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Bucket {
    /// In parts of [`Kind::unit`].
    used: u64,
    /// The limit per minute at the last change: so many parts come back each millisecond.
    rate: u64,
    at: Millis,
}

impl Bucket {
    pub(crate) fn used(&self, now: Millis) -> u64 {
        self.used.saturating_sub(self.rate.saturating_mul(now.saturating_sub(self.at)))
    }

    /// A limit of 0 refills as 1 does, so that every bucket is full again some day.
    fn change(&mut self, now: Millis, rate: u64, change: Change) {
        *self = Self { used: change.apply(self.used(now)), rate: rate.max(1), at: now };
    }
}

/// What was used in one calendar period.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Window {
    period: u64,
    used: u64,
}

impl Window {
    pub(crate) fn used(&self, period: u64) -> u64 {
        if self.period == period { self.used } else { 0 }
    }

    /// `charged`: the period that it belongs to; once that is over it changes nothing.
    fn change(&mut self, period: u64, charged: u64, change: Change) {
        if charged == period {
            *self = Self { period, used: change.apply(self.used(period)) };
        }
    }
}

/// By how much a balance changes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Change {
    Charge(u64),
    Refund(u64),
}

impl Change {
    /// What turns a charge of `reserved` into one of `actual`.
    pub(crate) fn between(reserved: u64, actual: u64) -> Self {
        if actual >= reserved { Self::Charge(actual - reserved) } else { Self::Refund(reserved - actual) }
    }

    fn apply(self, used: u64) -> u64 {
        match self {
            Self::Charge(amount) => (used + amount).min(MOST_USED),
            Self::Refund(amount) => used.saturating_sub(amount),
        }
    }

    fn scaled(self, unit: u64) -> Self {
        match self {
            Self::Charge(amount) => Self::Charge(amount * unit),
            Self::Refund(amount) => Self::Refund(amount * unit),
        }
    }
}

/// The balances of one level of one scope. The default is that of someone who used nothing.
#[derive(Debug, Clone, Default)]
pub(crate) struct Meter {
    pub(crate) requests: Bucket,
    pub(crate) tokens: Bucket,
    pub(crate) day: Window,
    pub(crate) month: Window,
    /// Reservations that are alive, where their number is limited, by when they expire.
    pub(crate) live: BTreeSet<(Millis, ReservationId)>,
}

/// A change of a meter's balances, and the limits of those that it is charged to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) now: Millis,
    /// When it was reserved.
    pub(crate) charged_at: Millis,
    pub(crate) requests: Change,
    pub(crate) tokens: Change,
    pub(crate) cost: Change,
}

impl Entry {
    pub(crate) fn charge(now: Millis, need: Need) -> Self {
        Self {
            now,
            charged_at: now,
            requests: Change::Charge(1),
            tokens: Change::Charge(need.tokens),
            cost: Change::Charge(need.cost),
        }
    }
}

impl Meter {
    pub(crate) fn book(&mut self, caps: &Caps, level: Level, entry: &Entry) {
        let Entry { now, charged_at, requests, tokens, cost } = *entry;
        if let Some(rate) = caps.get(level, Kind::Requests) {
            self.requests.change(now, rate, requests.scaled(Kind::Requests.unit()));
        }
        if let Some(rate) = caps.get(level, Kind::Tokens) {
            self.tokens.change(now, rate, tokens.scaled(Kind::Tokens.unit()));
        }
        if caps.get(level, Kind::DayTokens).is_some() {
            self.day.change(calendar::day(now), calendar::day(charged_at), tokens);
        }
        if caps.get(level, Kind::Budget).is_some() {
            self.month.change(calendar::month(now), calendar::month(charged_at), cost);
        }
    }

    /// Kinds without a limit count 0.
    pub(crate) fn balance(&self, caps: &Caps, level: Level, now: Millis) -> Balance {
        let of = |kind, used: u64| if caps.get(level, kind).is_some() { used } else { 0 };
        let live = self.live.len() as u64;
        let frees_at = caps.get(level, Kind::Concurrent).and_then(|limit| {
            let behind = live.checked_sub(limit.max(1))?;
            self.live.iter().nth(behind as usize).filter(|_| limit > 0)
        });
        Balance {
            used: [
                of(Kind::Requests, self.requests.used(now)),
                of(Kind::Tokens, self.tokens.used(now)),
                of(Kind::DayTokens, self.day.used(calendar::day(now))),
                of(Kind::Concurrent, live),
                of(Kind::Budget, self.month.used(calendar::month(now))),
            ],
            rates: [of(Kind::Requests, self.requests.rate), of(Kind::Tokens, self.tokens.rate)],
            frees_at: frees_at.map_or(0, |(at, _)| *at),
        }
    }

    /// Whether a new meter would be the same.
    pub(crate) fn is_idle(&self, now: Millis) -> bool {
        self.live.is_empty()
            && self.requests.used(now) == 0
            && self.tokens.used(now) == 0
            && self.day.used(calendar::day(now)) == 0
            && self.month.used(calendar::month(now)) == 0
    }
}
