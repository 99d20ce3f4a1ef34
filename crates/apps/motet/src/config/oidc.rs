//! `[[oidc]]`: providers that people can sign in with.

use std::{collections::BTreeSet, fs, path::PathBuf};

use motet_oidc::{ProviderConfig, Secret};

use super::{
    ConfigError,
    raw::Source,
    tables::{List, RawTable},
    tiers::Tier,
};

/// The keys of a provider.
pub(super) static OIDC: List = List {
    name: "oidc",
    one: "provider",
    keys: &[
        "name",
        "title",
        "issuer",
        "client_id",
        SECRET_ENV,
        SECRET_FILE,
        "scopes",
        "redirect_url",
        "groups_claim",
        "tiers",
        "default_tier",
        "allowed_domains",
        "required_group",
        "first_owner_email",
    ],
    lists: &["allowed_domains", "tiers"],
};

const SECRET_ENV: &str = "client_secret_env";
const SECRET_FILE: &str = "client_secret_file";

/// What a provider is asked for when nobody says anything.
const SCOPES: &str = "openid email profile";
/// Largest file with a secret: a bound on what a wrong path can cost.
const SECRET_BYTES: u64 = 4096;

/// A checked provider and where it was written. Its secret is not in it, so that nothing that shows a configuration can
/// show the secret.
#[derive(Debug, Clone)]
pub(crate) struct SignInProvider {
    config: ProviderConfig,
    secret: SecretPlace,
    pub(crate) source: Source,
}

/// Where a secret is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum SecretPlace {
    /// The client is public.
    None,
    /// In a variable of this name.
    Variable(String),
    /// In this file, but for white space around it.
    File(PathBuf),
}

/// The providers that were written.
pub(super) fn resolve(raw: &[RawTable], tiers: &[Tier]) -> Result<Vec<SignInProvider>, ConfigError> {
    let providers = raw.iter().map(|raw| provider(raw, tiers)).collect::<Result<Vec<_>, _>>()?;
    let mut names = BTreeSet::new();
    match providers.iter().find(|provider| !names.insert(&provider.config.name)) {
        Some(SignInProvider { config, source, .. }) => Err(ConfigError(format!(
            "{source}: there are two providers of the name {:?}; give each its own oidc.name",
            config.name
        ))),
        None => Ok(providers),
    }
}

/// The variable that a provider's secret is in: it may begin with the prefix of this program's own.
pub(super) fn secret_variable(raw: &RawTable) -> Option<String> {
    raw.read(SECRET_ENV, |text| Ok(text.to_owned())).ok().flatten()
}

fn provider(raw: &RawTable, tiers: &[Tier]) -> Result<SignInProvider, ConfigError> {
    let name = raw.name()?;
    let text = |key| raw.read(key, |text| Ok(text.trim().to_owned()));
    let required = |key: &str| {
        let missing =
            || ConfigError(format!("{}: the provider {name:?} has no {key}; add oidc.{key}", raw.source));
        raw.read(key, |text| Ok(text.trim().to_owned()))?.ok_or_else(missing)
    };
    let tier = |text: &str| known_tier(tiers, text);
    let mapped = raw.read("tiers", |text| groups_to_tiers(text, tiers))?;
    let first = || tiers.first().map(|tier| tier.name.clone()).unwrap_or_default();
    let config = ProviderConfig {
        title: text("title")?.unwrap_or_else(|| name.clone()),
        issuer: required("issuer")?,
        client_id: required("client_id")?,
        client_secret: None,
        scopes: words(text("scopes")?.as_deref().unwrap_or(SCOPES), char::is_whitespace),
        redirect_url: required("redirect_url")?,
        groups_claim: text("groups_claim")?.unwrap_or_else(|| "groups".to_owned()),
        tiers: mapped.unwrap_or_default(),
        default_tier: raw.read("default_tier", tier)?.unwrap_or_else(first),
        allowed_domains: words(&text("allowed_domains")?.unwrap_or_default(), |c| c == ','),
        required_group: text("required_group")?,
        first_owner_email: text("first_owner_email")?,
        name,
    };
    if let Err(error) = config.check() {
        // With the text that was written and its line, where it was.
        raw.read::<()>(error.key, |_| Err(error.why.clone()))?;
        return Err(ConfigError(format!("{}: oidc.{error}", raw.source)));
    }
    Ok(SignInProvider { config, secret: secret(raw)?, source: raw.source.clone() })
}

