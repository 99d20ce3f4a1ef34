use std::net::IpAddr;

use reqwest::Url;

use crate::Secret;

/// A provider, and who may come from it.
#[derive(Debug, Clone)]
pub struct ProviderConfig {
    /// Its name in addresses: 1 to 64 of `a`–`z`, `0`–`9`, `-`, `_`.
    pub name: String,
    /// Its name for people, on the sign-in page.
    pub title: String,
    /// Its issuer identifier, exactly as it writes it itself.
    pub issuer: String,
    /// What this server is registered as.
    pub client_id: String,
    /// Absent for a public client, which PKCE alone protects.
    pub client_secret: Option<Secret>,
    /// What to ask for; `openid` is asked for in any case.
    pub scopes: Vec<String>,
    /// This server's address of the callback, as registered at the provider.
    pub redirect_url: String,
    /// The claim that lists a user's groups: its name, or a JSON pointer such as `/realm_access/roles`.
    pub groups_claim: String,
    /// Group and tier; of several that fit the first counts. Without any, tiers are this server's own business.
    pub tiers: Vec<(String, String)>,
    /// The tier of who is in none of these groups.
    pub default_tier: String,
    /// Domains of verified email addresses that may come; empty: all.
    pub allowed_domains: Vec<String>,
    /// The group that may come; `None`: all.
    pub required_group: Option<String>,
    /// The verified email address of who may become the owner of a server without accounts; `None`: nobody.
    pub first_owner_email: Option<String>,
}

/// What is wrong with a [`ProviderConfig`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key} {why}")]
pub struct ConfigError {
    /// The key at fault.
    pub key: &'static str,
    /// What is wrong and what to write.
    pub why: String,
}

impl ConfigError {
    pub(crate) fn new(key: &'static str, why: impl Into<String>) -> Self {
        Self { key, why: why.into() }
    }
}

impl ProviderConfig {
    /// Checks all that can be known without asking the provider.
    ///
    /// # Errors
    /// The first key that can't be used.
    pub fn check(&self) -> Result<(), ConfigError> {
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_');
        if !(1..=64).contains(&self.name.len()) || !self.name.chars().all(is_plain) {
            return Err(ConfigError::new("name", "is not a name; write 1 to 64 of a-z, 0-9, - and _"));
        }
        check_issuer(&self.issuer)?;
        if self.client_id.trim().is_empty() {
            return Err(ConfigError::new("client_id", "is empty; write the one that the provider gave"));
        }
        check_redirect(&self.redirect_url, &self.name)?;
        let is_scope = |scope: &String| {
            !scope.is_empty() && scope.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b'"' | b'\\'))
        };
        if !self.scopes.iter().all(is_scope) {
            return Err(ConfigError::new(
                "scopes",
                "has a scope that is none; write words with spaces between",
            ));
        }
        if self.groups_claim.is_empty() {
            return Err(ConfigError::new("groups_claim", "is empty; write a claim's name, such as groups"));
        }
        let is_domain = |domain: &String| domain.contains('.') && !domain.contains(['@', '*', ' ', '/']);
        if !self.allowed_domains.iter().all(is_domain) {
            return Err(ConfigError::new(
                "allowed_domains",
                "has a domain that is none; write such as example.org, without @ and *",
            ));
        }
        match &self.first_owner_email {
            Some(email) if !email.contains('@') => {
                Err(ConfigError::new("first_owner_email", "is not an email address"))
            }
            _ => Ok(()),
        }
    }
}

fn check_issuer(issuer: &str) -> Result<(), ConfigError> {
    let refuse = |why: &str| Err(ConfigError::new("issuer", why));
    let Ok(url) = Url::parse(issuer) else {
        return refuse("is not an address; write the provider's issuer, such as https://login.example.org");
    };
    if url.query().is_some() || url.fragment().is_some() || !url.username().is_empty() {
        return refuse("has a query, a fragment or a user in it; an issuer has none of them");
    }
    if issuer.ends_with("/.well-known/openid-configuration") {
        return refuse("is the address of the provider's document; leave /.well-known/… away");
    }
    if is_safe(&url) {
        Ok(())
    } else {
        refuse("is not https; plain http is for providers on this machine only")
    }
}

fn check_redirect(redirect: &str, name: &str) -> Result<(), ConfigError> {
    let refuse = |why: String| Err(ConfigError::new("redirect_url", why));
    let path = format!("/api/oidc/{name}/callback");
    match Url::parse(redirect) {
        Ok(url) if !is_safe(&url) => {
            refuse("is not https; plain http is for browsers on this machine only".to_owned())
        }
        Ok(url) if url.path().ends_with(&path) && url.query().is_none() && url.fragment().is_none() => Ok(()),
        _ => refuse(format!("does not lead to the callback; write https://HOST{path}")),
    }
}

/// Whether what is sent there can't be read on the way.
pub(crate) fn is_safe(url: &Url) -> bool {
    match url.scheme() {
        "https" => url.has_host(),
        "http" => is_loopback(url),
        _ => false,
    }
}

/// Whether an address is on this machine.
pub(crate) fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> ProviderConfig {
        ProviderConfig {
            name: "corp".into(),
            title: "Corp".into(),
            issuer: "https://login.example.org/realm".into(),
            client_id: "motet".into(),
            client_secret: None,
            scopes: vec!["openid".into(), "email".into()],
            redirect_url: "https://chat.example.org/api/oidc/corp/callback".into(),
            groups_claim: "groups".into(),
            tiers: vec![],
            default_tier: "default".into(),
            allowed_domains: vec!["example.org".into()],
            required_group: None,
            first_owner_email: None,
        }
    }

    #[test]
    fn mistakes_name_the_key() {
        let check = |change: fn(&mut ProviderConfig), key: Option<&str>| {
            let mut config = config();
            change(&mut config);
            let found = config.check().err().map(|error| error.key);
            assert_eq!(found, key, "{config:?}");
        };
        check(|_| {}, None);
        check(|c| c.name = "A b".into(), Some("name"));
        check(|c| c.issuer = "http://login.example.org".into(), Some("issuer"));
        check(|c| c.issuer = "login.example.org".into(), Some("issuer"));
        check(|c| c.issuer = "https://login.example.org?x=1".into(), Some("issuer"));
        check(|c| c.issuer.push_str("/.well-known/openid-configuration"), Some("issuer"));
        check(|c| c.issuer = "http://127.0.0.1:9/".into(), None);
        check(|c| c.issuer = "http://[::1]:9/".into(), None);
        check(|c| c.issuer = "http://127.0.0.1.example.org/".into(), Some("issuer"));
        check(|c| c.client_id = " ".into(), Some("client_id"));
        check(|c| c.redirect_url = "https://chat.example.org/".into(), Some("redirect_url"));
        check(
            |c| c.redirect_url = "http://chat.example.org/api/oidc/corp/callback".into(),
            Some("redirect_url"),
        );
        check(|c| c.redirect_url = "http://localhost:8080/api/oidc/corp/callback".into(), None);
        check(|c| c.redirect_url = "https://a.example/motet/api/oidc/corp/callback".into(), None);
        check(|c| c.scopes.push("a b".into()), Some("scopes"));
        check(|c| c.groups_claim.clear(), Some("groups_claim"));
        check(|c| c.allowed_domains.push("*.example.org".into()), Some("allowed_domains"));
        check(|c| c.first_owner_email = Some("ann".into()), Some("first_owner_email"));
    }
}
