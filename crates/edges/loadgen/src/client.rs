//! One request to one server, and when its parts arrived.

use std::time::Duration;

use reqwest::{Response, StatusCode};
use serde::Serialize;
use serde_json::Value;
use tokio::time::{Instant, timeout};

use crate::{
    LoadError, Target,
    sse::Events,
    wire::{self, Chunk, RequestOptions, Usage},
};

const CONNECT: Duration = Duration::from_secs(10);
/// The list of models and errors; more of them is not read.
const MAX_BODY_BYTES: usize = 1 << 20;
/// Largest reply: a hundred thousand tokens have about 30 MB of events.
const MAX_REPLY_BYTES: usize = 64 << 20;

/// Speaks to one server.
#[derive(Debug)]
pub(crate) struct Client {
    http: reqwest::Client,
    /// Opens a connection for every request.
    fresh: reqwest::Client,
    pub(crate) target: Target,
    pub(crate) options: RequestOptions,
    key: Option<String>,
}

/// Why a request has no reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Failure {
    /// A short name under which failures are counted: `connect`, `timeout`, `http 429`, `cut`, …
    pub(crate) kind: String,
    /// What happened.
    pub(crate) what: String,
}

impl Failure {
    pub(crate) fn new(kind: impl Into<String>, what: impl Into<String>) -> Self {
        Self { kind: kind.into(), what: what.into() }
    }
}

/// What was measured of one request. Times are in seconds; `start_s` counts from the beginning of its row,
/// the others from the sending of the request.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Record {
    pub(crate) start_s: f64,
    /// Sent so much later than the plan said; open loop only.
    pub(crate) lag_s: Option<f64>,
    /// The first piece of text.
    pub(crate) ttft_s: Option<f64>,
    /// The last event of the reply itself: later than the last text where tokens have none.
    pub(crate) last_s: f64,
    /// The end of the stream, or the failure.
    pub(crate) e2e_s: f64,
    /// Between pieces of text.
    pub(crate) gaps_s: Vec<f32>,
    pub(crate) prompt_tokens: u32,
    pub(crate) cached_tokens: Option<u32>,
    /// As the server counted, or the number of pieces where it doesn't say.
    pub(crate) output_tokens: u32,
    /// What the request asked for.
    pub(crate) asked_tokens: u32,
    pub(crate) has_usage: bool,
    pub(crate) failure: Option<Failure>,
    #[serde(skip)]
    pub(crate) reply: String,
}

impl Record {
    /// A request that was not sent at all.
    pub(crate) fn unsent(start_s: f64, failure: Failure) -> Self {
        Self { start_s, failure: Some(failure), ..Self::default() }
    }

    /// Mean time between tokens (TPOT): from the first text to the last event, by the server's count of tokens.
    /// `None` for replies of one token.
    pub(crate) fn tpot_s(&self) -> Option<f64> {
        let first = self.ttft_s?;
        (self.output_tokens > 1).then(|| (self.last_s - first).max(0.0) / f64::from(self.output_tokens - 1))
    }
}

impl Client {
    pub(crate) fn new(
        target: Target,
        options: RequestOptions,
        key: Option<String>,
    ) -> Result<Self, LoadError> {
        // The first provider wins; it does not matter which of several callers installs it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = http_client(&target, usize::MAX)?;
        let fresh = http_client(&target, 0)?;
        if key.as_deref().is_some_and(|key| key.is_empty() || key.bytes().any(|b| !b.is_ascii_graphic())) {
            let why = "--api-key is empty or has a space or another character that no key has";
            return Err(LoadError::Option(why.to_owned()));
        }
        Ok(Self { http, fresh, target, options, key })
    }

    /// The first model the server lists.
    pub(crate) async fn first_model(&self) -> Result<String, Failure> {
        let request = self.http.get(format!("{}/v1/models", self.target.url)).timeout(CONNECT);
        let mut response = self.authorized(request).send().await.map_err(|error| failure(&error))?;
        if response.status() != StatusCode::OK {
            return Err(refused(&mut response).await);
        }
        let body = bounded_body(&mut response).await;
        let listed: Value = serde_json::from_slice(&body).unwrap_or_default();
        let id = listed["data"][0]["id"].as_str().map(str::to_owned);
        id.ok_or_else(|| Failure::new("protocol", "/v1/models lists no model: name one with --model"))
    }

