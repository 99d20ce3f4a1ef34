//! Usage: events, sums, exports, and the writer.

use std::{path::PathBuf, time::Duration};

use futures_util::TryStreamExt as _;
use motet_store::{
    KeyId, OrgId, Owner, Recorded, Span, Store, UsageEvent, UsageFinish, UsageGroup, UsageId, UsageQuery,
    UsageWriter, UsageWriterOptions, UserId, day_of,
};

use crate::{Database, postgres::Server};

const DAY: i64 = 24 * 3_600_000;
const PATIENCE: Duration = Duration::from_secs(30);

/// An event with an id and a time; the rest the same for all.
pub(crate) fn event(id: &str, at: i64) -> UsageEvent {
    UsageEvent {
        id: UsageId::from_text(id),
        at,
        org: OrgId::new("org_a"),
        user: UserId::new("user_a"),
        key: Some(KeyId::new("key_a")),
        request_id: format!("req-{id}"),
        model: "small".into(),
        tier: "free".into(),
        finish: UsageFinish::Stop,
        prompt_tokens: 100,
        cached_tokens: 64,
        output_tokens: 10,
        reasoning_tokens: 3,
        queue_ms: 5,
        ttft_ms: Some(80),
        duration_ms: 400,
        cost_micros: 250,
    }
}

fn org() -> OrgId {
    OrgId::new("org_a")
}

async fn requests(store: &Store) -> i64 {
    store.usage_sum(Owner::Org(&org()), 0..1_000_000).await.unwrap().requests
}

async fn exported(store: &Store, owner: Owner<'_>, from: i64, until: i64) -> Vec<UsageEvent> {
    store.export_usage(owner, Span { from, until }).try_collect().await.unwrap()
}

pub(crate) async fn events_count_once_and_sum_up(database: Database) {
    let store = database.open().await;
    let mut events: Vec<_> = (0..10).map(|n| event(&format!("e{n}"), n * DAY / 4)).collect();
    events[3].user = UserId::new("user_b");
    events[4].model = "large".into();
    events[5].org = OrgId::new("org_b");
    assert_eq!(store.insert_usage(&events[..6]).await.unwrap(), 6);
    // Again, with more: each counts once; twice in one batch too.
    events.push(events[9].clone());
    assert_eq!(store.insert_usage(&events).await.unwrap(), 4);
    let (home, user_a) = (org(), UserId::new("user_a"));
    let sum = store.usage_sum(Owner::Org(&home), 0..3).await.unwrap();
    assert_eq!((sum.requests, sum.prompt_tokens, sum.cached_tokens), (9, 900, 576));
    assert_eq!((sum.output_tokens, sum.reasoning_tokens, sum.cost_micros), (90, 27, 2_250));
    let mine = Owner::User(&home, &user_a);
    let daily = store.daily_usage(mine, 0..3).await.unwrap();
    let rows: Vec<_> = daily.iter().map(|row| (row.day, row.model.as_str(), row.sum.requests)).collect();
    assert_eq!(rows, [(0, "small", 3), (1, "large", 1), (1, "small", 2), (2, "small", 2)]);
    let by_user = store.usage_by_user(Owner::Org(&home), 0..3).await.unwrap();
    assert_eq!(
        by_user.iter().map(|(user, sum)| (user.as_str(), sum.requests)).collect::<Vec<_>>(),
        [("user_a", 8), ("user_b", 1)]
    );
    assert_eq!(store.month_spend(mine, 5 * DAY).await.unwrap(), 2_000);
    assert_eq!(store.month_spend(mine, 40 * DAY).await.unwrap(), 0);
    let nobody = UserId::new("' OR 1=1");
    assert_eq!(store.month_spend(Owner::User(&home, &nobody), 0).await.unwrap(), 0);
}

pub(crate) async fn sums_by_each_group_come_in_pages(database: Database) {
    let store = database.open().await;
    let mut events: Vec<_> = (0..6).map(|n| event(&format!("e{n}"), n * DAY)).collect();
    events[1].user = UserId::new("user_b");
    events[2].model = "large".into();
    events[3].key = None;
    events[4].org = OrgId::new("org_b");
    store.insert_usage(&events).await.unwrap();
    let (org, user) = (org(), UserId::new("user_a"));
    let check = async |owner, group, want: &[(&str, i64)]| {
        let (mut after, mut seen) = (None, Vec::new());
        loop {
            let one = UsageQuery { days: 0..5, group, after: after.as_deref(), limit: 1 };
            let page = store.usage_by(owner, one).await.unwrap();
            let [(name, sum)] = &page[..] else { break };
            seen.push((name.clone(), sum.requests));
            assert_eq!(sum.prompt_tokens, 100 * sum.requests);
            after = Some(name.clone());
        }
        let want: Vec<_> = want.iter().map(|&(name, requests)| (name.to_owned(), requests)).collect();
        assert_eq!(seen, want, "{group:?}");
        let all = UsageQuery { days: 0..5, group, after: None, limit: 100 };
        assert_eq!(store.usage_by(owner, all).await.unwrap().len(), want.len());
    };
    let days = ["1970-01-01", "1970-01-02", "1970-01-03", "1970-01-04"].map(|day| (day, 1));
    check(Owner::Org(&org), UsageGroup::Day, &days).await;
    check(Owner::Org(&org), UsageGroup::Model, &[("large", 1), ("small", 3)]).await;
    check(Owner::Org(&org), UsageGroup::User, &[("user_a", 3), ("user_b", 1)]).await;
    check(Owner::Org(&org), UsageGroup::Key, &[("", 1), ("key_a", 3)]).await;
    check(Owner::User(&org, &user), UsageGroup::Key, &[("", 1), ("key_a", 2)]).await;
    check(Owner::User(&org, &UserId::new("nobody")), UsageGroup::Model, &[]).await;
}

