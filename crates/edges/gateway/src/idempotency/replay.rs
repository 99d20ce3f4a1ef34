use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::response::Response;
use futures_util::stream::unfold;
use http::{HeaderName, HeaderValue, header};
use motet_stream::{ReadError, Reader};
use tokio::sync::watch;
use tokio::time::timeout;

use super::{Head, Kept};
use crate::error::ApiError;
use crate::stream::KEEP_ALIVE;

/// Tells that the answer was made for an earlier request.
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
/// Begins the names of headers that were true when the first request was let in.
const RATE_LIMIT: &str = "x-ratelimit-";

/// Whose answer it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// This request's own.
    First,
    /// That of an earlier one.
    Again,
}

/// Answers with what is in a log and what comes to be there. Events are sent as they are, another body whole.
pub(super) async fn respond(
    keep_alive: Duration,
    reader: Reader<Kept>,
    mut head: watch::Receiver<Option<Arc<Head>>>,
    turn: Turn,
) -> Result<Response, ApiError> {
    // Closed without a head: the handler panicked, or the server ends.
    let head = head.wait_for(Option::is_some).await.map_err(|_| ApiError::Internal)?.clone();
    let Some(head) = head else { return Err(ApiError::Internal) };
    let kind = head.headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    let body = if kind.is_some_and(|kind| kind.starts_with(b"text/event-stream")) {
        events(reader, keep_alive)
    } else {
        whole(reader).await?
    };
    let mut response = Response::new(body);
    *response.status_mut() = head.status;
    *response.headers_mut() = head.headers.clone();
    if turn == Turn::Again {
        let headers = response.headers_mut();
        let stale: Vec<_> =
            headers.keys().filter(|name| name.as_str().starts_with(RATE_LIMIT)).cloned().collect();
        for name in stale {
            headers.remove(name);
        }
        headers.insert(REPLAYED, HeaderValue::from_static("true"));
    }
    Ok(response)
}

async fn whole(mut reader: Reader<Kept>) -> Result<Body, ApiError> {
    let mut bytes = Vec::new();
    loop {
        match reader.next().await {
            Ok(Some(chunk)) => bytes.extend_from_slice(&chunk),
            Ok(None) => return Ok(Body::from(bytes)),
            Err(ReadError::Trimmed) => return Err(ApiError::ReplyLost),
            Err(ReadError::Broken) => return Err(ApiError::Internal),
        }
    }
}

/// The log's chunks, with a comment after each `keep_alive` of silence that is this reader's alone. An error cuts the
/// connection, so that what is not whole does not look like an end.
fn events(reader: Reader<Kept>, keep_alive: Duration) -> Body {
    let chunks = unfold(Some(reader), move |reader| async move {
        let mut reader = reader?;
        match timeout(keep_alive, reader.next()).await {
            Ok(Ok(chunk)) => chunk.map(|chunk| (Ok(chunk), Some(reader))),
            Ok(Err(error)) => Some((Err(error), None)),
            Err(_) => Some((Ok(Bytes::from(format!(": {KEEP_ALIVE}\n\n"))), Some(reader))),
        }
    });
    Body::from_stream(chunks)
}
