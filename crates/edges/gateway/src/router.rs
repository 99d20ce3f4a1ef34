use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::{get, post};
use http::{HeaderName, Method, header};
use motet_protocol::openapi::{self, Accounts, Document};
use tower_http::catch_panic::CatchPanicLayer;

use crate::error::ApiError;
use crate::gateway::Gateway;
use crate::observe::{observe, on_panic};
use crate::{access, body, embeddings, handlers, health, host, idempotency, web};

/// Routes that other parts of the server bring; they have the gateway's ids, counts, limits on hosts and panics around
/// them.
#[derive(Default)]
pub struct Routes {
    /// For everybody; what needs to know who asks finds out itself.
    pub open: Router,
    /// For callers who may use models: each request has an `Arc<`[`Caller`](crate::Caller)`>` among its extensions.
    pub for_callers: Router,
    /// What they are, for the OpenAPI document.
    pub described_by: Vec<fn(&mut Document)>,
}

impl Gateway {
    /// The gateway's own routes. Whatever is not one of them is the web app's, when it is asked for with GET.
    pub fn router(self: &Arc<Self>) -> Router {
        self.router_with(Routes::default())
    }

    /// The gateway's own routes and some more.
    pub fn router_with(self: &Arc<Self>, more: Routes) -> Router {
        let accounts = if self.config.access.is_some() { Accounts::On } else { Accounts::Off };
        let document = described(accounts, &more.described_by);
        let for_callers = Router::new()
            .route("/v1/models", get(health::models))
            .route("/v1/models/{*id}", get(health::model))
            .merge(self.inference())
            .merge(more.for_callers.with_state(()))
            .route_layer(from_fn_with_state(Arc::clone(self), access::identify));
        Router::new()
            .route("/", get(page))
            .route("/healthz", get(health::healthz))
            .route("/readyz", get(health::readyz))
            .route("/metrics", get(health::metrics))
            .route("/openapi.json", get(move || std::future::ready(document.clone())))
            .merge(more.open.with_state(()))
            .merge(for_callers)
            .method_not_allowed_fallback(method_not_allowed)
            .fallback(page)
            .layer(from_fn_with_state(Arc::clone(self), host::check))
            .layer(CatchPanicLayer::custom(on_panic))
            .layer(from_fn_with_state(Arc::clone(self), observe))
            .with_state(Arc::clone(self))
    }

    /// The routes of models for requests that come from inside the server: whoever sends them has found out for whom,
    /// and puts that `Arc<`[`Caller`](crate::Caller)`>` among the request's extensions. They are counted and charged
    /// like others. Never serve it: it asks nobody for a key.
    pub fn inner_router(self: &Arc<Self>) -> Router {
        self.inference()
            .method_not_allowed_fallback(method_not_allowed)
            .fallback(page)
            .layer(CatchPanicLayer::custom(on_panic))
            .layer(from_fn_with_state(Arc::clone(self), observe))
            .with_state(Arc::clone(self))
    }

    /// What models compute: the same for requests from outside and from inside.
    fn inference(self: &Arc<Self>) -> Router<Arc<Self>> {
        Router::new()
            .route("/v1/chat/completions", post(handlers::chat))
            .route("/v1/completions", post(handlers::completions))
            .route("/v1/embeddings", post(embeddings::embeddings))
            .route_layer(from_fn_with_state(Arc::clone(self), idempotency::once))
    }
}

/// The OpenAPI document of all routes, as it is sent.
fn described(accounts: Accounts, more: &[fn(&mut Document)]) -> ([(HeaderName, &'static str); 1], Bytes) {
    let mut document = Document::new(env!("CARGO_PKG_VERSION"), accounts);
    openapi::inference(&mut document);
    more.iter().for_each(|describe| describe(&mut document));
    ([(header::CONTENT_TYPE, "application/json")], Bytes::from(document.json().to_string()))
}

/// A file of the web app, or a JSON 404 where a program asked.
async fn page(State(gateway): State<Arc<Gateway>>, request: Request) -> Response {
    let path = request.uri().path();
    // A base address that ends in a slash gives paths that begin with two.
    let plain = path.trim_start_matches('/');
    let is_api = ["v1", "api"].iter().any(|root| plain.split('/').next() == Some(root));
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
