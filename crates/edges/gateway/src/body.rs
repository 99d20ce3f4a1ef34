use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use http::{HeaderMap, header};

use crate::config::GatewayConfig;
use crate::error::ApiError;

/// How much of a body that is not wanted is read and thrown away, so that a client that writes before
/// it reads sees the answer and not a broken connection.
const DRAIN_BYTES: usize = 64 << 20;

/// Reads a JSON request's body.
///
/// A content type other than JSON is refused: what a web page of another origin can send unasked is
/// never JSON. None at all is taken as JSON, except from a web page, which could leave it out.
pub(crate) async fn read(
    config: &GatewayConfig,
    headers: &HeaderMap,
    body: Body,
) -> Result<Vec<u8>, ApiError> {
    let limit = config.max_body_bytes;
    if let Err(error) = check_content_type(headers) {
        discard(config, headers, body).await;
        return Err(error);
    }
    if awaits_leave(headers) && declared_length(headers).is_some_and(|length| length > limit) {
        return Err(ApiError::TooLarge(limit));
    }
    let seconds = config.body_timeout.as_secs();
    let read = tokio::time::timeout(config.body_timeout, collect(body, limit)).await;
    read.unwrap_or(Err(ApiError::BodyTimeout(seconds)))
}

/// Answers `error` to a request whose body nobody wants.
pub(crate) async fn refuse(config: &GatewayConfig, request: Request, error: ApiError) -> Response {
    let (parts, body) = request.into_parts();
    discard(config, &parts.headers, body).await;
    error.into_response()
}

/// Reads a body to its end, within bounds. How it ends does not matter: the request has its answer.
async fn discard(config: &GatewayConfig, headers: &HeaderMap, body: Body) {
    if !awaits_leave(headers) {
        let _ = tokio::time::timeout(config.body_timeout, collect(body, 0)).await;
    }
}

async fn collect(body: Body, limit: usize) -> Result<Vec<u8>, ApiError> {
    let mut stream = body.into_data_stream();
    let mut bytes = Vec::new();
    let mut total = 0usize;
    while let Some(chunk) = stream.next().await {
        let chunk: Bytes = chunk.map_err(|_| ApiError::BrokenBody)?;
        total = total.saturating_add(chunk.len());
        if total <= limit {
            bytes.extend_from_slice(&chunk);
        } else {
            bytes = Vec::new();
        }
        if total > DRAIN_BYTES.max(limit) {
            break;
        }
    }
    if total > limit { Err(ApiError::TooLarge(limit)) } else { Ok(bytes) }
}

/// Whether the client sends its body only when told to, so that there is nothing to drain.
fn awaits_leave(headers: &HeaderMap) -> bool {
    headers.contains_key(header::EXPECT)
}

fn declared_length(headers: &HeaderMap) -> Option<usize> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn check_content_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let value = match headers.get(header::CONTENT_TYPE) {
        Some(value) => value.as_bytes(),
        None if headers.contains_key(header::ORIGIN) => b"",
        None => return Ok(()),
    };
    let text = String::from_utf8_lossy(value);
    let essence = text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if essence == "application/json" || (essence.starts_with("application/") && essence.ends_with("+json")) {
        return Ok(());
    }
    Err(ApiError::ContentType(essence.chars().filter(char::is_ascii_graphic).take(60).collect()))
}
