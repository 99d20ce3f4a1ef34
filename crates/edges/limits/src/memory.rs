use std::future::ready;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_core::future::BoxFuture;
use motet_quota::{
    Actual, Millis, Policy, Quota, Request, Reservation, ReservationId, Scope, Settlement, Status,
};

use crate::{Clock, QuotaError, QuotaStore, Ticket, Unavailable, system_clock};

/// Balances in this process: for one gateway. They are full again when it restarts.
///
/// One lock, held for the microsecond that an operation takes and never across an await. Time is read under it, so that
/// operations happen in the order of their times.
pub struct MemoryQuota {
    quota: Mutex<Quota>,
    clock: Clock,
    hold: Duration,
}

impl MemoryQuota {
    /// How long a reservation lives without being renewed, unless configured otherwise.
    pub const HOLD: Duration = Quota::HOLD;

    /// With full balances. `hold`: how long a reservation lives without being renewed.
    pub fn new(hold: Duration) -> Self {
        Self::with_clock(hold, system_clock())
    }

    /// With the time told by `clock`.
    pub fn with_clock(hold: Duration, clock: Clock) -> Self {
        Self { quota: Mutex::new(Quota::new(hold)), clock, hold }
    }

    fn run<T>(&self, operation: impl FnOnce(&mut Quota, Millis) -> T) -> T {
        // Operations do not panic; if one did, the others' balances are as they were.
        let mut quota: MutexGuard<'_, Quota> = self.quota.lock().unwrap_or_else(PoisonError::into_inner);
        let now = (self.clock)();
        operation(&mut quota, now)
    }
}

impl QuotaStore for MemoryQuota {
    fn reserve<'a>(
        &'a self,
        id: ReservationId,
        request: &'a Request,
    ) -> BoxFuture<'a, Result<Reservation, QuotaError>> {
        let reserved = self.run(|quota, now| quota.reserve(now, id, request));
        Box::pin(ready(reserved.map_err(QuotaError::from)))
    }

    fn renew<'a>(&'a self, ticket: &'a Ticket) -> BoxFuture<'a, Result<Option<Millis>, Unavailable>> {
        Box::pin(ready(Ok(self.run(|quota, now| quota.renew(now, ticket.id)))))
    }

    fn settle<'a>(
        &'a self,
        ticket: &'a Ticket,
        actual: Actual,
    ) -> BoxFuture<'a, Result<Settlement, Unavailable>> {
        Box::pin(ready(Ok(self.run(|quota, now| quota.settle(now, ticket.id, actual)))))
    }

    fn status<'a>(
        &'a self,
        scope: &'a Scope,
        policy: &'a Policy,
    ) -> BoxFuture<'a, Result<Status, Unavailable>> {
        Box::pin(ready(Ok(self.run(|quota, now| quota.status(now, scope, policy)))))
    }

    fn hold(&self) -> Duration {
        self.hold
    }
}
