use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::{get, post};
use http::Method;
use tower_http::catch_panic::CatchPanicLayer;

use crate::gateway::Gateway;
use crate::observe::{method_not_allowed, not_found, observe, on_panic};
use crate::{handlers, health, web};

impl Gateway {
    /// All routes. Whatever is not one of them is the web app's, when it is asked for with GET.
    pub fn router(self: &Arc<Self>) -> Router {
        Router::new()
            .route("/healthz", get(health::healthz))
            .route("/readyz", get(health::readyz))
            .route("/metrics", get(health::metrics))
            .route("/v1/models", get(health::models))
            .route("/v1/models/{*id}", get(health::model))
            .route("/v1/chat/completions", post(handlers::chat))
            .route("/v1/completions", post(handlers::completions))
            .method_not_allowed_fallback(method_not_allowed)
            .fallback(page)
            .layer(CatchPanicLayer::custom(on_panic))
            .layer(from_fn_with_state(Arc::clone(self), observe))
            .with_state(Arc::clone(self))
    }
}

/// A file of the web app, or a JSON 404 where a program asked.
async fn page(request: Request) -> Response {
    let path = request.uri().path();
    let is_api = path == "/v1" || path.starts_with("/v1/");
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    if is_api || !is_read {
        return not_found(path);
    }
    web::respond(path, request.headers(), web::embedded).unwrap_or_else(|| not_found(path))
}
