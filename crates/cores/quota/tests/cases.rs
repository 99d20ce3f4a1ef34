//! What a policy does, told by examples.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Mutex;
use std::time::Duration;

use motet_quota::{
    Actual, Kind, Level, Limits, Policy, Quota, Refusal, Request, ReservationId, Retry, Scope, Settlement,
};

/// Noon of 29 February 2024.
const NOON: u64 = 1_709_208_000_000;
const HOUR: u64 = 3_600_000;
const NONE: Limits = Limits {
    requests_per_minute: None,
    tokens_per_minute: None,
    tokens_per_day: None,
    concurrent: None,
    budget_per_month: None,
};

fn of_tenant(limits: Limits) -> Policy {
    Policy { tenant: limits, ..Policy::default() }
}

fn request(policy: Policy, prompt: u64, output: u64) -> Request {
    Request { scope: Scope::new("org", "ann", "motet"), policy, prompt, output, estimate: 0, cost: 0 }
}

/// A quota whose reservations get the names 0, 1, 2, …
struct Desk {
    quota: Quota,
    next: u128,
}

impl Desk {
    fn new() -> Self {
        Self { quota: Quota::new(Quota::HOLD), next: 0 }
    }

    fn ask(&mut self, now: u64, request: &Request) -> Result<ReservationId, Refusal> {
        let id = ReservationId(self.next);
        self.next += 1;
        let answer = self.quota.reserve(now, id, request).map(|reservation| reservation.id);
        self.quota.check().expect("invariants");
        answer
    }

    fn passed(&mut self, now: u64, request: &Request, times: usize) -> usize {
        (0..times).filter(|_| self.ask(now, request).is_ok()).count()
    }

    fn end(&mut self, now: u64, id: ReservationId, tokens: u64) -> Settlement {
        let settlement = self.quota.settle(now, id, Actual::Used { tokens, cost: 0 });
        self.quota.check().expect("invariants");
        settlement
    }

    fn left(&mut self, now: u64, policy: Policy, kind: Kind) -> u64 {
        let status = self.quota.status(now, &Scope::new("org", "ann", "motet"), &policy);
        status.gauges.iter().find(|gauge| gauge.kind == kind).expect("a limit").remaining
    }
}

#[test]
fn requests_sent_together_cannot_all_pass_one_check() {
    let limits = Limits { requests_per_minute: Some(10), tokens_per_minute: Some(100), ..NONE };
    let policy = of_tenant(limits);
    // Each may use 170 of 100 tokens: none can ever pass, and it says so.
    let refusal = Desk::new().ask(NOON, &request(policy, 20, 150)).unwrap_err();
    assert_eq!((refusal.kind, refusal.needed, refusal.retry), (Kind::Tokens, 170, Retry::Never));
    // Of those that may use 40, two.
    let mut desk = Desk::new();
    assert_eq!(desk.passed(NOON, &request(policy, 20, 20), 5), 2);
    let refusal = desk.ask(NOON, &request(policy, 20, 20)).unwrap_err();
    assert_eq!(refusal.retry, Retry::After(Duration::from_millis(12_000)));
    assert_eq!((refusal.limit, refusal.remaining), (100, 20));
    // Of 40 that use nothing to speak of, as many as requests are allowed.
    assert_eq!(Desk::new().passed(NOON, &request(policy, 1, 1), 40), 10);
}

#[test]
fn a_burst_over_the_minute_is_one_burst() {
    let policy = of_tenant(Limits { requests_per_minute: Some(60), ..NONE });
    let mut desk = Desk::new();
    assert_eq!(desk.passed(NOON + 59_500, &request(policy, 1, 1), 100), 60);
    assert_eq!(desk.passed(NOON + 60_500, &request(policy, 1, 1), 100), 1, "a second's worth came back");
}

#[test]
fn settling_gives_back_or_goes_into_debt() {
    let policy = of_tenant(Limits { tokens_per_minute: Some(600), ..NONE });
    let mut desk = Desk::new();
    let first = desk.ask(NOON, &request(policy, 100, 500)).unwrap();
    assert_eq!(desk.left(NOON, policy, Kind::Tokens), 0);
    assert_eq!(desk.end(NOON, first, 150), Settlement::Settled);
    assert_eq!(desk.left(NOON, policy, Kind::Tokens), 450);
    assert_eq!(desk.end(NOON, first, 0), Settlement::Unknown, "a second time changes nothing");
    assert_eq!(desk.left(NOON, policy, Kind::Tokens), 450);
    let second = desk.ask(NOON, &request(policy, 0, 10)).unwrap();
    desk.end(NOON, second, 650);
    let refusal = desk.ask(NOON, &request(policy, 0, 10)).unwrap_err();
    assert_eq!(refusal.retry, Retry::After(Duration::from_secs(21)), "200 of debt and 10, at 10 a second");
}

