//! Sign-in over HTTP.

use std::{future::Future, sync::Arc};

use axum::{
    Json, Router,
    extract::{
        Path, Query, State,
        rejection::{PathRejection, QueryRejection},
    },
    response::{IntoResponse as _, Response},
    routing::get,
};
use http::{HeaderMap, HeaderValue, StatusCode, header, request::Parts};
use serde::Serialize;

use crate::{Callback, ENTROPY_BYTES, FLOW_LIFETIME_MS, Flow, Flows, Identity, Provider, SignInError, page};

/// Milliseconds since 1970-01-01 UTC.
pub type Clock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// The application's accounts and sessions.
pub trait SignIn: Send + Sync + 'static {
    /// Begins a session of the account that an identity stands for. The request is the one of the callback: its
    /// headers and extensions say which browser it is and where it comes from.
    ///
    /// Two calls with one identity may run at the same time.
    fn sign_in(
        &self,
        identity: Identity,
        request: &Parts,
    ) -> impl Future<Output = Result<SignedIn, Denied>> + Send;
}

/// A session that was begun.
#[derive(Debug, Clone)]
pub struct SignedIn {
    /// The values of the `Set-Cookie` headers that carry it.
    pub cookies: Vec<HeaderValue>,
}

/// Why an identity gets no session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denied {
    /// For the person in front of it: what happened and what to do, without a full stop.
    pub message: String,
    /// Whether the same may succeed later.
    pub is_temporary: bool,
}

/// What the handlers share.
struct Shared<S> {
    providers: Vec<Provider>,
    flows: Flows,
    sign_in: Arc<S>,
    clock: Clock,
}

/// The routes of sign-in:
///
/// | | |
/// |---|---|
/// | `GET /api/oidc` | the providers, for the sign-in page: `[{"name", "title", "url"}]` |
/// | `GET /api/oidc/{provider}?return_to=/path` | 302 to the provider, with the flow's cookie |
/// | `GET /api/oidc/{provider}/callback` | 303 to `return_to`, with the session's cookie |
///
/// They have no state of others, and are for everybody: whoever uses them has no session yet. Names of providers differ.
pub fn routes<S: SignIn>(providers: Vec<Provider>, sign_in: Arc<S>, clock: Clock) -> Router {
    let shared = Shared { providers, flows: Flows::default(), sign_in, clock };
    Router::new()
        .route("/api/oidc", get(list::<S>))
        .route("/api/oidc/{provider}", get(begin::<S>))
        .route("/api/oidc/{provider}/callback", get(callback::<S>))
        .with_state(Arc::new(shared))
}

impl<S> Shared<S> {
    fn provider(&self, name: &Named) -> Option<&Provider> {
        // What does not decode to text names none.
        let Ok(Path(name)) = name else { return None };
        self.providers.iter().find(|provider| provider.config().name == *name)
    }
}

#[derive(Serialize)]
struct Listed {
    name: String,
    title: String,
    url: String,
}

async fn list<S: SignIn>(State(shared): State<Arc<Shared<S>>>) -> Json<Vec<Listed>> {
    let listed = shared.providers.iter().map(|provider| {
        let config = provider.config();
        let (name, title) = (config.name.clone(), config.title.clone());
        Listed { url: format!("/api/oidc/{name}"), name, title }
    });
    Json(listed.collect())
}

/// The provider's name in the address.
type Named = Result<Path<String>, PathRejection>;

/// Names and values behind an address.
type Parameters = Result<Query<Vec<(String, String)>>, QueryRejection>;

fn pairs(parameters: Parameters) -> Result<Vec<(String, String)>, SignInError> {
    let unreadable = "the parameters of the address can't be read; write name=value with & between them";
    parameters.map(|Query(pairs)| pairs).map_err(|_| SignInError::Request(unreadable))
}

async fn begin<S: SignIn>(
    State(shared): State<Arc<Shared<S>>>,
    name: Named,
    parameters: Parameters,
    headers: HeaderMap,
) -> Response {
    let Some(provider) = shared.provider(&name) else { return no_provider(&headers) };
    let now = (shared.clock)();
    match started(provider, parameters, &headers, now).await {
        Ok((url, flow)) => {
            let cookie = FlowCookie::of(provider, &flow.state).set(flow.browser.expose());
            shared.flows.keep(flow, now);
            redirect(StatusCode::FOUND, &url, vec![cookie])
        }
        Err(error) => failed(&error, provider, &headers),
    }
}

async fn started(
    provider: &Provider,
    parameters: Parameters,
    headers: &HeaderMap,
    now: i64,
) -> Result<(String, Flow), SignInError> {
    // A picture in a foreign page must not fill the browser with cookies. Old browsers don't say.
    if text(headers, "sec-fetch-mode").is_some_and(|mode| mode != "navigate") {
        return Err(SignInError::Request(
            "sign-in is a page to go to, not one to fetch; open it in the window",
        ));
    }
    let pairs = pairs(parameters)?;
    let return_to = pairs.iter().find(|(name, _)| name == "return_to").map(|(_, place)| place.as_str());
    let mut entropy = [0; ENTROPY_BYTES];
    getrandom::fill(&mut entropy).map_err(|_| SignInError::Random)?;
    let (url, flow) = provider.begin(return_to, now, &entropy).await?;
    Ok((url.into(), flow))
}

