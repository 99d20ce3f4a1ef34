use axum::Json;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use motet_protocol::{ErrorBody, ErrorObject, RequestError};

/// Everything that can go wrong with a moderation request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    #[error("{0}")]
    Request(#[from] RequestError),
    #[error("the model '{0}' makes no moderations; leave 'model' away, or ask for '{served}'", served = crate::MODEL)]
    UnknownModel(String),
    #[error("the content type must be application/json")]
    ContentType,
    #[error("the body is larger than the {0} bytes that a moderation may have; send less text at once")]
    TooLarge(usize),
    #[error("the body broke off")]
    BrokenBody,
    #[error("the body did not arrive within {0} s")]
    BodyTimeout(u64),
    #[error("too many moderations are being computed; try again in a second")]
    Busy,
    #[error("something went wrong inside the server; its log says what")]
    Internal,
}

impl ApiError {
    fn policy(&self) -> (StatusCode, &'static str, &'static str) {
        use StatusCode as S;
        const INVALID: &str = "invalid_request_error";
        match self {
            Self::Request(error) => (S::BAD_REQUEST, INVALID, error.problem.code()),
            Self::UnknownModel(_) => (S::NOT_FOUND, INVALID, "model_not_found"),
            Self::ContentType => (S::UNSUPPORTED_MEDIA_TYPE, INVALID, "unsupported_content_type"),
            Self::TooLarge(_) => (S::PAYLOAD_TOO_LARGE, INVALID, "request_too_large"),
            Self::BrokenBody => (S::BAD_REQUEST, INVALID, "incomplete_body"),
            Self::BodyTimeout(_) => (S::REQUEST_TIMEOUT, INVALID, "request_timeout"),
            Self::Busy => (S::SERVICE_UNAVAILABLE, "server_error", "server_is_overloaded"),
            Self::Internal => (S::INTERNAL_SERVER_ERROR, "server_error", "internal_error"),
        }
    }

    fn param(&self) -> Option<String> {
        match self {
            Self::Request(error) => error.param.clone(),
            Self::UnknownModel(_) => Some("model".to_owned()),
            _ => None,
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let (status, kind, code) = self.policy();
        if status.is_server_error() {
            tracing::warn!(status = status.as_u16(), error = %self, "a moderation failed");
        }
        let (param, message) = (self.param(), self.to_string());
        let error = ErrorObject { message, kind: kind.to_owned(), param, code: Some(code.to_owned()) };
        let mut response = (status, Json(ErrorBody { error })).into_response();
        if matches!(self, Self::Busy) {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(1));
            response.headers_mut().insert("retry-after-ms", HeaderValue::from(1000));
        }
        response
    }
}
