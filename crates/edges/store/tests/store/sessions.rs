//! Sessions of the web app.

use motet_store::{
    CreatedSession, MAX_SESSIONS_PER_USER, NewSession, Secret, SessionAuth, SessionPolicy, Store,
    StoreOptions, User,
};

use crate::{
    Database,
    identity::{member, owner},
};

const POLICY: SessionPolicy =
    SessionPolicy { rotate_ms: 1_000, grace_ms: 100, idle_ms: 10_000, longest_ms: 50_000, seen_step_ms: 500 };

async fn open(database: &Database) -> Store {
    database.open_with(StoreOptions { sessions: POLICY, ..StoreOptions::default() }).await
}

async fn begin(store: &Store, user: &User, now: i64) -> CreatedSession {
    let new = NewSession { user: &user.id, user_agent: "Browser\u{7}/1.0", address: "192.0.2.1" };
    store.create_session(&new, now).await.unwrap()
}

async fn auth(store: &Store, token: &Secret, now: i64) -> Option<SessionAuth> {
    store.authenticate_session(token.expose(), now).await.unwrap()
}

pub(crate) async fn a_session_lives_rotates_and_ends(database: Database) {
    let store = open(&database).await;
    let ada = owner(&store).await;
    let made = begin(&store, &ada, 0).await;
    let first = auth(&store, &made.token, 999).await.unwrap();
    assert!(first.new_token.is_none() && first.session == made.id);
    assert_eq!((&first.principal.user, &first.principal.org), (&ada.id, &ada.org));
    assert!(first.is_csrf_valid(made.csrf.expose()) && !first.is_csrf_valid("") && !first.is_csrf_valid("x"));
    let second = auth(&store, &made.token, 1_000).await.unwrap().new_token.unwrap();
    assert_ne!(second, made.token);
    // The answer with the new token gets lost: the old one brings another, and the lost one is void.
    assert!(auth(&store, &made.token, 1_050).await.unwrap().new_token.is_none());
    let third = auth(&store, &made.token, 1_100).await.unwrap().new_token.unwrap();
    assert!(auth(&store, &second, 1_101).await.is_none());
    // The new one is seen; the old one is good for requests that are under way.
    let seen = auth(&store, &third, 1_200).await.unwrap();
    assert!(seen.new_token.is_none() && seen.is_csrf_valid(made.csrf.expose()));
    assert!(auth(&store, &made.token, 1_299).await.is_some());
    // Idle, and then over.
    assert!(auth(&store, &third, 1_900).await.is_some());
    assert!(auth(&store, &third, 11_900).await.is_none());
    assert_eq!(store.sessions(&ada.id, 11_900).await.unwrap(), []);
    for odd in ["", "x", &"x".repeat(43), &"x".repeat(5_000)] {
        assert!(store.authenticate_session(odd, 0).await.unwrap().is_none());
    }
    begin(&store, &ada, 20_000).await;
    assert_eq!(store.purge(29_999).await.unwrap(), 0);
    assert_eq!(store.purge(30_000).await.unwrap(), 1);
}

pub(crate) async fn a_copied_token_ends_the_session(database: Database) {
    let store = open(&database).await;
    let ada = owner(&store).await;
    let made = begin(&store, &ada, 0).await;
    let next = auth(&store, &made.token, 1_000).await.unwrap().new_token.unwrap();
    assert!(auth(&store, &next, 1_001).await.is_some());
    assert!(auth(&store, &made.token, 1_101).await.is_none());
    assert!(auth(&store, &next, 1_102).await.is_none());
}

pub(crate) async fn of_requests_that_come_together_one_rotates(database: Database) {
    let store = open(&database).await;
    let ada = owner(&store).await;
    let made = begin(&store, &ada, 0).await;
    let requests = (0..6).map(|_| {
        let (store, token) = (store.clone(), made.token.clone());
        tokio::spawn(async move { auth(&store, &token, 1_000).await.unwrap().new_token })
    });
    let mut tokens = Vec::new();
    for request in requests.collect::<Vec<_>>() {
        tokens.extend(request.await.unwrap());
    }
    assert_eq!(tokens.len(), 1);
    assert!(auth(&store, &tokens[0], 1_001).await.is_some());
}

pub(crate) async fn the_list_of_devices_is_the_users_own(database: Database) {
    let store = open(&database).await;
    let ada = owner(&store).await;
    let bob = member(&store, &ada.org, "bob").await;
    let (one, other) = (begin(&store, &ada, 0).await, begin(&store, &ada, 10).await);
    let theirs = begin(&store, &bob, 5).await;
    let listed = store.sessions(&ada.id, 20).await.unwrap();
    assert_eq!(listed.iter().map(|session| &session.id).collect::<Vec<_>>(), [&other.id, &one.id]);
    assert_eq!((listed[0].user_agent.as_str(), listed[0].address.as_str()), ("Browser/1.0", "192.0.2.1"));
    assert!(!store.end_session(&ada.id, &theirs.id).await.unwrap());
    assert!(store.end_session(&ada.id, &other.id).await.unwrap());
    assert!(auth(&store, &other.token, 21).await.is_none());
    for n in 0..i64::from(MAX_SESSIONS_PER_USER) {
        begin(&store, &ada, 30 + n).await;
    }
    assert_eq!(store.sessions(&ada.id, 90).await.unwrap().len(), MAX_SESSIONS_PER_USER as usize);
    assert!(auth(&store, &one.token, 90).await.is_none());
    let keep = begin(&store, &ada, 100).await;
    let ended = store.end_sessions(&ada.id, Some(&keep.id)).await.unwrap();
    assert_eq!(ended, u64::from(MAX_SESSIONS_PER_USER) - 1);
    assert!(
        auth(&store, &keep.token, 101).await.is_some() && auth(&store, &theirs.token, 101).await.is_some()
    );
}
