//! A provider on this machine. It does what the standards say, unless its script says otherwise.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
};

use axum::{
    Json, Router,
    body::Body,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse as _, Response},
    routing::{get, post},
};
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

use crate::signer::{self, Signer};

pub(crate) const CLIENT: &str = "motet";
pub(crate) const SECRET: &str = "p:w d";
/// The time of every test, in milliseconds: no test waits.
pub(crate) const NOW: i64 = 1_800_000_000_000;

/// A way of making the ID token from its claims.
pub(crate) type MakeToken = Box<dyn Fn(&Script, Value) -> String + Send>;

/// What the provider does.
pub(crate) struct Script {
    pub(crate) issuer: String,
    /// The first signs.
    pub(crate) signers: Vec<Signer>,
    /// What is published, where that is not the signers' keys.
    pub(crate) keys: Option<Value>,
    /// Claims that differ from the usual; null takes one away.
    pub(crate) claims: Value,
    /// The user information, where there is some.
    pub(crate) userinfo: Option<Value>,
    /// Keys of the discovery document that differ from the usual.
    pub(crate) document: Value,
    pub(crate) token: Option<MakeToken>,
    /// What a path answers in place of what it should.
    pub(crate) answers: BTreeMap<&'static str, Answer>,
    /// Each request's path.
    pub(crate) log: Vec<String>,
    /// Bytes of the last token.
    pub(crate) token_length: usize,
    codes: BTreeMap<String, Code>,
}

/// A wrong answer.
#[derive(Clone)]
pub(crate) enum Answer {
    Status(u16),
    Body(String),
    /// A body of so many bytes.
    Huge(usize),
    /// None, ever.
    Silence,
    Redirect(String),
}

struct Code {
    challenge: String,
    nonce: String,
    redirect: String,
    is_used: bool,
}

/// A running provider.
#[derive(Clone)]
pub(crate) struct TestProvider(Arc<Mutex<Script>>);

impl TestProvider {
    pub(crate) async fn start(signer: Signer) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let script = Script {
            issuer: format!("http://{}", listener.local_addr().unwrap()),
            signers: vec![signer],
            keys: None,
            claims: json!({}),
            userinfo: None,
            document: json!({}),
            token: None,
            answers: BTreeMap::new(),
            log: Vec::new(),
            token_length: 0,
            codes: BTreeMap::new(),
        };
        let provider = Self(Arc::new(Mutex::new(script)));
        let router = Router::new()
            .route("/.well-known/openid-configuration", get(discovery))
            .route("/keys", get(keys))
            .route("/token", post(token))
            .route("/userinfo", get(userinfo))
            .layer(axum::middleware::from_fn_with_state(provider.clone(), wrong_answers))
            .with_state(provider.clone());
        // The test's runtime ends it.
        tokio::spawn(async move { axum::serve(listener, router).await });
        provider
    }

    pub(crate) fn script(&self) -> MutexGuard<'_, Script> {
        self.0.lock().unwrap()
    }

    pub(crate) fn issuer(&self) -> String {
        self.script().issuer.clone()
    }

    /// The published form of a signer's key.
    pub(crate) fn published(&self, signer: usize) -> Value {
        self.script().signers[signer].published()
    }

    /// How often a path was asked for.
    pub(crate) fn requests(&self, path: &str) -> usize {
        self.script().log.iter().filter(|asked| *asked == path).count()
    }

    /// What a browser brings back from the provider's page, once its user has signed in there.
    pub(crate) fn authorize(&self, address: &str) -> BTreeMap<String, String> {
        let url = reqwest::Url::parse(address).unwrap();
        let asked: BTreeMap<String, String> = url.query_pairs().into_owned().collect();
        let get = |name: &str| asked[name].clone();
        assert_eq!((get("response_type"), get("client_id")), ("code".to_owned(), CLIENT.to_owned()));
        assert_eq!(get("code_challenge_method"), "S256");
        assert!(get("scope").split(' ').any(|scope| scope == "openid"));
        let mut script = self.script();
        assert!(address.starts_with(&format!("{}/authorize?", script.issuer)), "{address}");
        let name = format!("code{}", script.codes.len());
        let code = Code {
            challenge: get("code_challenge"),
            nonce: get("nonce"),
            redirect: get("redirect_uri"),
            is_used: false,
        };
        script.codes.insert(name.clone(), code);
        BTreeMap::from([("code".to_owned(), name), ("state".to_owned(), get("state"))])
    }
}

