//! Which names a request may call this server by.
//!
//! A web page of another site can point a domain of its own at 127.0.0.1 ("DNS rebinding"). Its requests
//! then come from a browser on this machine and count as same-origin there; only the name they ask for
//! tells them apart.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::header;
use http::uri::Authority;

use crate::body;
use crate::error::ApiError;
use crate::gateway::Gateway;

/// The hosts that requests may ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hosts {
    /// `localhost`, the loopback addresses and these names, without a port and in any case. Right as
    /// long as whoever reaches the server may use it.
    Local(Vec<String>),
    /// Any. Right where requests carry a credential that a foreign page does not have.
    Any,
}

impl Default for Hosts {
    fn default() -> Self {
        Self::Local(Vec::new())
    }
}

impl Hosts {
    /// Whether a request may ask for this host, which is without a port.
    #[must_use]
    pub fn allow(&self, host: &str) -> bool {
        let Self::Local(names) = self else { return true };
        let host = host.strip_suffix('.').unwrap_or(host);
        let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
        host.eq_ignore_ascii_case("localhost")
            || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
            || names.iter().any(|name| name.eq_ignore_ascii_case(bare))
    }
}

/// Refuses requests for a host that is not this server's. One that names none is let through: browsers
/// always name one.
pub(crate) async fn check(State(gateway): State<Arc<Gateway>>, request: Request, next: Next) -> Response {
    match foreign_host(&gateway.config.hosts, &request) {
        None => next.run(request).await,
        Some(host) => body::refuse(&gateway.config, request, ApiError::ForeignHost(host)).await,
    }
}

/// The host asked for, if it is not allowed, shortened for a message.
fn foreign_host(hosts: &Hosts, request: &Request) -> Option<String> {
    let asked = request.headers().get_all(header::HOST).iter().map(|value| value.as_bytes());
    // HTTP/2 has the host here, and so has a request that was meant for a proxy.
    let authority = request.uri().authority().map(|authority| authority.as_str().as_bytes());
    let mut foreign = asked.chain(authority).filter_map(|value| match Authority::try_from(value) {
        Ok(authority) if hosts.allow(authority.host()) => None,
        Ok(authority) => Some(authority.host().chars().take(100).collect()),
        // What can't be read as a host is not this one.
        Err(_) => {
            Some(String::from_utf8_lossy(value).chars().filter(|c| !c.is_control()).take(100).collect())
        }
    });
    if *hosts == Hosts::Any { None } else { foreign.next() }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    #[test]
    fn names() {
        let check = |host: &str, is_local: bool| {
            let request = Request::get("/").header(header::HOST, host).body(Body::empty()).unwrap();
            let local = Hosts::Local(vec!["Chat.Example".into(), "::2".into()]);
            assert_eq!(foreign_host(&local, &request).is_none(), is_local, "{host:?}");
            assert_eq!(foreign_host(&Hosts::Any, &request), None, "{host:?}");
        };
        for host in
            ["localhost", "LOCALHOST:8080", "localhost.", "127.0.0.1", "127.8.9.1:80", "[::1]", "[::1]:8080"]
        {
            check(host, true);
        }
        for host in ["chat.example", "CHAT.example:443", "[::2]:80"] {
            check(host, true);
        }
        for host in
            ["", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "128.0.0.1", "[::3]"]
        {
            check(host, false);
        }
        for host in ["0.0.0.0", "evil.example:8080", "localhost@evil.example", "a b", "notlocalhost"] {
            check(host, false);
        }
    }

    #[test]
    fn every_mention_counts() {
        let check = |uri: &str, host: Option<&str>, foreign: Option<&str>| {
            let mut request = Request::get(uri).body(Body::empty()).unwrap();
            request.headers_mut().extend(host.map(|host| (header::HOST, host.parse().unwrap())));
            assert_eq!(foreign_host(&Hosts::default(), &request).as_deref(), foreign, "{uri} {host:?}");
        };
        check("/", None, None);
        check("http://localhost/", None, None);
        check("http://evil.example/", None, Some("evil.example"));
        check("http://localhost/", Some("evil.example"), Some("evil.example"));
        check("http://evil.example/", Some("localhost"), Some("evil.example"));
    }
}
