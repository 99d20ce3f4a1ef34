//! API keys.

use motet_store::{
    CreatedKey, Credential, KeyId, MAX_KEYS_PER_USER, NewKey, Owner, Role, Scope, Scopes, Store, StoreError,
    User, UserChange,
};

use crate::{
    Database,
    identity::{member, owner},
};

pub(crate) async fn key(store: &Store, user: &User, expires_at: Option<i64>) -> CreatedKey {
    let scopes = [Scope::Chat, Scope::Usage].into_iter().collect();
    store.create_key(&NewKey { user: &user.id, name: "laptop", scopes, expires_at }, 1_000).await.unwrap()
}

async fn is_good(store: &Store, key: &CreatedKey, now: i64) -> bool {
    store.authenticate_key(key.secret.expose(), now).await.unwrap().is_some()
}

pub(crate) async fn a_key_stands_for_its_user_until_revoked(database: Database) {
    let store = database.open().await;
    let ada = owner(&store).await;
    let made = key(&store, &ada, Some(50_000)).await;
    let text = made.secret.expose();
    assert!(text.starts_with(&made.info.prefix) && text.len() == 47, "{text}");
    let principal = store.authenticate_key(text, 2_000).await.unwrap().unwrap();
    assert_eq!((&principal.org, &principal.user, principal.role), (&ada.org, &ada.id, Role::Owner));
    assert_eq!(principal.credential, Credential::Key(made.info.id.clone()));
    assert!(principal.scopes.has(Scope::Chat) && !principal.scopes.has(Scope::Admin));
    let last = text.chars().last().unwrap();
    let other = format!("{}{}", &text[..text.len() - 1], if last == 'a' { 'b' } else { 'a' });
    for wrong in ["", "mk-", &other, &text[..46], &format!("{text}a")] {
        assert_eq!(store.authenticate_key(wrong, 2_000).await.unwrap(), None);
    }
    assert!(is_good(&store, &made, 49_999).await);
    assert!(!is_good(&store, &made, 50_000).await);
    let lasting = key(&store, &ada, None).await;
    assert!(is_good(&store, &lasting, 50_000).await);
    let mine = Owner::User(&ada.org, &ada.id);
    assert!(store.revoke_key(mine, &lasting.info.id, 50_001).await.unwrap());
    assert!(!is_good(&store, &lasting, 50_001).await);
    assert!(!store.revoke_key(mine, &lasting.info.id, 50_002).await.unwrap());
    let listed = store.keys(mine).await.unwrap();
    assert_eq!(listed.len(), 2);
    assert!(listed.iter().any(|info| info.revoked_at == Some(50_001)));
    assert_eq!(store.purge(100 * 24 * 3_600_000).await.unwrap(), 2);
}

pub(crate) async fn changes_of_the_user_count_at_once(database: Database) {
    let store = database.open().await;
    let ada = owner(&store).await;
    let bob = member(&store, &ada.org, "bob").await;
    let made = key(&store, &bob, None).await;
    assert!(is_good(&store, &made, 0).await);
    let rise = UserChange { tier: Some("pro"), role: Some(Role::Admin), ..UserChange::default() };
    store.update_user(&ada.org, &bob.id, &rise).await.unwrap();
    let principal = store.authenticate_key(made.secret.expose(), 1).await.unwrap().unwrap();
    assert_eq!((principal.tier.as_str(), principal.role), ("pro", Role::Admin));
    let disable = UserChange { is_disabled: Some(true), ..UserChange::default() };
    store.update_user(&ada.org, &bob.id, &disable).await.unwrap();
    assert!(!is_good(&store, &made, 2).await);
    let new = NewKey { user: &bob.id, name: "more", scopes: Scopes::all(), expires_at: None };
    assert!(matches!(store.create_key(&new, 3).await, Err(StoreError::Missing("user"))));
    let enable = UserChange { is_disabled: Some(false), ..UserChange::default() };
    store.update_user(&ada.org, &bob.id, &enable).await.unwrap();
    assert!(is_good(&store, &made, 4).await);
    store.delete_user(&ada.org, &bob.id).await.unwrap();
    assert!(!is_good(&store, &made, 5).await);
}

