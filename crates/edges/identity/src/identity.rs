use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::extract::connect_info::ConnectInfo;
use axum::middleware::from_fn_with_state;
use axum::routing::{delete, get, patch, post};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Uri, header};
use motet_gateway::Hosts;
use motet_store::{
    LoginThrottle, NewSession, Result, Secret, SessionPolicy, Store, StoreError, TryLater, User, UserId,
};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::credentials::{COOKIE, recognise};
use crate::error::Refusal;
use crate::{devices, keys, session, setup, usage, users};

/// Requests that have a password hashed or checked, or wait for it. The store works on two at once, some 30 ms each, so
/// the last of them waits for a quarter of a second; more are told to come back.
pub const HASHING_AT_ONCE: usize = 16;

/// Letters and digits of the token for the first account: 190 bits can't be guessed.
const SETUP_TOKEN_CHARS: usize = 32;

/// What accounts over HTTP need to know.
pub struct IdentityConfig {
    /// Names of the tiers there are; the first is for new users.
    pub tiers: Vec<String>,
    /// Where people open this server, if a proxy stands before it: scheme and authority.
    pub public_url: Option<Uri>,
    /// Other places where people can sign in.
    pub providers: Vec<Provider>,
    /// Milliseconds since 1970.
    pub clock: Arc<dyn Fn() -> i64 + Send + Sync>,
}

/// Another place where people can sign in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provider {
    /// Its name for people.
    pub name: String,
    /// The path of this server that a browser is sent to.
    pub url: String,
}

/// Where a request comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    /// The address, for the throttle and the list of devices.
    pub address: IpAddr,
    /// The browser's own name.
    pub user_agent: String,
    /// Whether the browser speaks TLS, so that its cookie must never go without.
    pub is_secure: bool,
    /// Whether it is on this machine and no proxy is in between.
    pub is_local: bool,
}

/// A session that has begun.
#[derive(Debug, Clone)]
pub struct Begun {
    /// What the page sends along with requests that change something.
    pub csrf: Secret,
    /// The session's id.
    pub session: motet_store::SessionId,
    /// The cookie for the answer.
    pub set_cookie: HeaderValue,
}

/// Accounts over HTTP.
pub struct Identity {
    pub(crate) store: Store,
    pub(crate) config: IdentityConfig,
    throttle: LoginThrottle,
    hashing: Semaphore,
    /// For whoever makes the first account from elsewhere; gone once there is one.
    setup_token: Mutex<Option<Secret>>,
    /// Whether there was an account once: one always stays.
    has_accounts: AtomicBool,
}

impl Identity {
    /// Accounts of a store.
    ///
    /// # Errors
    /// The system has no random numbers to give.
    pub fn new(store: Store, config: IdentityConfig) -> Result<Arc<Self>> {
        Ok(Arc::new(Self {
            store,
            config,
            throttle: LoginThrottle::default(),
            hashing: Semaphore::new(HASHING_AT_ONCE),
            setup_token: Mutex::new(Some(Secret::random(SETUP_TOKEN_CHARS)?)),
            has_accounts: AtomicBool::new(false),
        }))
    }

    /// The routes, for [`motet_gateway::Routes::open`]: each finds out itself who asks.
    pub fn routes(self: &Arc<Self>) -> Router {
        Router::new()
            .route("/api/setup", post(setup::create))
            .route("/api/session", get(session::show).post(session::sign_in).delete(session::sign_out))
            .route("/api/session/password", post(session::change_password))
            .route("/api/me", patch(session::change_me))
            .route("/api/devices", get(devices::list).delete(devices::end_others))
            .route("/api/devices/{id}", delete(devices::end))
            .route("/api/keys", get(keys::list).post(keys::create))
            .route("/api/keys/{id}", delete(keys::revoke))
            .route("/api/users", get(users::list).post(users::create))
            .route("/api/users/{id}", patch(users::change).delete(users::remove))
            .route("/v1/usage", get(usage::report))
            .route_layer(from_fn_with_state(Arc::clone(self), recognise))
            .with_state(Arc::clone(self))
    }

    /// The token that makes the first account from another machine; `None` once there is an account.
    ///
    /// # Errors
    /// The database's.
    pub async fn setup_token(&self) -> Result<Option<Secret>> {
        Ok(if self.is_empty().await? { self.setup_token.lock().clone() } else { None })
    }

    /// Begins a session of a user who has shown who they are.
    ///
    /// # Errors
    /// There is no such user, the user is disabled, or the database's.
    pub async fn begin_session(&self, user: &UserId, client: &Client) -> Result<Begun> {
        let address = client.address.to_string();
        let new = NewSession { user, user_agent: &client.user_agent, address: &address };
        let made = self.store.create_session(&new, self.now()).await?;
        let set_cookie = cookie(&made.token, client.is_secure)?;
        Ok(Begun { csrf: made.csrf, session: made.id, set_cookie })
    }

