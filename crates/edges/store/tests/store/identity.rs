//! Organisations, users and passwords.

use motet_store::{
    FirstOwner, NewSession, NewUser, OrgId, PasswordCost, Role, Secret, Store, StoreError, StoreOptions,
    User, UserChange,
};

use crate::Database;

pub(crate) const PASSWORD: &str = "correct horse";

/// The first owner of an empty store.
pub(crate) async fn owner(store: &Store) -> User {
    first_owner(store, "Ada").await.unwrap()
}

async fn first_owner(store: &Store, login: &str) -> Option<User> {
    let password = Secret::new(PASSWORD);
    let owner =
        FirstOwner { org_name: "Home", login, display_name: "Ada L.", tier: "pro", password: &password };
    store.create_first_owner(&owner, 1_000).await.unwrap()
}

/// Another user of an organisation.
pub(crate) async fn member(store: &Store, org: &OrgId, login: &str) -> User {
    store.create_user(&new_member(org, login), 2_000).await.unwrap()
}

fn new_member<'a>(org: &'a OrgId, login: &'a str) -> NewUser<'a> {
    NewUser { org, login, display_name: "Some One", role: Role::Member, tier: "free", password: None }
}

pub(crate) async fn of_racing_first_owners_one_wins(database: Database) {
    let store = database.open().await;
    assert!(store.is_empty().await.unwrap());
    let tries = (0..8).map(|n| {
        let store = store.clone();
        tokio::spawn(async move { first_owner(&store, &format!("owner{n}")).await })
    });
    let mut winners = Vec::new();
    for one in tries.collect::<Vec<_>>() {
        winners.extend(one.await.unwrap());
    }
    assert_eq!(winners.len(), 1);
    assert!(!store.is_empty().await.unwrap());
    assert_eq!(store.orgs(None).await.unwrap().len(), 1);
    assert_eq!(store.users(&winners[0].org, None).await.unwrap(), winners);
    assert_eq!(first_owner(&store, "late").await, None);
}

pub(crate) async fn the_first_owner_takes_an_organisation_without_users(database: Database) {
    let store = database.open().await;
    let left = store.create_org("default", 0).await.unwrap();
    assert_eq!(owner(&store).await.org, left.id);
    assert_eq!(store.orgs(None).await.unwrap(), [left]);
}

pub(crate) async fn users_are_found_changed_and_removed(database: Database) {
    let store = database.open().await;
    let ada = owner(&store).await;
    assert_eq!((ada.login.as_str(), ada.role, ada.tier.as_str()), ("ada", Role::Owner, "pro"));
    let bob = member(&store, &ada.org, " Bob@Example.ORG ").await;
    assert_eq!(store.user_by_login("bob@example.org").await.unwrap().as_ref(), Some(&bob));
    assert_eq!(store.user(&bob.id).await.unwrap().as_ref(), Some(&bob));
    let change = UserChange { tier: Some("pro"), role: Some(Role::Admin), ..UserChange::default() };
    let changed = store.update_user(&ada.org, &bob.id, &change).await.unwrap();
    assert_eq!(changed, User { tier: "pro".into(), role: Role::Admin, ..bob.clone() });
    assert_eq!(store.users(&ada.org, None).await.unwrap(), [ada.clone(), changed.clone()]);
    assert_eq!(store.users(&ada.org, Some("ada")).await.unwrap(), [changed]);
    let other = store.create_org("Away", 3_000).await.unwrap();
    let foreign = store.update_user(&other.id, &bob.id, &change).await;
    assert!(matches!(foreign, Err(StoreError::Missing("user"))));
    assert!(matches!(store.delete_user(&other.id, &bob.id).await, Err(StoreError::Missing("user"))));
    store.delete_user(&ada.org, &bob.id).await.unwrap();
    assert_eq!(store.user(&bob.id).await.unwrap(), None);
}

