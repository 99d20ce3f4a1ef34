//! The routes of files.

use std::path::PathBuf;
use std::sync::Arc;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use futures_util::stream::unfold;
use http::{HeaderValue, header};
use motet_store::{Deleted, FileId, FileInfo, Page};
use tokio::fs::File;
use tokio::io::AsyncReadExt;

use crate::error::ApiError;
use crate::guard::{Named, Sender};
use crate::list::{self, Asked, Limits, List};
use crate::service::Service;
use crate::wire::{FileDeleted, FileObject};

/// Files in a part of a list, as OpenAI has it.
pub(crate) const LIMITS: Limits = Limits { usual: 10_000, most: 10_000 };
/// How much of a file is in memory while it is sent.
const CHUNK_BYTES: usize = 64 << 10;

/// `GET /v1/files`.
pub(crate) async fn list(
    State(service): State<Arc<Service>>,
    sender: Sender,
    query: list::Query,
) -> Result<Json<List<FileObject>>, ApiError> {
    let asked = Asked::read(&query, LIMITS)?;
    let store = service.store().await?;
    let after = match &asked.after {
        None => None,
        Some(id) => {
            let file = store.file(&sender.owner, &FileId::new(id.as_str())).await?;
            Some(file.ok_or_else(|| list::unknown_cursor("file"))?)
        }
    };
    let after = after.as_ref().map(|file| (file.created_at, file.id.as_str()));
    let page = Page { after, limit: asked.limit + 1, order: asked.order };
    let files = store.files(&sender.owner, query.get("purpose").map(String::as_str), page).await?;
    let files = files.into_iter().map(FileObject::from).collect();
    Ok(Json(List::new(files, asked.limit, |file| file.id.clone())))
}

/// `GET /v1/files/{id}`.
pub(crate) async fn one(
    State(service): State<Arc<Service>>,
    sender: Sender,
    Named(id): Named,
) -> Result<Json<FileObject>, ApiError> {
    Ok(Json(find(&service, &sender, &id).await?.into()))
}

/// `GET /v1/files/{id}/content`.
pub(crate) async fn content(
    State(service): State<Arc<Service>>,
    sender: Sender,
    Named(id): Named,
) -> Result<Response, ApiError> {
    let file = find(&service, &sender, &id).await?;
    let path = service.disk.path(&sender.owner, &file.id);
    let content = open(path, &id).await?;
    let mut response = body(content, file.bytes).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(file.bytes));
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_') { c } else { '_' };
    let name: String = file.name.chars().map(plain).collect();
    if let Ok(value) = HeaderValue::from_str(&format!("attachment; filename=\"{name}\"")) {
        headers.insert(header::CONTENT_DISPOSITION, value);
    }
    Ok(response)
}

/// `DELETE /v1/files/{id}`.
pub(crate) async fn delete(
    State(service): State<Arc<Service>>,
    sender: Sender,
    Named(id): Named,
) -> Result<Json<FileDeleted>, ApiError> {
    let file = FileId::new(id.as_str());
    match service.store().await?.delete_file(&sender.owner, &file).await? {
        Deleted::Missing => return Err(missing(&id)),
        Deleted::InUse => return Err(ApiError::InUse(shown(&id))),
        Deleted::Gone => {}
    }
    let (disk, owner) = (service.disk.clone(), sender.owner);
    let removed = tokio::task::spawn_blocking(move || disk.remove(&owner, &file)).await;
    if let Ok(Err(error)) = removed {
        // Nobody can reach it any more, and the sweep drops it.
        tracing::warn!(%error, file = %shown(&id), "what a deleted file held can't be removed");
    }
    Ok(Json(FileDeleted { id, object: "file", deleted: true }))
}

/// A file of the sender's.
pub(crate) async fn find(service: &Service, sender: &Sender, id: &str) -> Result<FileInfo, ApiError> {
    let found = service.store().await?.file(&sender.owner, &FileId::new(id)).await?;
    found.ok_or_else(|| missing(id))
}

fn missing(id: &str) -> ApiError {
    ApiError::Missing { what: "file", id: shown(id), list: "/v1/files" }
}

/// A client's id, for a message.
pub(crate) fn shown(id: &str) -> String {
    id.chars().filter(|c| !c.is_control()).take(60).collect()
}

async fn open(path: PathBuf, id: &str) -> Result<File, ApiError> {
    match File::open(path).await {
        Ok(file) => Ok(file),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(ApiError::Elsewhere(shown(id))),
        Err(error) => Err(error.into()),
    }
}

/// The first `bytes` of a file, as they are read.
fn body(file: File, bytes: u64) -> Body {
    Body::from_stream(unfold(file.take(bytes), |mut file| async move {
        let mut chunk = vec![0; CHUNK_BYTES];
        match file.read(&mut chunk).await {
            Ok(0) => None,
            Ok(read) => {
                chunk.truncate(read);
                Some((Ok(Bytes::from(chunk)), file))
            }
            Err(error) => Some((Err(error), file)),
        }
    }))
}
