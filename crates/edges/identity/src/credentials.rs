//! Who a request is from.
//!
//! ```text
//! Authorization: Bearer mk-… ──────────────────────────► the key's user, with the key's scopes
//! Cookie: motet_session=…    ── read ──────────────────► the session's user
//!                            └─ change: Origin, token ─► the session's user, or forged
//! ```
//!
//! Where there are both, the key counts: a program set it on purpose.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{FromRequestParts, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header};
use motet_protocol::openapi;
use motet_store::{Credential, Principal, Role, Scope, Secret, SessionAuth, SessionId};

use crate::error::Refusal;
use crate::identity::{Identity, cookie};
use crate::request;

/// The session's cookie.
pub(crate) const COOKIE: &str = openapi::SESSION_COOKIE;

const CSRF: HeaderName = HeaderName::from_static(openapi::CSRF_HEADER);

/// Who a request is from.
#[derive(Debug, Clone)]
pub struct Who {
    /// Whom the credentials stand for.
    pub principal: Arc<Principal>,
    /// What the page sends along with requests that change something; absent with a key.
    pub(crate) csrf: Option<Secret>,
    /// The cookie that replaces the one that came.
    pub set_cookie: Option<HeaderValue>,
}

/// Why it is not known who a request is from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotKnown {
    /// No credentials, or none that are good.
    Nobody {
        /// There was a session's cookie, which is good for nothing any more.
        has_dead_cookie: bool,
    },
    /// A cookie, but not what shows that a page of this server sent it; in words.
    Forged(String),
    /// Accounts can't be read now.
    Unavailable,
}

/// What [`recognise`] found, for the handlers.
#[derive(Clone)]
pub(crate) struct Found(pub(crate) Result<Who, NotKnown>);

impl Identity {
    /// Who a request is from.
    ///
    /// # Errors
    /// [`NotKnown`] says why that can't be told.
    pub async fn identify(&self, method: &Method, headers: &HeaderMap) -> Result<Who, NotKnown> {
        let unavailable = |error| {
            tracing::warn!(%error, "credentials can't be checked");
            NotKnown::Unavailable
        };
        if let Some(key) = bearer(headers) {
            let found = self.store.authenticate_key(key, self.now()).await.map_err(unavailable)?;
            let principal = found.ok_or(NotKnown::Nobody { has_dead_cookie: false })?;
            return Ok(Who { principal, csrf: None, set_cookie: None });
        }
        let token = session_token(headers).ok_or(NotKnown::Nobody { has_dead_cookie: false })?;
        if !method.is_safe() {
            self.check_origin(headers)?;
        }
        let found = self.store.authenticate_session(token, self.now()).await.map_err(unavailable)?;
        let session = found.ok_or(NotKnown::Nobody { has_dead_cookie: true })?;
        if !method.is_safe() {
            check_csrf(&session, headers)?;
        }
        let new = session.new_token.as_ref().map(|token| cookie(token, self.is_secure(headers)));
        let set_cookie = new.transpose().map_err(unavailable)?;
        Ok(Who { principal: session.principal, csrf: Some(session.csrf), set_cookie })
    }

    /// Refuses what a page of another origin sent.
    pub(crate) fn check_origin(&self, headers: &HeaderMap) -> Result<(), NotKnown> {
        let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
        let origin = Uri::try_from(origin.as_bytes()).ok();
        let sender = origin.as_ref().and_then(|origin| Some((origin.scheme_str()?, origin.authority()?)));
        let public = self.config.public_url.as_ref();
        let is_ours = sender.is_some_and(|(scheme, authority)| {
            let host = headers.get(header::HOST).map_or(&b""[..], HeaderValue::as_bytes);
            let is_public = public.is_some_and(|url| {
                url.scheme_str() == Some(scheme) && url.authority().is_some_and(|public| public == authority)
            });
            is_public || authority.as_str().as_bytes().eq_ignore_ascii_case(host)
        });
        if is_ours {
            return Ok(());
        }
        let why =
            "a page of another origin sent this; if a proxy changes the Host header, set server.public_url";
        Err(NotKnown::Forged(why.to_owned()))
    }
}

