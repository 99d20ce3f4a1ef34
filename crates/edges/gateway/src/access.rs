//! Who sent a request, and what they may use. Asked before a token is computed, told when a reply has ended.
//!
//! ```text
//! headers ─ identify ─► Caller ─ reserve ─► Permit ─ settle (once, whatever the end) ─►
//!              │                     │
//!              └──── Denial ◄────────┘
//! ```
//!
//! The gateway knows no accounts: an [`Access`] does, and without one everybody is the same caller without limits.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use motet_protocol::FinishReason;

use crate::body;
use crate::error::ApiError;
use crate::gateway::Gateway;

/// Knows accounts, keys and limits.
pub trait Access: Send + Sync {
    /// Whose credentials a request carries. A browser sends its cookie whoever made the page, so with one the method
    /// tells whether the request has to show where it comes from.
    fn identify<'a>(
        &'a self,
        method: &'a Method,
        headers: &'a HeaderMap,
    ) -> BoxFuture<'a, Result<Identified, Denial>>;

    /// Takes from the caller's limits what a request may use at most, or nothing.
    fn reserve<'a>(
        &'a self,
        caller: &'a Arc<Caller>,
        ask: Ask,
    ) -> BoxFuture<'a, Result<Box<dyn Permit>, Denial>>;
}

/// A caller, and what goes back with the answer.
#[derive(Debug, Clone)]
pub struct Identified {
    /// Who it is.
    pub caller: Arc<Caller>,
    /// The cookie that replaces the one that came.
    pub set_cookie: Option<HeaderValue>,
}

impl From<Arc<Caller>> for Identified {
    fn from(caller: Arc<Caller>) -> Self {
        Self { caller, set_cookie: None }
    }
}

impl Identified {
    /// Sets the cookie, where there is a new one.
    pub(crate) fn write(set_cookie: Option<HeaderValue>, response: &mut Response) {
        if let Some(cookie) = set_cookie {
            response.headers_mut().append(header::SET_COOKIE, cookie);
        }
    }
}

/// Who sent a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Caller {
    /// Whose data it may touch: prefix caches are shared inside and never beyond.
    pub tenant: String,
    /// Who takes turns with others of the same lane.
    pub user: u64,
    /// The backend's lane for its requests; `None` is the default one.
    pub lane: Option<usize>,
    /// What it may do.
    pub scopes: Scopes,
    /// Most tokens of prompt and reply together; `None` is the model's context.
    pub max_context: Option<u32>,
    /// Most tokens of a reply; `None` is what the context leaves.
    pub max_output: Option<u32>,
    /// Models it may use; `None` is all.
    pub models: Option<Vec<String>>,
    /// What an [`Access`] knows it by.
    pub account: Account,
}

/// Names that only an [`Access`] understands; kept for what it is told at the end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Account {
    /// The user's id.
    pub user: String,
    /// The key's id, where a key was used.
    pub key: Option<String>,
    /// Name of the tier.
    pub tier: String,
}

/// What a key or a session may be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scopes {
    /// Replies of models, and their list.
    pub inference: bool,
    /// Files and batches.
    pub batches: bool,
    /// Metrics and other people's usage.
    pub admin: bool,
}

impl Default for Scopes {
    /// Everything: without accounts there is nobody to keep from anything.
    fn default() -> Self {
        Self { inference: true, batches: true, admin: true }
    }
}

/// What a request may use at most.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// The model it will run on.
    pub model: String,
    /// Tokens of all its prompts.
    pub prompt_tokens: u64,
    /// Tokens of all its replies at most.
    pub output_tokens: u64,
    /// The request's id, which its usage is written down under.
    pub request_id: String,
}

/// A request that was let in. Dropped without [`settle`](Permit::settle), it counts as one that was never computed.
pub trait Permit: Send {
    /// The caller's limits as they are after the reservation.
    fn limits(&self) -> RateLimits;

    /// The end of the request, whatever it was.
    fn settle(self: Box<Self>, outcome: Outcome);
}

/// What a request has used.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Tokens of the prompts.
    pub prompt_tokens: u64,
    /// Of these, found in the cache.
    pub cached_tokens: u64,
    /// Tokens generated.
    pub output_tokens: u64,
    /// How it ended.
    pub end: End,
    /// In the backend's line; 0 where it did not say, as for replies that were cut short.
    pub queued: Duration,
    /// From the request's arrival to the first token.
    pub ttft: Option<Duration>,
    /// From the request's arrival to the end.
    pub took: Duration,
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// All its choices did; the last one like this.
    Finished(FinishReason),
    /// The client left before.
    Cancelled,
    /// The backend gave up.
    Failed,
}

