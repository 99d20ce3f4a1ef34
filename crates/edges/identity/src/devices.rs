//! Where people are signed in.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use motet_store::{SessionId, StoreError};
use serde_json::{Value, json};

use crate::credentials::By;
use crate::error::Refusal;
use crate::identity::Identity;
use crate::request::Named;
use crate::wire;

/// `GET /api/devices`: all of them, the last seen first; there are few ([`motet_store::MAX_SESSIONS_PER_USER`]).
pub(crate) async fn list(State(identity): State<Arc<Identity>>, By(who): By) -> Result<Json<Value>, Refusal> {
    who.require_manager()?;
    let devices = identity.store.sessions(&who.principal.user, identity.now()).await?;
    let data = devices.iter().map(|device| wire::device(device, who.session())).collect();
    Ok(Json(wire::list(data, false)))
}

/// `DELETE /api/devices/{id}`: signs one of the caller's own out.
pub(crate) async fn end(
    State(identity): State<Arc<Identity>>,
    By(who): By,
    Named(id): Named,
) -> Result<Json<Value>, Refusal> {
    who.require_manager()?;
    if !identity.store.end_session(&who.principal.user, &SessionId::new(id.as_str())).await? {
        return Err(StoreError::Missing("device").into());
    }
    Ok(Json(wire::deleted("device", &id)))
}

/// `DELETE /api/devices`: signs all others out.
pub(crate) async fn end_others(
    State(identity): State<Arc<Identity>>,
    By(who): By,
) -> Result<Json<Value>, Refusal> {
    who.require_manager()?;
    let ended = identity.store.end_sessions(&who.principal.user, who.session()).await?;
    Ok(Json(json!({"object": "devices", "deleted": true, "count": ended})))
}