pub(crate) async fn fields_are_checked(database: Database) {
    let store = database.open().await;
    let ada = owner(&store).await;
    let taken = store.create_user(&new_member(&ada.org, "ADA"), 0).await;
    assert!(matches!(taken, Err(StoreError::LoginTaken)), "{taken:?}");
    let nowhere = store.create_user(&new_member(&OrgId::new("org_none"), "eve"), 0).await;
    assert!(matches!(nowhere, Err(StoreError::Missing("organisation"))), "{nowhere:?}");
    for login in ["", "  ", "two words", "a\0b", "a\nb", &"x".repeat(255)] {
        let refused = store.create_user(&new_member(&ada.org, login), 0).await;
        assert!(
            matches!(refused, Err(StoreError::Invalid { what: "the login", .. })),
            "{login:?} {refused:?}"
        );
    }
    let short = Secret::new("short");
    let weak = store.create_user(&NewUser { password: Some(&short), ..new_member(&ada.org, "eve") }, 0).await;
    assert_eq!(weak.unwrap_err().to_string(), "the password needs at least 8 characters");
    // What looks like SQL is text.
    let odd = member(&store, &ada.org, "o'brien;--").await;
    assert_eq!(store.user_by_login("O'Brien;--").await.unwrap(), Some(odd));
}

pub(crate) async fn an_organisation_keeps_an_owner(database: Database) {
    let store = database.open().await;
    let ada = owner(&store).await;
    let step_down = UserChange { role: Some(Role::Member), ..UserChange::default() };
    let disable = UserChange { is_disabled: Some(true), ..UserChange::default() };
    for change in [&step_down, &disable] {
        let refused = store.update_user(&ada.org, &ada.id, change).await;
        assert!(matches!(refused, Err(StoreError::LastOwner)), "{refused:?}");
    }
    assert!(matches!(store.delete_user(&ada.org, &ada.id).await, Err(StoreError::LastOwner)));
    let bob = member(&store, &ada.org, "bob").await;
    let rise = UserChange { role: Some(Role::Owner), ..UserChange::default() };
    store.update_user(&ada.org, &bob.id, &rise).await.unwrap();
    // Both step down because of the other: one may.
    let (one, other) = tokio::join!(
        store.update_user(&ada.org, &ada.id, &step_down),
        store.update_user(&ada.org, &bob.id, &step_down)
    );
    assert_eq!(one.is_ok() as u8 + other.is_ok() as u8, 1);
}

pub(crate) async fn passwords_are_checked_and_hashed_anew(database: Database) {
    let store = database.open().await;
    let ada = owner(&store).await;
    let bob = member(&store, &ada.org, "bob").await;
    let right = Secret::new(PASSWORD);
    let check = async |store: &Store, login: &str, password: &str| {
        store.check_password(login, &Secret::new(password)).await.unwrap().map(|user| user.id)
    };
    assert_eq!(check(&store, "ADA", PASSWORD).await, Some(ada.id.clone()));
    for (login, password) in [("ada", "wrong horse"), ("nobody", PASSWORD), ("bob", PASSWORD), ("bob", "")] {
        assert_eq!(check(&store, login, password).await, None, "{login}");
    }
    // A store with another cost stores its own hash at the next login.
    let options =
        StoreOptions { passwords: PasswordCost { memory_kib: 64, passes: 2 }, ..Default::default() };
    let dearer = Store::open_with(&database.url, options).await.unwrap();
    assert_eq!(check(&dearer, "ada", PASSWORD).await, Some(ada.id.clone()));
    assert_eq!(check(&store, "ada", PASSWORD).await, Some(ada.id.clone()));
    // A new password ends the sessions, but for the one it was set in.
    store.set_password(&bob.id, &right, None).await.unwrap();
    let new = NewSession { user: &bob.id, user_agent: "", address: "" };
    let kept = store.create_session(&new, 0).await.unwrap();
    let other = store.create_session(&new, 0).await.unwrap();
    store.set_password(&bob.id, &Secret::new("another horse"), Some(&kept.id)).await.unwrap();
    assert!(store.authenticate_session(kept.token.expose(), 1).await.unwrap().is_some());
    assert!(store.authenticate_session(other.token.expose(), 1).await.unwrap().is_none());
    assert_eq!(check(&store, "bob", PASSWORD).await, None);
    let disable = UserChange { is_disabled: Some(true), ..UserChange::default() };
    store.update_user(&ada.org, &bob.id, &disable).await.unwrap();
    assert_eq!(check(&store, "bob", "another horse").await, None);
    assert!(store.authenticate_session(kept.token.expose(), 1).await.unwrap().is_none());
}