fn secret(raw: &RawTable) -> Result<SecretPlace, ConfigError> {
    let file = |text: &str| match PathBuf::from(text) {
        path if path.is_absolute() => Ok(path),
        _ => Err("not a file; write an absolute path, such as /run/secrets/oidc".to_owned()),
    };
    let variable = |text: &str| {
        let is_name = !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        is_name.then(|| text.to_owned()).ok_or_else(|| "not the name of a variable".to_owned())
    };
    match (raw.read(SECRET_ENV, variable)?, raw.read(SECRET_FILE, file)?) {
        (None, None) => Ok(SecretPlace::None),
        (Some(name), None) => Ok(SecretPlace::Variable(name)),
        (None, Some(path)) => Ok(SecretPlace::File(path)),
        (Some(_), Some(_)) => Err(ConfigError(format!(
            "{}: the secret can't be in both oidc.{SECRET_ENV} and oidc.{SECRET_FILE}; leave one of them out",
            raw.source
        ))),
    }
}

fn known_tier(tiers: &[Tier], text: &str) -> Result<String, String> {
    let found = tiers.iter().find(|tier| tier.name == text);
    let names = || tiers.iter().map(|tier| tier.name.as_str()).collect::<Vec<_>>().join(", ");
    found.map(|tier| tier.name.clone()).ok_or_else(|| format!("no such tier {text:?}; there are {}", names()))
}

/// `group=tier; group=tier`. A group may have `=` and `,` in it, as those of directories do; a tier may not.
fn groups_to_tiers(text: &str, tiers: &[Tier]) -> Result<Vec<(String, String)>, String> {
    let pair = |pair: &str| match pair.rsplit_once('=') {
        Some((group, tier)) if !group.trim().is_empty() => {
            Ok((group.trim().to_owned(), known_tier(tiers, tier.trim())?))
        }
        _ => Err("not a list of groups and tiers; write such as admins=pro; staff=free".to_owned()),
    };
    text.split(';').map(pair).collect()
}

fn words(text: &str, is_between: impl Fn(char) -> bool) -> Vec<String> {
    text.split(is_between).map(|word| word.trim().to_owned()).filter(|word| !word.is_empty()).collect()
}

impl SignInProvider {
    pub(crate) fn name(&self) -> &str {
        &self.config.name
    }

    /// What the provider is spoken to with, the secret read.
    pub(crate) fn provider_config(&self) -> Result<ProviderConfig, ConfigError> {
        let problem =
            |why: String| ConfigError(format!("oidc {:?} (from {}): {why}", self.name(), self.source));
        let text = match &self.secret {
            SecretPlace::None => return Ok(self.config.clone()),
            SecretPlace::Variable(name) => std::env::var(name)
                .map_err(|_| problem(format!("the variable {name} for its secret is not set")))?,
            SecretPlace::File(path) => {
                let failed =
                    |e: std::io::Error| problem(format!("its secret {} can't be read: {e}", path.display()));
                match fs::metadata(path).map_err(failed)?.len() {
                    0..=SECRET_BYTES => fs::read_to_string(path).map_err(failed)?,
                    size => {
                        return Err(problem(format!("{size} bytes in {} are no secret", path.display())));
                    }
                }
            }
        };
        if text.trim().is_empty() {
            return Err(problem("its secret is empty; write it there, or leave the key out".to_owned()));
        }
        Ok(ProviderConfig { client_secret: Some(Secret::new(text.trim())), ..self.config.clone() })
    }

    /// What it is, in words; where the secret is, and never the secret.
    pub(crate) fn shown(&self) -> String {
        let ProviderConfig { issuer, client_id, tiers, default_tier, .. } = &self.config;
        let secret = match &self.secret {
            SecretPlace::None => "no secret".to_owned(),
            SecretPlace::Variable(name) => format!("secret in ${name}"),
            SecretPlace::File(path) => format!("secret in {}", path.display()),
        };
        let mut text = format!("{issuer}, client {client_id}, {secret}");
        for (group, tier) in tiers {
            text.push_str(&format!(", {group} has {tier}"));
        }
        let others = if tiers.is_empty() { "new users have" } else { "others have" };
        text.push_str(&format!(", {others} {default_tier}"));
        if !self.config.allowed_domains.is_empty() {
            text.push_str(&format!(", only @{}", self.config.allowed_domains.join(" @")));
        }
        if let Some(group) = &self.config.required_group {
            text.push_str(&format!(", only the group {group}"));
        }
        if let Some(email) = &self.config.first_owner_email {
            text.push_str(&format!(", {email} may be the first owner"));
        }
        text
    }
}
