//! A browser in front of the routes, and an application behind them.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, Ordering},
    },
};

use axum::{Router, body::Body};
use http::{HeaderValue, Request, Response, StatusCode, header, request::Parts};
use motet_oidc::{Denied, HttpLimits, Identity, Provider, ProviderConfig, Secret, SignIn, SignedIn, routes};
use tower::ServiceExt as _;

use crate::provider::{CLIENT, NOW, SECRET, TestProvider};

/// Notes who signed in.
#[derive(Default)]
pub(crate) struct App {
    pub(crate) signed_in: Mutex<Vec<Identity>>,
    pub(crate) denies: Mutex<Option<Denied>>,
}

impl SignIn for App {
    async fn sign_in(&self, identity: Identity, request: &Parts) -> Result<SignedIn, Denied> {
        assert!(request.headers.contains_key(header::COOKIE));
        if let Some(denied) = self.denies.lock().unwrap().clone() {
            return Err(denied);
        }
        self.signed_in.lock().unwrap().push(identity);
        Ok(SignedIn { cookies: vec![HeaderValue::from_static("motet_session=token; Path=/")] })
    }
}

/// A server with one provider, and a browser's cookies.
pub(crate) struct Browser<S = App> {
    router: Router,
    pub(crate) app: Arc<S>,
    pub(crate) now: Arc<AtomicI64>,
    pub(crate) cookies: BTreeMap<String, String>,
}

/// What came of an address.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) status: StatusCode,
    pub(crate) location: String,
    pub(crate) body: String,
    pub(crate) set_cookies: Vec<String>,
}

pub(crate) fn config(provider: &TestProvider) -> ProviderConfig {
    ProviderConfig {
        name: "corp".into(),
        title: "Corp".into(),
        issuer: provider.issuer(),
        client_id: CLIENT.into(),
        client_secret: Some(Secret::new(SECRET)),
        scopes: vec!["openid".into(), "email".into(), "profile".into()],
        redirect_url: "http://localhost:8080/api/oidc/corp/callback".into(),
        groups_claim: "groups".into(),
        tiers: vec![("staff".into(), "pro".into())],
        default_tier: "free".into(),
        allowed_domains: vec!["example.org".into()],
        required_group: None,
        first_owner_email: None,
    }
}

impl Browser<App> {
    pub(crate) fn new(config: ProviderConfig, limits: HttpLimits) -> Self {
        Self::before(config, limits, App::default())
    }
}

impl<S: SignIn> Browser<S> {
    pub(crate) fn before(config: ProviderConfig, limits: HttpLimits, app: S) -> Self {
        let (app, now) = (Arc::new(app), Arc::new(AtomicI64::new(NOW)));
        let provider = Provider::new(config, limits).unwrap();
        let clock = Arc::clone(&now);
        let clock = Arc::new(move || clock.load(Ordering::Relaxed));
        let router = routes(vec![provider], Arc::clone(&app), clock);
        Self { router, app, now, cookies: BTreeMap::new() }
    }

    pub(crate) fn wait(&self, ms: i64) {
        self.now.fetch_add(ms, Ordering::Relaxed);
    }

    /// Goes to an address of the server.
    pub(crate) async fn go(&mut self, path: &str) -> Page {
        self.go_with(path, &[]).await
    }

    pub(crate) async fn go_with(&mut self, path: &str, headers: &[(&str, &str)]) -> Page {
        let pairs: Vec<String> = self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let mut request = Request::get(path).header(header::COOKIE, pairs.join("; "));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = self.router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
        let page = Page::read(response).await;
        for cookie in &page.set_cookies {
            let (name, rest) = cookie.split_once('=').unwrap();
            let value = rest.split(';').next().unwrap();
            if rest.contains("Max-Age=0") {
                self.cookies.remove(name);
            } else {
                self.cookies.insert(name.to_owned(), value.to_owned());
            }
        }
        page
    }

    /// Begins at the server and signs in at the provider: the address of the callback.
    pub(crate) async fn until_callback(
        &mut self,
        provider: &TestProvider,
        return_to: &str,
    ) -> Result<String, Page> {
        let page = self.go(&format!("/api/oidc/corp?return_to={return_to}")).await;
        if page.status != StatusCode::FOUND {
            return Err(page);
        }
        Ok(callback(&provider.authorize(&page.location)))
    }

    /// All of it.
    pub(crate) async fn sign_in(&mut self, provider: &TestProvider) -> Page {
        match self.until_callback(provider, "/c/1").await {
            Ok(callback) => self.go(&callback).await,
            Err(page) => page,
        }
    }
}

/// The callback's address with these parameters.
pub(crate) fn callback(parameters: &BTreeMap<String, String>) -> String {
    let mut url = reqwest::Url::parse("http://localhost/api/oidc/corp/callback").unwrap();
    url.query_pairs_mut().extend_pairs(parameters);
    format!("{}?{}", url.path(), url.query().unwrap())
}

impl Page {
    async fn read(response: Response<Body>) -> Self {
        let all = |name| {
            let values = response.headers().get_all(name).iter();
            values.map(|value| value.to_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let (location, set_cookies) = (all(header::LOCATION).concat(), all(header::SET_COOKIE));
        let status = response.status();
        let body = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
        Self { status, location, set_cookies, body: String::from_utf8(body.to_vec()).unwrap() }
    }
}
