use std::sync::Arc;

use crate::{Kind, Millis, Policy, Status};

/// Who asks for what. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Scope {
    /// The organisation.
    pub tenant: Arc<str>,
    /// The account inside it.
    pub user: Arc<str>,
    /// The model.
    pub model: Arc<str>,
}

impl Scope {
    /// From their names.
    pub fn new(tenant: &str, user: &str, model: &str) -> Self {
        Self { tenant: tenant.into(), user: user.into(), model: model.into() }
    }
}

/// Names a reservation: unique as long as it lives. Reserving twice under one name charges once, so a caller
/// that got no answer may ask again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReservationId(pub u128);

impl std::fmt::Display for ReservationId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// What is to be reserved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Whose balances it is charged to.
    pub scope: Scope,
    /// The limits on them.
    pub policy: Policy,
    /// Tokens of the prompt.
    pub prompt: u64,
    /// Most tokens of all replies together.
    pub output: u64,
    /// Tokens in all, where the caller knows better than `prompt + output`; 0 where not.
    pub estimate: u64,
    /// Most that it costs: millionths of the currency.
    pub cost: u64,
}

impl Request {
    /// What it is charged with.
    pub fn need(&self) -> Need {
        Need::new(self.prompt.saturating_add(self.output).max(self.estimate), self.cost)
    }
}

/// What is charged for one request, clamped to what balances can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need {
    pub(crate) tokens: u64,
    pub(crate) cost: u64,
}

impl Need {
    /// Clamps both.
    pub fn new(tokens: u64, cost: u64) -> Self {
        Self { tokens: tokens.min(Kind::Tokens.most()), cost: cost.min(Kind::Budget.most()) }
    }

    /// Prompt and output.
    pub fn tokens(&self) -> u64 {
        self.tokens
    }

    /// Millionths of the currency.
    pub fn cost(&self) -> u64 {
        self.cost
    }

    /// How many of a kind.
    pub fn of(&self, kind: Kind) -> u64 {
        match kind {
            Kind::Requests | Kind::Concurrent => 1,
            Kind::Tokens | Kind::DayTokens => self.tokens,
            Kind::Budget => self.cost,
        }
    }
}

/// What was reserved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    /// Its name.
    pub id: ReservationId,
    /// When it ends unless it is renewed or settled before.
    pub expires_at: Millis,
    /// The balances after it.
    pub status: Status,
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Actual {
    /// It ran, whole or in part, and used this.
    Used {
        /// Prompt and output.
        tokens: u64,
        /// Millionths of the currency.
        cost: u64,
    },
    /// It never began (refused further in, for instance): the request itself is given back, too.
    NeverRan,
}

impl Actual {
    /// What is charged for it.
    pub fn need(&self) -> Need {
        match *self {
            Self::Used { tokens, cost } => Need::new(tokens, cost),
            Self::NeverRan => Need::new(0, 0),
        }
    }
}

/// What settling did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settlement {
    /// The reservation has ended, and the balances hold what was used.
    Settled,
    /// Nothing: it was settled before, has expired (its tokens stay charged), or never was.
    Unknown,
}
