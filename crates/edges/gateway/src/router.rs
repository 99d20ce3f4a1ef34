use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::{get, post};
use http::Method;
use tower_http::catch_panic::CatchPanicLayer;

use crate::error::ApiError;
use crate::gateway::Gateway;
use crate::observe::{observe, on_panic};
use crate::{access, body, embeddings, handlers, health, host, web};

/// Routes that other parts of the server bring; they have the gateway's ids, counts, limits on hosts and panics around
/// them.
#[derive(Default)]
pub struct Routes {
    /// For everybody; what needs to know who asks finds out itself.
    pub open: Router,
    /// For callers who may use models: each request has an `Arc<`[`Caller`](crate::Caller)`>` among its extensions.
    pub for_callers: Router,
}

impl Gateway {
    /// The gateway's own routes. Whatever is not one of them is the web app's, when it is asked for with GET.
    pub fn router(self: &Arc<Self>) -> Router {
        self.router_with(Routes::default())
    }

    /// The gateway's own routes and some more.
    pub fn router_with(self: &Arc<Self>, more: Routes) -> Router {
        let for_callers = Router::new()
            .route("/v1/models", get(health::models))
            .route("/v1/models/{*id}", get(health::model))
            .route("/v1/chat/completions", post(handlers::chat))
            .route("/v1/completions", post(handlers::completions))
            .route("/v1/embeddings", post(embeddings::embeddings))
            .merge(more.for_callers.with_state(()))
            .route_layer(from_fn_with_state(Arc::clone(self), access::identify));
        Router::new()
            .route("/", get(page))
            .route("/healthz", get(health::healthz))
            .route("/readyz", get(health::readyz))
            .route("/metrics", get(health::metrics))
            .merge(more.open.with_state(()))
            .merge(for_callers)
            .method_not_allowed_fallback(method_not_allowed)
            .fallback(page)
            .layer(from_fn_with_state(Arc::clone(self), host::check))
            .layer(CatchPanicLayer::custom(on_panic))
            .layer(from_fn_with_state(Arc::clone(self), observe))
            .with_state(Arc::clone(self))
    }
}

/// A file of the web app, or a JSON 404 where a program asked.
async fn page(State(gateway): State<Arc<Gateway>>, request: Request) -> Response {
    let path = request.uri().path();
    // A base address that ends in a slash gives paths that begin with two.
    let plain = path.trim_start_matches('/');
    let is_api = plain == "v1" || plain.starts_with("v1/");
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let found = if is_read && !is_api { web::respond(plain, request.headers(), web::embedded) } else { None };
    match found {
        Some(response) => response,
        None => {
            let error = ApiError::UnknownRoute(path.chars().take(100).collect());
            body::refuse(&gateway.config, request, error).await
        }
    }
}

/// The answer to a method that a known path does not have; the router adds `Allow`.
async fn method_not_allowed(State(gateway): State<Arc<Gateway>>, request: Request) -> Response {
    let error = ApiError::MethodNotAllowed(request.method().clone());
    body::refuse(&gateway.config, request, error).await
}
