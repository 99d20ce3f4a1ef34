use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use motet_quota::ReservationId;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::{QuotaStore, Ticket};

/// Renewals asked for at the same time: bounds the commands under way to the store.
const BATCH: usize = 64;

/// The reservations that a process holds, and since when each lives on.
#[derive(Debug, Default)]
pub(crate) struct Alive(Mutex<HashMap<ReservationId, (Ticket, Instant)>>);

impl Alive {
    pub(crate) fn add(&self, ticket: &Ticket, since: Instant) {
        self.lock().insert(ticket.id, (ticket.clone(), since));
    }

    /// Takes one out: since when it lived on last.
    pub(crate) fn remove(&self, id: ReservationId) -> Option<Instant> {
        self.lock().remove(&id).map(|(_, since)| since)
    }

    /// Those that were not renewed for so long.
    fn due(&self, age: Duration) -> Vec<Ticket> {
        let now = Instant::now();
        let lock = self.lock();
        let due = lock.values().filter(|(_, since)| now - *since >= age);
        due.map(|(ticket, _)| ticket.clone()).collect()
    }

    fn renewed(&self, id: ReservationId, at: Instant) {
        if let Some((_, since)) = self.lock().get_mut(&id) {
            *since = at;
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ReservationId, (Ticket, Instant)>> {
        // Nothing panics while it is locked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Renews what is held when half of its time is over, until nobody holds anything.
pub(crate) async fn renew_all(store: Arc<dyn QuotaStore>, alive: Weak<Alive>) {
    let hold = store.hold().max(Duration::from_millis(8));
    let mut ticks = interval(hold / 8);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(alive) = alive.upgrade() else { return };
        for batch in alive.due(hold / 2).chunks(BATCH) {
            join_all(batch.iter().map(|ticket| renew(&*store, &alive, ticket))).await;
        }
    }
}

/// One that the store does not answer for is tried again at the next tick.
async fn renew(store: &dyn QuotaStore, alive: &Alive, ticket: &Ticket) {
    let asked = Instant::now();
    match store.renew(ticket).await {
        Ok(Some(_)) => alive.renewed(ticket.id, asked),
        // Or settled just now, and then it is not held any more.
        Ok(None) => {
            if alive.remove(ticket.id).is_some() {
                tracing::warn!(id = %ticket.id, "a reservation has expired under a reply; it stays charged in full");
            }
        }
        Err(error) => tracing::debug!(id = %ticket.id, %error, "a reservation could not be renewed yet"),
    }
}
