//! One request to the hub and what its answer means.

use std::time::Duration;

use reqwest::{
    Method, Response, StatusCode, Url,
    header::{ACCEPT_ENCODING, CONTENT_LENGTH, ETAG, HeaderMap, LOCATION, RANGE, RETRY_AFTER},
};
use serde::Deserialize;

use crate::{
    HubConfig, HubError, Progress,
    cache::REVISION,
    choose::Candidate,
    names::{self, url_path},
};

const CONNECT: Duration = Duration::from_secs(10);
/// Longest silence in a body.
const SILENCE: Duration = Duration::from_secs(30);
/// Most redirects of one request.
const REDIRECTS: usize = 10;
/// Largest answer that lists a repository.
const LISTING_BYTES: usize = 16 << 20;

/// How a request failed: for good, or in a way that may pass.
#[derive(Debug)]
pub(crate) enum Fault {
    /// Trying again can't help.
    Fatal(HubError),
    /// A status that may pass, and how long the server asks to wait.
    Busy { status: u16, wait: Option<Duration> },
    /// No connection, or it broke.
    Broken { host: String, why: String },
}

impl From<HubError> for Fault {
    fn from(error: HubError) -> Self {
        Self::Fatal(error)
    }
}

/// What the hub says of a file before its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileInfo {
    /// The commit that `main` stands for.
    pub(crate) commit: String,
    /// Name of the blob.
    pub(crate) etag: String,
    /// Bytes.
    pub(crate) size: u64,
    /// Lower-case hex, when the hub stores the file by its hash.
    pub(crate) sha256: Option<String>,
}

/// How patient a request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Nothing can be done without the answer.
    Full,
    /// A cached copy will do: one try, a few seconds.
    Brief,
}

#[derive(Deserialize)]
struct Listing {
    #[serde(default)]
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
struct Sibling {
    rfilename: String,
    size: Option<u64>,
}

/// Speaks to one hub.
#[derive(Debug)]
pub(crate) struct Client {
    http: reqwest::Client,
    endpoint: Url,
    pub(crate) config: HubConfig,
}

impl Client {
    /// A client for the hub of `config`.
    pub(crate) fn new(config: HubConfig) -> Result<Self, HubError> {
        // The first provider wins; it does not matter which of several callers installs it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let endpoint = Url::parse(&config.endpoint)
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
            .ok_or_else(|| {
                HubError::Config(format!("HF_ENDPOINT {:?} is not an http(s) address", config.endpoint))
            })?;
        let mut builder = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT)
            .read_timeout(SILENCE)
            .user_agent(concat!("motet/", env!("CARGO_PKG_VERSION")));
        if is_loopback(&endpoint) {
            builder = builder.no_proxy();
        }
        let http = builder.build().map_err(|e| HubError::Client(chain(&e)))?;
        if config.token.as_deref().is_some_and(|token| token.bytes().any(|b| !b.is_ascii_graphic())) {
            return Err(HubError::Config(
                "HF_TOKEN has a space, a line break or another character that no token has".to_owned(),
            ));
        }
        Ok(Self { http, endpoint, config })
    }

    /// The files of `repo`.
    pub(crate) async fn list(
        &self,
        repo: &str,
        patience: Patience,
        progress: &dyn Progress,
    ) -> Result<Vec<Candidate>, HubError> {
        let url = self.url(&format!("api/models/{repo}?blobs=true"))?;
        let body =
            self.retrying(patience, progress, async || self.listing(repo, &url, patience).await).await?;
        let listing: Listing = serde_json::from_slice(&body)
            .map_err(|e| protocol(repo, format!("the list of files is not JSON: {e}")))?;
        for sibling in &listing.siblings {
            check_name(&sibling.rfilename)?;
        }
        Ok(listing.siblings.into_iter().map(|s| Candidate { name: s.rfilename, size: s.size }).collect())
    }

