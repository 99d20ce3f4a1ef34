use std::any::Any;
use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue, Method};
use tokio::time::Instant;

use crate::error::{ApiError, Failure};
use crate::gateway::Gateway;
use crate::ids;
use crate::metrics::Metrics;

/// Names a request in responses and logs.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Milliseconds until the response began.
const PROCESSING_MS: HeaderName = HeaderName::from_static("openai-processing-ms");

/// A request's id: among the extensions of each request, for its handler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestId(pub String);

/// What a request that never got a response is counted as: the client closed it.
const CLIENT_CLOSED: u16 = 499;

/// Around every request: an id, a count by route and status, a log line, the time it took.
pub(crate) async fn observe(
    State(gateway): State<Arc<Gateway>>,
    mut request: Request,
    next: Next,
) -> Response {
    let id = request_id(&gateway, &request);
    request.extensions_mut().insert(RequestId(id.clone()));
    let mut watch = Watch {
        metrics: Arc::clone(&gateway.metrics),
        route: request
            .extensions()
            .get::<MatchedPath>()
            .map_or_else(|| "other".into(), |p| p.as_str().to_owned()),
        method: known_method(request.method()),
        id,
        began: Instant::now(),
        status: CLIENT_CLOSED,
    };
    let mut response = next.run(request).await;
    watch.status = response.status().as_u16();
    if let Some(Failure(error)) = response.extensions_mut().remove() {
        tracing::warn!(id = watch.id, route = watch.route, status = watch.status, error, "request failed");
    }
    let headers = response.headers_mut();
    if let Ok(id) = HeaderValue::from_str(&watch.id) {
        headers.insert(REQUEST_ID, id);
    }
    headers.insert(PROCESSING_MS, HeaderValue::from(watch.began.elapsed().as_millis() as u64));
    headers.insert(http::header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// The client's id if it is safe to repeat, else a new one.
fn request_id(gateway: &Gateway, request: &Request) -> String {
    let sent = request.headers().get(&REQUEST_ID).and_then(|value| value.to_str().ok());
    match sent.and_then(ids::sane) {
        Some(id) => id.to_owned(),
        None => ids::fresh("req_", &gateway.config.entropy),
    }
}

/// Methods become metric labels, so a client must not be able to invent them.
fn known_method(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::HEAD => "HEAD",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        Method::PATCH => "PATCH",
        _ => "other",
    }
}

/// Counts and logs a request when it has its response, or when it is dropped because the client left.
struct Watch {
    metrics: Arc<Metrics>,
    route: String,
    method: &'static str,
    id: String,
    began: Instant,
    status: u16,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.metrics.count_request(&self.route, self.method, self.status);
        let (route, method, id, status) = (&self.route, self.method, &self.id, self.status);
        let ms = self.began.elapsed().as_millis() as u64;
        tracing::debug!(%id, method, %route, status, ms, "request");
    }
}

/// The response to a request whose handler panicked. The panic hook has written the message already.
pub(crate) fn on_panic(_payload: Box<dyn Any + Send>) -> Response {
    ApiError::Internal.into_response()
}
