//! Users who sign in with a provider.

use motet_store::{
    ExternalId, ExternalOutcome, ExternalSignIn, MAX_IDENTITIES_PER_USER, NewSession, Role, StoreError, User,
    UserChange,
};

use crate::{
    Database,
    identity::{member, owner},
};

const ISSUER: &str = "https://login.example.org";

pub(crate) fn sign_in(subject: &str) -> ExternalSignIn<'_> {
    ExternalSignIn {
        id: ExternalId { issuer: ISSUER, subject },
        login: "Ann@Example.org",
        display_name: Some("Ann A."),
        tier: "free",
        has_mapped_tier: false,
        may_be_first_owner: false,
    }
}

fn created(outcome: ExternalOutcome) -> User {
    match outcome {
        ExternalOutcome::Created(user) => user,
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn whoever_comes_first_does_not_own_the_server(database: Database) {
    let store = database.open().await;
    let refused = store.sign_in_external("Home", &sign_in("1"), 1).await.unwrap();
    assert_eq!(refused, ExternalOutcome::NoAccounts);
    assert!(store.is_empty().await.unwrap() && store.orgs(None).await.unwrap().is_empty());
    // The one that is configured does, once, whoever else comes at the same time.
    let first = ExternalSignIn { may_be_first_owner: true, ..sign_in("1") };
    let again = ExternalSignIn { may_be_first_owner: true, ..sign_in("2") };
    let (one, other) =
        tokio::join!(store.sign_in_external("Home", &first, 2), store.sign_in_external("Home", &again, 2),);
    let roles = [created(one.unwrap()).role, created(other.unwrap()).role];
    assert_eq!(roles.iter().filter(|role| **role == Role::Owner).count(), 1, "{roles:?}");
    assert_eq!(store.orgs(None).await.unwrap().len(), 1);
    let late = created(store.sign_in_external("Home", &sign_in("3"), 3).await.unwrap());
    assert_eq!((late.role, late.login.as_str()), (Role::Member, "ann@example.org-3"));
}

pub(crate) async fn an_identity_stands_for_one_user(database: Database) {
    let store = database.open().await;
    let ada = owner(&store).await;
    let tries = (0..8).map(|_| {
        let store = store.clone();
        tokio::spawn(async move { store.sign_in_external("Home", &sign_in("1"), 1).await })
    });
    let mut users = Vec::new();
    for one in tries.collect::<Vec<_>>() {
        match one.await.unwrap().unwrap() {
            ExternalOutcome::Created(user) | ExternalOutcome::Known(user) => users.push(user),
            other => panic!("{other:?}"),
        }
    }
    assert!(users.iter().all(|user| *user == users[0]), "{users:?}");
    assert_eq!((users[0].login.as_str(), users[0].org.clone()), ("ann@example.org", ada.org.clone()));
    assert_eq!(store.users(&ada.org, None).await.unwrap().len(), 2);
    assert_eq!(store.user_by_identity(sign_in("1").id).await.unwrap().as_ref(), Some(&users[0]));
    let elsewhere = ExternalId { issuer: "https://login.example.org/", subject: "1" };
    assert_eq!(store.user_by_identity(elsewhere).await.unwrap(), None);
    // Nobody gets another's account by having the same name, however many have it.
    let mut logins = Vec::new();
    for number in 2..25 {
        let subject = number.to_string();
        logins.push(created(store.sign_in_external("Home", &sign_in(&subject), 2).await.unwrap()).login);
    }
    assert_eq!(logins[..2], ["ann@example.org-2", "ann@example.org-3"]);
    assert!(logins[22].len() > "ann@example.org-24".len(), "{logins:?}");
    for subject in ["", "a\u{0}", &"x".repeat(1025)] {
        let refused = store.sign_in_external("Home", &sign_in(subject), 2).await;
        assert!(matches!(refused, Err(StoreError::Invalid { .. })), "{subject:?}: {refused:?}");
    }
}

pub(crate) async fn an_account_follows_the_provider(database: Database) {
    let store = database.open().await;
    let ada = owner(&store).await;
    let ann = created(store.sign_in_external("Home", &sign_in("1"), 1).await.unwrap());
    let other = ExternalSignIn { tier: "pro", display_name: Some("Ann B."), ..sign_in("1") };
    let known = |tier: &str, name: &str| {
        ExternalOutcome::Known(User { tier: tier.into(), display_name: name.into(), ..ann.clone() })
    };
    assert_eq!(store.sign_in_external("Home", &other, 2).await.unwrap(), known("free", "Ann B."));
    let mapped = ExternalSignIn { has_mapped_tier: true, display_name: None, ..other };
    assert_eq!(store.sign_in_external("Home", &mapped, 3).await.unwrap(), known("pro", "Ann B."));
    // A name that can't be kept is no reason to stay out.
    let nameless = ExternalSignIn { display_name: Some(" \n "), ..mapped };
    assert_eq!(store.sign_in_external("Home", &nameless, 4).await.unwrap(), known("pro", "Ann B."));
    let seen: Vec<_> =
        store.identities(&ann.id).await.unwrap().into_iter().map(|i| (i.linked_at, i.seen_at)).collect();
    assert_eq!(seen, [(1, 4)]);
    // Who is kept out stays out, and whoever is removed starts anew.
    let disable = UserChange { is_disabled: Some(true), ..UserChange::default() };
    store.update_user(&ada.org, &ann.id, &disable).await.unwrap();
    let outcome = store.sign_in_external("Home", &mapped, 5).await.unwrap();
    assert!(matches!(outcome, ExternalOutcome::Disabled(user) if user.id == ann.id));
    let session = NewSession { user: &ann.id, user_agent: "", address: "" };
    assert!(store.create_session(&session, 5).await.is_err());
    store.delete_user(&ada.org, &ann.id).await.unwrap();
    assert_eq!(store.user_by_identity(mapped.id).await.unwrap(), None);
    assert_ne!(created(store.sign_in_external("Home", &mapped, 6).await.unwrap()).id, ann.id);
}

pub(crate) async fn identities_are_linked_and_unlinked(database: Database) {
    let store = database.open().await;
    let ada = owner(&store).await;
    let bob = member(&store, &ada.org, "bob").await;
    let id = |subject| ExternalId { issuer: ISSUER, subject };
    store.link_identity(&ada.id, id("1"), 1).await.unwrap();
    store.link_identity(&ada.id, id("1"), 2).await.unwrap();
    let taken = store.link_identity(&bob.id, id("1"), 2).await;
    assert!(matches!(taken, Err(StoreError::IdentityTaken)), "{taken:?}");
    let outcome = store.sign_in_external("Home", &sign_in("1"), 3).await.unwrap();
    assert!(matches!(outcome, ExternalOutcome::Known(user) if user.id == ada.id && user.role == Role::Owner));
    assert!(!store.unlink_identity(&bob.id, id("1")).await.unwrap());
    assert!(store.unlink_identity(&ada.id, id("1")).await.unwrap());
    assert!(store.identities(&ada.id).await.unwrap().is_empty());
    let nobody = motet_store::UserId::new("user_none");
    assert!(matches!(store.link_identity(&nobody, id("1"), 1).await, Err(StoreError::Missing("user"))));
    let subjects: Vec<String> = (0..=MAX_IDENTITIES_PER_USER).map(|number| number.to_string()).collect();
    for (number, subject) in subjects.iter().enumerate() {
        let linked = store.link_identity(&bob.id, id(subject), 1).await;
        assert_eq!(linked.is_ok(), number < MAX_IDENTITIES_PER_USER, "{linked:?}");
    }
    assert_eq!(store.identities(&bob.id).await.unwrap().len(), MAX_IDENTITIES_PER_USER);
}
