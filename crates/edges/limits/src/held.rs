use std::sync::Arc;
use std::time::Duration;

use motet_quota::{Actual, Reservation, Settlement};
use tokio::sync::mpsc::OwnedPermit;
use tokio::time::Instant;

use crate::{QuotaStore, Ticket, Unavailable};

/// How a reservation ends that nobody settled.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) ticket: Ticket,
    pub(crate) actual: Actual,
    /// From then on it has expired, and settling changes nothing.
    pub(crate) until: Instant,
}

/// A reservation that ends when this does. [`settle`](Self::settle) says what was used; dropped without, it
/// settles with what was [reported](Self::report) so far. So no end of a request forgets it: neither a cancel nor a panic.
pub struct Held {
    ticket: Ticket,
    actual: Actual,
    renewed: Instant,
    reservation: Reservation,
    last: LastWord,
}

/// A reservation's place in the queue of ends, taken before it was made: a drop cannot find the queue full.
pub(crate) struct LastWord {
    pub(crate) store: Arc<dyn QuotaStore>,
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
        let last = LastWord { store: Arc::clone(&self.last.store), permit: self.last.permit.take() };
        let actual = Actual::Used { tokens: 0, cost: 0 };
        Held { ticket: self.ticket.clone(), actual, renewed: self.since, reservation, last }
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
    fn end(&mut self, ticket: &Ticket, actual: Actual, renewed: Instant) {
        if let Some(permit) = self.permit.take() {
            permit.send(End { ticket: ticket.clone(), actual, until: renewed + self.store.hold() });
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

    /// Lets the reservation live on when half of its time is over; before, it costs a look at the clock, so
    /// whoever streams calls it with every event. False: it has expired, its place among the concurrent is
    /// gone and its tokens stay charged. Whether the reply goes on is the caller's decision.
    pub async fn renew_if_due(&mut self) -> Result<bool, Unavailable> {
        let now = Instant::now();
        if now - self.renewed < self.half() {
            return Ok(true);
        }
        let renewed = self.last.store.renew(&self.ticket).await?;
        if let Some(expires_at) = renewed {
            self.renewed = now;
            self.reservation.expires_at = expires_at;
        }
        Ok(renewed.is_some())
    }

    /// Ends the reservation with what was used. If the store does not answer it is tried again behind the
    /// caller's back until the reservation has expired.
    pub async fn settle(mut self, actual: Actual) -> Result<Settlement, Unavailable> {
        self.actual = actual;
        let settlement = self.last.store.settle(&self.ticket, actual).await?;
        self.last.permit = None;
        Ok(settlement)
    }

    fn half(&self) -> Duration {
        self.last.store.hold() / 2
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.last.end(&self.ticket, self.actual, self.renewed);
    }
}
