//! What an ID token says, and whether it is said to this server about this sign-in.

use serde_json::Value;

use crate::{TokenError, encoding::shortened};

/// How far the provider's clock may be from this machine's.
const SKEW_MS: i64 = 60_000;

/// Longest identifier of a user at a provider, by the standard.
const MAX_SUBJECT: usize = 255;

/// What a token has to say.
#[derive(Debug)]
pub(crate) struct Expected<'a> {
    pub(crate) issuer: &'a str,
    pub(crate) client_id: &'a str,
    pub(crate) nonce: &'a str,
}

/// The claims of a verified token, or of the provider's user information.
#[derive(Debug, Clone)]
pub(crate) struct Claims(Value);

impl Claims {
    pub(crate) fn parse(json: &[u8]) -> Option<Self> {
        serde_json::from_slice(json).ok().filter(Value::is_object).map(Self)
    }

    /// A claim that is a text and not empty.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.as_str().filter(|text| !text.is_empty())
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|value| !value.is_null())
    }

    /// A flag; some providers write it as a text.
    pub(crate) fn is_true(&self, name: &str) -> bool {
        match self.0.get(name) {
            Some(Value::Bool(truth)) => *truth,
            Some(Value::String(text)) => text == "true",
            _ => false,
        }
    }

    /// A claim that lists texts; one text alone is a list of it. `None`: there is no such claim.
    pub(crate) fn list(&self, name: &str) -> Option<Vec<String>> {
        match self.find(name)? {
            Value::String(text) => Some(vec![text.clone()]),
            Value::Array(values) => {
                Some(values.iter().filter_map(Value::as_str).map(str::to_owned).collect())
            }
            _ => None,
        }
    }

    /// Whether the provider keeps a claim elsewhere because the token would be too long.
    pub(crate) fn is_elsewhere(&self, name: &str) -> bool {
        let elsewhere = |names: &str| self.0.get(names).is_some_and(|names| names.get(name).is_some());
        elsewhere("_claim_names") || self.is_true("hasgroups")
    }

    /// A claim by its name, or by a JSON pointer.
    fn find(&self, name: &str) -> Option<&Value> {
        if name.starts_with('/') { self.0.pointer(name) } else { self.0.get(name) }
    }

    /// A time in seconds, as milliseconds. Some providers write fractions.
    fn time(&self, name: &'static str) -> Result<Option<i64>, TokenError> {
        let Some(value) = self.0.get(name) else { return Ok(None) };
        // Beyond this a float can't tell milliseconds apart; it is the year 287,396.
        let seconds = value.as_f64().filter(|seconds| (0.0..=9e12).contains(seconds));
        seconds.map(|seconds| Some((seconds * 1000.0) as i64)).ok_or(TokenError::Claim(name))
    }

    /// Checks that a token is from this issuer, for this client, about this sign-in, and valid now.
    pub(crate) fn check(&self, expected: &Expected<'_>, now: i64) -> Result<(), TokenError> {
        let issuer = self.text("iss").ok_or(TokenError::Claim("iss"))?;
        if issuer != expected.issuer {
            return Err(TokenError::Issuer(shortened(issuer, 100)));
        }
        self.check_audience(expected.client_id)?;
        if self.time("exp")?.ok_or(TokenError::Claim("exp"))? <= now.saturating_sub(SKEW_MS) {
            return Err(TokenError::Expired);
        }
        let issued = self.time("iat")?.ok_or(TokenError::Claim("iat"))?;
        let latest = now.saturating_add(SKEW_MS);
        if issued > latest || self.time("nbf")?.is_some_and(|from| from > latest) {
            return Err(TokenError::NotYet);
        }
        if self.text("nonce").ok_or(TokenError::Claim("nonce"))? != expected.nonce {
            return Err(TokenError::Nonce);
        }
        self.subject().map(drop)
    }

    fn check_audience(&self, client_id: &str) -> Result<(), TokenError> {
        let audience = match self.0.get("aud") {
            Some(Value::String(one)) => vec![one.as_str()],
            Some(Value::Array(several)) => {
                several.iter().map(Value::as_str).collect::<Option<_>>().ok_or(TokenError::Claim("aud"))?
            }
            _ => return Err(TokenError::Claim("aud")),
        };
        if !audience.contains(&client_id) {
            return Err(TokenError::Audience);
        }
        match self.0.get("azp") {
            Some(party) if party.as_str() != Some(client_id) => Err(TokenError::AuthorizedParty),
            // With several, the token may have been made for any of them.
            None if audience.len() > 1 => Err(TokenError::AuthorizedParty),
            _ => Ok(()),
        }
    }

    /// Who it is at the provider.
    pub(crate) fn subject(&self) -> Result<&str, TokenError> {
        let is_printable =
            |subject: &&str| subject.len() <= MAX_SUBJECT && !subject.contains(char::is_control);
        self.text("sub").filter(is_printable).ok_or(TokenError::Claim("sub"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: i64 = 1_800_000_000_000;

    fn check(change: Value) -> Result<(), TokenError> {
        let seconds = NOW / 1000;
        let mut claims = json!({
            "iss": "https://a.example", "aud": "motet", "sub": "1", "nonce": "n",
            "iat": seconds, "exp": seconds + 300,
        });
        let change = change.as_object().unwrap().clone();
        for (name, value) in change {
            claims[name] = value;
        }
        let expected = Expected { issuer: "https://a.example", client_id: "motet", nonce: "n" };
        Claims::parse(claims.to_string().as_bytes()).unwrap().check(&expected, NOW)
    }

    #[test]
    fn claims_are_checked() {
        let seconds = NOW / 1000;
        for change in [
            json!({}),
            json!({"aud": ["motet"]}),
            json!({"aud": ["motet", "other"], "azp": "motet"}),
            json!({"azp": "motet"}),
            json!({"exp": seconds - 59}),
            json!({"iat": seconds + 60, "nbf": seconds + 60}),
            json!({"iat": seconds as f64 + 0.5}),
        ] {
            assert_eq!(check(change.clone()), Ok(()), "{change}");
        }
        for (change, expected) in [
            (json!({"iss": "https://a.example/"}), TokenError::Issuer("https://a.example/".into())),
            (json!({"iss": 1}), TokenError::Claim("iss")),
            (json!({"aud": "other"}), TokenError::Audience),
            (json!({"aud": []}), TokenError::Audience),
            (json!({"aud": null}), TokenError::Claim("aud")),
            (json!({"aud": ["motet", 1]}), TokenError::Claim("aud")),
            (json!({"aud": ["motet", "other"]}), TokenError::AuthorizedParty),
            (json!({"azp": "other"}), TokenError::AuthorizedParty),
            (json!({"azp": 1}), TokenError::AuthorizedParty),
            (json!({"exp": seconds - 60}), TokenError::Expired),
            (json!({"exp": null}), TokenError::Claim("exp")),
            (json!({"exp": "9999999999"}), TokenError::Claim("exp")),
            (json!({"exp": 1e300}), TokenError::Claim("exp")),
            (json!({"exp": -1}), TokenError::Claim("exp")),
            (json!({"iat": seconds + 61}), TokenError::NotYet),
            (json!({"nbf": seconds + 61}), TokenError::NotYet),
            (json!({"nonce": "m"}), TokenError::Nonce),
            (json!({"nonce": null}), TokenError::Claim("nonce")),
            (json!({"sub": ""}), TokenError::Claim("sub")),
            (json!({"sub": 1}), TokenError::Claim("sub")),
            (json!({"sub": "a\nb"}), TokenError::Claim("sub")),
            (json!({"sub": "x".repeat(256)}), TokenError::Claim("sub")),
        ] {
            assert_eq!(check(change.clone()), Err(expected), "{change}");
        }
    }

    #[test]
    fn lists_are_found_by_name_and_by_pointer() {
        let claims = json!({
            "groups": ["a", 1, "b"], "one": "c", "realm_access": {"roles": ["d"]}, "https://x.example/g": ["e"], "n": 1,
        });
        let claims = Claims::parse(claims.to_string().as_bytes()).unwrap();
        let check = |name: &str, expected: Option<&[&str]>| {
            let expected =
                expected.map(|list| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
            assert_eq!(claims.list(name), expected, "{name}");
        };
        check("groups", Some(&["a", "b"]));
        check("one", Some(&["c"]));
        check("/realm_access/roles", Some(&["d"]));
        check("https://x.example/g", Some(&["e"]));
        check("/groups", Some(&["a", "b"]));
        check("n", None);
        check("/realm_access/none", None);
        check("none", None);
    }
}
