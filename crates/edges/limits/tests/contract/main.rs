//! One contract for every store of quotas.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod killed;
mod random;
mod server;
mod suite;

use std::sync::Arc;
use std::time::{Duration, Instant};

use motet_limits::{
    Actual, Keeper, Limits, MemoryQuota, QuotaError, QuotaStore, RedisConfig, RedisQuota, Request,
    ReservationId, Ticket, system_clock,
};
use server::Server;
use suite::{HOLD, Hands, keeps_the_contract, request};

/// Patient: a busy machine is no reason to fail.
fn redis(server: &Server, hands: Option<&Hands>) -> RedisQuota {
    redis_at(&server.url(), hands)
}

fn redis_at(url: &str, hands: Option<&Hands>) -> RedisQuota {
    let patience = Duration::from_secs(60);
    let clock = hands.map(Hands::clock);
    RedisQuota::open(RedisConfig { hold: HOLD, patience, clock, ..RedisConfig::new(url) }).unwrap()
}

#[tokio::test]
async fn memory_keeps_the_contract() {
    let hands = Hands::new();
    keeps_the_contract(&MemoryQuota::with_clock(HOLD, hands.clock()), &hands).await;
}

#[tokio::test]
async fn redis_keeps_the_contract() {
    let Some(server) = Server::start() else { return };
    let hands = Hands::new();
    keeps_the_contract(&redis(&server, Some(&hands)), &hands).await;
}

#[tokio::test]
async fn both_compute_the_same() {
    let Some(server) = Server::start() else { return };
    let mut reserved = 0;
    for seed in 0..24 {
        let hands = Hands::new();
        let memory = MemoryQuota::with_clock(HOLD, hands.clock());
        reserved += random::compare(seed, [&memory, &redis(&server, Some(&hands))], &hands).await;
    }
    assert!(reserved > 24 * 15, "{reserved} reservations say little");
}

/// Every kind of limit that lets 37 pass.
fn thirty_seven() -> Vec<Request> {
    let limits = [
        Limits { requests_per_minute: Some(37), ..Limits::default() },
        Limits { tokens_per_minute: Some(37 * 20 + 19), ..Limits::default() },
        Limits { tokens_per_day: Some(37 * 20), ..Limits::default() },
        Limits { concurrent: Some(37), ..Limits::default() },
        Limits { budget_per_month: Some(37 * 3), ..Limits::default() },
    ];
    (0..).zip(limits).map(|(index, limits)| request(&format!("race{index}"), limits, 5, 15)).collect()
}

/// 200 tasks on their own threads, spread over gateways with a connection each.
async fn race(gateways: &[Arc<dyn QuotaStore>]) {
    for (round, one) in thirty_seven().into_iter().enumerate() {
        let ask = |index: usize| {
            let (gateway, one) = (Arc::clone(&gateways[index % gateways.len()]), one.clone());
            tokio::spawn(async move {
                match gateway.reserve(ReservationId((1000 * round + index) as u128), &one).await {
                    Ok(_) => true,
                    Err(QuotaError::Refused(_)) => false,
                    Err(error) => panic!("{error}"),
                }
            })
        };
        let mut passed = 0;
        for task in (0..200).map(ask).collect::<Vec<_>>() {
            passed += usize::from(task.await.unwrap());
        }
        assert_eq!(passed, 37, "{:?}", one.policy.tenant);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn two_hundred_at_once_against_thirty_seven_in_memory() {
    race(&[Arc::new(MemoryQuota::with_clock(HOLD, Hands::new().clock()))]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn two_hundred_at_once_against_thirty_seven_in_redis() {
    let Some(server) = Server::start() else { return };
    let hands = Hands::new();
    let gateway = |_| -> Arc<dyn QuotaStore> { Arc::new(redis(&server, Some(&hands))) };
    race(&(0..20).map(gateway).collect::<Vec<_>>()).await;
}

#[tokio::test]
async fn the_time_is_that_of_the_server_and_every_key_expires() {
    let Some(server) = Server::start() else { return };
    let store = redis(&server, None);
    let limits = Limits {
        requests_per_minute: Some(10),
        tokens_per_minute: Some(1000),
        tokens_per_day: Some(1000),
        concurrent: Some(3),
        budget_per_month: Some(1000),
    };
    let before = system_clock()();
    let mut one = request("ttl {}:", limits, 20, 30);
    (one.policy.user, one.policy.model) = (limits, limits);
    let held = store.reserve(ReservationId(1), &one).await.unwrap();
    assert!((before..before + 60_000).contains(&(held.expires_at - HOLD.as_millis() as u64)));
    store.renew(&Ticket::new(ReservationId(1), &one)).await.unwrap();
    let mut connection =
        ::redis::Client::open(server.url()).unwrap().get_multiplexed_async_connection().await.unwrap();
    let keys: Vec<String> = ::redis::cmd("KEYS").arg("*").query_async(&mut connection).await.unwrap();
    assert_eq!(keys.len(), 7, "{keys:?}");
    for key in keys {
        assert!(key.starts_with("motet:quota:{ttl%20%7b%7d%3a}:"), "{key}");
        let left: i64 = ::redis::cmd("PTTL").arg(&key).query_async(&mut connection).await.unwrap();
        assert!(left > 0, "{key} stays for ever");
    }
}

#[tokio::test]
async fn a_redis_that_is_gone_is_told_and_comes_back() {
    let Some(server) = Server::start() else { return };
    let (port, url) = (server.port, server.url());
    let patience = Duration::from_secs(5);
    let store = RedisQuota::open(RedisConfig { patience, ..RedisConfig::new(&url) }).unwrap();
    let limits = Limits { requests_per_minute: Some(10), ..Limits::default() };
    let one = request("gone", limits, 1, 1);
    store.reserve(ReservationId(1), &one).await.unwrap();
    drop(server);
    for id in [2, 3] {
        let asked = Instant::now();
        let answer = store.reserve(ReservationId(id), &one).await;
        assert!(matches!(answer, Err(QuotaError::Unavailable(_))), "{answer:?}");
        assert!(asked.elapsed() < 2 * patience);
        let ticket = Ticket::new(ReservationId(1), &one);
        assert!(store.settle(&ticket, Actual::NeverRan).await.is_err());
    }
    let _server = Server::start_on(port);
    store.reserve(ReservationId(4), &one).await.unwrap();
}

#[tokio::test]
async fn what_is_dropped_is_settled_in_redis_too() {
    let Some(server) = Server::start() else { return };
    let hands = Hands::new();
    let store: Arc<dyn QuotaStore> = Arc::new(redis(&server, Some(&hands)));
    let keeper = Keeper::new(Arc::clone(&store));
    let limits = Limits { tokens_per_minute: Some(1000), concurrent: Some(5), ..Limits::default() };
    let one = request("drop", limits, 20, 180);
    for _ in 0..5 {
        keeper.hold(&one).await.unwrap().report(30, 0);
    }
    keeper.close(Duration::from_secs(60)).await;
    let status = store.status(&one.scope, &one.policy).await.unwrap();
    let left: Vec<_> = status.gauges.iter().map(|gauge| gauge.remaining).collect();
    assert_eq!(left, [1000 - 5 * 30, 5]);
}
