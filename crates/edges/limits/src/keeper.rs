use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use motet_quota::{Request, ReservationId};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::alive::{Alive, renew_all};
use crate::held::{End, LastWord, Pending};
use crate::{Held, QuotaError, QuotaStore, Ticket, Unavailable};

/// Most reservations that one process holds: bounds the queue of ends, in which each has a place. More
/// replies than a gateway has sockets for.
const MAX_HELD: usize = 65_536;
/// Ends settled at the same time: bounds the commands under way to the store.
const BATCH: usize = 64;
/// Between two attempts to settle.
const PAUSE: Duration = Duration::from_secs(1);

/// Reserves, renews what is held, and ends what was reserved and not settled: it owns the tasks that do.
///
/// Both end by themselves once this keeper and everything that it holds are gone.
pub struct Keeper {
    store: Arc<dyn QuotaStore>,
    ends: mpsc::Sender<End>,
    alive: Arc<Alive>,
    /// Settles.
    task: JoinHandle<()>,
}

impl Keeper {
    /// Needs a runtime around it.
    pub fn new(store: Arc<dyn QuotaStore>) -> Self {
        let (ends, queue) = mpsc::channel(MAX_HELD);
        let task = tokio::spawn(settle_all(Arc::clone(&store), queue));
        let alive = Arc::<Alive>::default();
        tokio::spawn(renew_all(Arc::clone(&store), Arc::downgrade(&alive)));
        Self { store, ends, alive, task }
    }

    /// Where the balances are.
    pub fn store(&self) -> &dyn QuotaStore {
        &*self.store
    }

    /// Reserves. If this is dropped before its end, or the answer is lost, what may have been reserved is given back.
    pub async fn hold(&self, request: &Request) -> Result<Held, QuotaError> {
        let permit = self.ends.clone().try_reserve_owned().map_err(|_| QuotaError::Full)?;
        let id = new_id()?;
        let (store, alive) = (Arc::clone(&self.store), Arc::clone(&self.alive));
        let last = LastWord { store, alive, permit: Some(permit) };
        let pending = Pending::new(Ticket::new(id, request), last);
        match self.store.reserve(id, request).await {
            Ok(reservation) => Ok(pending.made(reservation)),
            Err(QuotaError::Refused(refusal)) => {
                pending.refused();
                Err(refusal.into())
            }
            Err(error) => Err(error),
        }
    }

    /// Waits until everything that is held has ended and is settled, `patience` at most. What is not settled then expires.
    pub async fn close(self, patience: Duration) {
        let Self { ends, mut task, .. } = self;
        drop(ends);
        if timeout(patience, &mut task).await.is_err() {
            task.abort();
        }
    }
}

fn new_id() -> Result<ReservationId, Unavailable> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(Unavailable::new)?;
    Ok(ReservationId(u128::from_le_bytes(bytes)))
}

async fn settle_all(store: Arc<dyn QuotaStore>, mut queue: mpsc::Receiver<End>) {
    let mut batch = Vec::with_capacity(BATCH);
    while queue.recv_many(&mut batch, BATCH).await > 0 {
        // A store that does not answer one does not answer the others: nobody waits for a stranger here.
        join_all(batch.drain(..).map(|end| settle(&*store, end))).await;
    }
}

async fn settle(store: &dyn QuotaStore, end: End) {
    while let Err(error) = store.settle(&end.ticket, end.actual).await {
        if Instant::now() + PAUSE >= end.until {
            tracing::warn!(id = %end.ticket.id, %error, "a reservation expires with all of its tokens charged");
            return;
        }
        sleep(PAUSE).await;
    }
}
