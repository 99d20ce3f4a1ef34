//! A store in a folder of its own, a clock that stands still, and browsers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::connect_info::ConnectInfo;
use http::{HeaderMap, Method, Request, StatusCode};
use motet_identity::{Identity, IdentityConfig, Provider};
use motet_store::{FirstOwner, NewUser, PasswordCost, Role, Secret, Store, StoreOptions, User};
use serde_json::{Value, json};
use tempfile::TempDir;
use tower::ServiceExt;

pub const PASSWORD: &str = "correct horse";
pub const HOME: &str = "127.0.0.1:5000";
pub const AWAY: &str = "192.0.2.1:5000";
/// Half past eight in the evening of 2026-11-30.
pub const NOW: i64 = 1_796_070_600_000;
pub const HOUR: i64 = 3_600_000;
pub const DAY: i64 = 24 * HOUR;

pub struct World {
    pub identity: Arc<Identity>,
    pub store: Store,
    pub router: Router,
    clock: Arc<AtomicI64>,
    _folder: TempDir,
}

impl World {
    /// Without accounts.
    pub async fn empty() -> Self {
        Self::at(None).await
    }

    /// Without accounts, behind a proxy at this address.
    pub async fn at(public_url: Option<&str>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("motet.db").display());
        // Passwords are hashed cheaply: these tests are not about the cost.
        let passwords = PasswordCost { memory_kib: 64, passes: 1 };
        let store =
            Store::open_with(&url, StoreOptions { passwords, ..StoreOptions::default() }).await.unwrap();
        let clock = Arc::new(AtomicI64::new(NOW));
        let read = Arc::clone(&clock);
        let config = IdentityConfig {
            tiers: vec!["free".into(), "pro".into()],
            public_url: public_url.map(|url| url.parse().unwrap()),
            providers: vec![Provider { name: "Lab".into(), url: "/api/sign-in/lab".into() }],
            clock: Arc::new(move || read.load(Ordering::SeqCst)),
        };
        let identity = Identity::new(store.clone(), config).unwrap();
        let router = identity.routes();
        Self { identity, store, router, clock, _folder: folder }
    }

    /// With the owner "ada".
    pub async fn new() -> Self {
        let world = Self::empty().await;
        world.owner().await;
        world
    }

    pub async fn owner(&self) -> User {
        let password = Secret::new(PASSWORD);
        let owner = FirstOwner {
            org_name: "lab",
            login: "ada",
            display_name: "Ada",
            tier: "free",
            password: &password,
        };
        self.store.create_first_owner(&owner, NOW).await.unwrap().unwrap()
    }

    /// Another user of the owner's organisation.
    pub async fn user(&self, login: &str, role: Role) -> User {
        let org = self.store.user_by_login("ada").await.unwrap().unwrap().org;
        self.user_of(&org, login, role).await
    }

    pub async fn user_of(&self, org: &motet_store::OrgId, login: &str, role: Role) -> User {
        let password = Some(&Secret::new(PASSWORD)).cloned();
        let new =
            NewUser { org, login, display_name: login, role, tier: "free", password: password.as_ref() };
        self.store.create_user(&new, NOW).await.unwrap()
    }

    /// Goes on in time.
    pub fn wait(&self, ms: i64) {
        self.clock.fetch_add(ms, Ordering::SeqCst);
    }

    /// A browser that nobody is signed in with.
    pub fn browser(&self) -> Browser<'_> {
        Browser { world: self, cookie: None, csrf: None, key: None, peer: AWAY, extra: Vec::new() }
    }

    /// A browser that somebody is signed in with.
    pub async fn signed_in(&self, login: &str) -> Browser<'_> {
        let mut browser = self.browser();
        let got = browser.sign_in(login, PASSWORD).await;
        assert_eq!(got.status, 200, "{}", got.text);
        browser
    }

    /// A program with a new key of somebody's.
    pub async fn program(&self, login: &str, scopes: Value) -> Browser<'_> {
        let mut browser = self.signed_in(login).await;
        let made = browser.post("/api/keys", json!({"name": "program", "scopes": scopes})).await;
        Browser { key: Some(made.json()["key"].as_str().unwrap().to_owned()), ..self.browser() }
    }
}

