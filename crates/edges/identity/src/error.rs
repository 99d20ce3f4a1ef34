use std::time::Duration;

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use motet_protocol::{ErrorBody, ErrorObject, RequestError};
use motet_store::{StoreError, TryLater};

/// How long a client is asked to wait for a turn, or for the database.
const SOON: Duration = Duration::from_secs(1);

/// Why a request about accounts is not answered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("{0}")]
    Request(#[from] RequestError),
    #[error("{}", told(.0))]
    Store(#[from] StoreError),
    #[error(
        "nobody is signed in; POST /api/session with login and password, or send an API key as \
         'Authorization: Bearer KEY'"
    )]
    NotSignedIn,
    #[error("the login or the password is wrong")]
    WrongLogin,
    #[error("the old password is wrong")]
    WrongPassword,
    #[error("{0}")]
    Forged(String),
    #[error("{0}")]
    Forbidden(&'static str),
    #[error("this needs a session: sign in with POST /api/session")]
    NeedsSession,
    #[error("there is an account already; sign in")]
    SetupDone,
    #[error(
        "the first account is made on this machine itself, or with the one-time token that the server printed when \
         it started"
    )]
    SetupToken,
    #[error("{0}")]
    TryLater(#[from] TryLater),
    #[error("too many passwords are being checked; try again in a second")]
    Busy,
    #[error("accounts can't be read now; try again in a moment")]
    Unavailable,
    #[error("the request body is larger than the {0} bytes taken here")]
    TooLarge(usize),
    #[error("the content type must be application/json; set the header 'content-type: application/json'")]
    ContentType,
    #[error("the request body did not arrive within {0} s")]
    BodyTimeout(u64),
    #[error("the request body broke off")]
    BrokenBody,
}

/// What clients are told of the store's errors: nothing about the database itself.
fn told(error: &StoreError) -> String {
    match error {
        StoreError::Invalid { .. }
        | StoreError::LoginTaken
        | StoreError::LastOwner
        | StoreError::Missing(_)
        | StoreError::TooMany { .. } => error.to_string(),
        error if error.is_temporary() => Refusal::Unavailable.to_string(),
        _ => "something went wrong inside the server; its log says what".to_owned(),
    }
}

/// What clients are told besides the message.
struct Policy {
    status: StatusCode,
    kind: &'static str,
    code: &'static str,
    param: Option<String>,
    retry_after: Option<Duration>,
}

impl Refusal {
    /// What the store says of a password that is called `new` in the request.
    pub(crate) fn of_new_password(error: StoreError) -> Self {
        match error {
            StoreError::Invalid { what: "the password", rule } => RequestError::bad_value("new", rule).into(),
            other => other.into(),
        }
    }

    fn policy(&self) -> Policy {
        use StatusCode as S;
        match self {
            Self::Request(error) => invalid(S::BAD_REQUEST, error.problem.code(), error.param.as_deref()),
            Self::Store(error) => of_store(error),
            Self::NotSignedIn => invalid(S::UNAUTHORIZED, "not_signed_in", None),
            Self::WrongLogin => invalid(S::UNAUTHORIZED, "wrong_login", None),
            Self::WrongPassword => forbidden("wrong_password", Some("old")),
            Self::Forged(_) => forbidden("invalid_csrf_token", None),
            Self::Forbidden(_) => forbidden("insufficient_permissions", None),
            Self::NeedsSession => forbidden("session_required", None),
            Self::SetupDone => forbidden("setup_done", None),
            Self::SetupToken => forbidden("setup_token_required", Some("token")),
            Self::TryLater(TryLater { after_ms }) => {
                let wait = Duration::from_millis(u64::try_from(*after_ms).unwrap_or(0));
                let (kind, code) = ("rate_limit_error", "rate_limit_exceeded");
                let status = S::TOO_MANY_REQUESTS;
                Policy { status, kind, code, param: None, retry_after: Some(wait) }
            }
            Self::Busy => server(S::SERVICE_UNAVAILABLE, "server_is_overloaded", Some(SOON)),
            Self::Unavailable => server(S::SERVICE_UNAVAILABLE, "accounts_unavailable", Some(SOON)),
            Self::TooLarge(_) => invalid(S::PAYLOAD_TOO_LARGE, "request_too_large", None),
            Self::ContentType => invalid(S::UNSUPPORTED_MEDIA_TYPE, "unsupported_content_type", None),
            Self::BodyTimeout(_) => invalid(S::REQUEST_TIMEOUT, "request_timeout", None),
            Self::BrokenBody => invalid(S::BAD_REQUEST, "incomplete_body", None),
        }
    }
}

fn of_store(error: &StoreError) -> Policy {
    use StatusCode as S;
    match error {
        StoreError::Invalid { what, .. } => invalid(S::BAD_REQUEST, "invalid_value", param_of(what)),
        StoreError::LoginTaken => invalid(S::BAD_REQUEST, "login_taken", Some("login")),
        StoreError::LastOwner => invalid(S::BAD_REQUEST, "last_owner", None),
        StoreError::Missing(_) => invalid(S::NOT_FOUND, "not_found", None),
        StoreError::TooMany { .. } => invalid(S::BAD_REQUEST, "too_many", None),
        error if error.is_temporary() => server(S::SERVICE_UNAVAILABLE, "accounts_unavailable", Some(SOON)),
        _ => server(S::INTERNAL_SERVER_ERROR, "internal_error", None),
    }
}

/// The parameter that the store calls by this name.
fn param_of(what: &str) -> Option<&'static str> {
    Some(match what {
        "the login" => "login",
        "the display name" => "display_name",
        "the password" => "password",
        "the tier" => "tier",
        "the key's name" => "name",
        _ => return None,
    })
}

fn invalid(status: StatusCode, code: &'static str, param: Option<&str>) -> Policy {
    let param = param.map(str::to_owned);
    Policy { status, kind: "invalid_request_error", code, param, retry_after: None }
}

fn forbidden(code: &'static str, param: Option<&str>) -> Policy {
    let param = param.map(str::to_owned);
    Policy { status: StatusCode::FORBIDDEN, kind: "permission_error", code, param, retry_after: None }
}

fn server(status: StatusCode, code: &'static str, retry_after: Option<Duration>) -> Policy {
    Policy { status, kind: "server_error", code, param: None, retry_after }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let Policy { status, kind, code, param, retry_after } = self.policy();
        if let (Self::Store(error), true) = (&self, status.is_server_error()) {
            tracing::warn!(%error, status = status.as_u16(), "a request about accounts failed");
        }
        let (kind, code) = (kind.to_owned(), Some(code.to_owned()));
        let error = ErrorObject { message: self.to_string(), kind, param, code };
        let mut response = (status, Json(ErrorBody { error })).into_response();
        if let Some(wait) = retry_after {
            let headers = response.headers_mut();
            let ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).max(1);
            // Whole seconds, rounded up: who obeys must not come too early.
            headers.insert(header::RETRY_AFTER, HeaderValue::from(ms.div_ceil(1000)));
            headers.insert("retry-after-ms", HeaderValue::from(ms));
        }
        if status == StatusCode::FORBIDDEN || status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert("x-should-retry", HeaderValue::from_static("false"));
        }
        response
    }
}
