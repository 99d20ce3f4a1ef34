//! What a provider says about itself (OpenID Connect Discovery).

use reqwest::Url;
use serde::Deserialize;

use crate::{
    SignInError,
    config::{is_loopback, is_safe},
    encoding::{reason, shortened},
};

pub(crate) const WHAT: &str = "its document (openid-configuration)";

/// Where a provider does what.
#[derive(Debug, Clone)]
pub(crate) struct Metadata {
    pub(crate) authorization: Url,
    pub(crate) token: Url,
    pub(crate) keys: Url,
    pub(crate) userinfo: Option<Url>,
    pub(crate) end_session: Option<Url>,
    /// How this server shows its secret.
    pub(crate) auth: ClientAuth,
    /// Whether each answer names its issuer (RFC 9207).
    pub(crate) names_issuer: bool,
}

/// How a secret is shown to the token endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientAuth {
    /// In a header.
    Basic,
    /// In the form.
    Post,
}

#[derive(Deserialize)]
struct Document {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
    jwks_uri: String,
    userinfo_endpoint: Option<String>,
    end_session_endpoint: Option<String>,
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
    #[serde(default)]
    authorization_response_iss_parameter_supported: bool,
}

/// Where an issuer's document is.
pub(crate) fn address(issuer: &str) -> Result<Url, SignInError> {
    let address = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
    Url::parse(&address).map_err(|e| SignInError::bad(WHAT, format!("has no address: {e}")))
}

impl Metadata {
    /// Reads the document of an issuer, which has to be the one it says it is.
    pub(crate) fn parse(document: &[u8], issuer: &str) -> Result<Self, SignInError> {
        let document: Document = serde_json::from_slice(document)
            .map_err(|e| SignInError::bad(WHAT, format!("can't be read: {}", reason(&e))))?;
        if document.issuer != issuer {
            let (theirs, ours) = (shortened(&document.issuer, 100), issuer);
            let why =
                format!("is of the issuer {theirs:?}, and {ours:?} is configured; they have to be equal");
            return Err(SignInError::bad(WHAT, why));
        }
        // A provider on this machine may use plain http there; one elsewhere must not.
        let is_local = Url::parse(issuer).is_ok_and(|url| is_loopback(&url));
        let endpoint = |name: &str, text: &str| {
            let url =
                Url::parse(text).ok().filter(|url| is_safe(url) && (is_local || url.scheme() == "https"));
            url.ok_or_else(|| SignInError::bad(WHAT, format!("has a {name} that is not an https address")))
        };
        let optional =
            |name: &str, text: &Option<String>| text.as_deref().map(|text| endpoint(name, text)).transpose();
        Ok(Self {
            authorization: endpoint("authorization_endpoint", &document.authorization_endpoint)?,
            token: endpoint("token_endpoint", &document.token_endpoint)?,
            keys: endpoint("jwks_uri", &document.jwks_uri)?,
            userinfo: optional("userinfo_endpoint", &document.userinfo_endpoint)?,
            end_session: optional("end_session_endpoint", &document.end_session_endpoint)?,
            auth: auth(document.token_endpoint_auth_methods_supported.as_deref()),
            names_issuer: document.authorization_response_iss_parameter_supported,
        })
    }
}

/// The header is what every provider knows, by the standard, unless it says otherwise.
fn auth(methods: Option<&[String]>) -> ClientAuth {
    let has = |name: &str| methods.is_some_and(|methods| methods.iter().any(|method| method == name));
    if has("client_secret_post") && !has("client_secret_basic") {
        ClientAuth::Post
    } else {
        ClientAuth::Basic
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn parse(issuer: &str, change: Value) -> Result<Metadata, String> {
        let mut document = json!({
            "issuer": "https://a.example", "authorization_endpoint": "https://a.example/auth?x=1",
            "token_endpoint": "https://a.example/token", "jwks_uri": "https://keys.a.example/",
        });
        for (name, value) in change.as_object().unwrap() {
            document[name] = value.clone();
        }
        Metadata::parse(document.to_string().as_bytes(), issuer).map_err(|e| e.to_string())
    }

    #[test]
    fn documents_are_checked() {
        let check = |change: Value, expected: &str| {
            let error = parse("https://a.example", change).unwrap_err();
            assert!(error.contains(expected), "{error}");
        };
        assert!(parse("https://a.example", json!({})).is_ok());
        check(json!({"issuer": "https://a.example/"}), "they have to be equal");
        check(json!({"jwks_uri": null}), "can't be read");
        check(json!({"jwks_uri": "http://a.example/"}), "has a jwks_uri that is not an https address");
        check(json!({"token_endpoint": "http://127.0.0.1/"}), "has a token_endpoint");
        check(json!({"authorization_endpoint": "javascript:alert(1)"}), "has a authorization_endpoint");
        check(json!({"userinfo_endpoint": "file:///etc/passwd"}), "has a userinfo_endpoint");
        let local = json!({"issuer": "http://localhost:1", "token_endpoint": "http://127.0.0.1:1/"});
        assert!(parse("http://localhost:1", local).is_ok());
    }

    #[test]
    fn the_secret_is_shown_as_the_provider_wants() {
        let check = |methods: Value, expected| {
            let metadata =
                parse("https://a.example", json!({"token_endpoint_auth_methods_supported": methods}));
            assert_eq!(metadata.unwrap().auth, expected);
        };
        check(json!(null), ClientAuth::Basic);
        check(json!(["client_secret_post"]), ClientAuth::Post);
        check(json!(["client_secret_post", "client_secret_basic"]), ClientAuth::Basic);
        check(json!(["private_key_jwt"]), ClientAuth::Basic);
    }

    #[test]
    fn the_document_is_below_the_issuer() {
        let check = |issuer: &str, expected: &str| assert_eq!(address(issuer).unwrap().as_str(), expected);
        check("https://a.example", "https://a.example/.well-known/openid-configuration");
        check("https://a.example/r/", "https://a.example/r/.well-known/openid-configuration");
    }
}
