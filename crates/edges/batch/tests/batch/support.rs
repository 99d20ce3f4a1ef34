//! A server without sockets: the routes, a store on disk, and routes of a model that plays.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::Extension;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use futures_util::future::BoxFuture;
use http::{HeaderMap, Request, StatusCode};
use motet_batch::{BatchConfig, Batches, RunAs, Runner};
use motet_gateway::{Account, Caller, Denial, Scopes};
use motet_store::{DataOwner, KeyId, Store, Whose};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tempfile::TempDir;
use tower::ServiceExt;

/// Longest wait for something that takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// A folder with a database and files, which outlives the servers on it.
pub struct World {
    pub folder: TempDir,
    /// What the wall clock shows.
    pub now: Arc<AtomicI64>,
    pub model: Arc<Model>,
    pub door: Arc<Door>,
}

/// The routes of a model: they answer with the request, after a script.
pub struct Model {
    /// How often each prompt came.
    pub asked: Mutex<HashMap<String, u32>>,
    /// Most requests at the same time.
    pub most: AtomicU32,
    running: AtomicU32,
    /// Makes the answer to a prompt that came so many times before; `None` is success.
    pub script: Mutex<Option<Script>>,
    /// How many requests are answered; those that come later hang.
    pub room: AtomicU32,
}

impl Default for Model {
    fn default() -> Self {
        Self {
            asked: Mutex::default(),
            most: AtomicU32::new(0),
            running: AtomicU32::new(0),
            script: Mutex::default(),
            room: AtomicU32::new(u32::MAX),
        }
    }
}

pub type Script = Box<dyn Fn(&str, u32) -> Option<Response> + Send + Sync>;

/// Lets everybody in, until told otherwise.
#[derive(Default)]
pub struct Door(pub Mutex<Option<Denial>>);

impl RunAs for Door {
    fn caller<'a>(
        &'a self,
        owner: &'a DataOwner,
        key: Option<&'a KeyId>,
    ) -> BoxFuture<'a, Result<Arc<Caller>, Denial>> {
        Box::pin(async move {
            match &*self.0.lock() {
                Some(denial) => Err(denial.clone()),
                None => Ok(caller(owner.org.as_str(), owner.user.as_str(), key.map(KeyId::as_str))),
            }
        })
    }
}

pub fn caller(tenant: &str, user: &str, key: Option<&str>) -> Arc<Caller> {
    let account = Account { user: user.to_owned(), key: key.map(str::to_owned), tier: String::new() };
    Arc::new(Caller { tenant: tenant.to_owned(), account, ..Caller::default() })
}

impl Model {
    fn routes(self: &Arc<Self>) -> Router {
        let model = Arc::clone(self);
        let answer = move |Extension(caller): Extension<Arc<Caller>>, Json(body): Json<Value>| {
            let model = Arc::clone(&model);
            async move { model.answer(&caller, &body).await }
        };
        Router::new().route("/v1/completions", post(answer))
    }

    async fn answer(&self, caller: &Caller, body: &Value) -> Response {
        assert_eq!(body["service_tier"], "flex");
        let prompt = body["prompt"].as_str().unwrap_or_default().to_owned();
        let before = {
            let mut asked = self.asked.lock();
            let times = asked.entry(prompt.clone()).or_default();
            *times += 1;
            *times - 1
        };
        let has_room = self.asked.lock().values().sum::<u32>() <= self.room.load(Ordering::SeqCst);
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(running, Ordering::SeqCst);
        let _ends = Ends(&self.running);
        if !has_room {
            std::future::pending::<()>().await;
        }
        // Lines end in another order than they began.
        for _ in 0..prompt.len() % 7 {
            tokio::task::yield_now().await;
        }
        let scripted = self.script.lock().as_ref().and_then(|script| script(&prompt, before));
        scripted.unwrap_or_else(|| {
            let body = json!({ "echo": prompt, "user": caller.account.user });
            ([("x-request-id", "req_1")], Json(body)).into_response()
        })
    }
}