pub(crate) async fn keys_of_others_are_out_of_reach(database: Database) {
    let store = database.open().await;
    let ada = owner(&store).await;
    let bob = member(&store, &ada.org, "bob").await;
    let away = store.create_org("Away", 0).await.unwrap();
    let eve = member(&store, &away.id, "eve").await;
    let made = key(&store, &bob, None).await;
    for stranger in [Owner::User(&ada.org, &ada.id), Owner::User(&away.id, &bob.id), Owner::Org(&away.id)] {
        assert!(!store.revoke_key(stranger, &made.info.id, 1).await.unwrap(), "{stranger:?}");
        assert_eq!(store.keys(stranger).await.unwrap(), []);
    }
    assert!(is_good(&store, &made, 1).await);
    assert_eq!(store.keys(Owner::User(&away.id, &eve.id)).await.unwrap(), []);
    assert_eq!(store.keys(Owner::Org(&ada.org)).await.unwrap(), [stored(&store, &bob, &made.info.id).await]);
    assert!(store.revoke_key(Owner::Org(&ada.org), &made.info.id, 1).await.unwrap());
    assert!(!is_good(&store, &made, 1).await);
}

async fn stored(store: &Store, user: &User, id: &KeyId) -> motet_store::KeyInfo {
    let keys = store.keys(Owner::User(&user.org, &user.id)).await.unwrap();
    keys.into_iter().find(|key| key.id == *id).unwrap()
}

pub(crate) async fn the_last_use_is_stored_coarsely(database: Database) {
    let store = database.open().await;
    let ada = owner(&store).await;
    let made = key(&store, &ada, None).await;
    let minute = 60_000;
    let uses = [(0, 0), (1, 0), (4, 0), (5, 5), (9, 5), (30, 30)];
    for (used, want) in uses {
        assert!(is_good(&store, &made, used * minute).await);
        let last = stored(&store, &ada, &made.info.id).await.last_used_at;
        assert_eq!(last, Some(want * minute), "used after {used} minutes");
    }
}

pub(crate) async fn known_keys_outlive_the_database(database: Database) {
    let store = database.open().await;
    let ada = owner(&store).await;
    let (used, unused) = (key(&store, &ada, None).await, key(&store, &ada, None).await);
    assert!(is_good(&store, &used, 0).await);
    store.close().await;
    assert!(is_good(&store, &used, 599_999).await);
    let late = store.authenticate_key(used.secret.expose(), 600_000).await;
    assert!(late.is_err_and(|error| error.is_temporary()));
    assert!(store.authenticate_key(unused.secret.expose(), 0).await.is_err());
}

pub(crate) async fn only_keys_that_work_count_toward_the_most(database: Database) {
    let store = database.open().await;
    let ada = owner(&store).await;
    let make = async |expires_at, now| {
        let new = NewKey { user: &ada.id, name: "key", scopes: Scopes::all(), expires_at };
        store.create_key(&new, now).await
    };
    for _ in 0..MAX_KEYS_PER_USER {
        make(Some(2_000), 1_000).await.unwrap();
    }
    assert!(matches!(make(None, 1_999).await, Err(StoreError::TooMany { .. })));
    for _ in 0..MAX_KEYS_PER_USER {
        make(None, 2_000).await.unwrap();
    }
    assert!(matches!(make(None, 2_001).await, Err(StoreError::TooMany { .. })));
    // Making and revoking in turns does not fill the table.
    let mine = Owner::User(&ada.org, &ada.id);
    for now in 3_000..3_150 {
        let mut live = store.keys(mine).await.unwrap();
        live.retain(|key| key.expires_at.is_none() && key.revoked_at.is_none());
        if let Some(key) = live.first() {
            assert!(store.revoke_key(mine, &key.id, now).await.unwrap());
        }
        make(Some(now + 1), now).await.unwrap();
    }
    let listed = store.keys(mine).await.unwrap();
    assert!(listed.len() <= 2 * MAX_KEYS_PER_USER + 1, "{}", listed.len());
    // The oldest of those that work no more went.
    assert!(listed.iter().all(|key| key.expires_at != Some(2_000)));
}
