use std::time::Duration;

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use motet_protocol::{ErrorBody, ErrorObject, RequestError};
use motet_stream::Full;
use motet_types::{ReplyError, SubmitError};

use crate::access::Denial;
use crate::overload::Shed;

/// How long a client is asked to wait for a model that is being loaded: a guess, as nobody knows.
const LOADING_RETRY: Duration = Duration::from_secs(2);
/// How long a client is asked to wait for what comes after a server that is shutting down: a guess at
/// a restart.
const DRAINING_RETRY: Duration = Duration::from_secs(5);
/// How long a client is asked to wait for a place among the requests being tokenized.
const PREPARE_RETRY: Duration = Duration::from_secs(1);

/// Names what was given up for a request because there is too much to do.
pub(crate) const DEGRADED: HeaderName = HeaderName::from_static("x-motet-degraded");

/// Everything that can go wrong between a client and a reply.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    #[error("{0}")]
    Request(#[from] RequestError),
    /// The template refused the conversation, or there is none; its own words.
    #[error("{0}")]
    Template(String),
    #[error(
        "token id {id} in '{param}' is outside this model's vocabulary of {vocab_size} tokens (0 to {})",
        vocab_size - 1
    )]
    UnknownToken { param: String, id: u32, vocab_size: u32 },
    #[error("'{param}' gives no tokens to continue; send at least one")]
    EmptyPrompt { param: &'static str },
    #[error("{0}")]
    ContextLength(#[from] ContextLength),
    #[error("the model '{0}' does not exist; GET /v1/models lists those that do")]
    UnknownModel(String),
    #[error(
        "the model '{0}' can't make embeddings: no embedding model is loaded here; \
         `motet serve --embedding-model FOLDER` loads one"
    )]
    NoEmbeddingModel(String),
    #[error("the model '{asked}' does not exist or can't make embeddings; use '{served}'")]
    OtherEmbeddingModel { asked: String, served: String },
    #[error(
        "{whose} maximum context length is {limit} tokens. However, '{param}' has {tokens}; shorten or split it"
    )]
    InputTooLong { param: String, tokens: usize, limit: u32, whose: &'static str },
    #[error("{waiting_tokens} tokens wait to be embedded already; try again in {seconds} s")]
    EmbeddingQueueFull { waiting_tokens: u64, seconds: u32 },
    #[error("the embedding model gave a vector that is not finite; its weights are damaged")]
    EmbeddingFailed,
    #[error("there is no {0} here; see /v1/models, /v1/chat/completions, /v1/completions and /v1/embeddings")]
    UnknownRoute(String),
    #[error("{0} is not allowed here; the Allow header lists what is")]
    MethodNotAllowed(http::Method),
    #[error("the request body is larger than the {0} bytes this server takes")]
    TooLarge(usize),
    #[error(
        "the content type must be application/json, not '{0}'; set the header 'content-type: application/json'"
    )]
    ContentType(String),
    #[error("the request body did not arrive within {0} s")]
    BodyTimeout(u64),
    #[error("the request body broke off")]
    BrokenBody,
    #[error(
        "this server answers requests to localhost and loopback addresses, not to '{0}'; \
         a proxy in front of it has to send 'Host: localhost'"
    )]
    ForeignHost(String),
    #[error(
        "the header 'Idempotency-Key' must come once and have 1 to 255 printable ASCII characters; a UUID does well"
    )]
    BadKey,
    #[error(
        "this 'Idempotency-Key' came with another body before; send the same bytes for the same answer, \
         or a new key for another request"
    )]
    KeyReused,
    #[error(
        "the answer to this 'Idempotency-Key' was too long to be kept; it was computed and sent once. \
         Send a new key to have it computed again"
    )]
    ReplyLost,
    #[error("{0}; try again in a second")]
    NoRoomForKey(Full),
    #[error("{}", told(.0))]
    Denied(Box<Denial>),
    #[error("the model is loading; try again in a moment")]
    Loading,
    #[error("too many requests wait to be read already; try again in a second")]
    Busy,
    #[error("{waiting} requests are waiting already; try again in {seconds} s")]
    QueueFull { waiting: u32, seconds: u32 },
    #[error(
        "the first token is expected in {estimate} s, later than this server promises; try again in {seconds} s"
    )]
    TooSlow { estimate: u32, seconds: u32 },
    #[error("{}; try again in {} s", .shed.told(), whole_seconds(*.wait))]
    Shed { shed: Shed, wait: Duration },
    #[error("'n' asks for {samples} choices; at most {limit} of a prompt can run at once here")]
    Samples { samples: usize, limit: usize },
    #[error("the server is shutting down and takes no more requests; try again in a few seconds")]
    Draining,
    #[error("the engine is not working: {0}")]
    Down(String),
    #[error("{0}")]
    Reply(ReplyError),
    #[error("the engine ended the reply without saying why; what was sent is incomplete")]
    Truncated,
    #[error("something went wrong inside the server; its log says what")]
    Internal,
}

