//! Sign-in, sign-out, and what people change about themselves.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use http::{HeaderMap, HeaderValue, header};
use motet_store::{Secret, SessionId, StoreError, User, UserChange};
use serde_json::{Value, json};

use crate::credentials::{By, Found, NotKnown, Who};
use crate::error::Refusal;
use crate::identity::{Client, Identity, no_cookie};
use crate::request::{Fields, required};
use crate::wire;

/// `GET /api/session`: who is signed in, if anybody is, and how somebody can be.
pub(crate) async fn show(
    State(identity): State<Arc<Identity>>,
    Extension(Found(found)): Extension<Found>,
    Extension(client): Extension<Client>,
) -> Result<Response, Refusal> {
    let who = match found {
        Ok(who) => who,
        Err(NotKnown::Nobody { has_dead_cookie }) => {
            let setup = setup(&identity, &client).await?;
            let gone = if has_dead_cookie { no_cookie(client.is_secure) } else { None };
            return Ok(with_cookie(Json(body(&identity, Signed::default(), setup)), gone));
        }
        Err(NotKnown::Forged(why)) => return Err(Refusal::Forged(why)),
        Err(NotKnown::Unavailable) => return Err(Refusal::Unavailable),
    };
    let user = user_of(&identity, &who).await?;
    let signed = Signed { user: Some(&user), session: who.session(), csrf: who.csrf.as_ref() };
    Ok(Json(body(&identity, signed, None)).into_response())
}

/// `POST /api/session`: signs in.
pub(crate) async fn sign_in(
    State(identity): State<Arc<Identity>>,
    Extension(client): Extension<Client>,
    headers: HeaderMap,
    mut fields: Fields,
) -> Result<Response, Refusal> {
    require_own_page(&identity, &headers)?;
    let (login, password) = (fields.text("login")?, fields.secret("password")?);
    fields.end()?;
    let (login, password) = (required(login, "login")?, required(password, "password")?);
    let address = client.address;
    let Some(user) = identity.check(&login, &password, address).await? else {
        // Not the login: people type passwords there.
        tracing::info!(%address, "sign-in failed");
        return Err(Refusal::WrongLogin);
    };
    tracing::info!(user = %user.id, %address, "signed in");
    begin(&identity, &user, &client).await
}

/// `DELETE /api/session`: signs out.
pub(crate) async fn sign_out(
    State(identity): State<Arc<Identity>>,
    Extension(client): Extension<Client>,
    By(who): By,
) -> Result<Response, Refusal> {
    let session = who.session().ok_or(Refusal::NeedsSession)?;
    identity.store.end_session(&who.principal.user, session).await?;
    tracing::info!(user = %who.principal.user, address = %client.address, "signed out");
    let body = Json(wire::deleted("session", session.as_str()));
    Ok(with_cookie(body, no_cookie(client.is_secure)))
}

/// `POST /api/session/password`: another password, and the end of the other sessions.
pub(crate) async fn change_password(
    State(identity): State<Arc<Identity>>,
    Extension(client): Extension<Client>,
    By(who): By,
    mut fields: Fields,
) -> Result<Json<Value>, Refusal> {
    let session = who.session().ok_or(Refusal::NeedsSession)?;
    let (old, new) = (fields.secret("old")?, fields.secret("new")?);
    fields.end()?;
    let (old, new) = (required(old, "old")?, required(new, "new")?);
    let user = user_of(&identity, &who).await?;
    // Whoever has taken a session over must not find the password out through it.
    if identity.check(&user.login, &old, client.address).await?.is_none() {
        tracing::info!(user = %user.id, address = %client.address, "a password was not changed: the old one was wrong");
        return Err(Refusal::WrongPassword);
    }
    let turn = identity.turn()?;
    identity.store.set_password(&user.id, &new, Some(session)).await.map_err(Refusal::of_new_password)?;
    drop(turn);
    tracing::info!(user = %user.id, address = %client.address, "a password was changed");
    Ok(Json(wire::user(&user)))
}

/// `PATCH /api/me`: what people may change about themselves.
pub(crate) async fn change_me(
    State(identity): State<Arc<Identity>>,
    By(who): By,
    mut fields: Fields,
) -> Result<Json<Value>, Refusal> {
    who.require_manager()?;
    let display_name = fields.text("display_name")?;
    fields.end()?;
    let change = UserChange { display_name: display_name.as_deref(), ..UserChange::default() };
    let principal = &who.principal;
    let user = identity.store.update_user(&principal.org, &principal.user, &change).await?;
    Ok(Json(wire::user(&user)))
}

/// Begins a session of a user who has shown who they are, and tells of it as [`show`] would.
pub(crate) async fn begin(identity: &Identity, user: &User, client: &Client) -> Result<Response, Refusal> {
    let begun = identity.begin_session(&user.id, client).await?;
    let signed = Signed { user: Some(user), session: Some(&begun.session), csrf: Some(&begun.csrf) };
    Ok(with_cookie(Json(body(identity, signed, None)), Some(begun.set_cookie)))
}

/// Refuses a sign-in that a page of another origin sends: it would sign people in as somebody else.
pub(crate) fn require_own_page(identity: &Identity, headers: &HeaderMap) -> Result<(), Refusal> {
    match identity.check_origin(headers) {
        Err(NotKnown::Forged(why)) => Err(Refusal::Forged(why)),
        _ => Ok(()),
    }
}

pub(crate) async fn user_of(identity: &Identity, who: &Who) -> Result<User, Refusal> {
    let user = identity.store.user(&who.principal.user).await?;
    Ok(user.ok_or(StoreError::Missing("user"))?)
}

/// How the first account can be made; `None` when there is one.
async fn setup(identity: &Identity, client: &Client) -> Result<Option<&'static str>, Refusal> {
    let how = if client.is_local { "open" } else { "token" };
    Ok(identity.is_empty().await?.then_some(how))
}

/// Who is signed in.
#[derive(Default)]
struct Signed<'a> {
    user: Option<&'a User>,
    session: Option<&'a SessionId>,
    csrf: Option<&'a Secret>,
}

fn body(identity: &Identity, signed: Signed<'_>, setup: Option<&str>) -> Value {
    let providers = identity.config.providers.iter();
    json!({
        "object": "session",
        "id": signed.session.map(SessionId::as_str),
        "user": signed.user.map(wire::user),
        "csrf_token": signed.csrf.map(Secret::expose),
        "setup": setup,
        "providers": providers.map(|p| json!({"name": p.name, "url": p.url})).collect::<Vec<_>>(),
    })
}

fn with_cookie(body: Json<Value>, cookie: Option<HeaderValue>) -> Response {
    let mut response = body.into_response();
    if let Some(cookie) = cookie {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}
