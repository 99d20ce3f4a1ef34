//! Requests to a provider: bounded in time and bytes, and never redirected.

use std::time::Duration;

use reqwest::{Client, RequestBuilder, Url};

use crate::{ConfigError, SignInError, config::is_loopback};

/// Bounds on each answer of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HttpLimits {
    /// From the request to the last byte of the answer. A person waits for it.
    pub timeout: Duration,
    /// Longest body. A token with hundreds of groups has some ten thousand bytes.
    pub body_bytes: usize,
}

impl Default for HttpLimits {
    /// Ten seconds and 1 MiB.
    fn default() -> Self {
        Self { timeout: Duration::from_secs(10), body_bytes: 1 << 20 }
    }
}

/// Speaks to one provider.
#[derive(Debug)]
pub(crate) struct Http {
    client: Client,
    limits: HttpLimits,
}

/// An answer of a provider.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

impl Http {
    pub(crate) fn new(issuer: &str, limits: HttpLimits) -> Result<Self, ConfigError> {
        // The first provider of cryptography wins; it does not matter which of several callers installs it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = Client::builder()
            // A redirect would carry a code, or a secret, to where the provider's document does not name.
            .redirect(reqwest::redirect::Policy::none())
            .timeout(limits.timeout)
            .user_agent(concat!("motet/", env!("CARGO_PKG_VERSION")));
        if Url::parse(issuer).is_ok_and(|url| is_loopback(&url)) {
            builder = builder.no_proxy();
        }
        let client = builder
            .build()
            .map_err(|e| ConfigError::new("issuer", format!("can't be asked: {}", innermost(&e))))?;
        Ok(Self { client, limits })
    }

    pub(crate) fn get(&self, url: &Url) -> RequestBuilder {
        self.client.get(url.clone()).header(reqwest::header::ACCEPT, "application/json")
    }

    pub(crate) fn post(&self, url: &Url, form: String) -> RequestBuilder {
        self.client
            .post(url.clone())
            .header(reqwest::header::ACCEPT, "application/json")
            .header(reqwest::header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(form)
    }

    /// Sends a request and reads the whole answer. Statuses that may pass are told as no answer.
    pub(crate) async fn send(
        &self,
        request: RequestBuilder,
        what: &'static str,
    ) -> Result<Answer, SignInError> {
        let unreachable = |why: String| SignInError::Unreachable { what, why };
        let mut response = request.send().await.map_err(|e| unreachable(innermost(&e)))?;
        let status = response.status().as_u16();
        if matches!(status, 408 | 425 | 429 | 500..) {
            return Err(unreachable(format!("it answered with status {status}")));
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|e| unreachable(innermost(&e)))? {
            if body.len() + chunk.len() > self.limits.body_bytes {
                let most = self.limits.body_bytes;
                return Err(SignInError::bad(what, format!("is longer than {most} bytes")));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Answer { status, body })
    }

    /// The body of an answer that has to be a success.
    pub(crate) async fn document(
        &self,
        request: RequestBuilder,
        what: &'static str,
    ) -> Result<Vec<u8>, SignInError> {
        let answer = self.send(request, what).await?;
        match answer.status {
            200 => Ok(answer.body),
            status => Err(SignInError::bad(what, format!("came with status {status}"))),
        }
    }
}

/// The innermost reason: the outer ones only repeat the address, whose query may have a secret in it.
fn innermost(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "no answer in time".to_owned();
    }
    let mut innermost: &dyn std::error::Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}