/// A prompt that doesn't fit, with the true numbers.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{whose} maximum context length is {limit} tokens. However, you requested {} tokens ({prompt} in '{given_in}'{}). \
     Shorten '{given_in}' or ask for fewer tokens.",
    u64::from(*prompt) + u64::from(max_tokens.unwrap_or(0)),
    max_tokens.map_or_else(|| ", which leaves no room for a reply".to_owned(), |max| format!(", {max} for the completion"))
)]
pub(crate) struct ContextLength {
    /// Most tokens of prompt and reply.
    pub(crate) limit: u32,
    /// Whose limit that is: "This model's" or "Your account's".
    pub(crate) whose: &'static str,
    /// Tokens of the prompt.
    pub(crate) prompt: u32,
    /// Tokens asked for, if the request said.
    pub(crate) max_tokens: Option<u32>,
    /// Where the prompt came from: `messages` or `prompt`.
    pub(crate) given_in: &'static str,
    /// What has to change: the prompt, or the limit when the prompt alone would fit.
    pub(crate) param: &'static str,
}

/// The limit of a context that is the model's: what OpenAI's own message begins with.
pub(crate) const MODELS: &str = "This model's";

/// What clients are told of an error besides its message.
struct Policy {
    status: StatusCode,
    kind: &'static str,
    code: Option<&'static str>,
    param: Option<String>,
    retry_after: Option<Duration>,
}

