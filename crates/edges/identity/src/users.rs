//! Other people's accounts, for administrators.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use motet_protocol::RequestError;
use motet_store::{NewUser, Role, Secret, StoreError, User, UserChange, UserId};
use serde_json::Value;

use crate::credentials::{By, Who};
use crate::error::Refusal;
use crate::identity::Identity;
use crate::request::{Fields, Named, Params, required};
use crate::wire;

/// Letters and digits of a password that is made for somebody: 95 bits, and short enough to be told.
const MADE_PASSWORD_CHARS: usize = 16;

/// `GET /api/users`: the organisation's, by login.
pub(crate) async fn list(
    State(identity): State<Arc<Identity>>,
    By(who): By,
    params: Params,
) -> Result<Json<Value>, Refusal> {
    who.require_admin()?;
    let limit = params.limit()?;
    let after = match params.after() {
        Some(id) => Some(of_org(&identity, &who, id).await?.ok_or_else(wire::unknown_cursor)?.login),
        None => None,
    };
    let users = identity.store.users(&who.principal.org, after.as_deref()).await?;
    let data = users.iter().take(limit).map(wire::user).collect();
    Ok(Json(wire::list(data, users.len() > limit)))
}

/// `POST /api/users`: makes a user. Without a password one is made, and told this once.
pub(crate) async fn create(
    State(identity): State<Arc<Identity>>,
    By(who): By,
    mut fields: Fields,
) -> Result<Json<Value>, Refusal> {
    who.require_admin()?;
    let login = fields.text("login")?;
    let display_name = fields.text("display_name")?;
    let role = fields.role("role")?.unwrap_or(Role::Member);
    let tier = fields.text("tier")?;
    let password = fields.secret("password")?;
    fields.end()?;
    let login = required(login, "login")?;
    check_tier(&identity, tier.as_deref())?;
    require_above(&who, role)?;
    let made = if password.is_none() { Some(Secret::random(MADE_PASSWORD_CHARS)?) } else { None };
    let new = NewUser {
        org: &who.principal.org,
        login: &login,
        display_name: display_name.as_deref().unwrap_or(&login),
        role,
        tier: tier.as_deref().unwrap_or_else(|| identity.default_tier()),
        password: password.as_ref().or(made.as_ref()),
    };
    let turn = identity.turn()?;
    let user = identity.store.create_user(&new, identity.now()).await?;
    drop(turn);
    tracing::info!(user = %user.id, by = %who.principal.user, "a user was made");
    Ok(Json(with_password(wire::user(&user), made.as_ref())))
}

/// `PATCH /api/users/{id}`: changes a user; with `reset_password` a new password is made, and told this once.
pub(crate) async fn change(
    State(identity): State<Arc<Identity>>,
    By(who): By,
    Named(id): Named,
    mut fields: Fields,
) -> Result<Json<Value>, Refusal> {
    who.require_admin()?;
    let display_name = fields.text("display_name")?;
    let role = fields.role("role")?;
    let tier = fields.text("tier")?;
    let is_disabled = fields.flag("is_disabled")?;
    let must_reset = fields.flag("reset_password")?.unwrap_or(false);
    fields.end()?;
    let user = target(&identity, &who, &id).await?;
    check_tier(&identity, tier.as_deref())?;
    if let Some(role) = role {
        require_above(&who, role)?;
    }
    let turn = if must_reset { Some(identity.turn()?) } else { None };
    let change =
        UserChange { display_name: display_name.as_deref(), role, tier: tier.as_deref(), is_disabled };
    let user = identity.store.update_user(&who.principal.org, &user.id, &change).await?;
    let made = if must_reset { Some(Secret::random(MADE_PASSWORD_CHARS)?) } else { None };
    if let Some(password) = &made {
        let keep = who.session().filter(|_| user.id == who.principal.user);
        identity.store.set_password(&user.id, password, keep).await?;
    }
    drop(turn);
    tracing::info!(user = %user.id, by = %who.principal.user, password = must_reset, "a user was changed");
    Ok(Json(with_password(wire::user(&user), made.as_ref())))
}

/// `DELETE /api/users/{id}`: removes a user with keys and sessions; what the user used stays on record.
pub(crate) async fn remove(
    State(identity): State<Arc<Identity>>,
    By(who): By,
    Named(id): Named,
) -> Result<Json<Value>, Refusal> {
    who.require_admin()?;
    let user = target(&identity, &who, &id).await?;
    identity.store.delete_user(&who.principal.org, &user.id).await?;
    tracing::info!(user = %user.id, by = %who.principal.user, "a user was removed");
    Ok(Json(wire::deleted("user", &id)))
}

/// A user of the caller's organisation.
pub(crate) async fn of_org(identity: &Identity, who: &Who, id: &str) -> Result<Option<User>, Refusal> {
    let user = identity.store.user(&UserId::new(id)).await?;
    Ok(user.filter(|user| user.org == who.principal.org))
}

/// A user whom the caller may change.
async fn target(identity: &Identity, who: &Who, id: &str) -> Result<User, Refusal> {
    let user = of_org(identity, who, id).await?.ok_or(StoreError::Missing("user"))?;
    require_above(who, user.role)?;
    Ok(user)
}

/// Owners manage everybody, administrators members only: otherwise one could make itself an owner.
fn require_above(who: &Who, role: Role) -> Result<(), Refusal> {
    match (who.principal.role, role) {
        (Role::Owner, _) | (Role::Admin, Role::Member) => Ok(()),
        _ => Err(Refusal::Forbidden("only owners make, change and remove administrators and owners")),
    }
}

fn check_tier(identity: &Identity, tier: Option<&str>) -> Result<(), RequestError> {
    let tiers = &identity.config.tiers;
    if tier.is_none_or(|name| tiers.iter().any(|tier| tier == name)) {
        return Ok(());
    }
    Err(RequestError::bad_value("tier", format!("must be one of {}", tiers.join(", "))))
}

fn with_password(mut body: Value, password: Option<&Secret>) -> Value {
    if let Some(password) = password {
        body["password"] = password.expose().into();
    }
    body
}
