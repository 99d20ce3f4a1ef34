//! The servers that are measured.

use serde::{Deserialize, Serialize};

use crate::LoadError;

/// A server with the name it has in the results.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// Its name in tables and plots.
    pub name: String,
    /// Where its API is, without `/v1` and without a slash at the end.
    pub url: String,
}

/// Longest name, so that a table stays one.
const NAME_CHARS: usize = 40;

impl Target {
    /// Reads `name=http://host:port` or an address alone, which is then named by its host and port.
    ///
    /// # Errors
    /// [`LoadError::Option`] when it is no http(s) address or the name is empty or long.
    pub fn parse(text: &str) -> Result<Self, LoadError> {
        let bad = |why: &str| {
            LoadError::Option(format!("--target {text:?}: {why}, such as name=http://127.0.0.1:8080"))
        };
        let (name, address) = match text.split_once('=') {
            Some((name, address)) if !name.contains("://") => (Some(name.trim()), address),
            _ => (None, text),
        };
        let url = reqwest::Url::parse(address.trim()).map_err(|_| bad("write an address"))?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(bad("write an http or https address"));
        }
        if !url.username().is_empty() || url.password().is_some() || url.query().is_some() {
            return Err(bad("keys go into --api-key, not into the address"));
        }
        let host = url.host_str().unwrap_or_default();
        let name = name.map_or_else(
            || url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}")),
            str::to_owned,
        );
        if name.is_empty() || name.chars().count() > NAME_CHARS || name.chars().any(char::is_control) {
            return Err(bad("write a name of 1 to 40 characters"));
        }
        let url = url.as_str().trim_end_matches('/').trim_end_matches("/v1").trim_end_matches('/').to_owned();
        Ok(Self { name, url })
    }

    /// Whether it is on this machine: then a proxy must not come between.
    pub(crate) fn is_loopback(&self) -> bool {
        let host = reqwest::Url::parse(&self.url).ok().and_then(|url| url.host_str().map(str::to_owned));
        let host = host.unwrap_or_default();
        let host = host.trim_matches(['[', ']']);
        host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
    }
}

/// Checks that there is a target, that names differ, and finds the one the others are compared with:
/// the named one, or the first.
///
/// # Errors
/// [`LoadError::Option`] with what is allowed.
pub fn baseline(targets: &[Target], name: Option<&str>) -> Result<usize, LoadError> {
    if targets.is_empty() {
        return Err(LoadError::Option("no --target: write name=http://127.0.0.1:8080".to_owned()));
    }
    for (index, target) in targets.iter().enumerate() {
        if targets[..index].iter().any(|other| other.name == target.name) {
            let why = format!("two targets are named {:?}: give each its own name=", target.name);
            return Err(LoadError::Option(why));
        }
    }
    let Some(name) = name else { return Ok(0) };
    targets.iter().position(|target| target.name == name).ok_or_else(|| {
        let names: Vec<&str> = targets.iter().map(|target| target.name.as_str()).collect();
        LoadError::Option(format!("--baseline {name:?}: write one of {}", names.join(", ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_read() {
        let check = |text: &str, expected: Option<(&str, &str)>| {
            let read = Target::parse(text).ok();
            let read = read.as_ref().map(|target| (target.name.as_str(), target.url.as_str()));
            assert_eq!(read, expected, "{text}");
        };
        check("a=http://127.0.0.1:8080", Some(("a", "http://127.0.0.1:8080")));
        check("http://127.0.0.1:8080/v1/", Some(("127.0.0.1:8080", "http://127.0.0.1:8080")));
        check("x = https://api.example.org/llm/v1", Some(("x", "https://api.example.org/llm")));
        check("http://localhost", Some(("localhost", "http://localhost")));
        check("a=127.0.0.1:8080", None);
        check("a=ftp://127.0.0.1", None);
        check("=http://127.0.0.1", None);
        check("a=http://user:secret@127.0.0.1", None);
    }

    #[test]
    fn the_baseline_is_found() {
        let named = |name: &str| Target { name: name.to_owned(), url: "http://localhost".to_owned() };
        let targets = [named("a"), named("b")];
        assert_eq!(baseline(&targets, None).ok(), Some(0));
        assert_eq!(baseline(&targets, Some("b")).ok(), Some(1));
        assert!(baseline(&targets, Some("c")).unwrap_err().to_string().contains("one of a, b"));
        assert!(baseline(&[], None).is_err());
        assert!(baseline(&[named("a"), named("a")], None).is_err());
    }
}