impl ApiError {
    /// The one place that turns errors into status codes.
    fn policy(&self) -> Policy {
        use StatusCode as S;
        match self {
            Self::Request(error) => invalid(S::BAD_REQUEST, error.problem.code(), error.param.as_deref()),
            Self::Template(_) => invalid(S::BAD_REQUEST, "chat_template_error", Some("messages")),
            Self::UnknownToken { param, .. } => invalid(S::BAD_REQUEST, "invalid_value", Some(param)),
            Self::EmptyPrompt { param } => invalid(S::BAD_REQUEST, "invalid_value", Some(param)),
            Self::ContextLength(error) => {
                invalid(S::BAD_REQUEST, "context_length_exceeded", Some(error.param))
            }
            Self::NoEmbeddingModel(_) | Self::OtherEmbeddingModel { .. } => {
                invalid(S::NOT_FOUND, "model_not_found", Some("model"))
            }
            Self::InputTooLong { param, .. } => {
                invalid(S::BAD_REQUEST, "context_length_exceeded", Some(param))
            }
            Self::EmbeddingQueueFull { seconds, .. } => {
                let wait = Duration::from_secs(u64::from(*seconds).max(1));
                server(S::SERVICE_UNAVAILABLE, "server_is_overloaded", Some(wait))
            }
            Self::EmbeddingFailed => server(S::INTERNAL_SERVER_ERROR, "reply_failed", None),
            Self::UnknownModel(_) => invalid(S::NOT_FOUND, "model_not_found", Some("model")),
            Self::UnknownRoute(_) => invalid(S::NOT_FOUND, "unknown_url", None),
            Self::MethodNotAllowed(_) => invalid(S::METHOD_NOT_ALLOWED, "method_not_allowed", None),
            Self::TooLarge(_) => invalid(S::PAYLOAD_TOO_LARGE, "request_too_large", None),
            Self::ContentType(_) => invalid(S::UNSUPPORTED_MEDIA_TYPE, "unsupported_content_type", None),
            Self::BodyTimeout(_) => invalid(S::REQUEST_TIMEOUT, "request_timeout", None),
            Self::BrokenBody => invalid(S::BAD_REQUEST, "incomplete_body", None),
            Self::ForeignHost(_) => invalid(S::FORBIDDEN, "host_not_allowed", None),
            Self::BadKey => invalid(S::BAD_REQUEST, "invalid_value", Some("Idempotency-Key")),
            Self::KeyReused => invalid(S::UNPROCESSABLE_ENTITY, "idempotency_key_reused", None),
            Self::ReplyLost => invalid(S::CONFLICT, "idempotent_reply_lost", None),
            Self::NoRoomForKey(_) => {
                server(S::SERVICE_UNAVAILABLE, "server_is_overloaded", Some(PREPARE_RETRY))
            }
            Self::Denied(denial) => denied(denial),
            Self::Loading => server(S::SERVICE_UNAVAILABLE, "model_loading", Some(LOADING_RETRY)),
            Self::Busy => server(S::SERVICE_UNAVAILABLE, "server_is_overloaded", Some(PREPARE_RETRY)),
            Self::QueueFull { seconds, .. } | Self::TooSlow { seconds, .. } => {
                let wait = Duration::from_secs(u64::from(*seconds).max(1));
                server(S::SERVICE_UNAVAILABLE, "server_is_overloaded", Some(wait))
            }
            Self::Shed { wait, .. } => server(S::SERVICE_UNAVAILABLE, "server_is_overloaded", Some(*wait)),
            Self::Samples { .. } => invalid(S::BAD_REQUEST, "invalid_value", Some("n")),
            Self::Draining => server(S::SERVICE_UNAVAILABLE, "server_shutting_down", Some(DRAINING_RETRY)),
            Self::Down(_) => server(S::SERVICE_UNAVAILABLE, "engine_down", None),
            Self::Reply(ReplyError::BackendDown(_)) => server(S::SERVICE_UNAVAILABLE, "engine_down", None),
            Self::Reply(ReplyError::NonFiniteLogits { .. }) => {
                server(S::INTERNAL_SERVER_ERROR, "reply_failed", None)
            }
            Self::Reply(ReplyError::DeadlinePassed) => server(S::GATEWAY_TIMEOUT, "deadline_passed", None),
            Self::Truncated => server(S::INTERNAL_SERVER_ERROR, "reply_truncated", None),
            Self::Internal => server(S::INTERNAL_SERVER_ERROR, "internal_error", None),
        }
    }

    /// The error's body, for a response or for an event of a stream.
    pub(crate) fn body(&self) -> ErrorBody {
        let Policy { kind, code, param, .. } = self.policy();
        let code = code.map(str::to_owned);
        ErrorBody { error: ErrorObject { message: self.to_string(), kind: kind.to_owned(), param, code } }
    }

    /// A backend's refusal. `param` is where the prompt came from.
    pub(crate) fn from_submit(error: SubmitError, param: &'static str) -> Self {
        match error {
            SubmitError::EmptyPrompt => Self::EmptyPrompt { param },
            SubmitError::UnknownToken { token, vocab_size } => {
                Self::UnknownToken { param: param.into(), id: token, vocab_size }
            }
            SubmitError::BadSampling { field, value, allowed } => {
                RequestError::bad_value(field, format!("must be {allowed}, not {value}")).into()
            }
            SubmitError::TooLong { prompt, max_tokens, limit } => {
                let whose = MODELS;
                ContextLength { limit, whose, prompt, max_tokens: Some(max_tokens), given_in: param, param }
                    .into()
            }
            SubmitError::QueueFull { waiting, retry_after_seconds } => {
                Self::QueueFull { waiting, seconds: retry_after_seconds }
            }
            SubmitError::TooSlow { estimate_seconds: estimate, retry_after_seconds: seconds } => {
                Self::TooSlow { estimate, seconds }
            }
            SubmitError::Samples { samples, limit } => Self::Samples { samples, limit },
            SubmitError::Draining => Self::Draining,
            SubmitError::Down(why) => Self::Down(why),
            // The parser refuses 0 and a client names no lane, so these are the server's own mistakes.
            error @ (SubmitError::NoOutput | SubmitError::UnknownLane { .. }) => {
                tracing::error!(%error, "the engine refused what the gateway made of a request");
                Self::Internal
            }
        }
    }
}

