//! The answer of the token endpoint (RFC 6749).

use serde::Deserialize;

use crate::{Secret, SignInError};

/// What the endpoint gave for a code.
#[derive(Debug)]
pub(crate) struct Tokens {
    pub(crate) id_token: String,
    /// For the user information; only a bearer token is of use.
    pub(crate) access_token: Option<Secret>,
}

#[derive(Deserialize)]
struct Body {
    id_token: Option<String>,
    access_token: Option<String>,
    token_type: Option<String>,
    error: Option<String>,
    error_description: Option<String>,
}

const WHAT: &str = "its answer to the code";

impl Tokens {
    /// Reads an answer with its status.
    pub(crate) fn read(status: u16, body: &[u8]) -> Result<Self, SignInError> {
        let parsed: Result<Body, _> = serde_json::from_slice(body);
        if let Ok(Body { error: Some(code), error_description, .. }) = &parsed {
            return Err(SignInError::provider(code, error_description.as_deref()));
        }
        if status != 200 {
            return Err(SignInError::bad(WHAT, format!("has status {status} and no error code")));
        }
        // The parser's own words could quote a token.
        let body = parsed.map_err(|_| SignInError::bad(WHAT, "is not a JSON object with an id_token"))?;
        let id_token = body.id_token.ok_or_else(|| {
            SignInError::bad(WHAT, "has no id_token; is the scope openid allowed for this client?")
        })?;
        let is_bearer = body.token_type.is_some_and(|kind| kind.eq_ignore_ascii_case("bearer"));
        Ok(Self { id_token, access_token: body.access_token.filter(|_| is_bearer).map(Secret::new) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read() {
        let check = |status, body: &str, expected: &str| {
            let error = Tokens::read(status, body.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(expected), "{body}: {error}");
        };
        check(
            400,
            r#"{"error":"invalid_grant","error_description":"used"}"#,
            "refused: invalid_grant (\"used\")",
        );
        check(200, r#"{"error":"invalid_grant"}"#, "refused: invalid_grant");
        check(500, "oops", "has status 500");
        check(200, "oops", "is not a JSON object");
        check(200, r#"{"access_token":"a","token_type":"bearer"}"#, "has no id_token");
        let tokens = |kind: &str| {
            let body = format!(r#"{{"id_token":"i","access_token":"a","token_type":"{kind}"}}"#);
            Tokens::read(200, body.as_bytes()).unwrap()
        };
        assert!(tokens("Bearer").access_token.is_some() && tokens("DPoP").access_token.is_none());
        assert!(!format!("{:?}", tokens("Bearer").access_token).contains("\"a\""));
    }
}