pub(crate) async fn an_export_streams_every_event_in_order(database: Database) {
    let store = database.open().await;
    // More than two pages, many at one time, so that pages end between events of the same time.
    let mut events: Vec<_> = (0..2_100).map(|n| event(&format!("e{n:05}"), n / 700)).collect();
    events[7].ttft_ms = None;
    events[7].key = None;
    events[8].user = UserId::new("user_b");
    events[9].org = OrgId::new("org_b");
    store.insert_usage(&events).await.unwrap();
    let home = org();
    let want: Vec<_> = events.iter().filter(|event| event.org == home).cloned().collect();
    assert_eq!(exported(&store, Owner::Org(&home), 0, DAY).await, want);
    assert_eq!(exported(&store, Owner::Org(&home), 1, 2).await, events[700..1_400]);
    let user_b = UserId::new("user_b");
    assert_eq!(exported(&store, Owner::User(&home, &user_b), 0, DAY).await, events[8..9]);
    assert_eq!(exported(&store, Owner::Org(&OrgId::new("org_c")), 0, DAY).await, []);
}

fn journal(database: &Database) -> PathBuf {
    database.folder.path().join("journal")
}

fn small() -> UsageWriterOptions {
    UsageWriterOptions { segment_bytes: 4_096, linger: Duration::from_millis(1), ..Default::default() }
}

pub(crate) async fn a_writer_writes_and_leaves_nothing_behind(database: Database) {
    let store = database.open().await;
    let writer = UsageWriter::start(store.clone(), &journal(&database), small()).unwrap();
    for n in 0..1_200 {
        let mut event = event(&format!("e{n}"), n * 1_000);
        event.model = "zero\0inside".into();
        assert_eq!(writer.record(&event).unwrap(), Recorded::InJournal);
    }
    assert!(writer.flush().await, "{:?}", writer.status());
    assert_eq!(requests(&store).await, 1_200);
    let daily = store.daily_usage(Owner::Org(&org()), 0..day_of(1_200_000) + 1).await.unwrap();
    assert_eq!(daily[0].model, "zeroinside");
    writer.record(&event("last", 0)).unwrap();
    assert!(writer.close(PATIENCE).await);
    assert_eq!(requests(&store).await, 1_201);
    let left = std::fs::read_dir(journal(&database)).unwrap();
    let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["usage.lock"]);
}

pub(crate) async fn what_the_database_missed_is_written_later(database: Database) {
    let store = database.open().await;
    let writer = UsageWriter::start(store.clone(), &journal(&database), small()).unwrap();
    for n in 0..30 {
        writer.record(&event(&format!("before{n}"), 0)).unwrap();
    }
    assert!(writer.flush().await);
    store.close().await;
    for n in 0..70 {
        assert_eq!(writer.record(&event(&format!("after{n}"), 0)).unwrap(), Recorded::InJournal);
    }
    assert!(!writer.flush().await);
    assert!(writer.status().problem.unwrap().contains("does not answer"));
    assert!(!writer.close(PATIENCE).await);
    // The next process finds all of it, and what was written already does not count again.
    let store = database.open().await;
    let writer = UsageWriter::start(store.clone(), &journal(&database), small()).unwrap();
    assert!(writer.flush().await, "{:?}", writer.status());
    assert_eq!(requests(&store).await, 100);
    assert!(writer.close(PATIENCE).await);
}

pub(crate) async fn concurrent_writers_do_not_stop_each_other(database: Database) {
    let store = database.open().await;
    // As many gateways would: the same users and models, batches that overlap.
    let writers = (0..4_usize).map(|writer| {
        let store = store.clone();
        tokio::spawn(async move {
            for batch in 0..5_usize {
                let events = (0..40_usize).map(|n| {
                    let mut event = event(&format!("{batch}-{n}-{}", writer / 2), 0);
                    event.model = format!("model{}", (n * 7 + writer) % 5);
                    event
                });
                let events: Vec<_> = events.collect();
                store.insert_usage(&events).await.unwrap();
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    assert_eq!(requests(&store).await, 400);
    assert_eq!(exported(&store, Owner::Org(&org()), 0, DAY).await.len(), 400);
}

/// The same store and writer go on: nobody has to start them again.
pub(crate) async fn a_server_that_comes_back_gets_what_it_missed(server: &mut Server) {
    let database = Database::postgres(server, "comes_back").await;
    let store = database.open().await;
    let writer = UsageWriter::start(store.clone(), &journal(&database), small()).unwrap();
    writer.record(&event("before", 0)).unwrap();
    assert!(writer.flush().await);
    server.stop();
    writer.record(&event("meanwhile", 0)).unwrap();
    assert!(!writer.flush().await);
    let lost = store.ping().await.unwrap_err();
    assert!(lost.is_temporary(), "{lost:?}");
    server.start_again();
    writer.record(&event("after", 0)).unwrap();
    assert!(writer.flush().await, "{:?}", writer.status());
    assert_eq!((requests(&store).await, writer.status().problem.clone()), (3, None));
    assert!(writer.close(PATIENCE).await);
}
