//! The routes of batches.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::{DefaultBodyLimit, State};
use axum::middleware::from_fn;
use axum::routing::{get, post};
use axum::{Json, Router};
use http::{HeaderMap, header};
use motet_protocol::RequestError;
use motet_store::{BatchId, FileId, NewBatch, Page, StoreError};
use serde_json::{Map, Value};

use crate::error::ApiError;
use crate::files::{self, shown};
use crate::guard::{self, Named, Sender};
use crate::list::{self, Asked, Limits, List};
use crate::service::{Batches, Service};
use crate::upload;
use crate::wire::{BatchObject, WINDOW};

/// Where lines may go.
pub(crate) const ENDPOINTS: [&str; 3] = ["/v1/chat/completions", "/v1/completions", "/v1/embeddings"];
/// Batches in a part of a list, as OpenAI has it.
pub(crate) const LIMITS: Limits = Limits { usual: 20, most: 100 };
/// Longest request for a batch: its metadata is the longest part.
const MAX_BODY_BYTES: usize = 64 << 10;
/// How long it may take to come.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// Bounds of metadata, as OpenAI's.
pub(crate) const MAX_PAIRS: usize = 16;
pub(crate) const MAX_KEY_CHARS: usize = 64;
pub(crate) const MAX_VALUE_CHARS: usize = 512;
/// What OpenAI's batches have and these don't.
pub(crate) const UNSUPPORTED: &str = "output_expires_after";

impl Batches {
    /// The routes, for a server that puts the caller among the extensions of each request.
    pub fn routes(&self) -> Router {
        Router::new()
            // The upload has a bound of its own.
            .route("/v1/files", get(files::list).post(upload::create).layer(DefaultBodyLimit::disable()))
            .route("/v1/files/{id}", get(files::one).delete(files::delete))
            .route("/v1/files/{id}/content", get(files::content))
            .route("/v1/batches", get(list).post(create))
            .route("/v1/batches/{id}", get(one))
            .route("/v1/batches/{id}/cancel", post(cancel))
            .route_layer(from_fn(guard::check))
            .with_state(Arc::clone(&self.service))
    }
}

/// A batch as asked for.
#[derive(Debug, PartialEq, Eq)]
struct Asks {
    input: String,
    endpoint: &'static str,
    metadata: Option<String>,
}

