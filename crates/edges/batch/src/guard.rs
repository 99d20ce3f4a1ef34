//! Who asks, and whether they may.

use std::sync::Arc;

use axum::extract::{FromRequestParts, Path, Request};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use http::{HeaderMap, Method, header};
use motet_gateway::Caller;
use motet_store::{DataOwner, KeyId, OrgId, UserId};

use crate::error::ApiError;

/// Around every route: the key's scope, and no page of another site.
///
/// A page of any site may send a form to this machine without asking, and a form is what an upload is. Browsers say
/// where such a request comes from.
pub(crate) async fn check(request: Request, next: Next) -> Response {
    if *request.method() != Method::GET && is_foreign(request.headers()) {
        return ApiError::ForeignOrigin.into_response();
    }
    match request.extensions().get::<Arc<Caller>>() {
        Some(caller) if caller.scopes.batches => next.run(request).await,
        Some(_) => ApiError::Scope.into_response(),
        None => ApiError::Internal.into_response(),
    }
}

fn is_foreign(headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    if text(header::HeaderName::from_static("sec-fetch-site")) == Some("cross-site") {
        return true;
    }
    let Some(origin) = text(header::ORIGIN) else { return false };
    let authority = origin.split_once("://").map_or("", |(_, authority)| authority);
    authority.is_empty() || !text(header::HOST).is_some_and(|host| host.eq_ignore_ascii_case(authority))
}

/// Whose files and batches a request is about, and the key it came with.
pub(crate) struct Sender {
    pub(crate) owner: DataOwner,
    pub(crate) key: Option<KeyId>,
}

impl<S: Sync> FromRequestParts<S> for Sender {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let caller = parts.extensions.get::<Arc<Caller>>().ok_or(ApiError::Internal)?;
        let (org, user) = (OrgId::new(caller.tenant.as_str()), UserId::new(caller.account.user.as_str()));
        Ok(Self { owner: DataOwner { org, user }, key: caller.account.key.as_deref().map(KeyId::new) })
    }
}

/// The id in a path.
pub(crate) struct Named(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for Named {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        // What does not decode to text names nothing; the message shows that.
        let id = Path::from_request_parts(parts, state).await;
        Ok(Self(id.map_or_else(|_| "\u{fffd}".to_owned(), |Path(id)| id)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_other_sites() {
        let check = |lines: &[(&'static str, &str)], expected: bool| {
            let lines = lines
                .iter()
                .map(|(name, value)| (header::HeaderName::from_static(name), value.parse().unwrap()));
            assert_eq!(is_foreign(&lines.clone().collect()), expected, "{:?}", lines.collect::<Vec<_>>());
        };
        let host = ("host", "localhost:8080");
        check(&[], false);
        check(&[host], false);
        check(&[host, ("origin", "http://localhost:8080")], false);
        check(&[host, ("origin", "http://LOCALHOST:8080"), ("sec-fetch-site", "same-origin")], false);
        check(&[host, ("origin", "http://localhost:9090")], true);
        check(&[host, ("origin", "https://evil.example")], true);
        check(&[host, ("origin", "null")], true);
        check(&[host, ("origin", "é")], true);
        check(&[("origin", "http://localhost:8080")], true);
        check(&[host, ("sec-fetch-site", "cross-site")], true);
    }
}