fn check_csrf(session: &SessionAuth, headers: &HeaderMap) -> Result<(), NotKnown> {
    let sent = headers.get(CSRF).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if session.is_csrf_valid(sent) {
        return Ok(());
    }
    let why = "with a cookie, a request that changes something needs the header x-csrf-token; GET /api/session has it";
    Err(NotKnown::Forged(why.to_owned()))
}

/// The key of `Authorization: Bearer KEY`.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, key) = value.trim().split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| key.trim()).filter(|key| !key.is_empty())
}

/// The session's token among the cookies.
fn session_token(headers: &HeaderMap) -> Option<&str> {
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    let mut pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, value)| *name == COOKIE && !value.is_empty()).map(|(_, value)| value)
}

/// Around every route: reads the body, finds out who it is from, and completes the answer.
pub(crate) async fn recognise(
    State(identity): State<Arc<Identity>>,
    request: Request,
    next: Next,
) -> Response {
    let (mut parts, body) = request.into_parts();
    // Before anything is refused: a client that writes before it reads then sees the answer.
    let mut response = match request::read(body).await {
        Err(refusal) => refusal.into_response(),
        Ok(bytes) => {
            let found = identity.identify(&parts.method, &parts.headers).await;
            let set_cookie = found.as_ref().ok().and_then(|who| who.set_cookie.clone());
            parts.extensions.insert(Found(found));
            parts.extensions.insert(identity.client(&parts));
            let mut response = next.run(Request::from_parts(parts, Body::from(bytes))).await;
            // A handler that set one meant it: the session has ended, or another has begun.
            if let Some(cookie) = set_cookie.filter(|_| !response.headers().contains_key(header::SET_COOKIE))
            {
                response.headers_mut().insert(header::SET_COOKIE, cookie);
            }
            response
        }
    };
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CACHE_CONTROL, "no-store"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

impl Who {
    /// The session, where it is one.
    pub(crate) fn session(&self) -> Option<&SessionId> {
        match &self.principal.credential {
            Credential::Session(id) => Some(id),
            Credential::Key(_) | Credential::Earlier => None,
        }
    }

    /// May manage their own account. A key needs the scope for it.
    pub(crate) fn require_manager(&self) -> Result<(), Refusal> {
        if self.principal.scopes.has(Scope::Admin) {
            return Ok(());
        }
        Err(Refusal::Forbidden(
            "this key may not manage accounts; sign in, or use a key with the scope 'admin'",
        ))
    }

    /// May manage other people's accounts.
    pub(crate) fn require_admin(&self) -> Result<(), Refusal> {
        self.require_manager()?;
        if self.principal.role == Role::Member {
            return Err(Refusal::Forbidden("this is for administrators; ask one of your organisation's"));
        }
        Ok(())
    }
}

/// Whoever a handler answers: nobody gets further without credentials.
pub(crate) struct By(pub(crate) Who);

impl<S: Sync> FromRequestParts<S> for By {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        let found = parts.extensions.get::<Found>().map(|found| found.0.clone());
        match found.unwrap_or(Err(NotKnown::Unavailable)) {
            Ok(who) => Ok(Self(who)),
            Err(NotKnown::Nobody { .. }) => Err(Refusal::NotSignedIn),
            Err(NotKnown::Forged(why)) => Err(Refusal::Forged(why)),
            Err(NotKnown::Unavailable) => Err(Refusal::Unavailable),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn credentials_are_found_among_others() {
        let check = |lines: &[(&'static str, &str)], token: Option<&str>, key: Option<&str>| {
            let headers = headers(lines);
            assert_eq!((session_token(&headers), bearer(&headers)), (token, key), "{lines:?}");
        };
        check(&[], None, None);
        check(&[("cookie", "motet_session=a")], Some("a"), None);
        check(&[("cookie", "x=1; motet_session=a;y=2")], Some("a"), None);
        check(&[("cookie", "x=1"), ("cookie", "motet_session=b")], Some("b"), None);
        check(&[("cookie", "motet_session=; amotet_session=c; motet_sessio=d")], None, None);
        check(&[("authorization", "bearer  k ")], None, Some("k"));
        for other in ["Bearer", "Bearer ", "Basic k", "k"] {
            check(&[("authorization", other)], None, None);
        }
    }
}
