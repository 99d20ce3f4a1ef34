//! Signing in with the configured OpenID Connect providers: an identity there, an account and a session here.

use std::sync::Arc;

use axum::Router;
use http::request::Parts;
use motet_identity::Identity;
use motet_oidc::{Denied, HttpLimits, Provider, SignIn, SignedIn};
use motet_store::{ExternalId, ExternalOutcome, ExternalSignIn, Store, StoreError};

use super::{FIRST_ORG, now};
use crate::{config::Config, failure::Failure};

/// Makes sessions of identities.
struct External {
    store: Store,
    identity: Arc<Identity>,
}

/// The configured providers. They are asked for their documents when somebody signs in, not now.
pub(super) fn providers(config: &Config) -> Result<Vec<Provider>, Failure> {
    let provider = |written: &crate::config::SignInProvider| {
        let config = written.provider_config().map_err(Failure::usage)?;
        Provider::new(config, HttpLimits::default()).map_err(Failure::usage)
    };
    config.oidc.iter().map(provider).collect()
}

/// Their names for the sign-in page.
pub(super) fn listed(providers: &[Provider]) -> Vec<motet_identity::Provider> {
    let listed = |provider: &Provider| {
        let config = provider.config();
        motet_identity::Provider { name: config.title.clone(), url: format!("/api/oidc/{}", config.name) }
    };
    providers.iter().map(listed).collect()
}

/// The routes that a browser goes to a provider and comes back by.
pub(super) fn routes(providers: Vec<Provider>, store: Store, identity: Arc<Identity>) -> Router {
    motet_oidc::routes(providers, Arc::new(External { store, identity }), Arc::new(now))
}

impl SignIn for External {
    async fn sign_in(&self, identity: motet_oidc::Identity, request: &Parts) -> Result<SignedIn, Denied> {
        let asked = ExternalSignIn {
            id: ExternalId { issuer: &identity.issuer, subject: &identity.subject },
            login: &identity.login,
            display_name: identity.name.as_deref(),
            tier: &identity.tier,
            has_mapped_tier: identity.has_mapped_tier,
            may_be_first_owner: identity.may_be_first_owner,
        };
        let user = match self.store.sign_in_external(FIRST_ORG, &asked, now()).await.map_err(failed)? {
            ExternalOutcome::Known(user) | ExternalOutcome::Created(user) => user,
            ExternalOutcome::Disabled(_) => {
                return Err(denied("this account is disabled; ask an administrator of this server"));
            }
            ExternalOutcome::NoAccounts => {
                return Err(denied(
                    "there are no accounts yet; who runs this server makes the first, or sets first_owner_email",
                ));
            }
        };
        let begun =
            self.identity.begin_session(&user.id, &self.identity.client(request)).await.map_err(failed)?;
        tracing::info!(user = user.id.as_str(), issuer = identity.issuer, "signed in with a provider");
        Ok(SignedIn { cookies: vec![begun.set_cookie] })
    }
}

fn denied(message: &str) -> Denied {
    Denied { message: message.to_owned(), is_temporary: false }
}

fn failed(error: StoreError) -> Denied {
    tracing::warn!(%error, "an account could not be signed in");
    match error.is_temporary() {
        true => Denied { message: "accounts can't be looked up now".to_owned(), is_temporary: true },
        false => denied(&error.to_string()),
    }
}