    fn authorized(&self, request: reqwest::RequestBuilder) -> reqwest::RequestBuilder {
        match &self.key {
            Some(key) => request.bearer_auth(key),
            None => request,
        }
    }

    /// Sends a request up to the answer's head. A server may close a kept connection at the moment a request is written
    /// to it, as HTTP allows; then nobody has answered, and the request is sent once more, with the time still running
    /// and on a new connection: every other kept one may be as stale.
    async fn post(&self, body: Vec<u8>) -> Result<Response, reqwest::Error> {
        let sent = self.post_with(&self.http, body.clone()).await;
        match sent {
            Err(error) if !error.is_connect() && !error.is_timeout() => {
                self.post_with(&self.fresh, body).await
            }
            sent => sent,
        }
    }

    async fn post_with(&self, http: &reqwest::Client, body: Vec<u8>) -> Result<Response, reqwest::Error> {
        let url = format!("{}{}", self.target.url, self.options.endpoint.path());
        let request = http.post(&url).header("content-type", "application/json").body(body);
        self.authorized(request).send().await
    }

    /// Sends a request and reads its reply to the end. `epoch` is what `start_s` counts from.
    pub(crate) async fn complete(&self, body: Vec<u8>, epoch: Instant) -> Record {
        let start = Instant::now();
        let mut reply = Reply::new(start);
        let outcome = match timeout(self.options.timeout, self.stream(body, &mut reply)).await {
            Ok(outcome) => outcome,
            Err(_) => {
                let what = format!("no end within {:?}; see --timeout", self.options.timeout);
                Err(Failure::new("timeout", what))
            }
        };
        let mut record = reply.record(outcome.err());
        record.start_s = start.duration_since(epoch).as_secs_f64();
        record
    }

    async fn stream(&self, body: Vec<u8>, reply: &mut Reply) -> Result<(), Failure> {
        let mut response = self.post(body).await.map_err(|error| failure(&error))?;
        if response.status() != StatusCode::OK {
            return Err(refused(&mut response).await);
        }
        let mut events = Events::default();
        let mut read = 0;
        loop {
            let bytes = response.chunk().await.map_err(|error| Failure::new("cut", chain(&error)))?;
            let Some(bytes) = bytes else { break };
            let now = Instant::now();
            read += bytes.len();
            if read > MAX_REPLY_BYTES {
                return Err(Failure::new(
                    "too large",
                    format!("a reply of more than {MAX_REPLY_BYTES} bytes"),
                ));
            }
            let fed = events.feed(&bytes, |data| reply.event(data, now));
            fed.map_err(|_| Failure::new("too large", "an event of more than 4 MiB"))?;
            if let Some(failure) = reply.failure.take() {
                return Err(failure);
            }
        }
        let why = "the stream ended before the reply was finished";
        if reply.is_finished { Ok(()) } else { Err(Failure::new("cut", why)) }
    }
}

fn http_client(target: &Target, kept_connections: usize) -> Result<reqwest::Client, LoadError> {
    let mut builder = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT)
        .tcp_nodelay(true)
        .pool_max_idle_per_host(kept_connections)
        .user_agent(concat!("motet-bench/", env!("CARGO_PKG_VERSION")));
    if target.is_loopback() {
        builder = builder.no_proxy();
    }
    builder.build().map_err(|error| LoadError::Option(chain(&error)))
}

/// A reply while it arrives.
struct Reply {
    start: Instant,
    first: Option<Instant>,
    last_text: Option<Instant>,
    last: Instant,
    gaps_s: Vec<f32>,
    text: String,
    pieces: u32,
    usage: Option<Usage>,
    is_finished: bool,
    failure: Option<Failure>,
}

impl Reply {
    fn new(start: Instant) -> Self {
        Self {
            start,
            first: None,
            last_text: None,
            last: start,
            gaps_s: Vec::new(),
            text: String::new(),
            pieces: 0,
            usage: None,
            is_finished: false,
            failure: None,
        }
    }

