/// What one limit counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Requests per minute.
    Requests,
    /// Tokens per minute.
    Tokens,
    /// Tokens per day, in UTC.
    DayTokens,
    /// Replies at the same time.
    Concurrent,
    /// Money per calendar month, in UTC: millionths of the currency.
    Budget,
}

impl Kind {
    /// In the order of their numbers.
    pub const ALL: [Self; 5] =
        [Self::Requests, Self::Tokens, Self::DayTokens, Self::Concurrent, Self::Budget];

    /// What a balance counts for one of it: a balance that refills by the millisecond counts in parts.
    pub const fn unit(self) -> u64 {
        match self {
            Self::Requests | Self::Tokens => crate::meter::MINUTE,
            Self::DayTokens | Self::Concurrent | Self::Budget => 1,
        }
    }

    /// Greater limits count as this one: sums of balances stay far below 2^53.
    pub(crate) const fn most(self) -> u64 {
        match self {
            Self::Requests | Self::Tokens => 10_000_000_000,
            Self::DayTokens | Self::Budget => 1_000_000_000_000_000,
            Self::Concurrent => Policy::MAX_CONCURRENT,
        }
    }
}

/// Whose limit it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Level {
    /// All of an organisation together.
    Tenant,
    /// One account, whatever the model.
    User,
    /// One account's use of one model.
    Model,
}

impl Level {
    /// In the order of their numbers.
    pub const ALL: [Self; 3] = [Self::Tenant, Self::User, Self::Model];
}

/// What a tier allows. `None` is no limit; 0 allows nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Requests per minute, and at once.
    pub requests_per_minute: Option<u64>,
    /// Tokens per minute, and at once: prompt and output.
    pub tokens_per_minute: Option<u64>,
    /// Tokens per day in UTC.
    pub tokens_per_day: Option<u64>,
    /// Replies at the same time.
    pub concurrent: Option<u64>,
    /// Money per calendar month in UTC: millionths of the currency.
    pub budget_per_month: Option<u64>,
}

impl Limits {
    /// The limit on one kind.
    pub fn of(&self, kind: Kind) -> Option<u64> {
        match kind {
            Kind::Requests => self.requests_per_minute,
            Kind::Tokens => self.tokens_per_minute,
            Kind::DayTokens => self.tokens_per_day,
            Kind::Concurrent => self.concurrent,
            Kind::Budget => self.budget_per_month,
        }
    }
}

/// The limits that hold for a request, by level.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Policy {
    /// Of the organisation.
    pub tenant: Limits,
    /// Of the account.
    pub user: Limits,
    /// Of the account's use of the model.
    pub model: Limits,
}

impl Policy {
    /// Most concurrent replies of an organisation, whether it has a limit or not: bounds the reservations
    /// that are kept, at some hundred bytes each.
    pub const MAX_CONCURRENT: u64 = 65_536;

    /// The limits as they are enforced.
    pub fn caps(&self) -> Caps {
        let levels = [self.tenant, self.user, self.model];
        let mut caps = levels.map(|limits| Kind::ALL.map(|kind| limits.of(kind).map(|l| l.min(kind.most()))));
        let concurrent = &mut caps[Level::Tenant as usize][Kind::Concurrent as usize];
        *concurrent = Some(concurrent.unwrap_or(Self::MAX_CONCURRENT));
        Caps(caps)
    }
}

/// A policy's limits as they are enforced: by level and kind, clamped to what balances can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caps([[Option<u64>; 5]; 3]);

impl Caps {
    /// The limit on one kind at one level.
    pub fn get(&self, level: Level, kind: Kind) -> Option<u64> {
        self.0[level as usize][kind as usize]
    }

    /// Every limit there is.
    pub fn all(&self) -> impl Iterator<Item = (Level, Kind, u64)> + '_ {
        Level::ALL.into_iter().flat_map(move |level| {
            Kind::ALL.into_iter().filter_map(move |kind| Some((level, kind, self.get(level, kind)?)))
        })
    }
}