/// What a caller who is not let in is told.
fn told(denial: &Denial) -> String {
    match denial {
        Denial::Unknown => {
            "no valid API key and no session; send a key as 'Authorization: Bearer KEY'. Make one with \
                            `motet keys create`, or ask who runs this server"
                .to_owned()
        }
        Denial::Forged(why) | Denial::Forbidden(why) | Denial::TooLarge(why) | Denial::Budget(why) => {
            why.clone()
        }
        Denial::Limited { what, .. } => format!("rate limit reached: {what}"),
        Denial::Unavailable(why) => format!("{why}; try again in a moment"),
    }
}

fn denied(denial: &Denial) -> Policy {
    use StatusCode as S;
    let policy =
        |status, kind, code, retry_after| Policy { status, kind, code: Some(code), param: None, retry_after };
    match denial {
        Denial::Unknown => invalid(S::UNAUTHORIZED, "invalid_api_key", None),
        Denial::Forged(_) => policy(S::FORBIDDEN, "permission_error", "invalid_csrf_token", None),
        Denial::Forbidden(_) => policy(S::FORBIDDEN, "permission_error", "insufficient_permissions", None),
        Denial::Limited { retry_after, .. } => {
            policy(S::TOO_MANY_REQUESTS, "rate_limit_error", "rate_limit_exceeded", Some(*retry_after))
        }
        Denial::TooLarge(_) => invalid(S::BAD_REQUEST, "request_exceeds_limit", None),
        Denial::Budget(_) => policy(S::TOO_MANY_REQUESTS, "insufficient_quota", "insufficient_quota", None),
        Denial::Unavailable(_) => server(S::SERVICE_UNAVAILABLE, "accounts_unavailable", Some(PREPARE_RETRY)),
    }
}

fn invalid(status: StatusCode, code: &'static str, param: Option<&str>) -> Policy {
    let param = param.map(str::to_owned);
    Policy { status, kind: "invalid_request_error", code: Some(code), param, retry_after: None }
}

fn server(status: StatusCode, code: &'static str, retry_after: Option<Duration>) -> Policy {
    Policy { status, kind: "server_error", code: Some(code), param: None, retry_after }
}

/// The server's own failure: among the extensions of its response, for the log, which knows the request's id.
#[derive(Debug, Clone)]
pub(crate) struct Failure(pub(crate) String);

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let Policy { status, retry_after, .. } = self.policy();
        let mut response = (status, Json(self.body())).into_response();
        if status.is_server_error() {
            response.extensions_mut().insert(Failure(self.to_string()));
        }
        let headers = response.headers_mut();
        if let Some(wait) = retry_after {
            // Rounded up: who obeys must not come too early.
            let ms = u64::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX).max(1);
            headers.insert(header::RETRY_AFTER, HeaderValue::from(whole_seconds(wait)));
            headers.insert("retry-after-ms", HeaderValue::from(ms));
        }
        if let Self::Shed { shed, .. } = &self {
            headers.extend(shed.degraded().map(|what| (DEGRADED, what)));
        }
        if let Self::Denied(denial) = &self {
            denial_headers(denial, headers);
        }
        response
    }
}

/// Rounded up, and at least 1.
fn whole_seconds(wait: Duration) -> u64 {
    u64::try_from(wait.as_millis().div_ceil(1000)).unwrap_or(u64::MAX).max(1)
}

fn denial_headers(denial: &Denial, headers: &mut HeaderMap) {
    match denial {
        Denial::Unknown => {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        Denial::Limited { limits, .. } => limits.write(headers),
        // Clients retry 429 unless they are told that it is useless.
        Denial::Budget(_) => {
            headers.insert("x-should-retry", HeaderValue::from_static("false"));
        }
        _ => {}
    }
}

impl From<serde_json::Error> for ApiError {
    fn from(error: serde_json::Error) -> Self {
        tracing::error!(%error, "a reply could not be written as JSON");
        Self::Internal
    }
}
