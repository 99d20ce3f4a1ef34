//! One provider: where a user is sent, and what comes of the answer.

use std::sync::Arc;

use reqwest::Url;
use tokio::sync::Mutex;

use crate::{
    ConfigError, ENTROPY_BYTES, Flow, HttpLimits, Identity, ProviderConfig, SignInError, TokenError,
    cached::{Cached, Plan, Want},
    claims::{Claims, Expected},
    discovery::{self, ClientAuth, Metadata},
    encoding::{base64, form, form_value},
    fetch::Http,
    identity,
    jws::Jws,
    keys::KeySet,
    return_to,
    token::Tokens,
};

const KEYS: &str = "its keys (jwks_uri)";
const USER: &str = "its user information";

/// Longest code and state that are looked at; longer ones are nobody's.
const MAX_PARAMETER: usize = 4096;

/// A provider that users can sign in with.
#[derive(Debug)]
pub struct Provider {
    config: ProviderConfig,
    http: Http,
    metadata: Mutex<Cached<Metadata>>,
    keys: Mutex<Cached<KeySet>>,
}

/// What the provider sent the browser back with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Callback {
    /// The flow's state.
    pub state: Option<String>,
    /// What stands for the user's consent.
    pub code: Option<String>,
    /// Why there is no code.
    pub error: Option<String>,
    /// The provider's own words about it.
    pub error_description: Option<String>,
    /// Who answers (RFC 9207).
    pub issuer: Option<String>,
}

impl Callback {
    /// Reads the parameters of the callback's address. Others than these are ignored.
    ///
    /// # Errors
    /// One comes twice, or is too long.
    pub fn read(parameters: Vec<(String, String)>) -> Result<Self, SignInError> {
        let mut callback = Self::default();
        for (name, value) in parameters {
            let place = match name.as_str() {
                "state" => &mut callback.state,
                "code" => &mut callback.code,
                "error" => &mut callback.error,
                "error_description" => &mut callback.error_description,
                "iss" => &mut callback.issuer,
                _ => continue,
            };
            if value.len() > MAX_PARAMETER {
                return Err(SignInError::Request("the sign-in provider's answer is too long; start again"));
            }
            if place.replace(value).is_some() {
                return Err(SignInError::Request(
                    "the sign-in provider's answer says something twice; start again",
                ));
            }
        }
        Ok(callback)
    }
}

impl Provider {
    /// A provider; it is not asked anything yet.
    ///
    /// # Errors
    /// A key of the configuration that can't be used.
    pub fn new(config: ProviderConfig, limits: HttpLimits) -> Result<Self, ConfigError> {
        config.check()?;
        let http = Http::new(&config.issuer, limits)?;
        Ok(Self { config, http, metadata: Mutex::default(), keys: Mutex::default() })
    }

    /// What it was made with.
    #[must_use]
    pub fn config(&self) -> &ProviderConfig {
        &self.config
    }

    /// Where to send the user, and the flow to keep meanwhile. `return_to` is the path to come back to; `/` without.
    ///
    /// # Errors
    /// `return_to` is not a path of this server, or the provider's document can't be had.
    pub async fn begin(
        &self,
        return_to: Option<&str>,
        now: i64,
        entropy: &[u8; ENTROPY_BYTES],
    ) -> Result<(Url, Flow), SignInError> {
        let return_to = return_to.unwrap_or("/");
        if !return_to::is_local(return_to) {
            return Err(SignInError::Request(
                "return_to is not a path of this server; write one such as /chat",
            ));
        }
        let metadata = self.metadata(now).await?;
        let flow = Flow::new(&self.config.name, return_to, now, entropy);
        let mut url = metadata.authorization.clone();
        url.query_pairs_mut().extend_pairs([
            ("response_type", "code"),
            ("client_id", &self.config.client_id),
            ("redirect_uri", &self.config.redirect_url),
            ("scope", &self.scope()),
            ("state", &flow.state),
            ("nonce", &flow.nonce),
            ("code_challenge", &flow.challenge()),
            ("code_challenge_method", "S256"),
        ]);
        Ok((url, flow))
    }

    /// Who came back. The flow is the one that [`Flows::take`](crate::Flows::take) gave for this browser and state.
    ///
    /// # Errors
    /// The provider refused or answered wrongly, its token does not hold, or the user may not come in.
    pub async fn finish(&self, flow: &Flow, callback: &Callback, now: i64) -> Result<Identity, SignInError> {
        if callback.state.as_deref() != Some(&flow.state) || flow.provider != self.config.name {
            return Err(SignInError::NotUnderWay);
        }
        let metadata = self.metadata(now).await?;
        self.check_answering(&metadata, callback.issuer.as_deref())?;
        if let Some(code) = &callback.error {
            return Err(SignInError::provider(code, callback.error_description.as_deref()));
        }
        let code = callback.code.as_deref().filter(|code| !code.is_empty());
        let code =
            code.ok_or(SignInError::Request("the sign-in provider's answer has no code; start again"))?;
        let tokens = self.exchange(&metadata, flow, code).await?;
        let claims = self.verify(&metadata, &tokens.id_token, &flow.nonce, now).await?;
        let info = match (&metadata.userinfo, &tokens.access_token) {
            (Some(url), Some(token)) if !identity::is_enough(&self.config, &claims) => {
                let request = self.http.get(url).bearer_auth(token.expose());
                let body = self.http.document(request, USER).await?;
                Some(Claims::parse(&body).ok_or_else(|| SignInError::bad(USER, "is not a JSON object"))?)
            }
            _ => None,
        };
        identity::identity(&self.config, &claims, info.as_ref())
    }

