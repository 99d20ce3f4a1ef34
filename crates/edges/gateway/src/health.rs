use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State as Extract};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use http::{HeaderMap, Method, StatusCode, header};
use motet_fleet::{Facts, Pressure};
use motet_protocol::{ModelList, ModelObject};
use motet_types::Load;
use serde::Serialize;

use crate::access::{Caller, Denial, Identified};
use crate::catalogue::State;
use crate::error::ApiError;
use crate::gateway::Gateway;

/// What `/healthz` and `/readyz` say.
#[derive(Serialize)]
struct Health {
    status: &'static str,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<Progress>,
    version: &'static str,
}

/// How far the engine is.
#[derive(Serialize)]
struct Progress {
    /// Seconds since the last step began while there is work; 0 when idle.
    age_seconds: f64,
    steps: u64,
    running: u32,
    waiting: u32,
    /// Sequences that gave up their blocks and wait to come back.
    preempted: u32,
}

/// Alive: 200 unless a restart would help, that is, unless the default model's engine stopped or a step never
/// ends. Another model that fails is no reason to end the replies of those that don't.
/// Reads counters only, so it answers in milliseconds whatever the engine does.
pub(crate) async fn healthz(Extract(gateway): Extract<Arc<Gateway>>) -> Response {
    let dead = gateway.config.stall_dead.as_secs_f64();
    match gateway.catalogue().default_state() {
        State::Loading => respond(true, Health::new("loading", None)),
        State::Failed(why) => respond(false, Health::new("failed", Some(why.clone()))),
        State::Ready(served) => {
            let load = served.model.backend.load();
            let is_alive = load.stalled_seconds <= dead;
            let state = if is_alive { "ready" } else { "stalled" };
            let reason = (!is_alive).then(|| stall_reason(&load));
            respond(is_alive, Health::new(state, reason).with_model(&served.model.id, &load))
        }
    }
}

/// Ready: 200 when the default model can answer now.
pub(crate) async fn readyz(Extract(gateway): Extract<Arc<Gateway>>) -> Response {
    let limit = gateway.config.stall_unready.as_secs_f64();
    match gateway.catalogue().default_state() {
        State::Loading => respond(false, Health::new("loading", Some("the model is loading".into()))),
        State::Failed(why) => respond(false, Health::new("failed", Some(why.clone()))),
        State::Ready(served) => {
            let load = served.model.backend.load();
            let is_ready = load.stalled_seconds <= limit;
            let state = if is_ready { "ready" } else { "stalled" };
            let reason = (!is_ready).then(|| stall_reason(&load));
            respond(is_ready, Health::new(state, reason).with_model(&served.model.id, &load))
        }
    }
}

fn stall_reason(load: &Load) -> String {
    format!(
        "no step has begun for {:.0} s while {} sequences are running",
        load.stalled_seconds, load.running
    )
}

fn respond(is_well: bool, health: Health) -> Response {
    let status = if is_well { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let health = Health { status: if is_well { "ok" } else { "unavailable" }, ..health };
    (status, [(header::CACHE_CONTROL, "no-store")], Json(health)).into_response()
}

impl Health {
    fn new(state: &'static str, reason: Option<String>) -> Self {
        let version = env!("CARGO_PKG_VERSION");
        Self { status: "", state, reason, model: None, progress: None, version }
    }

    fn with_model(self, id: &str, load: &Load) -> Self {
        let &Load { running, waiting, preempted, steps, stalled_seconds: age_seconds, .. } = load;
        Self {
            model: Some(id.to_owned()),
            progress: Some(Progress { age_seconds, steps, running, waiting, preempted }),
            ..self
        }
    }
}

/// The metrics in the Prometheus text format.
///
/// Where there are accounts, they are for administrators. A loopback peer is no exception: it may be a proxy.
pub(crate) async fn metrics(
    Extract(gateway): Extract<Arc<Gateway>>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let Identified { caller, set_cookie } = gateway.caller(&method, &headers).await?;
    if !caller.scopes.admin {
        let why = "metrics need a key with the scope 'admin'";
        return Err(Denial::Forbidden(why.to_owned()).into());
    }
    let text = gateway.metrics.render().map_err(|_| ApiError::Internal)?;
    let kind = prometheus_client::encoding::prometheus_text::CONTENT_TYPE;
    let mut response = ([(header::CONTENT_TYPE, kind)], text).into_response();
    Identified::write(set_cookie, &mut response);
    Ok(response)
}

/// `GET /v1/models`: what can be used now, so nothing while it loads; the default model first.
pub(crate) async fn models(
    Extract(gateway): Extract<Arc<Gateway>>,
    Extension(caller): Extension<Arc<Caller>>,
) -> Json<ModelList> {
    let catalogue = gateway.catalogue();
    let usable = catalogue.ready().filter(|served| caller.may_use(&served.model.id));
    let objects = usable.map(|served| served.object());
    // Behind the models that generate, which clients without a choice of their own take.
    let embedding = gateway.embedding_model().filter(|model| caller.may_use(&model.id));
    let embedding = embedding.filter(|_| catalogue.ready().next().is_some());
    Json(ModelList::new(objects.chain(embedding.iter().map(|model| model.object())).collect()))
}

/// `GET /v1/models/{id}`, with or without its slashes encoded. An alias or a role gives the model it stands for.
pub(crate) async fn model(
    Extract(gateway): Extract<Arc<Gateway>>,
    Extension(caller): Extension<Arc<Caller>>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<ModelObject>, ApiError> {
    let (catalogue, embedding) = (gateway.catalogue(), gateway.embedding_model());
    // What does not decode to text is no model's name.
    let Ok(Path(id)) = id else { return Err(ApiError::UnknownModel("\u{fffd}".into())) };
    if let Some(model) = embedding.filter(|model| model.id == id && caller.may_use(&id)) {
        return Ok(Json(model.object()));
    }
    catalogue.check_any_ready()?;
    let (served, _) = catalogue.choose(&id, &caller, Pressure::default(), Facts::default)?;
    Ok(Json(served.object()))
}
