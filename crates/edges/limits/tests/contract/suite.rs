//! What every store does, told once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use motet_limits::{
    Actual, Clock, Gauge, Kind, Limits, Policy, QuotaError, QuotaStore, Refusal, Request, ReservationId,
    Retry, Scope, Settlement, Ticket,
};

/// Noon of 29 February 2024.
pub(crate) const NOON: u64 = 1_709_208_000_000;
pub(crate) const HOLD: Duration = Duration::from_secs(600);

/// A time that stands still until it is moved.
#[derive(Clone)]
pub(crate) struct Hands(Arc<AtomicU64>);

impl Hands {
    pub(crate) fn new() -> Self {
        Self(Arc::new(AtomicU64::new(NOON)))
    }

    pub(crate) fn clock(&self) -> Clock {
        let hands = self.clone();
        Arc::new(move || hands.0.load(Ordering::SeqCst))
    }

    pub(crate) fn pass(&self, millis: u64) {
        self.0.fetch_add(millis, Ordering::SeqCst);
    }
}

pub(crate) fn request(tenant: &str, limits: Limits, prompt: u64, output: u64) -> Request {
    let policy = Policy { tenant: limits, ..Policy::default() };
    Request { scope: Scope::new(tenant, "ann", "motet"), policy, prompt, output, estimate: 0, cost: 3 }
}

/// Asks under names that nobody else uses.
pub(crate) struct Desk<'a> {
    pub(crate) store: &'a dyn QuotaStore,
    next: AtomicU64,
}

impl<'a> Desk<'a> {
    fn new(store: &'a dyn QuotaStore) -> Self {
        Self { store, next: AtomicU64::new(1 << 32) }
    }

    async fn ask(&self, request: &Request) -> Result<Ticket, Refusal> {
        let id = ReservationId(self.next.fetch_add(1, Ordering::SeqCst).into());
        match self.store.reserve(id, request).await {
            Ok(_) => Ok(Ticket::new(id, request)),
            Err(QuotaError::Refused(refusal)) => Err(refusal),
            Err(error) => panic!("{error}"),
        }
    }

    async fn passed(&self, request: &Request, times: usize) -> usize {
        let mut passed = 0;
        for _ in 0..times {
            passed += usize::from(self.ask(request).await.is_ok());
        }
        passed
    }

    async fn end(&self, ticket: &Ticket, tokens: u64) -> Settlement {
        self.store.settle(ticket, Actual::Used { tokens, cost: 0 }).await.unwrap()
    }

    async fn gauge(&self, request: &Request, kind: Kind) -> Gauge {
        let status = self.store.status(&request.scope, &request.policy).await.unwrap();
        *status.gauges.iter().find(|gauge| gauge.kind == kind).expect("a limit")
    }

    async fn left(&self, request: &Request, kind: Kind) -> u64 {
        self.gauge(request, kind).await.remaining
    }
}

/// All of it. The store's time is that of `hands`.
pub(crate) async fn keeps_the_contract(store: &dyn QuotaStore, hands: &Hands) {
    let desk = Desk::new(store);
    bursts(&desk, hands).await;
    cancelled_streams_give_back(&desk).await;
    debt_is_waited_off(&desk, hands).await;
    a_crash_gives_its_place_back(&desk, hands).await;
    all_limits_or_none(&desk).await;
    names_charge_once(&desk).await;
    windows_end(&desk, hands).await;
}

async fn bursts(desk: &Desk<'_>, hands: &Hands) {
    let limits = Limits { requests_per_minute: Some(10), tokens_per_minute: Some(100), ..Limits::default() };
    let never = desk.ask(&request("k01", limits, 20, 150)).await.unwrap_err();
    assert_eq!((never.kind, never.needed, never.retry), (Kind::Tokens, 170, Retry::Never));
    assert_eq!(desk.passed(&request("k01", limits, 20, 20), 5).await, 2);
    let refusal = desk.ask(&request("k01", limits, 20, 20)).await.unwrap_err();
    assert_eq!(refusal.retry, Retry::After(Duration::from_secs(12)));
    hands.pass(11_999);
    assert_eq!(desk.passed(&request("k01", limits, 20, 20), 1).await, 0, "not a millisecond before");
    hands.pass(1);
    assert_eq!(desk.passed(&request("k01", limits, 20, 20), 2).await, 1);
    // Over the boundary of a minute: one burst, and what came back.
    let limits = Limits { requests_per_minute: Some(60), ..Limits::default() };
    hands.pass(47_500);
    assert_eq!(desk.passed(&request("edge", limits, 1, 1), 100).await, 60);
    hands.pass(1_000);
    assert_eq!(desk.passed(&request("edge", limits, 1, 1), 100).await, 1);
}

async fn cancelled_streams_give_back(desk: &Desk<'_>) {
    let limits = Limits { requests_per_minute: Some(5), tokens_per_minute: Some(500), ..Limits::default() };
    let one = request("cancel", limits, 20, 150);
    for tokens in [21, 21] {
        let ticket = desk.ask(&one).await.unwrap();
        assert_eq!(desk.end(&ticket, tokens).await, Settlement::Settled);
        assert_eq!(desk.end(&ticket, 0).await, Settlement::Unknown, "a second time changes nothing");
    }
    assert_eq!(desk.left(&one, Kind::Tokens).await, 500 - 42);
    let ticket = desk.ask(&one).await.unwrap();
    desk.store.settle(&ticket, Actual::NeverRan).await.unwrap();
    assert_eq!((desk.left(&one, Kind::Requests).await, desk.left(&one, Kind::Tokens).await), (3, 458));
    let stranger = Ticket::new(ReservationId(7), &one);
    assert_eq!(desk.end(&stranger, 5).await, Settlement::Unknown);
    assert_eq!(desk.store.renew(&stranger).await.unwrap(), None);
}

