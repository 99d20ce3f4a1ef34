//! Why a sign-in did not succeed, in words for the person who waits in front of it and for the operator.

use crate::encoding::shortened;

/// Why a sign-in did not succeed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SignInError {
    /// No answer, or a status that may pass.
    #[error("the sign-in provider did not give {what} ({why}); try again in a minute")]
    Unreachable {
        /// What it was asked for.
        what: &'static str,
        /// What came in place of an answer.
        why: String,
    },
    /// An answer that can't be used.
    #[error(
        "the sign-in provider's answer can't be used: {what} {why}; the operator of this server has to look at the \
         configuration of the provider"
    )]
    BadAnswer {
        /// Which answer.
        what: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// The provider said no, to the user or to this server.
    #[error("the sign-in provider refused: {}{}", code, described(description.as_deref()))]
    Provider {
        /// Its error code, such as `access_denied`.
        code: String,
        /// What it said about it: its own words.
        description: Option<String>,
    },
    /// No flow of this state and this browser.
    #[error(
        "this sign-in is not under way here: it took longer than ten minutes, was finished already, or began in another \
         browser; start again"
    )]
    NotUnderWay,
    /// The request itself is wrong.
    #[error("{0}")]
    Request(&'static str),
    /// The ID token is refused.
    #[error("the sign-in provider's ID token is refused: {0}")]
    Token(#[from] TokenError),
    /// The provider knows the user, and this server does not let them in.
    #[error("{0}")]
    NotAllowed(String),
    /// The system's generator failed.
    #[error("the system has no random numbers to give")]
    Random,
}

/// Who can do something about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// The user, by starting again.
    Request,
    /// The provider's or this server's administrator, by giving access.
    Refused,
    /// The operator, or time.
    Provider,
}

impl SignInError {
    /// Who can do something about it.
    #[must_use]
    pub fn class(&self) -> Class {
        match self {
            Self::NotUnderWay | Self::Request(_) => Class::Request,
            Self::NotAllowed(_) => Class::Refused,
            Self::Provider { code, .. } if is_users(code) => Class::Refused,
            Self::Provider { .. }
            | Self::Unreachable { .. }
            | Self::BadAnswer { .. }
            | Self::Token(_)
            | Self::Random => Class::Provider,
        }
    }

    /// For programs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unreachable { .. } => "sign_in_provider_unreachable",
            Self::BadAnswer { .. } => "sign_in_provider_answer",
            Self::Provider { .. } => "sign_in_provider_refused",
            Self::NotUnderWay => "sign_in_not_under_way",
            Self::Request(_) => "sign_in_request",
            Self::Token(_) => "sign_in_token",
            Self::NotAllowed(_) => "sign_in_not_allowed",
            Self::Random => "sign_in_random",
        }
    }

    /// What a provider said of an error; its words are cut and lose their control characters.
    pub(crate) fn provider(code: &str, description: Option<&str>) -> Self {
        let description = description.filter(|text| !text.trim().is_empty());
        Self::Provider {
            code: shortened(code, 60),
            description: description.map(|text| shortened(text, 200)),
        }
    }

    pub(crate) fn bad(what: &'static str, why: impl Into<String>) -> Self {
        Self::BadAnswer { what, why: why.into() }
    }
}

/// Whether an error code is about the user's own choice or rights at the provider.
fn is_users(code: &str) -> bool {
    ["access_denied", "login_required", "consent_required", "interaction_required"].contains(&code)
}

fn described(description: Option<&str>) -> String {
    description.map_or_else(String::new, |text| format!(" ({text:?})"))
}

/// What is wrong with an ID token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// It has not the form of one.
    #[error("it is not a signed token: {0}")]
    Malformed(&'static str),
    /// It is signed in a way that is not accepted.
    #[error("its algorithm is {0:?}; set the client to RS256, ES256 or EdDSA at the provider")]
    Algorithm(String),
    /// It names a key that the provider does not publish.
    #[error("the provider publishes no key {0} that fits its algorithm; start again in a minute")]
    UnknownKey(String),
    /// Several keys may be meant.
    #[error("several of the provider's keys fit it, and it does not say which")]
    AmbiguousKey,
    /// The signature is not of this token by this key.
    #[error("its signature is wrong")]
    Signature,
    /// It was issued by someone else.
    #[error("its issuer is {0:?}; write that as the issuer if it is the right one")]
    Issuer(String),
    /// It is for another client.
    #[error("it is for another client than this server; check client_id")]
    Audience,
    /// It was issued to another client.
    #[error("it was issued to another client than this server (azp); check client_id")]
    AuthorizedParty,
    /// It is too old.
    #[error("it expired; start again, and check this server's clock if that happens again")]
    Expired,
    /// It is from the future.
    #[error("it is not valid yet; check this server's clock")]
    NotYet,
    /// It answers another sign-in.
    #[error("it belongs to another sign-in (nonce); start again")]
    Nonce,
    /// A claim is missing or not what it should be.
    #[error("its claim {0} is missing or not of the right kind")]
    Claim(&'static str),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_providers_say_is_quoted_and_short() {
        let check = |code: &str, description: Option<&str>, expected: &str, class: Class| {
            let error = SignInError::provider(code, description);
            assert_eq!((error.to_string().as_str(), error.class()), (expected, class));
        };
        check("access_denied", None, "the sign-in provider refused: access_denied", Class::Refused);
        check(
            "invalid_scope",
            Some("no \"groups\"\n<b>"),
            "the sign-in provider refused: invalid_scope (\"no \\\"groups\\\"\u{fffd}<b>\")",
            Class::Provider,
        );
        let SignInError::Provider { code, description } =
            SignInError::provider(&"x".repeat(100), Some(&"y".repeat(999)))
        else {
            panic!()
        };
        assert_eq!((code.chars().count(), description.unwrap().chars().count()), (61, 201));
    }
}
