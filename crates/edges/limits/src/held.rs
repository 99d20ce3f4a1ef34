use std::sync::Arc;

use motet_quota::{Actual, Reservation, Settlement};
use tokio::sync::mpsc::OwnedPermit;
use tokio::time::Instant;

use crate::alive::Alive;
use crate::{QuotaStore, Ticket, Unavailable};

/// How a reservation ends that nobody settled.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) ticket: Ticket,
    pub(crate) actual: Actual,
    /// From then on it has expired, and settling changes nothing.
    pub(crate) until: Instant,
}

/// A reservation that lives as long as this does. [`settle`](Self::settle) says what was used; dropped without, it
/// settles with what was [reported](Self::report) so far. So no end of a request forgets it: neither a cancel nor a panic.
pub struct Held {
    ticket: Ticket,
    actual: Actual,
    reservation: Reservation,
    last: LastWord,
}

/// A reservation's place in the queue of ends, taken before it was made: a drop cannot find the queue full.
pub(crate) struct LastWord {
    pub(crate) store: Arc<dyn QuotaStore>,
    /// Where it is renewed from.
    pub(crate) alive: Arc<Alive>,
    /// `None`: it has ended.
    pub(crate) permit: Option<OwnedPermit<End>>,
}

/// A reservation of which it is not known yet whether it is made. Dropped, it gives back everything.
pub(crate) struct Pending {
    ticket: Ticket,
    since: Instant,
    last: LastWord,
}

impl Pending {
    pub(crate) fn new(ticket: Ticket, last: LastWord) -> Self {
        Self { ticket, since: Instant::now(), last }
    }

    /// It was made.
    pub(crate) fn made(mut self, reservation: Reservation) -> Held {
        let LastWord { store, alive, permit } = &mut self.last;
        alive.add(&self.ticket, self.since);
        let last = LastWord { store: Arc::clone(store), alive: Arc::clone(alive), permit: permit.take() };
        let actual = Actual::Used { tokens: 0, cost: 0 };
        Held { ticket: self.ticket.clone(), actual, reservation, last }
    }

    /// It was not made: there is nothing to give back.
    pub(crate) fn refused(mut self) {
        self.last.permit = None;
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.last.end(&self.ticket, Actual::NeverRan, self.since);
    }
}

impl LastWord {
    /// `since`: when it was last known to live on; what is known of later renewals counts before that.
    fn end(&mut self, ticket: &Ticket, actual: Actual, since: Instant) {
        if let Some(permit) = self.permit.take() {
            let since = self.alive.remove(ticket.id).unwrap_or(since);
            permit.send(End { ticket: ticket.clone(), actual, until: since + self.store.hold() });
        }
    }
}

impl Held {
    /// What was reserved, and how the limits stood after it.
    pub fn reservation(&self) -> &Reservation {
        &self.reservation
    }

    /// What was used until now, in all: tokens of prompt and output, and millionths of the currency.
    pub fn report(&mut self, tokens: u64, cost: u64) {
        self.actual = Actual::Used { tokens, cost };
    }

    /// Gives everything back, the request itself, too: it was refused further in, and nothing ran.
    pub fn give_back(mut self) {
        self.actual = Actual::NeverRan;
    }

    /// Ends the reservation with what was used. If the store does not answer it is tried again behind the
    /// caller's back until the reservation has expired.
    pub async fn settle(mut self, actual: Actual) -> Result<Settlement, Unavailable> {
        self.actual = actual;
        let settlement = self.last.store.settle(&self.ticket, actual).await?;
        self.last.alive.remove(self.ticket.id);
        self.last.permit = None;
        Ok(settlement)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // One that is not renewed any more has expired: one attempt, which changes nothing if so.
        self.last.end(&self.ticket, self.actual, Instant::now());
    }
}