/// Limits by the minute, for headers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RateLimits {
    /// Requests.
    pub requests: Option<RateLimit>,
    /// Tokens.
    pub tokens: Option<RateLimit>,
}

/// One limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimit {
    /// Most at once.
    pub limit: u64,
    /// What is left.
    pub remaining: u64,
    /// Until all of it is there again.
    pub reset: Duration,
}

/// Why a request is not let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Denial {
    /// No credentials, or none that are known, valid and unrevoked.
    Unknown,
    /// With a cookie, but without what shows that a page of this server sent it; in words.
    Forged(String),
    /// Known, but not allowed to do this.
    Forbidden(String),
    /// Over a limit that fills up again.
    Limited {
        /// Which one, and when to come back, in words.
        what: String,
        /// When the same request would pass.
        retry_after: Duration,
        /// The caller's limits.
        limits: RateLimits,
    },
    /// More than a limit ever allows.
    TooLarge(String),
    /// More than is left of the budget; in words.
    Budget(String),
    /// Accounts or limits can't be read now.
    Unavailable(String),
}

/// Around every route that needs a caller: finds out who it is, and hands it on.
pub(crate) async fn identify(
    State(gateway): State<Arc<Gateway>>,
    mut request: Request,
    next: Next,
) -> Response {
    let Identified { caller, set_cookie } = match gateway.caller(request.method(), request.headers()).await {
        Ok(identified) => identified,
        Err(denial) => return body::refuse(&gateway.config, request, denial.into()).await,
    };
    let mut response = if caller.scopes.inference {
        request.extensions_mut().insert(caller);
        next.run(request).await
    } else {
        let why = "this key may not use models; make one with the scope 'chat'";
        body::refuse(&gateway.config, request, Denial::Forbidden(why.to_owned()).into()).await
    };
    Identified::write(set_cookie, &mut response);
    response
}

impl Gateway {
    /// Who sent these headers.
    pub(crate) async fn caller(&self, method: &Method, headers: &HeaderMap) -> Result<Identified, Denial> {
        match &self.config.access {
            Some(access) => access.identify(method, headers).await,
            None => Ok(Arc::new(Caller::default()).into()),
        }
    }
}

impl Caller {
    /// Whether the caller may know of the model.
    pub(crate) fn may_use(&self, model: &str) -> bool {
        self.models.as_ref().is_none_or(|models| models.iter().any(|name| name == model))
    }
}

impl RateLimits {
    /// Writes the limits as the field's clients expect them.
    pub(crate) fn write(&self, headers: &mut HeaderMap) {
        for (limit, names) in [(self.requests, &REQUEST_HEADERS), (self.tokens, &TOKEN_HEADERS)] {
            let Some(RateLimit { limit, remaining, reset }) = limit else { continue };
            headers.insert(names[0].clone(), HeaderValue::from(limit));
            headers.insert(names[1].clone(), HeaderValue::from(remaining));
            if let Ok(reset) = HeaderValue::from_str(&go_duration(reset)) {
                headers.insert(names[2].clone(), reset);
            }
        }
    }
}

const REQUEST_HEADERS: [HeaderName; 3] = [
    HeaderName::from_static("x-ratelimit-limit-requests"),
    HeaderName::from_static("x-ratelimit-remaining-requests"),
    HeaderName::from_static("x-ratelimit-reset-requests"),
];
const TOKEN_HEADERS: [HeaderName; 3] = [
    HeaderName::from_static("x-ratelimit-limit-tokens"),
    HeaderName::from_static("x-ratelimit-remaining-tokens"),
    HeaderName::from_static("x-ratelimit-reset-tokens"),
];

/// A duration as clients parse it: `12ms`, `1s`, `6m0s`, `1h0m0s`; fractions of longer ones are rounded up.
fn go_duration(duration: Duration) -> String {
    let ms = duration.as_millis();
    if ms < 1000 {
        return format!("{ms}ms");
    }
    let seconds = ms.div_ceil(1000);
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes) {
        (0, 0) => format!("{seconds}s"),
        (0, _) => format!("{minutes}m{seconds}s"),
        _ => format!("{hours}h{minutes}m{seconds}s"),
    }
}

impl From<Denial> for ApiError {
    fn from(denial: Denial) -> Self {
        Self::Denied(Box::new(denial))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_of_headers() {
        let check = |ms, text| assert_eq!(go_duration(Duration::from_millis(ms)), text, "{ms}");
        check(0, "0ms");
        check(12, "12ms");
        check(1000, "1s");
        check(1001, "2s");
        check(360_000, "6m0s");
        check(3_600_000, "1h0m0s");
        check(86_399_999, "24h0m0s");
    }
}