    /// Where a request comes from.
    #[must_use]
    pub fn client(&self, parts: &Parts) -> Client {
        let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>().map(|peer| peer.0.ip().to_canonical());
        let headers = &parts.headers;
        let is_beside = peer.is_some_and(|peer| peer.is_loopback());
        let direct = peer.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        // Who has told of a proxy before this server has one that says whom it asks for.
        let is_proxied = self.config.public_url.is_some() && is_beside;
        let address = if is_proxied { last_forwarded(headers).unwrap_or(direct) } else { direct };
        let agent = headers.get(header::USER_AGENT).map(|agent| String::from_utf8_lossy(agent.as_bytes()));
        Client {
            address,
            user_agent: agent.unwrap_or_default().into_owned(),
            is_secure: self.is_secure(headers),
            is_local: is_beside && !has_passed_a_proxy(headers) && is_for_this_machine(parts),
        }
    }

    /// Whether cookies must never go without TLS.
    pub(crate) fn is_secure(&self, headers: &HeaderMap) -> bool {
        let public = self.config.public_url.as_ref().and_then(Uri::scheme_str);
        public == Some("https")
            || last_item(headers, "x-forwarded-proto").is_some_and(|proto| proto == "https")
    }

    pub(crate) fn now(&self) -> i64 {
        (self.config.clock)()
    }

    /// Whether the first account may be made.
    pub(crate) async fn is_empty(&self) -> Result<bool> {
        if self.has_accounts.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let is_empty = self.store.is_empty().await?;
        if !is_empty {
            self.end_setup();
        }
        Ok(is_empty)
    }

    /// There is an account: no token makes another first one.
    pub(crate) fn end_setup(&self) {
        self.has_accounts.store(true, Ordering::Relaxed);
        self.setup_token.lock().take();
    }

    /// Whether this is the token that makes the first account; takes the same time whatever it is.
    pub(crate) fn is_setup_token(&self, token: &Secret) -> bool {
        self.setup_token.lock().as_ref() == Some(token)
    }

    /// A turn to hash or check a password.
    pub(crate) fn turn(&self) -> Result<SemaphorePermit<'_>, Refusal> {
        self.hashing.try_acquire().map_err(|_| Refusal::Busy)
    }

    /// Who has this login and password, as often as may be tried.
    pub(crate) async fn check(
        &self,
        login: &str,
        password: &Secret,
        address: IpAddr,
    ) -> Result<Option<User>, Refusal> {
        // The turn first: a try that is refused for want of one does not count.
        let _turn = self.turn()?;
        self.throttle.attempt(login, address, self.now()).map_err(|TryLater { after_ms }| {
            tracing::info!(%address, after_ms, "too many tries to sign in");
            Refusal::TryLater(TryLater { after_ms })
        })?;
        let found = self.store.check_password(login, password).await?;
        if found.is_some() {
            self.throttle.succeeded(login, address);
        }
        Ok(found)
    }

    /// The tier of this name, or the first.
    pub(crate) fn default_tier(&self) -> &str {
        self.config.tiers.first().map_or("default", String::as_str)
    }
}

/// The cookie of a session's token.
pub(crate) fn cookie(token: &Secret, is_secure: bool) -> Result<HeaderValue> {
    let age = SessionPolicy::default().longest_ms / 1000;
    cookie_of(token.expose(), age, is_secure)
        .map_err(|_| StoreError::Random("a session's token is no header".to_owned()))
}

/// The cookie that removes one.
pub(crate) fn no_cookie(is_secure: bool) -> Option<HeaderValue> {
    cookie_of("", 0, is_secure).ok()
}

fn cookie_of(value: &str, age: i64, is_secure: bool) -> Result<HeaderValue, header::InvalidHeaderValue> {
    let secure = if is_secure { "; Secure" } else { "" };
    let text = format!("{COOKIE}={value}; Path=/; HttpOnly; SameSite=Lax; Max-Age={age}{secure}");
    let mut cookie = HeaderValue::from_str(&text)?;
    cookie.set_sensitive(true);
    Ok(cookie)
}

/// Whether a header says that somebody stands between the client and this server.
fn has_passed_a_proxy(headers: &HeaderMap) -> bool {
    let names = ["forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip"];
    names.iter().any(|name| headers.contains_key(*name))
}

/// Whether all names the request calls this server by are this machine's: a foreign page can point a name of its own at
/// a loopback address.
fn is_for_this_machine(parts: &Parts) -> bool {
    let mut hosts = parts.headers.get_all(header::HOST).iter().peekable();
    let is_ours = |authority: &Authority| Hosts::default().allow(authority.host());
    hosts.peek().is_some()
        && hosts.all(|host| Authority::try_from(host.as_bytes()).is_ok_and(|host| is_ours(&host)))
        && parts.uri.authority().is_none_or(is_ours)
}

