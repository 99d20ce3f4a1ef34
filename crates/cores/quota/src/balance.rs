use std::time::Duration;

use crate::{Caps, Kind, Level, Millis, calendar};

/// What is used at one level, at one time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Balance {
    /// By number of [`Kind`], in its [`unit`](Kind::unit)s; 0 where there is no limit.
    pub used: [u64; 5],
    /// How many parts of requests, of tokens, come back each millisecond: the limit per minute at the last change, which
    /// may be another than that of today. 0 where nothing was used.
    pub rates: [u64; 2],
    /// Where no more replies may run at once: when enough reservations will have expired for one more. Otherwise 0.
    pub frees_at: Millis,
}

/// What is used at all levels, at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Balances {
    /// At which time.
    pub now: Millis,
    /// By number of [`Level`].
    pub levels: [Balance; 3],
}

impl Balances {
    /// What is used, in the kind's units.
    pub(crate) fn used(&self, level: Level, kind: Kind) -> u64 {
        self.levels[level as usize].used[kind as usize]
    }

    /// How many parts of a bucket come back each millisecond.
    pub(crate) fn rate(&self, level: Level, kind: Kind) -> u64 {
        self.levels[level as usize].rates.get(kind as usize).map_or(1, |rate| (*rate).max(1))
    }

    /// How many more a limit allows now.
    pub(crate) fn remaining(&self, level: Level, kind: Kind, limit: u64) -> u64 {
        (limit * kind.unit()).saturating_sub(self.used(level, kind)) / kind.unit()
    }

    /// From now until the window that a kind is counted in ends. 0 for kinds without windows.
    pub(crate) fn window_left(&self, kind: Kind) -> u64 {
        match kind {
            Kind::DayTokens => (calendar::day(self.now) + 1) * calendar::DAY - self.now,
            Kind::Budget => calendar::month_end(calendar::month(self.now)) - self.now,
            Kind::Requests | Kind::Tokens | Kind::Concurrent => 0,
        }
    }
}

/// How one limit stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gauge {
    /// Whose it is.
    pub level: Level,
    /// What it counts.
    pub kind: Kind,
    /// Most there is.
    pub limit: u64,
    /// What is left of it: requests, tokens, replies or millionths of the currency.
    pub remaining: u64,
    /// When all of it is there again if nobody takes any; for concurrent replies: when there is room for one
    /// more at the latest.
    pub reset_after: Duration,
}

/// How all limits on a scope stand.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Status {
    /// Every limit there is, by level, then by kind.
    pub gauges: Vec<Gauge>,
}

impl Status {
    /// The limit on requests that allows the fewest more: `x-ratelimit-*-requests`.
    pub fn requests(&self) -> Option<&Gauge> {
        self.tightest(|kind| kind == Kind::Requests)
    }

    /// The limit on tokens that allows the fewest more, per minute or per day: `x-ratelimit-*-tokens`.
    pub fn tokens(&self) -> Option<&Gauge> {
        self.tightest(|kind| matches!(kind, Kind::Tokens | Kind::DayTokens))
    }

    /// Of the limits on such kinds the one that allows the fewest more.
    fn tightest(&self, is_meant: impl Fn(Kind) -> bool) -> Option<&Gauge> {
        self.gauges.iter().filter(|gauge| is_meant(gauge.kind)).min_by_key(|gauge| gauge.remaining)
    }
}

/// How limits stand with these balances.
pub fn status(caps: &Caps, balances: &Balances) -> Status {
    let gauge = |(level, kind, limit): (Level, Kind, u64)| {
        let reset = match kind {
            Kind::Requests | Kind::Tokens => balances.used(level, kind).div_ceil(balances.rate(level, kind)),
            Kind::DayTokens | Kind::Budget if balances.used(level, kind) == 0 => 0,
            Kind::DayTokens | Kind::Budget => balances.window_left(kind),
            Kind::Concurrent => balances.levels[level as usize].frees_at.saturating_sub(balances.now),
        };
        let remaining = balances.remaining(level, kind, limit);
        Gauge { level, kind, limit, remaining, reset_after: Duration::from_millis(reset) }
    };
    Status { gauges: caps.all().map(gauge).collect() }
}
