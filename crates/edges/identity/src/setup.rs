//! The first account.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use http::HeaderMap;
use motet_store::FirstOwner;

use crate::error::Refusal;
use crate::identity::{Client, Identity};
use crate::request::{Fields, required};
use crate::session;

/// The organisation of the first account.
const FIRST_ORG: &str = "default";

/// `POST /api/setup`: makes the first account and signs it in. Of requests that race the store lets one win.
pub(crate) async fn create(
    State(identity): State<Arc<Identity>>,
    Extension(client): Extension<Client>,
    headers: HeaderMap,
    mut fields: Fields,
) -> Result<Response, Refusal> {
    session::require_own_page(&identity, &headers)?;
    let login = fields.text("login")?;
    let display_name = fields.text("display_name")?;
    let password = fields.secret("password")?;
    let token = fields.secret("token")?;
    fields.end()?;
    if !identity.is_empty().await? {
        return Err(Refusal::SetupDone);
    }
    // Before anything is hashed: strangers must not make this server work.
    if !client.is_local && !token.is_some_and(|token| identity.is_setup_token(&token)) {
        tracing::warn!(address = %client.address, "the first account was not made: no valid one-time token");
        return Err(Refusal::SetupToken);
    }
    let login = required(login, "login")?;
    let password = required(password, "password")?;
    let owner = FirstOwner {
        org_name: FIRST_ORG,
        login: &login,
        display_name: display_name.as_deref().unwrap_or(&login),
        tier: identity.default_tier(),
        password: &password,
    };
    let turn = identity.turn()?;
    let made = identity.store.create_first_owner(&owner, identity.now()).await?;
    drop(turn);
    let user = made.ok_or(Refusal::SetupDone)?;
    identity.end_setup();
    tracing::info!(user = %user.id, address = %client.address, "the first account was made");
    session::begin(&identity, &user, &client).await
}
