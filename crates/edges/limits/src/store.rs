use std::time::Duration;

use futures_core::future::BoxFuture;
use motet_quota::{
    Actual, Caps, Millis, Policy, Refusal, Request, Reservation, ReservationId, Scope, Settlement, Status,
};

/// What a reservation is found by: its name, and whose balances hold it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ticket {
    /// Its name.
    pub id: ReservationId,
    /// Whose balances it is charged to.
    pub scope: Scope,
    /// The limits on them when it was made.
    pub caps: Caps,
}

impl Ticket {
    /// For a request that is reserved, or is going to be, under this name.
    pub fn new(id: ReservationId, request: &Request) -> Self {
        Self { id, scope: request.scope.clone(), caps: request.policy.caps() }
    }
}

/// The store does not answer, or not in words that can be understood. Whether requests run without a quota
/// meanwhile is the caller's decision.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("quotas cannot be checked now: {reason}")]
pub struct Unavailable {
    /// What went wrong.
    pub reason: String,
}

impl Unavailable {
    pub(crate) fn new(reason: impl ToString) -> Self {
        Self { reason: reason.to_string() }
    }
}

/// Nothing was reserved.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuotaError {
    /// A limit is reached.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The store does not answer.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// This process holds as many reservations as it may.
    #[error("too many requests are under way here; try again when some have ended")]
    Full,
}

/// Where balances are kept. All of them give the same answers to the same questions at the same times.
pub trait QuotaStore: Send + Sync {
    /// Charges a request to all balances that limit it, or to none.
    ///
    /// After [`Unavailable`] it may have been charged or not; reserving again under the same name charges once.
    fn reserve<'a>(
        &'a self,
        id: ReservationId,
        request: &'a Request,
    ) -> BoxFuture<'a, Result<Reservation, QuotaError>>;

    /// Lets a reservation live for another hold from now and says until when. `None`: it has ended.
    fn renew<'a>(&'a self, ticket: &'a Ticket) -> BoxFuture<'a, Result<Option<Millis>, Unavailable>>;

    /// Ends a reservation with what was used. A second time it does nothing.
    fn settle<'a>(
        &'a self,
        ticket: &'a Ticket,
        actual: Actual,
    ) -> BoxFuture<'a, Result<Settlement, Unavailable>>;

    /// How the limits on a scope stand.
    fn status<'a>(
        &'a self,
        scope: &'a Scope,
        policy: &'a Policy,
    ) -> BoxFuture<'a, Result<Status, Unavailable>>;

    /// How long a reservation lives without being renewed.
    fn hold(&self) -> Duration;
}
