use std::fmt;
use std::time::Duration;

use crate::{Balances, Caps, Kind, Level, Need, Status, status};

/// When to ask again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Retry {
    /// As soon as a reply ends; at the latest then, unless reservations are renewed.
    Within(Duration),
    /// Exactly then, if nobody else comes: not a millisecond before.
    After(Duration),
    /// Never: it is more than the limit can ever hold.
    Never,
}

impl Retry {
    /// From now. `None`: never.
    pub fn wait(&self) -> Option<Duration> {
        match *self {
            Self::Within(wait) | Self::After(wait) => Some(wait),
            Self::Never => None,
        }
    }
}

/// A request that was not taken, and the limit that keeps it away longest. Nothing was charged for it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", Words(self))]
pub struct Refusal {
    /// Whose limit it is.
    pub level: Level,
    /// What it counts.
    pub kind: Kind,
    /// Most there is.
    pub limit: u64,
    /// What is left of it.
    pub remaining: u64,
    /// What the request needs.
    pub needed: u64,
    /// When to ask again.
    pub retry: Retry,
    /// How all limits stand.
    pub status: Status,
}

/// Why a request does not pass, if it does not.
pub fn refusal(caps: &Caps, balances: &Balances, need: Need) -> Option<Refusal> {
    let blocked = |(level, kind, limit): (Level, Kind, u64)| {
        let needed = need.of(kind);
        let excess =
            (balances.used(level, kind) + needed * kind.unit()).checked_sub(limit * kind.unit() + 1)?;
        let retry = match kind {
            _ if needed > limit => Retry::Never,
            Kind::Requests | Kind::Tokens => {
                Retry::After(millis((excess + 1).div_ceil(balances.rate(level, kind))))
            }
            Kind::DayTokens | Kind::Budget => Retry::After(millis(balances.window_left(kind))),
            Kind::Concurrent => {
                Retry::Within(millis(balances.levels[level as usize].frees_at.saturating_sub(balances.now)))
            }
        };
        Some((level, kind, limit, needed, retry))
    };
    // Every balance only recovers while nobody comes: all pass when the last of them does.
    let longest = |(.., retry): &(Level, Kind, u64, u64, Retry)| match retry {
        Retry::Never => Duration::MAX,
        Retry::Within(wait) | Retry::After(wait) => *wait,
    };
    let (level, kind, limit, needed, retry) = caps.all().filter_map(blocked).max_by_key(longest)?;
    let remaining = balances.remaining(level, kind, limit);
    Some(Refusal { level, kind, limit, remaining, needed, retry, status: status(caps, balances) })
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

struct Words<'a>(&'a Refusal);

impl fmt::Display for Words<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refusal { level, kind, limit, remaining, needed, retry, .. } = self.0;
        let whose = match level {
            Level::Tenant => "the organisation",
            Level::User => "the account",
            Level::Model => "the account with this model",
        };
        let limit = Amount(*kind, *limit);
        let per = match kind {
            Kind::Requests | Kind::Tokens => " per minute",
            Kind::DayTokens => " per day (UTC)",
            Kind::Concurrent => " at the same time",
            Kind::Budget => " per month (UTC)",
        };
        let needed = Amount(*kind, *needed);
        match retry {
            Retry::Never if self.0.limit == 0 => write!(f, "{whose} may use {limit}{per}"),
            Retry::Never => write!(
                f,
                "the request needs up to {needed}, but {whose} may use {limit}{per}: shorten it or ask for less output"
            ),
            Retry::Within(wait) => write!(
                f,
                "{whose} may have {limit}{per}: try again when one has ended, in {} s at the latest",
                seconds(*wait)
            ),
            Retry::After(wait) => write!(
                f,
                "the request needs up to {needed}, and {} of the {limit}{per} of {whose} are left: try again in {} s",
                Amount(*kind, *remaining).number(),
                seconds(*wait)
            ),
        }
    }
}

struct Amount(Kind, u64);

impl Amount {
    /// Without its unit. Money has no more places than it needs, and at least two.
    fn number(&self) -> String {
        let Self(kind, amount) = *self;
        if kind != Kind::Budget {
            return amount.to_string();
        }
        let mut text = format!("{}.{:06}", amount / 1_000_000, amount % 1_000_000);
        let places = text.trim_end_matches('0').len().max(text.len() - 4);
        text.truncate(places);
        text
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match (self.0, self.1) {
            (Kind::Requests, 1) => "request",
            (Kind::Requests, _) => "requests",
            (Kind::Tokens | Kind::DayTokens, 1) => "token",
            (Kind::Tokens | Kind::DayTokens, _) => "tokens",
            (Kind::Concurrent, 1) => "reply",
            (Kind::Concurrent, _) => "replies",
            (Kind::Budget, _) => "of budget",
        };
        write!(f, "{} {unit}", self.number())
    }
}

fn seconds(wait: Duration) -> u64 {
    wait.as_millis().div_ceil(1000) as u64
}
