//! Random histories against a model that keeps a log and replays all of it for every question.

#![allow(clippy::expect_used)]

mod naive;

use std::time::Duration;

use motet_quota::{Actual, Limits, Policy, Quota, Request, ReservationId, Retry, Scope, Settlement};
use naive::Naive;
use proptest::prelude::*;

const HOLD: Duration = Duration::from_secs(600);

#[derive(Debug, Clone)]
enum Op {
    Reserve(u128, Box<Request>),
    Settle(u128, Actual),
    Renew(u128),
}

fn limits() -> impl Strategy<Value = Limits> {
    let limit =
        |most: u64| prop_oneof![40 => Just(None), 1 => Just(Some(0)), 20 => (0..=most).prop_map(Some)];
    (limit(5), limit(300), limit(2000), limit(4), limit(900)).prop_map(
        |(requests_per_minute, tokens_per_minute, tokens_per_day, concurrent, budget_per_month)| Limits {
            requests_per_minute,
            tokens_per_minute,
            tokens_per_day,
            concurrent,
            budget_per_month,
        },
    )
}

fn policy() -> impl Strategy<Value = Policy> {
    (limits(), limits(), limits()).prop_map(|(tenant, user, model)| Policy { tenant, user, model })
}

fn scopes() -> Vec<Scope> {
    let names = |tenant| ["u", "v"].map(|user| ["m", "n"].map(|model| Scope::new(tenant, user, model)));
    ["a", "b"].into_iter().flat_map(names).flatten().collect()
}

fn request(policies: Vec<Policy>) -> impl Strategy<Value = Request> {
    (
        prop::sample::select(scopes()),
        prop::sample::select(policies),
        0..50_u64,
        0..50_u64,
        0..70_u64,
        0..60_u64,
    )
        .prop_map(|(scope, policy, prompt, output, estimate, cost)| Request {
            scope,
            policy,
            prompt,
            output,
            estimate,
            cost,
        })
}

fn op(policies: Vec<Policy>) -> impl Strategy<Value = Op> {
    let id = 0..12_u128;
    let actual = prop_oneof![
        4 => (0..150_u64, 0..100_u64).prop_map(|(tokens, cost)| Actual::Used { tokens, cost }),
        1 => Just(Actual::NeverRan),
    ];
    prop_oneof![
        4 => (0..1_000_000_u128, request(policies)).prop_map(|(id, request)| Op::Reserve(id % 12, Box::new(request))),
        3 => (id.clone(), actual).prop_map(|(id, actual)| Op::Settle(id, actual)),
        1 => id.prop_map(Op::Renew),
    ]
}

/// Mostly moments, at times a minute, an expiry, a day, a month.
fn wait() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => Just(0),
        4 => 0..20_000_u64,
        2 => 0..120_000_u64,
        1 => 500_000..700_000_u64,
        1 => 0..100_000_000_u64,
        1 => 0..3_000_000_000_u64,
    ]
}

fn history() -> impl Strategy<Value = Vec<(u64, Op)>> {
    // Few policies, so that balances are shared, and more than one, so that limits change.
    prop::collection::vec(policy(), 1..3)
        .prop_flat_map(|policies| prop::collection::vec((wait(), op(policies)), 1..60))
}

/// The refusal's promise: this very request passes then, if nobody else comes, and not before.
fn check_retry(quota: &Quota, now: u64, request: &Request, retry: Retry) {
    let passes = |at| quota.clone().reserve(at, ReservationId(u128::MAX), request).is_ok();
    match retry {
        Retry::After(wait) | Retry::Within(wait) => {
            let wait = wait.as_millis() as u64;
            assert!(passes(now + wait), "after {wait} ms it is refused");
            assert!(wait > 0 && !passes(now + wait - 1), "it passes before {wait} ms");
        }
        Retry::Never => assert!(!passes(now + 100 * 366 * 86_400_000), "it passes one day"),
    }
}

fn step(quota: &mut Quota, naive: &mut Naive, now: u64, op: Op) {
    match op {
        Op::Reserve(id, request) => {
            let expected = naive.reserve(now, id, &request);
            match quota.reserve(now, ReservationId(id), &request) {
                Ok(reservation) => assert_eq!(Some(reservation.expires_at), expected),
                Err(refusal) => {
                    assert_eq!(expected, None, "{refusal}");
                    assert_eq!(refusal.needed <= refusal.limit, refusal.retry != Retry::Never);
                    check_retry(quota, now, &request, refusal.retry);
                }
            }
        }
        Op::Settle(id, actual) => {
            let is_settled = quota.settle(now, ReservationId(id), actual) == Settlement::Settled;
            assert_eq!(is_settled, naive.settle(now, id, actual));
        }
        Op::Renew(id) => assert_eq!(quota.renew(now, ReservationId(id)), naive.renew(now, id)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn balances_are_those_of_a_serial_replay(history in history(), seen in policy()) {
        let (mut quota, mut naive) = (Quota::new(HOLD), Naive::new(HOLD));
        // Five minutes to March 2024: reservations live through the end of a day and a month.
        let mut now = 1_709_251_200_000 - 300_000;
        for (wait, op) in history {
            now += wait;
            step(&mut quota, &mut naive, now, op);
            prop_assert_eq!(quota.check(), Ok(()));
            for scope in scopes() {
                let status = quota.status(now, &scope, &seen);
                for gauge in &status.gauges {
                    let remaining = naive.remaining(now, &scope, gauge);
                    // Meters do not count where the policy of the request had no limit: nor does the model.
                    prop_assert_eq!(gauge.remaining, remaining, "{:?} {:?}", scope, gauge);
                }
            }
        }
    }
}