/// Keeps its cookie and the page's token as a browser and the page would.
#[derive(Clone)]
pub struct Browser<'a> {
    pub world: &'a World,
    pub cookie: Option<String>,
    pub csrf: Option<String>,
    pub key: Option<String>,
    pub peer: &'static str,
    pub extra: Vec<(&'static str, String)>,
}

impl Browser<'_> {
    pub async fn sign_in(&mut self, login: &str, password: &str) -> Reply {
        self.post("/api/session", json!({"login": login, "password": password})).await
    }

    pub async fn get(&mut self, path: &str) -> Reply {
        self.send(Method::GET, path, Body::empty()).await
    }

    pub async fn post(&mut self, path: &str, body: Value) -> Reply {
        self.send(Method::POST, path, Body::from(body.to_string())).await
    }

    pub async fn patch(&mut self, path: &str, body: Value) -> Reply {
        self.send(Method::PATCH, path, Body::from(body.to_string())).await
    }

    pub async fn delete(&mut self, path: &str) -> Reply {
        self.send(Method::DELETE, path, Body::empty()).await
    }

    pub async fn send(&mut self, method: Method, path: &str, body: Body) -> Reply {
        let has_body = method == Method::POST || method == Method::PATCH;
        let is_set = |header: &str| self.extra.iter().any(|(name, _)| *name == header);
        let mut request = Request::builder().method(method).uri(path);
        if !is_set("host") {
            request = request.header("host", "localhost:8080");
        }
        if let Some(cookie) = &self.cookie {
            request = request.header("cookie", format!("other=1; motet_session={cookie}"));
        }
        if let Some(csrf) = &self.csrf {
            request = request.header("x-csrf-token", csrf);
        }
        if let Some(key) = &self.key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        if has_body && !is_set("content-type") {
            request = request.header("content-type", "application/json");
        }
        for (name, value) in &self.extra {
            request = request.header(*name, value);
        }
        let mut request = request.body(body).unwrap();
        request.extensions_mut().insert(ConnectInfo(self.peer.parse::<SocketAddr>().unwrap()));
        let response = self.world.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = to_bytes(body, usize::MAX).await.unwrap();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        let reply = Reply { status: parts.status, headers: parts.headers, text };
        self.keep(&reply);
        reply
    }

    fn keep(&mut self, reply: &Reply) {
        if let Some(value) = reply.cookie() {
            self.cookie = (!value.is_empty()).then_some(value);
        }
        if let Ok(body) = serde_json::from_str::<Value>(&reply.text)
            && body["object"] == "session"
            && reply.status == 200
        {
            self.csrf = body["csrf_token"].as_str().map(str::to_owned);
        }
    }
}

pub struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub text: String,
}

impl Reply {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("not JSON: {}", self.text))
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The session's token that was set, empty where it was removed.
    pub fn cookie(&self) -> Option<String> {
        let cookie = self.header("set-cookie").strip_prefix("motet_session=")?;
        Some(cookie.split(';').next().unwrap().to_owned())
    }

    /// Status and code of an error, whose shape is checked.
    pub fn error(&self) -> (u16, String) {
        let body = self.json();
        let error = body["error"].as_object().unwrap_or_else(|| panic!("no error in {}", self.text));
        let keys: Vec<&str> = error.keys().map(String::as_str).collect();
        assert_eq!(keys, ["message", "type", "param", "code"]);
        assert!(!error["message"].as_str().unwrap().is_empty());
        (self.status.as_u16(), error["code"].as_str().unwrap().to_owned())
    }

    /// Fails unless it is this error.
    pub fn refused(&self, status: u16, code: &str) {
        assert_eq!(self.error(), (status, code.to_owned()), "{}", self.text);
    }

    pub fn ok(self) -> Value {
        assert_eq!(self.status, 200, "{}", self.text);
        self.json()
    }
}