async fn wrong_answers(
    State(provider): State<TestProvider>,
    request: axum::extract::Request,
    next: axum::middleware::Next,
) -> Response {
    let answer = {
        let mut script = provider.script();
        let path = request.uri().path().to_owned();
        let answer = script.answers.get(path.as_str()).cloned();
        script.log.push(path);
        answer
    };
    match answer {
        None => next.run(request).await,
        Some(Answer::Status(status)) => StatusCode::from_u16(status).unwrap().into_response(),
        Some(Answer::Body(text)) => text.into_response(),
        Some(Answer::Huge(bytes)) => Body::from(vec![b' '; bytes]).into_response(),
        Some(Answer::Silence) => std::future::pending().await,
        Some(Answer::Redirect(to)) => (StatusCode::FOUND, [(header::LOCATION, to)]).into_response(),
    }
}

async fn discovery(State(provider): State<TestProvider>) -> Json<Value> {
    let script = provider.script();
    let issuer = &script.issuer;
    let document = json!({
        "issuer": issuer,
        "authorization_endpoint": format!("{issuer}/authorize"),
        "token_endpoint": format!("{issuer}/token"),
        "jwks_uri": format!("{issuer}/keys"),
        "userinfo_endpoint": format!("{issuer}/userinfo"),
        "end_session_endpoint": format!("{issuer}/logout?from=app"),
    });
    Json(changed(document, &script.document))
}

async fn keys(State(provider): State<TestProvider>) -> Json<Value> {
    let script = provider.script();
    let published = || json!({"keys": script.signers.iter().map(Signer::published).collect::<Vec<_>>()});
    Json(script.keys.clone().unwrap_or_else(published))
}

async fn token(State(provider): State<TestProvider>, headers: HeaderMap, body: String) -> Response {
    let form = reqwest::Url::parse(&format!("http://form.invalid/?{body}")).unwrap();
    let form: BTreeMap<String, String> = form.query_pairs().into_owned().collect();
    let refuse = |error: &str| {
        let body = json!({"error": error, "error_description": "the provider's words"});
        (StatusCode::BAD_REQUEST, Json(body)).into_response()
    };
    let mut script = provider.script();
    // `p:w d`, encoded as a form and then in base64, as RFC 6749 has it.
    let basic = headers.get(header::AUTHORIZATION).map(|value| value.to_str().unwrap().to_owned());
    let is_client = basic.as_deref() == Some("Basic bW90ZXQ6cCUzQXcrZA==")
        || (form.get("client_id").map(String::as_str), form.get("client_secret").map(String::as_str))
            == (Some(CLIENT), Some(SECRET));
    if !is_client {
        return refuse("invalid_client");
    }
    let Some(code) = script.codes.get_mut(&form["code"]) else { return refuse("invalid_grant") };
    let challenge = signer::text(digest(&SHA256, form["code_verifier"].as_bytes()).as_ref());
    let is_good = form["grant_type"] == "authorization_code"
        && !std::mem::replace(&mut code.is_used, true)
        && code.challenge == challenge
        && code.redirect == form["redirect_uri"];
    if !is_good {
        return refuse("invalid_grant");
    }
    let seconds = NOW / 1000;
    let claims = json!({
        "iss": script.issuer, "aud": CLIENT, "sub": "user-1", "nonce": script.codes[&form["code"]].nonce,
        "iat": seconds, "exp": seconds + 300,
        "email": "ann@example.org", "email_verified": true, "name": "Ann A.", "groups": ["staff"],
    });
    let claims = changed(claims, &script.claims);
    let token = match &script.token {
        Some(make) => make(&script, claims),
        None => script.signers[0].token(&claims),
    };
    script.token_length = token.len();
    Json(json!({"id_token": token, "access_token": "access", "token_type": "Bearer"})).into_response()
}

async fn userinfo(State(provider): State<TestProvider>, headers: HeaderMap) -> Response {
    assert_eq!(headers[header::AUTHORIZATION], "Bearer access");
    match &provider.script().userinfo {
        Some(info) => Json(info.clone()).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

fn changed(mut object: Value, changes: &Value) -> Value {
    for (name, value) in changes.as_object().unwrap() {
        if value.is_null() {
            object.as_object_mut().unwrap().shift_remove(name);
        } else {
            object[name] = value.clone();
        }
    }
    object
}