    fn event(&mut self, data: &[u8], now: Instant) {
        if data == b"[DONE]" {
            self.is_finished = true;
            return;
        }
        let chunk: Chunk<'_> = match serde_json::from_slice(data) {
            Ok(chunk) => chunk,
            Err(error) => {
                self.failure =
                    Some(Failure::new("protocol", format!("an event is no completion chunk: {error}")));
                return;
            }
        };
        if chunk.error.is_some() {
            self.failure = Some(Failure::new("error event", wire::error_text(data)));
            return;
        }
        self.usage = chunk.usage.or(self.usage);
        for choice in &chunk.choices {
            self.last = now;
            self.is_finished |= choice.finish_reason.is_some();
            let added = choice.added();
            if !added.is_empty() {
                self.text.push_str(added);
                self.piece(now);
            }
        }
    }

    fn piece(&mut self, now: Instant) {
        self.pieces += 1;
        if let Some(last) = self.last_text {
            self.gaps_s.push(now.duration_since(last).as_secs_f32());
        }
        self.first.get_or_insert(now);
        self.last_text = Some(now);
    }

    fn record(self, failure: Option<Failure>) -> Record {
        let since = |at: Instant| at.duration_since(self.start).as_secs_f64();
        // Tokens without text, such as end-of-text under `ignore_eos`, still are a reply.
        let first = self.first.or((self.is_finished && self.last > self.start).then_some(self.last));
        let usage = self.usage.unwrap_or_default();
        Record {
            ttft_s: first.map(since),
            last_s: since(self.last),
            e2e_s: self.start.elapsed().as_secs_f64(),
            gaps_s: self.gaps_s,
            prompt_tokens: usage.prompt_tokens,
            cached_tokens: usage.cached(),
            output_tokens: self.usage.map_or(self.pieces, |usage| usage.completion_tokens),
            has_usage: self.usage.is_some(),
            failure,
            reply: self.text,
            ..Record::default()
        }
    }
}

async fn bounded_body(response: &mut Response) -> Vec<u8> {
    let mut body = Vec::new();
    while let Ok(Some(bytes)) = response.chunk().await {
        let room = MAX_BODY_BYTES - body.len();
        body.extend_from_slice(&bytes[..bytes.len().min(room)]);
        if bytes.len() >= room {
            break;
        }
    }
    body
}

async fn refused(response: &mut Response) -> Failure {
    let status = response.status().as_u16();
    let body = bounded_body(response).await;
    Failure::new(format!("http {status}"), format!("HTTP {status}: {}", wire::error_text(&body)))
}

fn failure(error: &reqwest::Error) -> Failure {
    let kind = if error.is_connect() {
        "connect"
    } else if error.is_timeout() {
        "timeout"
    } else {
        "cut"
    };
    Failure::new(kind, chain(error))
}

/// The innermost reason: the outer ones only say "error sending request" and the address.
fn chain(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "no answer in time".to_owned();
    }
    let mut innermost: &dyn std::error::Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    wire::clean(&innermost.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_timed() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut reply = Reply::new(start);
        reply.event(br#"{"choices":[{"delta":{"role":"assistant","content":""}}]}"#, at(50));
        reply.event(br#"{"choices":[{"delta":{"content":"a"}}]}"#, at(100));
        reply.event(br#"{"choices":[{"delta":{"content":"bc"}}]}"#, at(130));
        reply.event(br#"{"choices":[{"delta":{},"finish_reason":"length"}]}"#, at(220));
        reply.event(br#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":5}}"#, at(230));
        reply.event(b"[DONE]", at(231));
        let record = reply.record(None);
        assert_eq!(record.ttft_s, Some(0.1));
        assert_eq!(record.gaps_s, [0.03]);
        assert_eq!((record.prompt_tokens, record.output_tokens, record.reply.as_str()), (9, 5, "abc"));
        // Three of the five tokens have no text of their own: the time is shared by four gaps.
        assert!((record.tpot_s().unwrap() - 0.03).abs() < 1e-9);
    }

    #[test]
    fn bad_events_fail_the_request() {
        let check = |data: &str, kind: &str| {
            let mut reply = Reply::new(Instant::now());
            reply.event(data.as_bytes(), Instant::now());
            assert_eq!(reply.failure.map(|failure| failure.kind).as_deref(), Some(kind), "{data}");
        };
        check("not json", "protocol");
        check(r#"{"error":{"message":"out of memory"}}"#, "error event");
    }
}