/// `POST /v1/batches`.
async fn create(
    State(service): State<Arc<Service>>,
    sender: Sender,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<BatchObject>, ApiError> {
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    if content_type.is_some_and(|value| !value.trim_start().starts_with("application/json")) {
        return Err(ApiError::ContentType("application/json"));
    }
    let too_long =
        |_| RequestError::not_json(format!("the body is cut, or longer than {MAX_BODY_BYTES} bytes"));
    let read = tokio::time::timeout(BODY_TIMEOUT, to_bytes(body, MAX_BODY_BYTES)).await;
    let body = read.map_err(|_| ApiError::UploadTimeout(BODY_TIMEOUT.as_secs()))?.map_err(too_long)?;
    let asks = parse(&body)?;
    let input = service.store().await?.file(&sender.owner, &FileId::new(asks.input.as_str())).await?;
    let input = input.ok_or_else(|| {
        RequestError::bad_value("input_file_id", format!("'{}' is no file of yours", shown(&asks.input)))
    })?;
    if input.purpose != "batch" {
        let rule =
            format!("is a file of the purpose '{}'; upload it with the purpose 'batch'", input.purpose);
        return Err(RequestError::bad_value("input_file_id", rule).into());
    }
    let store = service.store().await?;
    // The answers have to be kept, too.
    store.check_room_for_file(&sender.owner.org, 1, service.config.per_tenant).await?;
    let new = NewBatch {
        owner: &sender.owner,
        key: sender.key.as_ref(),
        home: service.home().await?,
        endpoint: asks.endpoint,
        input: &input.id,
        metadata: asks.metadata.as_deref(),
        expires_at: service.config.after(service.config.window),
    };
    let bounds = service.config.batches;
    let batch = store.add_batch(&new, bounds, service.config.now()).await.map_err(|error| match error {
        StoreError::TooMany { limit, .. } if limit == bounds.of_all as usize => ApiError::TooManyOfAll(error),
        error => error.into(),
    })?;
    service.tell();
    Ok(Json(batch.into()))
}

/// `GET /v1/batches`.
async fn list(
    State(service): State<Arc<Service>>,
    sender: Sender,
    query: list::Query,
) -> Result<Json<List<BatchObject>>, ApiError> {
    let asked = Asked::read(&query, LIMITS)?;
    let store = service.store().await?;
    let after = match &asked.after {
        None => None,
        Some(id) => {
            let batch = store.batch(&sender.owner, &BatchId::new(id.as_str())).await?;
            Some(batch.ok_or_else(|| list::unknown_cursor("batch"))?)
        }
    };
    let after = after.as_ref().map(|batch| (batch.times.created, batch.id.as_str()));
    let page = Page { after, limit: asked.limit + 1, order: asked.order };
    let batches = store.batches(&sender.owner, page).await?.into_iter().map(BatchObject::from).collect();
    Ok(Json(List::new(batches, asked.limit, |batch| batch.id.clone())))
}

/// `GET /v1/batches/{id}`.
async fn one(
    State(service): State<Arc<Service>>,
    sender: Sender,
    Named(id): Named,
) -> Result<Json<BatchObject>, ApiError> {
    let found = service.store().await?.batch(&sender.owner, &BatchId::new(id.as_str())).await?;
    Ok(Json(found.ok_or_else(|| missing(&id))?.into()))
}

/// `POST /v1/batches/{id}/cancel`.
async fn cancel(
    State(service): State<Arc<Service>>,
    sender: Sender,
    Named(id): Named,
) -> Result<Json<BatchObject>, ApiError> {
    let store = service.store().await?;
    let batch = BatchId::new(id.as_str());
    let is_cancelled = store.cancel_batch(&sender.owner, &batch, service.config.now()).await?;
    let found = store.batch(&sender.owner, &batch).await?.ok_or_else(|| missing(&id))?;
    if is_cancelled {
        service.tell();
    } else if found.status.has_ended() && found.status != motet_store::BatchStatus::Cancelled {
        return Err(ApiError::HasEnded(found.status.as_str()));
    }
    Ok(Json(found.into()))
}

fn missing(id: &str) -> ApiError {
    ApiError::Missing { what: "batch", id: shown(id), list: "/v1/batches" }
}

fn parse(body: &[u8]) -> Result<Asks, RequestError> {
    let value: Value = serde_json::from_slice(body)
        .map_err(|error| RequestError::not_json(format!("the body is not JSON: {error}")))?;
    let Value::Object(fields) = value else {
        return Err(RequestError::not_json("the body is not a JSON object"));
    };
    let text = |name: &str| match fields.get(name) {
        Some(Value::String(text)) => Ok(text.as_str()),
        None | Some(Value::Null) => Err(RequestError::missing(name)),
        Some(other) => Err(RequestError::wrong_type(name, "a string", other)),
    };
    let input = text("input_file_id")?.to_owned();
    let endpoint = text("endpoint")?;
    let endpoint = ENDPOINTS.into_iter().find(|known| *known == endpoint).ok_or_else(|| {
        RequestError::bad_value("endpoint", format!("must be one of {}", ENDPOINTS.join(", ")))
    })?;
    if text("completion_window")? != WINDOW {
        return Err(RequestError::bad_value("completion_window", format!("must be '{WINDOW}'")));
    }
    if fields.get(UNSUPPORTED).is_some_and(|value| !value.is_null()) {
        return Err(RequestError::unsupported(UNSUPPORTED, "is the server's to say; leave it out"));
    }
    let metadata = match fields.get("metadata") {
        None | Some(Value::Null) => None,
        Some(Value::Object(pairs)) => Some(metadata(pairs)?),
        Some(other) => return Err(RequestError::wrong_type("metadata", "an object", other)),
    };
    Ok(Asks { input, endpoint, metadata })
}

fn metadata(pairs: &Map<String, Value>) -> Result<String, RequestError> {
    if pairs.len() > MAX_PAIRS {
        return Err(RequestError::bad_value("metadata", format!("may have {MAX_PAIRS} keys")));
    }
    for (key, value) in pairs {
        let path = || format!("metadata.{}", shown(key));
        if key.chars().count() > MAX_KEY_CHARS {
            return Err(RequestError::bad_value(
                path(),
                format!("may have a key of {MAX_KEY_CHARS} characters"),
            ));
        }
        let Value::String(text) = value else {
            return Err(RequestError::wrong_type(path(), "a string", value));
        };
        if text.chars().count() > MAX_VALUE_CHARS {
            return Err(RequestError::bad_value(path(), format!("may have {MAX_VALUE_CHARS} characters")));
        }
    }
    Ok(Value::Object(pairs.clone()).to_string())
}