#[test]
fn the_greater_of_estimate_and_what_was_asked_for_is_reserved() {
    for (prompt, output, estimate, needed) in
        [(3, 4, 0, 7), (3, 4, 9, 9), (3, 4, 5, 7), (u64::MAX, 1, 0, 10_000_000_000)]
    {
        let request = Request { estimate, ..request(Policy::default(), prompt, output) };
        assert_eq!(request.need().tokens(), needed);
    }
}

#[test]
fn what_one_limit_refuses_is_charged_to_none() {
    let policy = Policy {
        tenant: Limits { requests_per_minute: Some(100), ..NONE },
        user: Limits { tokens_per_minute: Some(100), ..NONE },
        model: Limits { tokens_per_day: Some(50), ..NONE },
    };
    let mut desk = Desk::new();
    assert_eq!(desk.ask(NOON, &request(policy, 60, 0)).unwrap_err().level, Level::Model);
    assert_eq!(desk.left(NOON, policy, Kind::Requests), 100);
    assert_eq!(desk.left(NOON, policy, Kind::Tokens), 100);
    // Another model of the same account has a day of its own, and the account's minute.
    let other = Request { scope: Scope::new("org", "ann", "other"), ..request(policy, 50, 0) };
    desk.ask(NOON, &other).unwrap();
    desk.ask(NOON, &request(policy, 50, 0)).unwrap();
    assert_eq!(desk.left(NOON, policy, Kind::Requests), 98);
    let refusal = desk.ask(NOON, &request(policy, 1, 0)).unwrap_err();
    assert_eq!(refusal.kind, Kind::DayTokens, "the limit that keeps it away longest is named");
    // Another account of the organisation, and another organisation.
    for scope in [Scope::new("org", "bob", "motet"), Scope::new("else", "ann", "motet")] {
        desk.ask(NOON, &Request { scope, ..request(policy, 50, 0) }).unwrap();
    }
    assert_eq!(desk.left(NOON, policy, Kind::Requests), 97);
}

#[test]
fn a_crash_gives_its_place_back_and_keeps_its_tokens() {
    let policy = of_tenant(Limits { concurrent: Some(2), tokens_per_day: Some(1000), ..NONE });
    let mut desk = Desk::new();
    let first = desk.ask(NOON, &request(policy, 0, 100)).unwrap();
    desk.ask(NOON + 1000, &request(policy, 0, 100)).unwrap();
    let refusal = desk.ask(NOON + 2000, &request(policy, 0, 100)).unwrap_err();
    assert_eq!(refusal.retry, Retry::Within(Duration::from_secs(598)));
    // A reply that goes on is renewed.
    let renewed = desk.quota.renew(NOON + 300_000, first);
    assert_eq!(renewed, Some(NOON + 900_000));
    assert_eq!(desk.left(NOON + 601_000, policy, Kind::Concurrent), 1);
    assert_eq!(desk.end(NOON + 899_999, first, 10), Settlement::Settled);
    assert_eq!(desk.left(NOON + 899_999, policy, Kind::DayTokens), 890);
    let late = desk.ask(NOON + 900_000, &request(policy, 0, 100)).unwrap();
    assert_eq!(desk.end(NOON + 1_500_000, late, 0), Settlement::Unknown, "expired");
    assert_eq!(desk.quota.renew(NOON + 1_500_000, late), None);
    assert_eq!(desk.left(NOON + 1_500_000, policy, Kind::DayTokens), 790);
}

/// What was used under the old limit comes back at its rate until the next charge, and the refusal knows.
#[test]
fn a_limit_that_was_lowered() {
    let mut desk = Desk::new();
    let limit = |requests| of_tenant(Limits { requests_per_minute: Some(requests), ..NONE });
    assert_eq!(desk.passed(NOON, &request(limit(10), 1, 1), 9), 9);
    let low = request(limit(2), 1, 1);
    let refusal = desk.ask(NOON, &low).expect_err("nine of two");
    // Eight have to come back, ten do in a minute.
    assert_eq!(refusal.retry, Retry::After(Duration::from_secs(48)));
    assert!(desk.ask(NOON + 47_999, &low).is_err());
    assert!(desk.ask(NOON + 48_000, &low).is_ok());
}

#[test]
fn days_and_months_begin_at_midnight_in_utc() {
    let policy = of_tenant(Limits { tokens_per_day: Some(10), budget_per_month: Some(2_500_000), ..NONE });
    let mut desk = Desk::new();
    let first = Request { cost: 2_000_000, ..request(policy, 10, 0) };
    let id = desk.ask(NOON, &first).unwrap();
    let refusal = desk.ask(NOON, &request(policy, 1, 0)).unwrap_err();
    assert_eq!(refusal.retry, Retry::After(Duration::from_millis(12 * HOUR)));
    desk.quota.renew(NOON + 1, id);
    // The leap day was the month's last.
    let march = NOON + 12 * HOUR;
    let refusal = desk.ask(march - 1, &Request { cost: 600_000, ..request(policy, 0, 0) }).unwrap_err();
    assert_eq!((refusal.kind, refusal.retry), (Kind::Budget, Retry::After(Duration::from_millis(1))));
    desk.ask(march, &first).unwrap();
    // What was used beyond it belongs to the day that is over; the tokens of the new one are its own.
    let eve = march + 24 * HOUR - 1;
    let late = desk.ask(eve, &request(policy, 0, 0)).unwrap();
    desk.ask(eve + 1, &request(policy, 4, 0)).unwrap();
    assert_eq!(desk.end(eve + 2, late, 5), Settlement::Settled);
    assert_eq!(desk.left(eve + 2, policy, Kind::DayTokens), 6);
}

