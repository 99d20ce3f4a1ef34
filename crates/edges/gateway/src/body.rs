use axum::body::{Body, Bytes};
use futures_util::StreamExt;
use http::{HeaderMap, header};

use crate::config::GatewayConfig;
use crate::error::ApiError;

/// How much of a body over the limit is read and thrown away, so that a client that writes before it
/// reads sees the 413 and not a broken connection.
const DRAIN_BYTES: usize = 64 << 20;

/// Reads a JSON request's body.
///
/// A content type other than JSON is refused (what a web page of another origin can send unasked is
/// never JSON); none at all is taken as JSON.
pub(crate) async fn read(
    config: &GatewayConfig,
    headers: &HeaderMap,
    body: Body,
) -> Result<Vec<u8>, ApiError> {
    check_content_type(headers)?;
    let limit = config.max_body_bytes;
    if headers.contains_key(header::EXPECT) && declared_length(headers).is_some_and(|length| length > limit) {
        // The client waits for leave to send, so there is nothing to drain.
        return Err(ApiError::TooLarge(limit));
    }
    let seconds = config.body_timeout.as_secs();
    let read = tokio::time::timeout(config.body_timeout, collect(body, limit)).await;
    read.unwrap_or(Err(ApiError::BodyTimeout(seconds)))
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

fn declared_length(headers: &HeaderMap) -> Option<usize> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn check_content_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let Some(value) = headers.get(header::CONTENT_TYPE) else { return Ok(()) };
    let text = String::from_utf8_lossy(value.as_bytes());
    let essence = text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if essence == "application/json" || (essence.starts_with("application/") && essence.ends_with("+json")) {
        return Ok(());
    }
    Err(ApiError::ContentType(essence.chars().filter(char::is_ascii_graphic).take(60).collect()))
}
