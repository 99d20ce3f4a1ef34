//! From what a provider says about a user to who may come in and with which tier.

use crate::{ProviderConfig, SignInError, claims::Claims};

/// Longest email address, by the standards.
const MAX_EMAIL: usize = 254;
/// Longest name that is kept of a user.
const MAX_NAME_CHARS: usize = 200;

/// A user whom a provider vouches for and who may come in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The provider. With `subject`, the only thing that stays the same: names and addresses change hands.
    pub issuer: String,
    /// The user at the provider.
    pub subject: String,
    /// The email address, if the provider gives one.
    pub email: Option<String>,
    /// Whether the provider knows that the address is the user's. Without it, the address is only a claim.
    pub is_email_verified: bool,
    /// The name for people.
    pub name: Option<String>,
    /// What a new account may be called: the user's own name for signing in, or the email address, or neither.
    pub login: String,
    /// The user's groups.
    pub groups: Vec<String>,
    /// The tier for the user.
    pub tier: String,
    /// Whether groups decide the tier, so that an account takes it at each sign-in; else it is for new accounts.
    pub has_mapped_tier: bool,
    /// Whether the user may become the owner of a server that has no accounts yet.
    pub may_be_first_owner: bool,
}

/// What has to be known of a user before the rules can be applied.
pub(crate) fn is_enough(config: &ProviderConfig, claims: &Claims) -> bool {
    let tells_email = || claims.text("email").is_some() && claims.has("email_verified");
    let needs_email = !config.allowed_domains.is_empty() || config.first_owner_email.is_some();
    (!needs_groups(config) || claims.list(&config.groups_claim).is_some())
        && (!needs_email || tells_email())
        && (claims.text("preferred_username").is_some() || claims.text("email").is_some())
}

fn needs_groups(config: &ProviderConfig) -> bool {
    !config.tiers.is_empty() || config.required_group.is_some()
}

/// Applies the rules to an ID token and, where it was asked for, the user information.
pub(crate) fn identity(
    config: &ProviderConfig,
    token: &Claims,
    info: Option<&Claims>,
) -> Result<Identity, SignInError> {
    let subject = token.subject()?.to_owned();
    if info.is_some_and(|info| info.subject() != Ok(subject.as_str())) {
        return Err(SignInError::bad("its user information", "is about another user than the ID token"));
    }
    // The token is signed: what it says counts first.
    let sources = || [Some(token), info].into_iter().flatten();
    let text = |name: &str| sources().find_map(|claims| claims.text(name));
    let with_email = sources().find(|claims| claims.text("email").is_some_and(is_email));
    let email = with_email.and_then(|claims| claims.text("email"));
    // An address is verified by who gives it.
    let is_email_verified = sources()
        .any(|claims| claims.text("email") == email && email.is_some() && claims.is_true("email_verified"));
    let verified = email.filter(|_| is_email_verified);
    check_domain(config, email, verified)?;
    let groups = groups(config, token, info)?;
    if let Some(required) = &config.required_group
        && !groups.contains(required)
    {
        return Err(SignInError::NotAllowed(format!(
            "this account is not in the group {required:?}, which may use this server; ask the administrator of {}",
            config.title
        )));
    }
    let name =
        text("name").map(|name| name.chars().filter(|c| !c.is_control()).take(MAX_NAME_CHARS).collect());
    let mapped = config.tiers.iter().find(|(group, _)| groups.contains(group)).map(|(_, tier)| tier);
    Ok(Identity {
        issuer: config.issuer.clone(),
        subject,
        email: email.map(str::to_owned),
        is_email_verified,
        name,
        login: text("preferred_username").or(email).unwrap_or_default().to_owned(),
        tier: mapped.unwrap_or(&config.default_tier).clone(),
        has_mapped_tier: !config.tiers.is_empty(),
        may_be_first_owner: is_same(verified, config.first_owner_email.as_deref()),
        groups,
    })
}

fn groups(
    config: &ProviderConfig,
    token: &Claims,
    info: Option<&Claims>,
) -> Result<Vec<String>, SignInError> {
    let claim = &config.groups_claim;
    let groups = token.list(claim).or_else(|| info.and_then(|info| info.list(claim)));
    // Without this a user of very many groups would pass for one of none.
    let is_elsewhere = || [Some(token), info].into_iter().flatten().any(|claims| claims.is_elsewhere(claim));
    match groups {
        Some(groups) => Ok(groups),
        None if needs_groups(config) && is_elsewhere() => Err(SignInError::NotAllowed(format!(
            "{} does not send this account's groups because there are too many; its administrator can limit them to \
             those that are assigned to this application",
            config.title
        ))),
        None => Ok(Vec::new()),
    }
}

fn check_domain(
    config: &ProviderConfig,
    email: Option<&str>,
    verified: Option<&str>,
) -> Result<(), SignInError> {
    if config.allowed_domains.is_empty() {
        return Ok(());
    }
    let refuse = |why: String| Err(SignInError::NotAllowed(why));
    let Some(email) = email else {
        return refuse(format!(
            "{} gives no email address for this account, and only addresses of {} may use this server",
            config.title,
            config.allowed_domains.join(", ")
        ));
    };
    if verified.is_none() {
        return refuse(format!("{} has not verified {email}; verify the address there first", config.title));
    }
    let domain = email.rsplit_once('@').map(|(_, domain)| domain).unwrap_or_default();
    if config.allowed_domains.iter().any(|allowed| allowed.eq_ignore_ascii_case(domain)) {
        return Ok(());
    }
    let domains = config.allowed_domains.join(", ");
    refuse(format!("{email} may not use this server: only addresses of {domains} may; use another account"))
}