    async fn listing(&self, repo: &str, url: &Url, patience: Patience) -> Result<Vec<u8>, Fault> {
        let mut response = self.send(Method::GET, url, patience, None).await?;
        self.check_status(&response, repo, None)?;
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|e| broken(url, &e))? {
            if body.len() + chunk.len() > LISTING_BYTES {
                return Err(protocol(repo, format!("the list of files exceeds {LISTING_BYTES} bytes")).into());
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    /// Commit, etag and size of `file`.
    pub(crate) async fn metadata(
        &self,
        repo: &str,
        file: &str,
        patience: Patience,
        progress: &dyn Progress,
    ) -> Result<FileInfo, HubError> {
        let url = self.file_url(repo, file)?;
        self.retrying(patience, progress, async || {
            let response = self.send(Method::HEAD, &url, patience, None).await?;
            if !response.status().is_redirection() {
                self.check_status(&response, repo, Some(file))?;
            }
            Ok(file_info(&response, &format!("{repo}/{file}"))?)
        })
        .await
    }

    /// The bytes of `file` from `from` on; the answer's status is 200, 206 or 416.
    pub(crate) async fn open(&self, repo: &str, file: &str, from: u64) -> Result<Response, Fault> {
        let url = self.file_url(repo, file)?;
        let response = self.send(Method::GET, &url, Patience::Full, Some(from)).await?;
        if response.status() != StatusCode::RANGE_NOT_SATISFIABLE {
            self.check_status(&response, repo, Some(file))?;
        }
        Ok(response)
    }

    fn url(&self, path: &str) -> Result<Url, HubError> {
        let base = self.config.endpoint.trim_end_matches('/');
        Url::parse(&format!("{base}/{path}")).map_err(|e| HubError::Client(format!("{base}/{path}: {e}")))
    }

    fn file_url(&self, repo: &str, file: &str) -> Result<Url, HubError> {
        self.url(&format!("{repo}/resolve/{REVISION}/{}", url_path(file)))
    }

    /// Sends one request and follows its redirects. A `HEAD` stops at the redirect that carries the
    /// file's metadata: what lies behind it knows only the bytes. The token goes to the hub alone.
    async fn send(
        &self,
        method: Method,
        url: &Url,
        patience: Patience,
        from: Option<u64>,
    ) -> Result<Response, Fault> {
        let mut url = url.clone();
        let mut may_authorize = true;
        for _ in 0..REDIRECTS {
            may_authorize &= url.origin() == self.endpoint.origin();
            let mut request =
                self.http.request(method.clone(), url.clone()).header(ACCEPT_ENCODING, "identity");
            if patience == Patience::Brief {
                request = request.timeout(Duration::from_secs(5));
            }
            if let Some(token) = self.config.token.as_ref().filter(|_| may_authorize) {
                request = request.bearer_auth(token);
            }
            if let Some(from) = from.filter(|from| *from > 0) {
                request = request.header(RANGE, format!("bytes={from}-"));
            }
            let response = request.send().await.map_err(|e| broken(&url, &e))?;
            let is_metadata = method == Method::HEAD && header(response.headers(), "x-linked-etag").is_some();
            if !is_followed(response.status()) || is_metadata {
                return Ok(response);
            }
            url = redirect_target(&url, &response)?;
        }
        Err(protocol(url.as_str(), format!("more than {REDIRECTS} redirects")).into())
    }

    /// Sorts statuses that are no success into what may pass and what won't.
    fn check_status(&self, response: &Response, repo: &str, file: Option<&str>) -> Result<(), Fault> {
        let status = response.status();
        let code = header(response.headers(), "x-error-code");
        let what = match file.filter(|_| code != Some("RepoNotFound")) {
            Some(file) => format!("file {file} of {repo}"),
            None => format!("repository {repo}"),
        };
        match status.as_u16() {
            200..300 => Ok(()),
            401 | 403 => Err(Fault::Fatal(HubError::Denied {
                repo: repo.to_owned(),
                status: status.as_u16(),
                page: format!("{}/{repo}", self.config.endpoint),
                tail: if self.config.token.is_some() {
                    " (a token was sent)"
                } else {
                    " (no token was sent)"
                },
            })),
            404 => Err(Fault::Fatal(HubError::NotFound { what, endpoint: self.config.endpoint.clone() })),
            408 | 425 | 429 | 500.. => {
                Err(Fault::Busy { status: status.as_u16(), wait: retry_after(response.headers()) })
            }
            _ => Err(Fault::Fatal(HubError::Status { what, status: status.as_u16() })),
        }
    }

    /// Runs `attempt` until it succeeds, fails for good, or has been tried often enough.
    async fn retrying<T>(
        &self,
        patience: Patience,
        progress: &dyn Progress,
        attempt: impl AsyncFn() -> Result<T, Fault>,
    ) -> Result<T, HubError> {
        let limit = if patience == Patience::Brief { 1 } else { self.config.retry.attempts };
        let mut tries = 0;
        loop {
            let fault = match attempt().await {
                Ok(value) => return Ok(value),
                Err(fault) => fault,
            };
            tries += 1;
            self.pause(fault, tries, limit, progress).await?;
        }
    }

    /// Waits before the next try, or turns the fault into the final error.
    pub(crate) async fn pause(
        &self,
        fault: Fault,
        tries: u32,
        limit: u32,
        progress: &dyn Progress,
    ) -> Result<(), HubError> {
        let (wait, why) = match fault {
            Fault::Fatal(error) => return Err(error),
            Fault::Busy { status, .. } if tries >= limit => {
                return Err(HubError::Unavailable { endpoint: self.config.endpoint.clone(), status, tries });
            }
            Fault::Broken { host, why } if tries >= limit => {
                return Err(HubError::Network { host, tries, why, kept: String::new() });
            }
            Fault::Busy { status, wait } => (wait, format!("the hub answered HTTP {status}")),
            Fault::Broken { why, .. } => (None, why),
        };
        let wait = self.config.retry.wait(tries, wait);
        tracing::debug!(tries, ?wait, why, "trying again");
        progress.note(&format!("{why}; trying again in {:.1} s ({tries} of {limit})", wait.as_secs_f64()));
        tokio::time::sleep(wait).await;
        Ok(())
    }
}

/// A name the hub sent that is about to become a path.
fn check_name(name: &str) -> Result<(), HubError> {
    names::check_file(name).map_err(|_| HubError::UnsafeName { what: "file name", name: name.to_owned() })
}

fn file_info(response: &Response, what: &str) -> Result<FileInfo, HubError> {
    let headers = response.headers();
    let missing = |name: &str| protocol(what, format!("the header {name} is missing"));
    let commit = header(headers, "x-repo-commit").ok_or_else(|| missing("X-Repo-Commit"))?;
    let etag = header(headers, "x-linked-etag").or_else(|| header(headers, ETAG.as_str()));
    let etag = etag.ok_or_else(|| missing("ETag"))?.trim_start_matches("W/").trim_matches('"');
    for (what, name) in [("commit", commit), ("etag", etag)] {
        if !names::is_component(name) {
            return Err(HubError::UnsafeName { what, name: name.to_owned() });
        }
    }
    let length = header(headers, CONTENT_LENGTH.as_str()).filter(|_| !response.status().is_redirection());
    let size = header(headers, "x-linked-size").or(length).and_then(|text| text.parse().ok());
    Ok(FileInfo {
        commit: commit.to_owned(),
        etag: etag.to_owned(),
        size: size.ok_or_else(|| missing("X-Linked-Size"))?,
        sha256: names::is_sha256(etag).then(|| etag.to_owned()),
    })
}

fn is_followed(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

fn redirect_target(from: &Url, response: &Response) -> Result<Url, HubError> {
    let location = header(response.headers(), LOCATION.as_str());
    let target = location.and_then(|text| from.join(text).ok());
    let target = target.ok_or_else(|| protocol(from.as_str(), "a redirect without an address".to_owned()))?;
    match (from.scheme(), target.scheme()) {
        (_, "https") | ("http", "http") => Ok(target),
        (_, scheme) => {
            Err(protocol(from.as_str(), format!("a redirect to a {scheme} address is not followed")))
        }
    }
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok()).filter(|text| !text.is_empty())
}

/// `Retry-After` in seconds; the form with a date is not used by hubs.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    header(headers, RETRY_AFTER.as_str())?.trim().parse().ok().map(Duration::from_secs)
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// A connection fault at `url`, without its query: signed addresses are secrets.
pub(crate) fn broken(url: &Url, error: &reqwest::Error) -> Fault {
    let host = url.host_str().unwrap_or_default();
    let host = url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
    Fault::Broken { host, why: chain(error) }
}

pub(crate) fn protocol(what: &str, why: String) -> HubError {
    HubError::Protocol { what: what.to_owned(), why }
}

/// The innermost reason: the outer ones only say "error sending request" and the address.
fn chain(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "no answer in time".to_owned();
    }
    let mut innermost: &dyn std::error::Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}
