//! Sign-in in front of a real store: what an application does behind [`SignIn`].

use std::collections::BTreeMap;

use http::{HeaderValue, StatusCode, header, request::Parts};
use motet_oidc::{Denied, HttpLimits, Identity, ProviderConfig, SignIn, SignedIn};
use motet_store::{ExternalId, ExternalOutcome, ExternalSignIn, NewSession, Role, Store, StoreError};
use serde_json::json;

use crate::{
    browser::{Browser, config},
    provider::{NOW, TestProvider},
    signer::Signer,
};

struct Accounts(Store);

impl SignIn for Accounts {
    async fn sign_in(&self, identity: Identity, request: &Parts) -> Result<SignedIn, Denied> {
        let asked = ExternalSignIn {
            id: ExternalId { issuer: &identity.issuer, subject: &identity.subject },
            login: &identity.login,
            display_name: identity.name.as_deref(),
            tier: &identity.tier,
            has_mapped_tier: identity.has_mapped_tier,
            may_be_first_owner: identity.may_be_first_owner,
        };
        let deny = |message: &str| Denied { message: message.to_owned(), is_temporary: false };
        let failed =
            |error: StoreError| Denied { message: error.to_string(), is_temporary: error.is_temporary() };
        let user = match self.0.sign_in_external("Home", &asked, NOW).await.map_err(failed)? {
            ExternalOutcome::Known(user) | ExternalOutcome::Created(user) => user,
            ExternalOutcome::Disabled(_) => {
                return Err(deny("this account is disabled; ask an administrator"));
            }
            ExternalOutcome::NoAccounts => {
                return Err(deny("there are no accounts yet; the operator has to make the first"));
            }
        };
        let agent = request.headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok());
        let new = NewSession { user: &user.id, user_agent: agent.unwrap_or_default(), address: "" };
        let session = self.0.create_session(&new, NOW).await.map_err(failed)?;
        let cookie = format!("motet_session={}; Path=/; HttpOnly; SameSite=Lax", session.token.expose());
        Ok(SignedIn { cookies: vec![HeaderValue::from_str(&cookie).unwrap()] })
    }
}

async fn start(adapt: impl FnOnce(ProviderConfig) -> ProviderConfig) -> (TestProvider, Browser<Accounts>) {
    let provider = TestProvider::start(Signer::p256("own")).await;
    let store = Store::open("sqlite::memory:").await.unwrap();
    let config = adapt(config(&provider));
    let browser = Browser::before(config, HttpLimits::default(), Accounts(store));
    (provider, browser)
}

#[tokio::test]
async fn nobody_owns_an_empty_server_by_coming_first() {
    let (provider, mut browser) = start(|config| config).await;
    let page = browser.sign_in(&provider).await;
    assert_eq!(page.status, StatusCode::FORBIDDEN, "{page:?}");
    assert!(page.body.contains("there are no accounts yet") && browser.cookies.is_empty());
    assert!(browser.app.0.is_empty().await.unwrap());
}

#[tokio::test]
async fn an_account_is_made_kept_and_brought_up_to_date() {
    let first = |config| ProviderConfig { first_owner_email: Some("ANN@example.org".into()), ..config };
    let (provider, mut browser) = start(first).await;
    let page = browser.sign_in(&provider).await;
    assert_eq!(page.status, StatusCode::SEE_OTHER, "{page:?}");
    let store = browser.app.0.clone();
    let session = store.authenticate_session(&browser.cookies["motet_session"], NOW).await.unwrap().unwrap();
    assert_eq!((session.principal.role, session.principal.tier.as_str()), (Role::Owner, "pro"));
    // Another address and other groups, and the same user.
    provider.script().claims = json!({"email": "ann.b@example.org", "groups": [], "name": "Ann B."});
    browser.cookies = BTreeMap::new();
    assert_eq!(browser.sign_in(&provider).await.status, StatusCode::SEE_OTHER);
    let user = store.user(&session.principal.user).await.unwrap().unwrap();
    assert_eq!((user.login.as_str(), user.display_name.as_str()), ("ann@example.org", "Ann B."));
    assert_eq!((user.tier.as_str(), user.role), ("free", Role::Owner));
    // Another user with the first one's address is not the first one, nor an owner.
    provider.script().claims = json!({"sub": "user-2"});
    assert_eq!(browser.sign_in(&provider).await.status, StatusCode::SEE_OTHER);
    let session = store.authenticate_session(&browser.cookies["motet_session"], NOW).await.unwrap().unwrap();
    assert_ne!(session.principal.user, user.id);
    assert_eq!(session.principal.role, Role::Member);
}
