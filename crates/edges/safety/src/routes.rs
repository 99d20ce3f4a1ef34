//! `POST /v1/moderations`.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use futures_util::StreamExt;
use http::{HeaderMap, header};
use motet_protocol::{Moderation, ModerationRequest, ModerationResult, parse_body};
use tokio::sync::Semaphore;

use crate::category::FLAG_AT;
use crate::check::Check;
use crate::error::ApiError;

/// What answers, as replies name it.
pub const MODEL: &str = "motet-rules";
/// Starts of names that clients of the API ask for, and that are answered by [`MODEL`].
pub(crate) const ALIASES: [&str; 2] = ["omni-moderation-", "text-moderation-"];

/// Longest body in bytes: the most text there may be, six bytes for each where it is written as escapes.
const MAX_BODY_BYTES: usize = 2 << 20;
/// How much of a longer one is read.
const DRAIN_BYTES: usize = 64 << 20;
/// How long it may take to come.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// Requests at once, those that still send included; more get 503. They bound the memory of bodies to 128 MiB.
const PLACES: usize = 64;
/// Requests that are computed at once: a check of the most text takes some milliseconds, and the engine needs
/// the other processors.
const WORKERS: usize = 2;

/// The moderation endpoint on a check.
#[derive(Clone)]
pub struct Moderations {
    check: Arc<dyn Check>,
    places: Arc<Semaphore>,
    workers: Arc<Semaphore>,
}

impl Moderations {
    /// The endpoint on this check.
    pub fn new(check: Arc<dyn Check>) -> Self {
        Self { check, places: Arc::new(Semaphore::new(PLACES)), workers: Arc::new(Semaphore::new(WORKERS)) }
    }

    /// The routes, for a server that has found out who asks.
    pub fn routes(&self) -> Router {
        Router::new().route("/v1/moderations", post(moderate)).with_state(self.clone())
    }
}

async fn moderate(
    State(service): State<Moderations>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Moderation>, ApiError> {
    let place = Arc::clone(&service.places).try_acquire_owned().map_err(|_| ApiError::Busy)?;
    check_content_type(&headers)?;
    let read = tokio::time::timeout(BODY_TIMEOUT, read(body)).await;
    let bytes = read.unwrap_or(Err(ApiError::BodyTimeout(BODY_TIMEOUT.as_secs())))?;
    let worker = Arc::clone(&service.workers).acquire_owned().await.map_err(|_| ApiError::Internal)?;
    let work = move || {
        // They are given back when the work has ended, also where the client leaves before.
        let _held = (place, worker);
        answer(&*service.check, &bytes)
    };
    let answered = tokio::task::spawn_blocking(work).await.map_err(|_| ApiError::Internal)?;
    answered.map(Json)
}

fn answer(check: &dyn Check, body: &[u8]) -> Result<Moderation, ApiError> {
    let ModerationRequest { model, inputs } = ModerationRequest::from_body(&parse_body(body)?)?;
    if let Some(model) = model.filter(|model| !is_served(model)) {
        return Err(ApiError::UnknownModel(model.chars().take(100).collect()));
    }
    let result = |text: &String| ModerationResult::new(&check.check(text).moderation(), FLAG_AT);
    let results = inputs.iter().map(result).collect();
    Ok(Moderation { id: fresh_id()?, model: MODEL.to_owned(), results })
}

fn is_served(model: &str) -> bool {
    let is_version = |rest: &str| rest.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.'));
    model == MODEL || ALIASES.iter().any(|start| model.strip_prefix(start).is_some_and(is_version))
}

fn fresh_id() -> Result<String, ApiError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| {
        tracing::error!(%error, "there is no randomness for an id");
        ApiError::Internal
    })?;
    Ok(format!("modr-{:032x}", u128::from_be_bytes(bytes)))
}

/// A whole body. Of one that is too long the rest is read and thrown away, so that a client that writes before it reads
/// sees the answer and not a broken connection.
async fn read(body: Body) -> Result<Vec<u8>, ApiError> {
    let (mut stream, mut bytes, mut total) = (body.into_data_stream(), Vec::new(), 0usize);
    while let Some(chunk) = stream.next().await {
        let chunk = chunk.map_err(|_| ApiError::BrokenBody)?;
        total = total.saturating_add(chunk.len());
        if total <= MAX_BODY_BYTES {
            bytes.extend_from_slice(&chunk);
        } else if total > DRAIN_BYTES {
            break;
        }
    }
    if total > MAX_BODY_BYTES { Err(ApiError::TooLarge(MAX_BODY_BYTES)) } else { Ok(bytes) }
}

/// JSON is what a web page of another origin can't send unasked. None at all is taken as JSON, except from a page.
fn check_content_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let kind = match headers.get(header::CONTENT_TYPE) {
        Some(kind) => kind.to_str().unwrap_or_default(),
        None if headers.contains_key(header::ORIGIN) => "",
        None => return Ok(()),
    };
    let essence = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let is_json =
        essence == "application/json" || (essence.starts_with("application/") && essence.ends_with("+json"));
    if is_json { Ok(()) } else { Err(ApiError::ContentType) }
}
