//! One line: sent through the gateway's own routes as its owner, and made a line of the answers.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use futures_util::future::BoxFuture;
use http::{Request, StatusCode, header};
use motet_gateway::{Caller, Denial};
use motet_protocol::ErrorBody;
use motet_store::{DataOwner, FileId, KeyId};
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::answers::Kind;
use crate::error;
use crate::input::Ask;

/// Longest answer that is kept: 128 choices of a long context have less.
const MAX_ANSWER_BYTES: usize = 64 << 20;

/// Finds out who an owner of earlier work is now.
pub trait RunAs: Send + Sync {
    /// The caller that stands for an owner, who used `key` if there was one. A denial other than
    /// [`Unavailable`](Denial::Unavailable) ends the work; that one delays it.
    fn caller<'a>(
        &'a self,
        owner: &'a DataOwner,
        key: Option<&'a KeyId>,
    ) -> BoxFuture<'a, Result<Arc<Caller>, Denial>>;
}

/// What became of a line.
#[derive(Debug)]
pub(crate) enum Answer {
    /// It has its answer: a line without its end.
    Given(Kind, Vec<u8>),
    /// It was refused for now; the time that was named.
    Later(Option<Duration>),
}

/// Where lines are sent, and as whom.
pub(crate) struct Sender {
    pub(crate) inner: Router,
    pub(crate) run_as: Arc<dyn RunAs>,
    pub(crate) owner: DataOwner,
    pub(crate) key: Option<KeyId>,
    pub(crate) endpoint: String,
}

impl Sender {
    /// Sends a line and waits for its answer.
    pub(crate) async fn send(&self, ask: Ask) -> Answer {
        let Ask { custom_id, mut body } = ask;
        if body.get("stream").is_some_and(|stream| *stream != Value::Bool(false) && !stream.is_null()) {
            let message = "'stream' must be false or absent: a line of a batch is answered whole".to_owned();
            let error =
                error::body(message, "invalid_request_error", "invalid_value", Some("stream".to_owned()));
            return refused(&custom_id, StatusCode::BAD_REQUEST, &error);
        }
        let caller = match self.run_as.caller(&self.owner, self.key.as_ref()).await {
            Ok(caller) if caller.scopes.inference && caller.scopes.batches => caller,
            Ok(_) => {
                let message = "the key of this batch may no longer use models and batches".to_owned();
                let error = error::body(message, "permission_error", "insufficient_permissions", None);
                return refused(&custom_id, StatusCode::FORBIDDEN, &error);
            }
            Err(Denial::Unavailable(_) | Denial::Limited { .. }) => return Answer::Later(None),
            Err(_) => {
                let message = "the key or the user of this batch is not valid any more".to_owned();
                let error = error::body(message, "invalid_request_error", "invalid_api_key", None);
                return refused(&custom_id, StatusCode::UNAUTHORIZED, &error);
            }
        };
        body.insert("service_tier".to_owned(), "flex".into());
        let request = Request::post(&self.endpoint)
            .header(header::CONTENT_TYPE, "application/json")
            .extension(caller)
            .body(Body::from(Value::Object(body).to_string()));
        match request {
            Ok(request) => self.answer(&custom_id, request).await,
            Err(error) => internal(&custom_id, &error),
        }
    }

    async fn answer(&self, custom_id: &str, request: Request<Body>) -> Answer {
        let response = match self.inner.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        let (parts, body) = response.into_parts();
        let text = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok());
        let is_passing =
            matches!(parts.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
        if is_passing && text("x-should-retry") != Some("false") {
            let ms = text("retry-after-ms").and_then(|ms| ms.parse().ok()).map(Duration::from_millis);
            let seconds = || text("retry-after")?.parse().ok().map(Duration::from_secs);
            return Answer::Later(ms.or_else(seconds));
        }
        let request_id = text("x-request-id").unwrap_or_default().to_owned();
        let bytes = match to_bytes(body, MAX_ANSWER_BYTES).await {
            Ok(bytes) => bytes,
            Err(error) => return internal(custom_id, &error),
        };
        match serde_json::from_slice::<Value>(&bytes) {
            Ok(body) => given(custom_id, parts.status, &request_id, &body),
            Err(error) => internal(custom_id, &error),
        }
    }
}

/// The line of a request that was not sent because its batch ended before.
pub(crate) fn unsent(custom_id: &str, code: &str, message: &str) -> Vec<u8> {
    let error = json!({ "code": code, "message": message });
    json!({ "id": line_id(), "custom_id": custom_id, "response": null, "error": error }).to_string().into()
}

fn given(custom_id: &str, status: StatusCode, request_id: &str, body: &Value) -> Answer {
    let kind = if status.is_success() { Kind::Success } else { Kind::Failure };
    let response = json!({ "status_code": status.as_u16(), "request_id": request_id, "body": body });
    let line = json!({ "id": line_id(), "custom_id": custom_id, "response": response, "error": null });
    Answer::Given(kind, line.to_string().into())
}

fn refused(custom_id: &str, status: StatusCode, error: &ErrorBody) -> Answer {
    given(custom_id, status, "", &json!(error))
}

fn internal(custom_id: &str, error: &dyn std::error::Error) -> Answer {
    tracing::error!(%error, "a line of a batch could not be answered");
    let message = "something went wrong inside the server; its log says what".to_owned();
    let error = error::body(message, "server_error", "internal_error", None);
    refused(custom_id, StatusCode::INTERNAL_SERVER_ERROR, &error)
}

/// A name for a line of the answers. It is looked up by nobody; without randomness one that is not unique will do.
fn line_id() -> String {
    let random = FileId::fresh().map(|id| id.as_str().trim_start_matches("file-").to_owned());
    format!("batch_req_{}", random.unwrap_or_default())
}