/// The address that the nearest proxy was asked from.
fn last_forwarded(headers: &HeaderMap) -> Option<IpAddr> {
    let text = last_item(headers, "x-forwarded-for")?;
    let address = text.parse::<IpAddr>().ok().or_else(|| Some(text.parse::<SocketAddr>().ok()?.ip()));
    address.map(|address| address.to_canonical())
}

/// The last item of a header that is a list: the nearest proxy's.
fn last_item<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let last = headers.get_all(name).iter().next_back()?.to_str().ok()?;
    last.rsplit(',').next().map(str::trim)
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn parts(peer: &str, lines: &[(&'static str, &str)]) -> Parts {
        let mut request = Request::get("/api/setup").body(()).unwrap();
        for (name, value) in lines {
            request.headers_mut().append(*name, value.parse().unwrap());
        }
        request.extensions_mut().insert(ConnectInfo(peer.parse::<SocketAddr>().unwrap()));
        request.into_parts().0
    }

    async fn identity(public_url: Option<&str>) -> Arc<Identity> {
        let config = IdentityConfig {
            tiers: vec!["free".into()],
            public_url: public_url.map(|url| url.parse().unwrap()),
            providers: Vec::new(),
            clock: Arc::new(|| 0),
        };
        Identity::new(Store::open("sqlite::memory:").await.unwrap(), config).unwrap()
    }

    #[tokio::test]
    async fn only_the_connection_makes_a_request_local() {
        let identity = identity(None).await;
        let check = |peer: &str, lines: &[(&'static str, &str)], is_local| {
            assert_eq!(identity.client(&parts(peer, lines)).is_local, is_local, "{peer} {lines:?}");
        };
        for peer in ["127.0.0.1:9", "127.8.0.1:9", "[::1]:9", "[::ffff:127.0.0.1]:9"] {
            check(peer, &[("host", "localhost:8080")], true);
        }
        for peer in ["192.0.2.1:9", "[2001:db8::1]:9", "0.0.0.0:9"] {
            check(peer, &[("host", "localhost:8080"), ("x-forwarded-for", "127.0.0.1")], false);
            check(peer, &[("host", "localhost:8080")], false);
        }
        let peer = "127.0.0.1:9";
        for name in ["x-forwarded-for", "forwarded", "via", "x-real-ip", "x-forwarded-proto"] {
            check(peer, &[("host", "localhost"), (name, "127.0.0.1")], false);
        }
        for host in ["evil.example", "127.0.0.1.evil.example", "", "a b"] {
            check(peer, &[("host", host)], false);
            check(peer, &[("host", "localhost"), ("host", host)], false);
        }
        check(peer, &[], false);
        let mut unknown = parts(peer, &[("host", "localhost")]);
        unknown.extensions.clear();
        assert!(!identity.client(&unknown).is_local);
    }

    #[tokio::test]
    async fn a_proxy_is_believed_where_one_was_told_of() {
        let lines = [("x-forwarded-for", "203.0.113.9, 198.51.100.7"), ("x-forwarded-for", "192.0.2.1, ::2")];
        let check = async |url: Option<&str>, peer: &str, address: &str, is_secure| {
            let client = identity(url).await.client(&parts(peer, &lines));
            assert_eq!((client.address.to_string().as_str(), client.is_secure), (address, is_secure));
        };
        check(None, "127.0.0.1:9", "127.0.0.1", false).await;
        check(Some("http://chat.example"), "127.0.0.1:9", "::2", false).await;
        check(Some("https://chat.example"), "127.0.0.1:9", "::2", true).await;
        check(Some("https://chat.example"), "192.0.2.7:9", "192.0.2.7", true).await;
        let identity = identity(None).await;
        let secure =
            |proto: &str| identity.client(&parts("127.0.0.1:9", &[("x-forwarded-proto", proto)])).is_secure;
        assert!(secure("https") && secure("http, https") && !secure("http") && !secure("https, http"));
    }

    #[tokio::test]
    async fn without_a_turn_nothing_is_checked_or_counted() {
        let identity = identity(None).await;
        let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let password = Secret::new("x");
        let turns: Vec<_> = (0..HASHING_AT_ONCE).map(|_| identity.turn().unwrap()).collect();
        for _ in 0..50 {
            let got = identity.check("ada", &password, address).await;
            assert!(matches!(got, Err(Refusal::Busy)));
        }
        drop(turns);
        assert!(matches!(identity.check("ada", &password, address).await, Ok(None)));
    }

    #[test]
    fn cookies() {
        let text = |is_secure| cookie(&Secret::new("abc"), is_secure).unwrap();
        assert_eq!(text(false), "motet_session=abc; Path=/; HttpOnly; SameSite=Lax; Max-Age=7776000");
        assert!(text(true).to_str().unwrap().ends_with("; Secure"));
        assert_eq!(format!("{:?}", text(true)), "Sensitive");
    }
}