struct Ends<'a>(&'a AtomicU32);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl World {
    pub fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            now: Arc::new(AtomicI64::new(1_700_000_000_000)),
            model: Arc::default(),
            door: Arc::default(),
        }
    }

    pub fn config(&self) -> BatchConfig {
        let now = Arc::clone(&self.now);
        BatchConfig {
            first_wait: Duration::from_millis(1),
            longest_wait: Duration::from_millis(5),
            progress: Duration::from_millis(5),
            look: Duration::from_millis(20),
            lines_at_once: 4,
            // Each read is later than the one before, so that lists have an order.
            clock: Arc::new(move || now.fetch_add(1, Ordering::SeqCst)),
            ..BatchConfig::new(self.folder.path().join("files"), Whose::Nobody)
        }
    }

    pub fn batches(&self, config: BatchConfig) -> Batches {
        let url = format!("sqlite:{}", self.folder.path().join("motet.db").display());
        let open = move || {
            let url = url.clone();
            Box::pin(async move { Store::open(&url).await.map_err(|error| error.to_string()) })
                as BoxFuture<'_, _>
        };
        Batches::new(config, Box::new(open))
    }

    pub fn runner(&self, batches: &Batches) -> Runner {
        batches.start(self.model.routes(), Arc::clone(&self.door) as Arc<dyn RunAs>)
    }

    /// A runner that is dropped ends at its next step; what it holds is free then.
    pub async fn until_nothing_runs(&self) {
        let lock = std::fs::File::open(self.folder.path().join("files/run.lock")).unwrap();
        while lock.try_lock().is_err() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    pub fn server(&self) -> Client {
        self.server_with(self.config())
    }

    /// A server that runs batches until it is dropped.
    pub fn server_with(&self, config: BatchConfig) -> Client {
        let batches = self.batches(config);
        let runner = self.runner(&batches);
        Client { routes: batches.routes(), caller: caller("", "", None), _runner: Some(Arc::new(runner)) }
    }

    /// A server that only takes requests.
    pub fn idle(&self) -> Client {
        let batches = self.batches(self.config());
        Client { routes: batches.routes(), caller: caller("", "", None), _runner: None }
    }
}

/// Somebody who sends requests.
#[derive(Clone)]
pub struct Client {
    routes: Router,
    caller: Arc<Caller>,
    _runner: Option<Arc<Runner>>,
}

/// An answer.
pub struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub bytes: Bytes,
}

impl Reply {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes).unwrap_or_else(|_| panic!("not JSON: {:?}", self.bytes))
    }

    /// Status, `param` and `code` of an error, whose shape is checked.
    pub fn error(&self) -> (u16, Option<String>, String) {
        let body = self.json();
        let error = body["error"].as_object().unwrap_or_else(|| panic!("no error in {body}"));
        assert_eq!(error.keys().collect::<Vec<_>>(), ["message", "type", "param", "code"]);
        assert!(!error["message"].as_str().unwrap().is_empty());
        let param = error["param"].as_str().map(str::to_owned);
        (self.status.as_u16(), param, error["code"].as_str().unwrap().to_owned())
    }
}

