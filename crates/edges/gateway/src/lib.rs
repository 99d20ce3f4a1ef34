//! The HTTP front door: OpenAI-compatible API, health, metrics and the web app. What clients may send
//! and get is written down in `docs/api.md`, which changes with this crate.
//!
//! A request's way through:
//!
//! 1. `observe` gives it an id, counts and times it; a panic below becomes a JSON 500. `host` turns
//!    away what was sent to another name than this server's.
//! 2. `access` finds out who sent it; `body` reads it within size and time bounds.
//! 3. `overload` turns away whom there is no room for. `prepare` parses, renders and tokenizes on a blocking thread, a
//!    bounded number at once, and checks everything that can be checked before a batch sees it. Between parsing and
//!    rendering, `choosing` takes the model from the `catalogue`.
//! 4. `access` reserves what it may use at most, and is told at the end what it used. `reply` submits one backend
//!    request per prompt and turns the events of its choices into text.
//! 5. `wire` gives the text the shape of its route; `stream` sends it as events, or `handlers` as one
//!    body.
//!
//! `embeddings` goes the same way with a model of its own, and waits for all vectors of a request.
//!
//! A request with an `Idempotency-Key` goes through `idempotency`, which runs the rest of the way once for all who send it.
//!
//! **Cancelling.** Whoever holds the [`Reply`](reply::Reply) holds the backend's event streams, and
//! dropping them cancels. The holder is the response body of a stream, else the handler's future; the
//! HTTP server drops either when the client leaves. Nothing spawned holds them, but for requests with a key: their tasks
//! are the gateway's and end when nobody has read for a while.
//!
//! **Ready.** A [`Gateway`] answers at once, says `loading` until [`Gateway::set_ready`], and 503 to
//! what it can't do yet. Each model has its own state; the first one's is the server's.

mod access;
mod body;
mod catalogue;
mod choosing;
mod config;
mod embed_metrics;
mod embeddings;
mod engine_metrics;
mod error;
mod gateway;
mod handlers;
mod health;
mod host;
mod idempotency;
mod ids;
mod metrics;
mod null_content;
mod observe;
mod overload;
mod prepare;
mod reply;
mod router;
mod serve;
mod stream;
mod unread;
mod web;
mod wire;

pub use access::{
    Access, Account, Ask, Caller, Denial, End, Identified, Outcome, Permit, RateLimit, RateLimits, Scopes,
};
pub use catalogue::ModelCard;
pub use config::{Clock, Entropy, GatewayConfig, Lanes};
pub use embeddings::EmbeddingModel;
pub use gateway::{Gateway, ServedModel};
pub use host::Hosts;
pub use idempotency::IdempotencyConfig;
pub use motet_stream::LogLimits;
pub use observe::RequestId;
pub use overload::OverloadConfig;
pub use router::Routes;
pub use serve::{ConnectionLimits, SHUTDOWN_GRACE, serve};