async fn callback<S: SignIn>(
    State(shared): State<Arc<Shared<S>>>,
    name: Named,
    parameters: Parameters,
    request: axum::extract::Request,
) -> Response {
    let (request, _) = request.into_parts();
    let Some(provider) = shared.provider(&name) else { return no_provider(&request.headers) };
    let now = (shared.clock)();
    let callback = match pairs(parameters).and_then(Callback::read) {
        Ok(callback) => callback,
        Err(error) => return failed(&error, provider, &request.headers),
    };
    let state = callback.state.as_deref().unwrap_or_default();
    let cookie = FlowCookie::of(provider, state);
    let browser = cookie.find(&request.headers).unwrap_or_default();
    let Some(flow) = shared.flows.take(&provider.config().name, state, browser, now) else {
        return failed(&SignInError::NotUnderWay, provider, &request.headers);
    };
    let mut response = match provider.finish(&flow, &callback, now).await {
        Ok(identity) => signed_in(&shared, provider, identity, &flow, &request).await,
        Err(error) => failed(&error, provider, &request.headers),
    };
    response.headers_mut().append(header::SET_COOKIE, cookie.remove());
    response
}

async fn signed_in<S: SignIn>(
    shared: &Shared<S>,
    provider: &Provider,
    identity: Identity,
    flow: &Flow,
    request: &Parts,
) -> Response {
    match shared.sign_in.sign_in(identity, request).await {
        Ok(session) => redirect(StatusCode::SEE_OTHER, &flow.return_to, session.cookies),
        Err(Denied { message, is_temporary }) => {
            tracing::info!(provider = provider.config().name, message, "a sign-in was denied");
            let (status, code) = if is_temporary {
                (StatusCode::SERVICE_UNAVAILABLE, "sign_in_unavailable")
            } else {
                (StatusCode::FORBIDDEN, "sign_in_denied")
            };
            let name = Some(provider.config().name.as_str());
            private(page::answer(status, &message, code, name, &request.headers))
        }
    }
}

/// The answer to a sign-in that failed; the operator reads of it too.
fn failed(error: &SignInError, provider: &Provider, headers: &HeaderMap) -> Response {
    let name = provider.config().name.as_str();
    match error.class() {
        crate::Class::Provider => tracing::warn!(provider = name, %error, "a sign-in failed"),
        _ => tracing::info!(provider = name, %error, "a sign-in failed"),
    }
    private(page::failure(error, Some(name), headers))
}

fn no_provider(headers: &HeaderMap) -> Response {
    let message = "there is no sign-in provider of this name; GET /api/oidc lists those there are";
    private(page::answer(StatusCode::NOT_FOUND, message, "sign_in_provider_unknown", None, headers))
}

fn redirect(status: StatusCode, to: &str, cookies: Vec<HeaderValue>) -> Response {
    // Both kinds of address are printable ASCII: one is a `Url`, the other was checked.
    let Ok(to) = HeaderValue::from_str(to) else { return StatusCode::INTERNAL_SERVER_ERROR.into_response() };
    let mut response = private((status, [(header::LOCATION, to)]).into_response());
    for cookie in cookies {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    response
}

/// Nobody keeps such an answer, and nobody is told the address it was for: it has a code in it.
fn private(mut response: Response) -> Response {
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response.headers_mut().insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// The cookie that ties a flow to the browser that began it. Each flow has its own, so that two windows may sign in at
/// the same time. Over https its name begins with `__Host-`: no other host of the domain can set it.
struct FlowCookie {
    name: String,
    is_secure: bool,
}

impl FlowCookie {
    fn of(provider: &Provider, state: &str) -> Self {
        let is_secure = provider.config().redirect_url.starts_with("https:");
        let prefix = if is_secure { "__Host-" } else { "" };
        Self { name: format!("{prefix}motet_oidc_{}", state.get(..8).unwrap_or_default()), is_secure }
    }

    fn set(&self, value: &str) -> HeaderValue {
        self.header(value, FLOW_LIFETIME_MS / 1000)
    }

    fn remove(&self) -> HeaderValue {
        self.header("", 0)
    }

    /// `Lax`: the provider sends the browser back from its own site.
    fn header(&self, value: &str, seconds: i64) -> HeaderValue {
        let (name, secure) = (&self.name, if self.is_secure { "; Secure" } else { "" });
        let text = format!("{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}");
        // A state that was taken is one of ours, in the alphabet of base64url: this can't fail.
        HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static(""))
    }

    fn find<'a>(&self, headers: &'a HeaderMap) -> Option<&'a str> {
        let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
        let mut pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
        pairs.find(|(name, _)| *name == self.name).map(|(_, value)| value)
    }
}