/// A form with fields in this order; one with a file's name is a file.
pub fn form(fields: &[(&str, Option<&str>, &[u8])]) -> (String, Vec<u8>) {
    let mut body = Vec::new();
    for (name, file, value) in fields {
        let file = file.map_or(String::new(), |file| format!("; filename=\"{file}\""));
        let head = format!("--XX\r\ncontent-disposition: form-data; name=\"{name}\"{file}\r\n\r\n");
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(value);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(b"--XX--\r\n");
    ("multipart/form-data; boundary=XX".to_owned(), body)
}

impl Client {
    /// Another user of the same server.
    pub fn user(&self, tenant: &str, user: &str) -> Self {
        Self { caller: caller(tenant, user, None), ..self.clone() }
    }

    pub fn without_scope(&self) -> Self {
        let scopes = Scopes { batches: false, ..Scopes::default() };
        Self { caller: Arc::new(Caller { scopes, ..(*self.caller).clone() }), ..self.clone() }
    }

    pub async fn send(&self, mut request: Request<Body>) -> Reply {
        request.extensions_mut().insert(Arc::clone(&self.caller));
        let (parts, body) = self.routes.clone().oneshot(request).await.unwrap().into_parts();
        let bytes = to_bytes(body, usize::MAX).await.unwrap();
        Reply { status: parts.status, headers: parts.headers, bytes }
    }

    pub async fn get(&self, path: &str) -> Reply {
        self.send(Request::get(path).body(Body::empty()).unwrap()).await
    }

    pub async fn delete(&self, path: &str) -> Reply {
        self.send(Request::delete(path).body(Body::empty()).unwrap()).await
    }

    pub async fn post(&self, path: &str, body: impl Into<Body>) -> Reply {
        let request = Request::post(path).header("content-type", "application/json");
        self.send(request.body(body.into()).unwrap()).await
    }

    pub async fn post_form(&self, (kind, body): (String, Vec<u8>)) -> Reply {
        self.send(Request::post("/v1/files").header("content-type", kind).body(body.into()).unwrap()).await
    }

    /// Uploads a file for batches; its id.
    pub async fn upload(&self, content: &[u8]) -> String {
        let form = form(&[("purpose", None, b"batch"), ("file", Some("in.jsonl"), content)]);
        let reply = self.post_form(form).await;
        assert_eq!(reply.status, 200, "{:?}", reply.bytes);
        reply.json()["id"].as_str().unwrap().to_owned()
    }

    /// Makes a batch of these lines; its id.
    pub async fn batch(&self, lines: &[String]) -> String {
        let file = self.upload(lines.join("\n").as_bytes()).await;
        let reply = self.post("/v1/batches", asks(&file).to_string()).await;
        assert_eq!(reply.status, 200, "{:?}", reply.bytes);
        reply.json()["id"].as_str().unwrap().to_owned()
    }

    pub async fn state(&self, batch: &str) -> Value {
        let reply = self.get(&format!("/v1/batches/{batch}")).await;
        assert_eq!(reply.status, 200, "{:?}", reply.bytes);
        reply.json()
    }

    /// Waits until the batch looks so.
    pub async fn until(&self, batch: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let state = self.state(batch).await;
            if holds(&state) {
                return state;
            }
            assert!(begun.elapsed() < PATIENCE, "{state}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    pub async fn ended(&self, batch: &str) -> Value {
        let ends = ["completed", "failed", "expired", "cancelled"];
        self.until(batch, |state| ends.contains(&state["status"].as_str().unwrap())).await
    }

    /// The lines of a file of the batch, none where there is no file.
    pub async fn lines(&self, batch: &Value, which: &str) -> Vec<Value> {
        let Some(file) = batch[which].as_str() else { return Vec::new() };
        let reply = self.get(&format!("/v1/files/{file}/content")).await;
        assert_eq!(reply.status, 200, "{:?}", reply.bytes);
        let text = String::from_utf8(reply.bytes.to_vec()).unwrap();
        assert!(text.ends_with('\n'));
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// A batch of a file.
pub fn asks(file: &str) -> Value {
    json!({ "input_file_id": file, "endpoint": "/v1/completions", "completion_window": "24h" })
}

/// A line that asks for this prompt.
pub fn line(id: &str, more: Value) -> String {
    let mut body = json!({ "model": "m", "prompt": id });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({ "custom_id": id, "method": "POST", "url": "/v1/completions", "body": body }).to_string()
}

pub fn many(count: usize) -> Vec<String> {
    (0..count).map(|n| line(&format!("{n}{}", "x".repeat(n % 5)), json!({}))).collect()
}

/// The `custom_id`s of lines, sorted.
pub fn names<'a>(lines: impl IntoIterator<Item = &'a Value>) -> Vec<&'a str> {
    let mut names: Vec<_> = lines.into_iter().map(|line| line["custom_id"].as_str().unwrap()).collect();
    names.sort_unstable();
    names
}
