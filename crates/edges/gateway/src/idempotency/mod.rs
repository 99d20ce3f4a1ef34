//! `Idempotency-Key`: a request that is sent again gets the answer of the first and is computed and charged once.
//!
//! ```text
//! request with a key ─┬─ new ───► a task runs the handler and writes its answer to a log ─┐
//!                     └─ known ─► same body? ─────────────────────────────────────────────┴─► reads the log
//! ```
//!
//! Invariants:
//! 1. Of the requests with the same key one runs, whatever their number and their timing: the log of a key has one writer.
//! 2. The task owns the handler's answer and with it the reply. It ends with the answer, after the grace time without
//!    readers, or with the server ([`Gateway::end_recorded`]); each settles the permit, once, as without a key.
//! 3. An error is kept exactly when work had begun: who was refused before may send the same key again.
//! 4. A key is the user's own, on one route.
//!
//! A request without the header passes through and leaves nothing.

mod replay;
mod run;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use http::{HeaderMap, HeaderName, StatusCode};
use motet_stream::{Begun, LogLimits, ReplyLogs};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::access::Caller;
use crate::body;
use crate::error::ApiError;
use crate::gateway::Gateway;
use replay::Turn;

/// Names what a request asks for, so that sending it again asks for the same thing.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Longest key: that of others who take this header.
const MAX_KEY: usize = 255;
/// Longest body that is hashed where requests are answered: a fraction of a millisecond's.
const HASHED_HERE: usize = 256 << 10;

/// How answers to requests with an `Idempotency-Key` are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdempotencyConfig {
    /// How long a reply is written for nobody before it is cancelled: 30 s by default. A client that comes back does so
    /// within seconds.
    pub grace: Duration,
    /// How much is kept, and how long.
    pub logs: LogLimits,
}

impl Default for IdempotencyConfig {
    fn default() -> Self {
        Self { grace: Duration::from_secs(30), logs: LogLimits::default() }
    }
}

/// Answers by key, and the tasks that write them.
pub(crate) struct Idempotency {
    config: IdempotencyConfig,
    logs: ReplyLogs<Kept>,
    /// So that a body's mark tells nothing about it.
    secret: [u8; 32],
    /// Bounded by the logs: each running reply has one.
    runs: Mutex<JoinSet<()>>,
}

/// What is kept beside an answer's body.
#[derive(Clone)]
struct Kept {
    mark: blake3::Hash,
    /// From the handler, when it answers. Closed before: it never will.
    head: watch::Receiver<Option<Arc<Head>>>,
}

/// The begin of an answer.
struct Head {
    status: StatusCode,
    headers: HeaderMap,
}

/// Whether something was computed for a request that others may ask for again.
#[derive(Debug, Clone, Default)]
pub(crate) struct Work(Arc<AtomicBool>);

impl Work {
    /// From now on the request costs something.
    pub(crate) fn begin(&self) {
        self.0.store(true, Ordering::Release);
    }

    fn has_begun(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl Idempotency {
    pub(crate) fn new(config: IdempotencyConfig) -> Self {
        let mut secret = [0; 32];
        for part in secret.chunks_mut(8) {
            part.copy_from_slice(&RandomState::new().build_hasher().finish().to_le_bytes());
        }
        Self { config, logs: ReplyLogs::new(config.logs), secret, runs: Mutex::default() }
    }

    /// What a body is known by.
    async fn mark(&self, bytes: Vec<u8>) -> Result<(blake3::Hash, Vec<u8>), ApiError> {
        let (secret, is_short) = (self.secret, bytes.len() <= HASHED_HERE);
        let hash = move || (blake3::keyed_hash(&secret, &bytes), bytes);
        if is_short {
            return Ok(hash());
        }
        tokio::task::spawn_blocking(hash).await.map_err(|_| ApiError::Internal)
    }
}

impl Gateway {
    /// Ends the replies that were begun with an `Idempotency-Key` and still run, and returns when what they used is
    /// known. Call it once the server has ended.
    pub async fn end_recorded(&self) {
        let mut runs = std::mem::take(&mut *self.idempotency.runs.lock());
        runs.shutdown().await;
    }
}

/// Around the routes that compute something.
pub(crate) async fn once(State(gateway): State<Arc<Gateway>>, request: Request, next: Next) -> Response {
    match key(request.headers()) {
        Ok(None) => next.run(request).await,
        Ok(Some(key)) => {
            answer(&gateway, &key, request, next).await.unwrap_or_else(IntoResponse::into_response)
        }
        Err(error) => body::refuse(&gateway.config, request, error).await,
    }
}

async fn answer(gateway: &Gateway, key: &str, request: Request, next: Next) -> Result<Response, ApiError> {
    let here = &gateway.idempotency;
    let (mut parts, body) = request.into_parts();
    let name = name(&parts, key)?;
    let bytes = body::read(&gateway.config, &parts.headers, body).await?;
    let (mark, bytes) = here.mark(bytes).await?;
    let (told, head) = watch::channel(None);
    let kept = Kept { mark, head: head.clone() };
    let begun = here.logs.begin(&name, kept, Instant::now().into_std());
    let (reader, head, turn) = match begun.map_err(ApiError::NoRoomForKey)? {
        Begun::New(writer, reader) => {
            let work = Work::default();
            parts.extensions.insert(work.clone());
            let response = next.run(Request::from_parts(parts, Body::from(bytes)));
            let run =
                run::record(writer.audience(), here.config.grace, run::write(response, work, told, writer));
            let mut runs = here.runs.lock();
            while runs.try_join_next().is_some() {}
            runs.spawn(run);
            (reader, head, Turn::First)
        }
        Begun::Known(_, kept) if kept.mark != mark => return Err(ApiError::KeyReused),
        Begun::Known(reader, _) if !reader.is_whole() => return Err(ApiError::ReplyLost),
        Begun::Known(reader, kept) => (reader, kept.head, Turn::Again),
    };
    replay::respond(gateway.config.keep_alive, reader, head, turn).await
}

/// What an answer is found by. As JSON the parts can't run into each other.
fn name(parts: &Parts, key: &str) -> Result<String, ApiError> {
    // Put there by the layer around every route that computes something.
    let caller: &Arc<Caller> = parts.extensions.get().ok_or(ApiError::Internal)?;
    Ok(serde_json::to_string(&(&caller.tenant, caller.user, &caller.account.user, parts.uri.path(), key))?)
}

/// The key that a request carries.
fn key(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let mut sent = headers.get_all(&IDEMPOTENCY_KEY).iter();
    let Some(key) = sent.next() else { return Ok(None) };
    let is_printable = |key: &&str| key.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    let key = key.to_str().ok().filter(|key| (1..=MAX_KEY).contains(&key.len())).filter(is_printable);
    match (key, sent.next()) {
        (Some(key), None) => Ok(Some(key.to_owned())),
        _ => Err(ApiError::BadKey),
    }
}