#[test]
fn a_request_that_never_ran_costs_nothing() {
    let policy = of_tenant(Limits { requests_per_minute: Some(5), tokens_per_minute: Some(50), ..NONE });
    let mut desk = Desk::new();
    let id = desk.ask(NOON, &request(policy, 30, 0)).unwrap();
    desk.quota.settle(NOON, id, Actual::NeverRan);
    assert_eq!((desk.left(NOON, policy, Kind::Requests), desk.left(NOON, policy, Kind::Tokens)), (5, 50));
}

#[test]
fn asking_twice_under_one_name_charges_once() {
    let policy = of_tenant(Limits { requests_per_minute: Some(5), concurrent: Some(1), ..NONE });
    let mut quota = Quota::new(Quota::HOLD);
    let first = quota.reserve(NOON, ReservationId(7), &request(policy, 1, 1)).unwrap();
    let again = quota.reserve(NOON, ReservationId(7), &request(policy, 1, 1)).unwrap();
    assert_eq!(first, again);
}

#[test]
fn two_hundred_at_once_against_thirty_seven() {
    for limits in [
        Limits { requests_per_minute: Some(37), ..NONE },
        Limits { tokens_per_minute: Some(37 * 20 + 19), ..NONE },
        Limits { tokens_per_day: Some(37 * 20), ..NONE },
        Limits { concurrent: Some(37), ..NONE },
        Limits { budget_per_month: Some(37 * 3), ..NONE },
    ] {
        let desk = Mutex::new(Desk::new());
        let one = Request { cost: 3, ..request(of_tenant(limits), 5, 15) };
        let passed: usize = std::thread::scope(|scope| {
            let ask = || usize::from(desk.lock().unwrap().ask(NOON, &one).is_ok());
            let threads: Vec<_> = (0..200).map(|_| scope.spawn(ask)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(passed, 37, "{limits:?}");
    }
}

#[test]
fn memory_is_that_of_who_is_there() {
    let limits = Limits { requests_per_minute: Some(10), ..NONE };
    let policy = Policy { tenant: NONE, user: limits, model: NONE };
    let mut desk = Desk::new();
    for index in 0..10_000_u64 {
        let now = NOON + index * 1000;
        let scope = Scope::new("org", &index.to_string(), "motet");
        let id =
            desk.quota.reserve(now, ReservationId(index.into()), &Request { scope, ..request(policy, 1, 1) });
        desk.quota.settle(now, id.unwrap().id, Actual::Used { tokens: 2, cost: 0 });
    }
    let counts = desk.quota.counts();
    assert_eq!(counts.reservations, 0);
    assert!(counts.meters <= 64, "{counts:?}");
}

#[test]
fn refusals_say_what_happened_and_what_to_do() {
    let tell = |limits: Limits, held: u64, asked: Request| {
        let mut desk = Desk::new();
        for _ in 0..held {
            desk.ask(NOON, &Request { policy: of_tenant(limits), ..asked.clone() }).unwrap();
        }
        desk.ask(NOON, &Request { policy: of_tenant(limits), ..asked }).unwrap_err().to_string()
    };
    let ask = || request(Policy::default(), 100, 400);
    for (limits, held, asked, words) in [
        (
            Limits { tokens_per_minute: Some(400), ..NONE },
            0,
            ask(),
            "the request needs up to 500 tokens, but the organisation may use 400 tokens per minute: shorten it or \
             ask for less output",
        ),
        (
            Limits { tokens_per_minute: Some(700), ..NONE },
            1,
            ask(),
            "the request needs up to 500 tokens, and 200 of the 700 tokens per minute of the organisation are left: \
             try again in 26 s",
        ),
        (
            Limits { concurrent: Some(1), ..NONE },
            1,
            ask(),
            "the organisation may have 1 reply at the same time: try again when one has ended, in 600 s at the latest",
        ),
        (
            Limits { budget_per_month: Some(2_000_000), ..NONE },
            1,
            Request { cost: 1_234_500, ..ask() },
            "the request needs up to 1.2345 of budget, and 0.7655 of the 2.00 of budget per month (UTC) of the \
             organisation are left: try again in 43200 s",
        ),
        (
            Limits { requests_per_minute: Some(0), ..NONE },
            0,
            ask(),
            "the organisation may use 0 requests per minute",
        ),
    ] {
        assert_eq!(tell(limits, held, asked), words);
    }
}