fn is_email(text: &str) -> bool {
    text.len() <= MAX_EMAIL
        && !text.contains(|c: char| c.is_whitespace() || c.is_control())
        && text.rsplit_once('@').is_some_and(|(user, domain)| !user.is_empty() && !domain.is_empty())
}

fn is_same(verified: Option<&str>, wanted: Option<&str>) -> bool {
    matches!((verified, wanted), (Some(one), Some(other)) if one.eq_ignore_ascii_case(other.trim()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn config() -> ProviderConfig {
        ProviderConfig {
            name: "corp".into(),
            title: "Corp".into(),
            issuer: "https://a.example".into(),
            client_id: "motet".into(),
            client_secret: None,
            scopes: vec![],
            redirect_url: String::new(),
            groups_claim: "groups".into(),
            tiers: vec![("admins".into(), "pro".into()), ("staff".into(), "team".into())],
            default_tier: "free".into(),
            allowed_domains: vec!["example.org".into()],
            required_group: None,
            first_owner_email: Some("Ann@example.org".into()),
        }
    }

    fn claims(value: &Value) -> Claims {
        Claims::parse(value.to_string().as_bytes()).unwrap()
    }

    fn ann() -> Value {
        json!({"sub": "1", "email": "ann@example.org", "email_verified": true, "groups": ["staff", "admins"]})
    }

    fn with(change: &Value) -> Value {
        let mut value = ann();
        for (name, change) in change.as_object().unwrap() {
            value[name] = change.clone();
        }
        value
    }

    #[test]
    fn the_first_pair_of_the_list_decides_the_tier() {
        let check = |groups: Value, expected: &str| {
            let token = claims(&with(&json!({"groups": groups})));
            let identity = identity(&config(), &token, None).unwrap();
            assert_eq!((identity.tier.as_str(), identity.has_mapped_tier), (expected, true));
        };
        check(json!(["staff", "admins"]), "pro");
        check(json!(["staff"]), "team");
        check(json!("admins"), "pro");
        check(json!(["Admins"]), "free");
        check(json!([]), "free");
        check(json!(null), "free");
    }

    #[test]
    fn who_may_not_come_is_told_why() {
        let check = |change: Value, config: ProviderConfig, expected: &str| {
            let error = identity(&config, &claims(&with(&change)), None).unwrap_err();
            assert!(
                matches!(error, SignInError::NotAllowed(_)) && error.to_string().contains(expected),
                "{error}"
            );
        };
        check(json!({"email": null}), config(), "Corp gives no email address");
        check(json!({"email": "no address@example.org"}), config(), "Corp gives no email address");
        check(json!({"email_verified": false}), config(), "has not verified ann@example.org");
        check(json!({"email_verified": "yes"}), config(), "has not verified");
        check(json!({"email": "ann@evil.example"}), config(), "only addresses of example.org may");
        check(json!({"email": "a@example.org@evil.example"}), config(), "only addresses of example.org may");
        check(json!({"email": "ann@sub.example.org"}), config(), "only addresses of example.org may");
        let required = || ProviderConfig { required_group: Some("motet".into()), ..config() };
        check(json!({}), required(), "is not in the group \"motet\"");
        check(json!({"groups": null, "_claim_names": {"groups": "src1"}}), required(), "there are too many");
        check(json!({"groups": null, "_claim_names": {"groups": "src1"}}), config(), "there are too many");
    }

    #[test]
    fn what_the_token_lacks_comes_from_the_user_information() {
        let token = claims(&json!({"sub": "1", "email": "ann@example.org"}));
        assert!(!is_enough(&config(), &token) && is_enough(&config(), &claims(&ann())));
        let info = claims(&with(&json!({"name": "Ann\nA.", "preferred_username": "ann"})));
        let got = identity(&config(), &token, Some(&info)).unwrap();
        assert_eq!(
            (got.name.as_deref(), got.login.as_str(), got.tier.as_str()),
            (Some("AnnA."), "ann", "pro")
        );
        assert!(got.is_email_verified && got.may_be_first_owner);
        // An address counts as verified only where its own source says so, and never for another address.
        let info = claims(&with(&json!({"email": "other@example.org"})));
        assert!(
            identity(&config(), &token, Some(&info)).unwrap_err().to_string().contains("has not verified")
        );
        let other = claims(&with(&json!({"sub": "2"})));
        assert!(matches!(identity(&config(), &token, Some(&other)), Err(SignInError::BadAnswer { .. })));
    }

    #[test]
    fn without_rules_a_subject_is_enough() {
        let open =
            ProviderConfig { tiers: vec![], allowed_domains: vec![], first_owner_email: None, ..config() };
        let got = identity(&open, &claims(&json!({"sub": "1"})), None).unwrap();
        assert_eq!((got.login.as_str(), got.tier.as_str(), got.has_mapped_tier), ("", "free", false));
        assert!(!got.may_be_first_owner && got.email.is_none());
    }
}
