use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use futures_util::StreamExt;
use http::HeaderValue;
use motet_stream::{Audience, Writer};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::{Head, Kept, Work};

/// Tells clients that sending the same again is useless.
const SHOULD_RETRY: &str = "x-should-retry";

/// Lets an answer be written until it has ended or nobody has read it for the grace time. Dropping `writing` then drops
/// the handler's answer, which cancels.
pub(super) async fn record(audience: Audience<Kept>, grace: Duration, writing: impl Future<Output = ()>) {
    tokio::select! {
        () = writing => {}
        () = left(&audience, grace) => tracing::debug!("a reply with a key was cancelled: nobody read it"),
    }
}

/// Writes what the handler answers to the log, and never waits for who reads it.
pub(super) async fn write(
    response: impl Future<Output = Response>,
    work: Work,
    told: watch::Sender<Option<Arc<Head>>>,
    mut writer: Writer<Kept>,
) {
    let (mut parts, body) = response.await.into_parts();
    if !parts.status.is_success() {
        if work.has_begun() {
            parts.headers.insert(SHOULD_RETRY, HeaderValue::from_static("false"));
        } else {
            writer.forget();
        }
    }
    told.send_replace(Some(Arc::new(Head { status: parts.status, headers: parts.headers })));
    let mut chunks = body.into_data_stream();
    while let Some(chunk) = chunks.next().await {
        let Ok(chunk) = chunk else { return };
        writer.append(chunk);
        // Readers get their turn even where chunks never have to be waited for.
        tokio::task::consume_budget().await;
    }
    // Before readers learn of the end: the client's next request may depend on what this one gives back.
    drop(chunks);
    writer.end(Instant::now().into_std());
}

/// Completes when nobody has read for the grace time; by then nobody finds the log.
async fn left(audience: &Audience<Kept>, grace: Duration) {
    let Some(mut readers) = audience.readers() else { return std::future::pending().await };
    while readers.wait_for(|readers| *readers == 0).await.is_ok() {
        let has_come = timeout(grace, readers.wait_for(|readers| *readers > 0)).await.is_ok();
        if !has_come && audience.abandon() {
            return;
        }
    }
    // The log is gone because it has ended, and so does who writes it.
    std::future::pending().await
}
