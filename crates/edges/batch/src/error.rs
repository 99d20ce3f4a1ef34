use std::io;

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use motet_protocol::{ErrorBody, ErrorObject, RequestError};
use motet_store::StoreError;

/// Everything that can go wrong with a request for files or batches.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    #[error("{0}")]
    Request(#[from] RequestError),
    #[error("there is no {what} '{id}'; GET {list} lists yours")]
    Missing { what: &'static str, id: String, list: &'static str },
    #[error("'file' is longer than the {0} bytes this server takes; split it")]
    TooLarge(u64),
    #[error(
        "the upload is not multipart/form-data that can be read ({0}); send the fields 'purpose' and 'file'"
    )]
    NotMultipart(String),
    #[error("the content type must be {0}")]
    ContentType(&'static str),
    #[error("the upload did not end within {0} s")]
    UploadTimeout(u64),
    #[error("too many files are being sent already; try again in a few seconds")]
    Busy,
    #[error("a page of another site sent this request, and may not")]
    ForeignOrigin,
    #[error("this key may not use files and batches; make one with the scope 'batches'")]
    Scope,
    #[error("the file '{0}' is the input of a batch that has not ended; cancel that first")]
    InUse(String),
    #[error("the batch has ended as '{0}' and can't be cancelled")]
    HasEnded(&'static str),
    #[error("what file '{0}' holds is not on this server; another server with the same database may have it")]
    Elsewhere(String),
    #[error("{0}")]
    TooMany(StoreError),
    #[error("{0}")]
    TooManyOfAll(StoreError),
    #[error("files and batches can't be used now: {0}")]
    Unavailable(String),
    #[error("something went wrong inside the server; its log says what")]
    Internal,
}

/// What clients are told besides the message.
struct Policy {
    status: StatusCode,
    kind: &'static str,
    code: &'static str,
    param: Option<String>,
    retry_after: Option<u32>,
}

impl ApiError {
    fn policy(&self) -> Policy {
        use StatusCode as S;
        let new = |status, kind, code| Policy { status, kind, code, param: None, retry_after: None };
        let invalid = |status, code| new(status, "invalid_request_error", code);
        let on = |policy: Policy, param: &str| Policy { param: Some(param.to_owned()), ..policy };
        match self {
            Self::Request(error) => {
                Policy { param: error.param.clone(), ..invalid(S::BAD_REQUEST, error.problem.code()) }
            }
            Self::Missing { .. } => invalid(S::NOT_FOUND, "not_found"),
            Self::TooLarge(_) => on(invalid(S::PAYLOAD_TOO_LARGE, "request_too_large"), "file"),
            Self::NotMultipart(_) => invalid(S::BAD_REQUEST, "invalid_multipart"),
            Self::ContentType(_) => invalid(S::UNSUPPORTED_MEDIA_TYPE, "unsupported_content_type"),
            Self::UploadTimeout(_) => invalid(S::REQUEST_TIMEOUT, "request_timeout"),
            Self::Busy => Policy {
                retry_after: Some(5),
                ..new(S::SERVICE_UNAVAILABLE, "server_error", "server_is_overloaded")
            },
            Self::ForeignOrigin => new(S::FORBIDDEN, "permission_error", "origin_not_allowed"),
            Self::Scope => new(S::FORBIDDEN, "permission_error", "insufficient_permissions"),
            Self::InUse(_) => invalid(S::BAD_REQUEST, "file_in_use"),
            Self::HasEnded(_) => invalid(S::BAD_REQUEST, "batch_has_ended"),
            Self::Elsewhere(_) => invalid(S::NOT_FOUND, "content_not_found"),
            // Nothing fills up again by waiting: the client has to end or delete something.
            Self::TooMany(_) => new(S::TOO_MANY_REQUESTS, "rate_limit_error", "storage_limit_reached"),
            Self::TooManyOfAll(_) => Policy {
                retry_after: Some(60),
                ..new(S::SERVICE_UNAVAILABLE, "server_error", "server_is_overloaded")
            },
            Self::Unavailable(_) => Policy {
                retry_after: Some(5),
                ..new(S::SERVICE_UNAVAILABLE, "server_error", "files_unavailable")
            },
            Self::Internal => new(S::INTERNAL_SERVER_ERROR, "server_error", "internal_error"),
        }
    }
}

/// The body of an error, for a response or for a line of a file.
pub(crate) fn body(message: String, kind: &str, code: &str, param: Option<String>) -> ErrorBody {
    ErrorBody { error: ErrorObject { message, kind: kind.to_owned(), param, code: Some(code.to_owned()) } }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let Policy { status, kind, code, param, retry_after } = self.policy();
        if status.is_server_error() {
            tracing::warn!(status = status.as_u16(), error = %self, "request failed");
        }
        let mut response = (status, Json(body(self.to_string(), kind, code, param))).into_response();
        let headers = response.headers_mut();
        if let Some(seconds) = retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
            headers.insert("retry-after-ms", HeaderValue::from(seconds * 1000));
        }
        if matches!(self, Self::TooMany(_)) {
            // Clients retry 429 unless they are told that it is useless.
            headers.insert("x-should-retry", HeaderValue::from_static("false"));
        }
        response
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::TooMany { .. } => Self::TooMany(error),
            error if error.is_temporary() => {
                tracing::warn!(%error, "files and batches can't be read");
                Self::Unavailable("the database does not answer".to_owned())
            }
            error => {
                tracing::error!(%error, "the database refused what is asked of files and batches");
                Self::Internal
            }
        }
    }
}

impl From<io::Error> for ApiError {
    fn from(error: io::Error) -> Self {
        tracing::error!(%error, "the folder of files can't be used");
        if error.kind() == io::ErrorKind::StorageFull {
            return Self::Unavailable("the disk is full".to_owned());
        }
        Self::Internal
    }
}