    /// Where a user can end the session at the provider too; `None` where it has no place for that. The user comes
    /// back to this server's start page if that is registered at the provider.
    ///
    /// # Errors
    /// The provider's document can't be had.
    pub async fn logout_url(&self, now: i64) -> Result<Option<Url>, SignInError> {
        let metadata = self.metadata(now).await?;
        let Some(mut url) = metadata.end_session.clone() else { return Ok(None) };
        let path = format!("api/oidc/{}/callback", self.config.name);
        let start = self.config.redirect_url.strip_suffix(&path).unwrap_or_default();
        url.query_pairs_mut().extend_pairs([
            ("client_id", self.config.client_id.as_str()),
            ("post_logout_redirect_uri", start),
        ]);
        Ok(Some(url))
    }

    fn scope(&self) -> String {
        let others = self.config.scopes.iter().map(String::as_str).filter(|scope| *scope != "openid");
        ["openid"].into_iter().chain(others).collect::<Vec<_>>().join(" ")
    }

    /// With several providers, one must not pass an answer off as another's.
    fn check_answering(&self, metadata: &Metadata, issuer: Option<&str>) -> Result<(), SignInError> {
        let is_right = issuer.map_or(!metadata.names_issuer, |issuer| issuer == self.config.issuer);
        let other = "the answer is of another sign-in provider than the one that was asked; start again";
        if is_right { Ok(()) } else { Err(SignInError::Request(other)) }
    }

    /// The tokens for a code.
    async fn exchange(&self, metadata: &Metadata, flow: &Flow, code: &str) -> Result<Tokens, SignInError> {
        let ProviderConfig { client_id, client_secret, redirect_url, .. } = &self.config;
        let mut fields = vec![
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", redirect_url),
            ("code_verifier", flow.verifier.expose()),
        ];
        let request = match (client_secret, metadata.auth) {
            (Some(secret), ClientAuth::Basic) => {
                let pair = format!("{}:{}", form_value(client_id), form_value(secret.expose()));
                let request = self.http.post(&metadata.token, form(&fields));
                request.header(http::header::AUTHORIZATION, format!("Basic {}", base64(pair.as_bytes())))
            }
            (secret, _) => {
                fields.push(("client_id", client_id));
                fields.extend(secret.as_ref().map(|secret| ("client_secret", secret.expose())));
                self.http.post(&metadata.token, form(&fields))
            }
        };
        let answer = self.http.send(request, "tokens for the code").await?;
        Tokens::read(answer.status, &answer.body)
    }

    /// The claims of an ID token that holds.
    async fn verify(
        &self,
        metadata: &Metadata,
        token: &str,
        nonce: &str,
        now: i64,
    ) -> Result<Claims, SignInError> {
        let jws = Jws::parse(token)?;
        let mut keys = self.keys(metadata, Want::Any, now).await?;
        let find = |keys: &KeySet| keys.find(jws.algorithm, jws.key_id.as_deref()).map(drop);
        if matches!(find(&keys), Err(TokenError::UnknownKey(_))) {
            // The provider may have begun to use a new key.
            keys = self.keys(metadata, Want::Newer, now).await?;
        }
        let payload = jws.verify(keys.find(jws.algorithm, jws.key_id.as_deref())?)?;
        let claims =
            Claims::parse(&payload).ok_or(TokenError::Malformed("its payload is not a JSON object"))?;
        let expected = Expected { issuer: &self.config.issuer, client_id: &self.config.client_id, nonce };
        claims.check(&expected, now)?;
        Ok(claims)
    }

    async fn metadata(&self, now: i64) -> Result<Arc<Metadata>, SignInError> {
        let mut cached = self.metadata.lock().await;
        match cached.plan(Want::Any, now) {
            Plan::Use(metadata) => Ok(metadata),
            Plan::Fail(error) => Err(error),
            Plan::Fetch => {
                let issuer = &self.config.issuer;
                let request = self.http.get(&discovery::address(issuer)?);
                let document = self.http.document(request, discovery::WHAT).await;
                cached.fetched(document.and_then(|document| Metadata::parse(&document, issuer)), now)
            }
        }
    }

    async fn keys(&self, metadata: &Metadata, want: Want, now: i64) -> Result<Arc<KeySet>, SignInError> {
        let mut cached = self.keys.lock().await;
        match cached.plan(want, now) {
            Plan::Use(keys) => Ok(keys),
            Plan::Fail(error) => Err(error),
            Plan::Fetch => {
                let document = self.http.document(self.http.get(&metadata.keys), KEYS).await;
                let keys = document
                    .and_then(|document| KeySet::parse(&document).map_err(|why| SignInError::bad(KEYS, why)));
                cached.fetched(keys, now)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_come_once() {
        let read = |pairs: &[(&str, &str)]| {
            Callback::read(pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect())
        };
        let callback = read(&[("state", "s"), ("code", "c"), ("session_state", "x"), ("session_state", "x")]);
        assert_eq!(
            callback,
            Ok(Callback { state: Some("s".into()), code: Some("c".into()), ..Callback::default() })
        );
        let long = "x".repeat(MAX_PARAMETER + 1);
        for pairs in [[("code", "c"), ("code", "d")], [("state", "s"), ("code", &long)]] {
            assert!(matches!(read(&pairs), Err(SignInError::Request(_))), "{pairs:?}");
        }
    }
}