async fn debt_is_waited_off(desk: &Desk<'_>, hands: &Hands) {
    let limits = Limits { tokens_per_minute: Some(600), ..Limits::default() };
    let one = request("debt", limits, 0, 10);
    let ticket = desk.ask(&one).await.unwrap();
    desk.end(&ticket, 800).await;
    assert_eq!(desk.left(&one, Kind::Tokens).await, 0);
    assert_eq!(desk.gauge(&one, Kind::Tokens).await.reset_after, Duration::from_secs(80));
    let refusal = desk.ask(&one).await.unwrap_err();
    assert_eq!(refusal.retry, Retry::After(Duration::from_secs(21)), "200 of debt and 10, at 10 a second");
    hands.pass(21_000);
    desk.ask(&one).await.unwrap();
    // Even debt at a limit of nothing ends: it refills as a limit of 1 does.
    let one = request("nothing", Limits { tokens_per_minute: Some(0), ..Limits::default() }, 0, 0);
    let ticket = desk.ask(&one).await.unwrap();
    desk.end(&ticket, 2).await;
    hands.pass(119_999);
    assert_eq!(desk.ask(&one).await.unwrap_err().retry, Retry::After(Duration::from_millis(1)));
    hands.pass(1);
    desk.ask(&one).await.unwrap();
}

async fn a_crash_gives_its_place_back(desk: &Desk<'_>, hands: &Hands) {
    let limits = Limits { concurrent: Some(2), tokens_per_day: Some(1000), ..Limits::default() };
    let one = request("crash", limits, 0, 100);
    let first = desk.ask(&one).await.unwrap();
    hands.pass(1_000);
    let second = desk.ask(&one).await.unwrap();
    let refusal = desk.ask(&one).await.unwrap_err();
    assert_eq!(refusal.retry, Retry::Within(Duration::from_secs(599)));
    hands.pass(300_000);
    assert!(desk.store.renew(&first).await.unwrap().is_some());
    hands.pass(300_000);
    assert_eq!(desk.left(&one, Kind::Concurrent).await, 1, "the second has expired");
    assert_eq!(desk.end(&second, 0).await, Settlement::Unknown);
    assert_eq!(desk.end(&first, 10).await, Settlement::Settled);
    assert_eq!(desk.left(&one, Kind::Concurrent).await, 2);
    assert_eq!(desk.left(&one, Kind::DayTokens).await, 1000 - 100 - 10, "what expired stays charged");
}

async fn all_limits_or_none(desk: &Desk<'_>) {
    let policy = Policy {
        tenant: Limits { requests_per_minute: Some(100), ..Limits::default() },
        user: Limits { tokens_per_minute: Some(100), ..Limits::default() },
        model: Limits { tokens_per_day: Some(50), ..Limits::default() },
    };
    let one = Request { policy, ..request("levels", Limits::default(), 50, 0) };
    let large = Request { prompt: 60, ..one.clone() };
    assert_eq!(desk.ask(&large).await.unwrap_err().kind, Kind::DayTokens);
    assert_eq!((desk.left(&one, Kind::Requests).await, desk.left(&one, Kind::Tokens).await), (100, 100));
    desk.ask(&one).await.unwrap();
    let other_model = Request { scope: Scope::new("levels", "ann", "other"), ..one.clone() };
    desk.ask(&other_model).await.unwrap();
    let other_user = Request { scope: Scope::new("levels", "bob", "motet"), ..one.clone() };
    desk.ask(&other_user).await.unwrap();
    assert_eq!((desk.left(&one, Kind::Requests).await, desk.left(&one, Kind::Tokens).await), (97, 0));
    assert_eq!(desk.left(&other_user, Kind::Tokens).await, 50);
}

async fn names_charge_once(desk: &Desk<'_>) {
    let limits = Limits { requests_per_minute: Some(5), concurrent: Some(1), ..Limits::default() };
    let one = request("twice", limits, 1, 1);
    let first = desk.store.reserve(ReservationId(9), &one).await.unwrap();
    assert_eq!(desk.store.reserve(ReservationId(9), &one).await.unwrap(), first);
}

/// Moves on to March: the leap day was February's last.
async fn windows_end(desk: &Desk<'_>, hands: &Hands) {
    let now = (hands.clock())();
    let midnight = NOON + 12 * 3_600_000;
    let limits = Limits { tokens_per_day: Some(10), budget_per_month: Some(5), ..Limits::default() };
    let one = request("windows", limits, 10, 0);
    hands.pass(midnight - now - 300_000);
    let open = desk.ask(&one).await.unwrap();
    let refusal = desk.ask(&request("windows", limits, 1, 0)).await.unwrap_err();
    assert_eq!(refusal.retry, Retry::After(Duration::from_secs(300)));
    hands.pass(299_999);
    assert_eq!(desk.passed(&request("windows", limits, 0, 0), 1).await, 0, "the budget is used");
    hands.pass(1);
    assert_eq!(desk.end(&open, 15).await, Settlement::Settled);
    assert_eq!(desk.left(&one, Kind::DayTokens).await, 10, "the difference belongs to the day that is over");
    desk.ask(&one).await.unwrap();
}
