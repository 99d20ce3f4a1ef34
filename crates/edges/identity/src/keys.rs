//! The caller's own API keys.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use motet_protocol::RequestError;
use motet_store::{KeyId, NewKey, Owner, Role, Scope, Scopes, StoreError};
use serde_json::Value;

use crate::credentials::By;
use crate::error::Refusal;
use crate::identity::Identity;
use crate::request::{Fields, Named, Params, required};
use crate::wire;

/// What a key may be used for when nobody says.
const USUAL_SCOPES: [Scope; 4] = [Scope::Chat, Scope::Embeddings, Scope::Batches, Scope::Usage];

/// The longest that a key may last: a hundred years, as seconds. One that never ends has no date at all.
const LONGEST_S: i64 = 100 * 366 * 86_400;

/// `GET /api/keys`: newest first, with those that ended in the last months.
pub(crate) async fn list(
    State(identity): State<Arc<Identity>>,
    By(who): By,
    params: Params,
) -> Result<Json<Value>, Refusal> {
    who.require_manager()?;
    let keys = identity.store.keys(Owner::User(&who.principal.org, &who.principal.user)).await?;
    let data = keys.iter().map(wire::key).collect();
    Ok(Json(wire::page(data, params.after(), params.limit()?)?))
}

/// `POST /api/keys`: a key, and the only time that it can be read.
pub(crate) async fn create(
    State(identity): State<Arc<Identity>>,
    By(who): By,
    mut fields: Fields,
) -> Result<Json<Value>, Refusal> {
    who.require_manager()?;
    let name = fields.text("name")?;
    let scopes = fields.names("scopes")?;
    let expires_at = fields.number("expires_at")?;
    fields.end()?;
    let name = required(name, "name")?;
    let scopes = match scopes {
        None => USUAL_SCOPES.into_iter().collect(),
        Some(names) => scopes_of(&names)?,
    };
    if scopes.has(Scope::Admin) && who.principal.role == Role::Member {
        return Err(Refusal::Forbidden("only administrators have keys with the scope 'admin'"));
    }
    let now = identity.now();
    let expires_at = expires_at.map(|at| expiry(at, now)).transpose()?;
    let new = NewKey { user: &who.principal.user, name: &name, scopes, expires_at };
    let made = identity.store.create_key(&new, now).await?;
    tracing::info!(user = %who.principal.user, key = %made.info.id, "a key was made");
    let mut body = wire::key(&made.info);
    body["key"] = made.secret.expose().into();
    Ok(Json(body))
}

/// `DELETE /api/keys/{id}`: ends one of the caller's own at once.
pub(crate) async fn revoke(
    State(identity): State<Arc<Identity>>,
    By(who): By,
    Named(id): Named,
) -> Result<Json<Value>, Refusal> {
    who.require_manager()?;
    let owner = Owner::User(&who.principal.org, &who.principal.user);
    if !identity.store.revoke_key(owner, &KeyId::new(id.as_str()), identity.now()).await? {
        return Err(StoreError::Missing("key").into());
    }
    tracing::info!(user = %who.principal.user, key = %id, "a key was revoked");
    Ok(Json(wire::deleted("api_key", &id)))
}

fn scopes_of(names: &[String]) -> Result<Scopes, RequestError> {
    let all = || Scope::ALL.map(Scope::as_str).join(", ");
    if names.is_empty() {
        return Err(RequestError::bad_value("scopes", format!("may not be empty; there are {}", all())));
    }
    let scope = |(at, name): (usize, &String)| {
        let why = || RequestError::bad_value(format!("scopes[{at}]"), format!("must be one of {}", all()));
        Scope::from_name(name).ok_or_else(why)
    };
    names.iter().enumerate().map(scope).collect()
}

/// When a key is to end, in milliseconds.
fn expiry(at: i64, now: i64) -> Result<i64, RequestError> {
    let now = now.div_euclid(1000);
    if (now + 1..=now + LONGEST_S).contains(&at) {
        return Ok(at * 1000);
    }
    Err(RequestError::bad_value(
        "expires_at",
        "must be Unix seconds in the future, within a hundred years; null is never",
    ))
}
