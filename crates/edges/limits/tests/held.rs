//! Every end of a request settles its reservation, with a store that answers and with one that does not at times.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_core::future::BoxFuture;
use motet_limits::{
    Actual, Clock, Keeper, Limits, MemoryQuota, Millis, Policy, QuotaError, QuotaStore, Request, Reservation,
    ReservationId, Scope, Settlement, Status, Ticket, Unavailable,
};

const HOLD: Duration = Duration::from_secs(600);

/// Forgets to answer: the next `silent` operations are carried out, and the caller hears nothing of it.
struct Mute {
    store: MemoryQuota,
    silent: AtomicUsize,
}

impl Mute {
    fn new() -> Arc<Self> {
        Self::with_clock(Arc::new(|| 1_709_208_000_000))
    }

    fn with_clock(clock: Clock) -> Arc<Self> {
        let store = MemoryQuota::with_clock(HOLD, clock);
        Arc::new(Self { store, silent: AtomicUsize::new(0) })
    }

    fn hear<T, E: From<Unavailable>>(&self, answer: Result<T, E>) -> Result<T, E> {
        let less = |silent: usize| silent.checked_sub(1);
        match self.silent.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less) {
            Ok(_) => Err(Unavailable { reason: "no answer".to_owned() }.into()),
            Err(_) => answer,
        }
    }

    async fn left(&self) -> Vec<u64> {
        let one = request();
        let status = self.store.status(&one.scope, &one.policy).await.unwrap();
        status.gauges.iter().map(|gauge| gauge.remaining).collect()
    }
}

impl QuotaStore for Mute {
    fn reserve<'a>(
        &'a self,
        id: ReservationId,
        request: &'a Request,
    ) -> BoxFuture<'a, Result<Reservation, QuotaError>> {
        Box::pin(async move {
            let answer = self.store.reserve(id, request).await;
            // A place to be cancelled at.
            tokio::task::yield_now().await;
            self.hear(answer)
        })
    }

    fn renew<'a>(&'a self, ticket: &'a Ticket) -> BoxFuture<'a, Result<Option<Millis>, Unavailable>> {
        // Silent here means that nothing was done.
        Box::pin(async move {
            self.hear(Ok::<_, Unavailable>(()))?;
            self.store.renew(ticket).await
        })
    }

    fn settle<'a>(
        &'a self,
        ticket: &'a Ticket,
        actual: Actual,
    ) -> BoxFuture<'a, Result<Settlement, Unavailable>> {
        Box::pin(async move {
            self.hear(Ok::<_, Unavailable>(()))?;
            self.store.settle(ticket, actual).await
        })
    }

    fn status<'a>(
        &'a self,
        scope: &'a Scope,
        policy: &'a Policy,
    ) -> BoxFuture<'a, Result<Status, Unavailable>> {
        Box::pin(async move { self.hear(self.store.status(scope, policy).await) })
    }

    fn hold(&self) -> Duration {
        HOLD
    }
}

fn request() -> Request {
    let tenant = Limits {
        requests_per_minute: Some(10),
        tokens_per_minute: Some(1000),
        concurrent: Some(4),
        ..Limits::default()
    };
    let policy = Policy { tenant, ..Policy::default() };
    Request {
        scope: Scope::new("org", "ann", "motet"),
        policy,
        prompt: 20,
        output: 180,
        estimate: 0,
        cost: 0,
    }
}

/// Ends one reservation, or nearly makes one, in some way; then nothing is held, and so much is left.
async fn check<F: Future<Output = ()>>(
    what: &str,
    left: [u64; 3],
    end: impl FnOnce(Arc<Mute>, Arc<Keeper>) -> F,
) {
    let store = Mute::new();
    let keeper = Arc::new(Keeper::new(store.clone()));
    end(Arc::clone(&store), Arc::clone(&keeper)).await;
    Arc::into_inner(keeper).expect("nobody else has it").close(HOLD).await;
    assert_eq!(store.left().await, left, "{what}");
}

#[tokio::test(start_paused = true)]
async fn every_end_settles() {
    check("settled", [9, 950, 4], async |_, keeper| {
        let held = keeper.hold(&request()).await.unwrap();
        assert_eq!(held.settle(Actual::Used { tokens: 50, cost: 0 }).await, Ok(Settlement::Settled));
    })
    .await;
    check("dropped after a report", [9, 970, 4], async |_, keeper| {
        let mut held = keeper.hold(&request()).await.unwrap();
        held.report(20, 0);
        held.report(30, 0);
    })
    .await;
    check("dropped at once", [9, 1000, 4], async |_, keeper| drop(keeper.hold(&request()).await.unwrap()))
        .await;
    check("panicked", [9, 970, 4], async |_, keeper| {
        let task = tokio::spawn(async move {
            let mut held = keeper.hold(&request()).await.unwrap();
            held.report(30, 0);
            panic!("on purpose");
        });
        assert!(task.await.is_err());
    })
    .await;
    check("cancelled while it was reserved", [10, 1000, 4], async |_, keeper| {
        tokio::select! {
            biased;
            _ = async { let _held = keeper.hold(&request()).await; } => panic!("too quick"),
            () = std::future::ready(()) => {}
        }
    })
    .await;
    check("refused", [10, 1000, 4], async |_, keeper| {
        let refused = keeper.hold(&Request { output: 5000, ..request() }).await;
        assert!(matches!(refused, Err(QuotaError::Refused(_))));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_store_that_does_not_answer_is_asked_again() {
    check("the answer to reserving was lost", [10, 1000, 4], async |store, keeper| {
        store.silent.store(1, Ordering::SeqCst);
        assert!(matches!(keeper.hold(&request()).await, Err(QuotaError::Unavailable(_))));
    })
    .await;
    check("settling failed", [9, 950, 4], async |store, keeper| {
        let held = keeper.hold(&request()).await.unwrap();
        store.silent.store(5, Ordering::SeqCst);
        assert!(held.settle(Actual::Used { tokens: 50, cost: 0 }).await.is_err());
    })
    .await;
    // It gives up when the reservation has expired anyway.
    check("it never answers", [9, 800, 3], async |store, keeper| {
        let held = keeper.hold(&request()).await.unwrap();
        store.silent.store(10_000, Ordering::SeqCst);
        drop(held);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_long_reply_is_renewed() {
    let began = tokio::time::Instant::now();
    let store = Mute::with_clock(Arc::new(move || {
        1_709_208_000_000 + u64::try_from(began.elapsed().as_millis()).unwrap()
    }));
    let keeper = Keeper::new(store.clone());
    let held = keeper.hold(&request()).await.unwrap();
    let others = keeper.hold(&request()).await.unwrap();
    // Two answers are missing, and the renewals are tried again in time.
    store.silent.store(2, Ordering::SeqCst);
    tokio::time::sleep(HOLD * 5).await;
    assert_eq!(store.left().await[2], 2, "both are alive");
    // Two holds without an answer: they have expired, and ends that come later change nothing.
    store.silent.store(100_000, Ordering::SeqCst);
    tokio::time::sleep(HOLD * 2).await;
    store.silent.store(0, Ordering::SeqCst);
    assert_eq!(store.left().await[2], 4);
    tokio::time::sleep(HOLD).await;
    drop(held);
    drop(others);
    keeper.close(HOLD).await;
    assert_eq!(store.left().await[2], 4);
}
