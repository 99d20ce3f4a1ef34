//! A server that speaks the hub's API: listings and metadata on one port, bytes on another.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Path, State},
    http::{HeaderMap, Method, Response, StatusCode, header},
    routing::get,
};
use sha2::{Digest, Sha256};

pub const REPO: &str = "acme/tiny-GGUF";
pub const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// What the next answers with bytes do wrong; used up one by one.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// Answer this status with `Retry-After: 0`.
    Status(u16),
    /// Break the connection after this many bytes.
    Cut(usize),
    /// Answer 200 with the whole file although a range was asked for.
    IgnoreRange,
}

#[derive(Default)]
pub struct Script {
    pub files: BTreeMap<String, Vec<u8>>,
    pub token: Option<String>,
    pub metadata_faults: VecDeque<Fault>,
    pub byte_faults: VecDeque<Fault>,
    /// Send these bytes in place of each file's own.
    pub forged: Option<Vec<u8>>,
    /// Each request: `METHOD path range`, with ` +auth` when a token came with it.
    pub log: Vec<String>,
    bytes_port: u16,
}

#[derive(Clone, Default)]
pub struct Server {
    pub script: Arc<Mutex<Script>>,
    pub endpoint: String,
}

impl Server {
    pub async fn start(files: &[(&str, &[u8])]) -> Self {
        let mut server = Self::default();
        let files = files.iter().map(|(name, bytes)| ((*name).to_owned(), bytes.to_vec())).collect();
        server.script.lock().unwrap().files = files;
        let bytes_port =
            listen(Router::new().route("/lfs/{sha}", get(bytes)).with_state(server.clone())).await;
        server.script.lock().unwrap().bytes_port = bytes_port;
        let hub = Router::new()
            .route("/api/models/{owner}/{name}", get(listing))
            .route("/{owner}/{name}/resolve/{revision}/{*file}", get(resolve))
            .with_state(server.clone());
        server.endpoint = format!("http://127.0.0.1:{}", listen(hub).await);
        server
    }

    pub fn log(&self) -> Vec<String> {
        self.script.lock().unwrap().log.clone()
    }

    /// How many requests asked for bytes.
    pub fn byte_requests(&self) -> usize {
        self.log().iter().filter(|line| line.starts_with("GET /lfs/")).count()
    }

    fn record(&self, method: &Method, path: &str, headers: &HeaderMap) {
        let range = headers.get(header::RANGE).map_or("", |value| value.to_str().unwrap());
        let auth = if headers.contains_key(header::AUTHORIZATION) { " +auth" } else { "" };
        self.script.lock().unwrap().log.push(format!("{method} {path} {range}{auth}"));
    }

    fn refusal(&self, headers: &HeaderMap) -> Option<Response<Body>> {
        let wanted = self.script.lock().unwrap().token.as_ref().map(|token| format!("Bearer {token}"));
        let got = headers.get(header::AUTHORIZATION).map(|value| value.to_str().unwrap().to_owned());
        (wanted.is_some() && wanted != got).then(|| status(401))
    }
}

async fn listen(router: Router) -> u16 {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move { axum::serve(listener, router).await });
    port
}

fn status(code: u16) -> Response<Body> {
    Response::builder().status(code).header("retry-after", "0").body(Body::empty()).unwrap()
}

pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

async fn listing(
    State(server): State<Server>,
    Path((owner, name)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response<Body> {
    server.record(&Method::GET, &format!("/api/models/{owner}/{name}"), &headers);
    if let Some(refusal) = server.refusal(&headers) {
        return refusal;
    }
    if format!("{owner}/{name}") != REPO {
        return Response::builder()
            .status(404)
            .header("x-error-code", "RepoNotFound")
            .body(Body::empty())
            .unwrap();
    }
    let script = server.script.lock().unwrap();
    let siblings: Vec<_> = script
        .files
        .iter()
        .map(|(name, bytes)| serde_json::json!({ "rfilename": name, "size": bytes.len() }))
        .collect();
    Response::new(Body::from(serde_json::json!({ "sha": COMMIT, "siblings": siblings }).to_string()))
}

async fn resolve(
    State(server): State<Server>,
    Path((owner, name, revision, file)): Path<(String, String, String, String)>,
    method: Method,
    headers: HeaderMap,
) -> Response<Body> {
    server.record(&method, &format!("/{owner}/{name}/resolve/{revision}/{file}"), &headers);
    if let Some(refusal) = server.refusal(&headers) {
        return refusal;
    }
    let mut script = server.script.lock().unwrap();
    if method == Method::HEAD
        && let Some(Fault::Status(code)) = script.metadata_faults.pop_front()
    {
        return status(code);
    }
    let Some(bytes) = script.files.get(&file) else {
        return Response::builder()
            .status(404)
            .header("x-error-code", "EntryNotFound")
            .body(Body::empty())
            .unwrap();
    };
    let sha = sha256(bytes);
    Response::builder()
        .status(StatusCode::FOUND)
        .header("x-repo-commit", COMMIT)
        .header("x-linked-etag", format!("\"{sha}\""))
        .header("x-linked-size", bytes.len())
        .header("location", format!("http://127.0.0.1:{}/lfs/{sha}?signature=secret", script.bytes_port))
        .body(Body::empty())
        .unwrap()
}

async fn bytes(
    State(server): State<Server>,
    Path(sha): Path<String>,
    method: Method,
    headers: HeaderMap,
) -> Response<Body> {
    server.record(&method, "/lfs/", &headers);
    let mut script = server.script.lock().unwrap();
    let found = script.files.values().find(|bytes| sha256(bytes) == sha).cloned();
    let Some(file) = script.forged.clone().or(found) else { return status(404) };
    let fault = script.byte_faults.pop_front();
    if let Some(Fault::Status(code)) = fault {
        return status(code);
    }
    let range = headers.get(header::RANGE).filter(|_| !matches!(fault, Some(Fault::IgnoreRange)));
    let from =
        range.map(|value| value.to_str().unwrap()["bytes=".len()..].trim_end_matches('-').parse().unwrap());
    let part = file[from.unwrap_or(0)..].to_vec();
    let mut response = Response::builder().header("content-length", part.len());
    if let Some(from) = from {
        response = response
            .status(206)
            .header("content-range", format!("bytes {from}-{}/{}", file.len() - 1, file.len()));
    }
    response.body(body(part, fault)).unwrap()
}

fn body(part: Vec<u8>, fault: Option<Fault>) -> Body {
    let Some(Fault::Cut(keep)) = fault else { return Body::from(part) };
    let kept = Ok(Bytes::copy_from_slice(&part[..keep.min(part.len())]));
    // The pause lets the kept bytes leave before the connection breaks.
    let parts =
        futures_util::stream::unfold(vec![Err(std::io::Error::other("cut")), kept], |mut left| async {
            let item = left.pop()?;
            if item.is_err() {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
            Some((item, left))
        });
    Body::from_stream(parts)
}
