//! Signed tokens in their compact form (RFC 7515), as far as ID tokens need it.

use serde::Deserialize;

use crate::{TokenError, encoding::from_base64url, keys::Key};

/// Longest token: with hundreds of groups in it, one has some ten thousand bytes.
const MAX_BYTES: usize = 64 << 10;

/// How a token may be signed. What is not in here does not exist: neither `none` nor the algorithms with a shared
/// secret, for which a public key would be a secret that everybody knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Algorithm {
    Rs256,
    Es256,
    Ed25519,
}

impl Algorithm {
    /// The algorithm of this name; `Ed25519` is the newer one for what `EdDSA` is taken for here.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        match name {
            "RS256" => Some(Self::Rs256),
            "ES256" => Some(Self::Es256),
            "EdDSA" | "Ed25519" => Some(Self::Ed25519),
            _ => None,
        }
    }
}

/// A token whose signature is not verified yet.
#[derive(Debug)]
pub(crate) struct Jws<'a> {
    pub(crate) algorithm: Algorithm,
    /// The key it says it is signed with.
    pub(crate) key_id: Option<String>,
    signed: &'a str,
    payload: &'a str,
    signature: Vec<u8>,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    typ: Option<String>,
    /// Extensions that must be understood; none is.
    crit: Option<serde_json::Value>,
}

impl<'a> Jws<'a> {
    /// Reads a token's form.
    pub(crate) fn parse(token: &'a str) -> Result<Self, TokenError> {
        if token.len() > MAX_BYTES {
            return Err(TokenError::Malformed("it is longer than 64 KiB"));
        }
        let form = TokenError::Malformed("it has not three parts with dots between them");
        let (signed, signature) = token.rsplit_once('.').ok_or_else(|| form.clone())?;
        let (header, payload) = signed.split_once('.').ok_or_else(|| form.clone())?;
        if payload.contains('.') {
            return Err(form);
        }
        let header = from_base64url(header).ok_or(TokenError::Malformed("its header is not base64url"))?;
        let header: Header =
            serde_json::from_slice(&header).map_err(|_| TokenError::Malformed("its header is not JSON"))?;
        // Before the signature: that of a token with `none` is empty.
        let algorithm = Algorithm::from_name(&header.alg)
            .ok_or_else(|| TokenError::Algorithm(crate::encoding::shortened(&header.alg, 20)))?;
        if header.crit.is_some() {
            return Err(TokenError::Malformed("it has extensions that are not known here (crit)"));
        }
        // A provider's other tokens have names of their own, such as `at+jwt`, and must not pass for an ID token.
        if header.typ.is_some_and(|kind| !kind.eq_ignore_ascii_case("JWT")) {
            return Err(TokenError::Malformed("it is a token of another kind (typ)"));
        }
        let signature =
            from_base64url(signature).ok_or(TokenError::Malformed("its signature is not base64url"))?;
        Ok(Self { algorithm, key_id: header.kid, signed, payload, signature })
    }

    /// The bytes that were signed by this key.
    pub(crate) fn verify(&self, key: &Key) -> Result<Vec<u8>, TokenError> {
        if !key.is_signature(self.algorithm, self.signed.as_bytes(), &self.signature) {
            return Err(TokenError::Signature);
        }
        from_base64url(self.payload).ok_or(TokenError::Malformed("its payload is not base64url"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encoding::base64url;

    #[test]
    fn forms_that_are_none_are_refused() {
        let header = |json: &str| base64url(json.as_bytes());
        let check = |token: &str, expected: &str| {
            assert_eq!(Jws::parse(token).unwrap_err().to_string(), expected, "{token}");
        };
        let parts = "it is not a signed token: it has not three parts with dots between them";
        for token in ["", "a", "a.b", "a.b.c.d"] {
            check(token, parts);
        }
        let es = header(r#"{"alg":"ES256"}"#);
        check("a=.b.c", "it is not a signed token: its header is not base64url");
        check("e30.b.c", "it is not a signed token: its header is not JSON");
        check(&format!("{es}.e30.a=="), "it is not a signed token: its signature is not base64url");
        check(&"a".repeat(MAX_BYTES + 1), "it is not a signed token: it is longer than 64 KiB");
        for (json, expected) in [
            (r#"{"alg":"ES256","alg":"none"}"#, "it is not a signed token: its header is not JSON"),
            (
                r#"{"alg":"ES256","crit":["b64"],"b64":false}"#,
                "it is not a signed token: it has extensions that are not known here (crit)",
            ),
            (
                r#"{"alg":"ES256","typ":"at+jwt"}"#,
                "it is not a signed token: it is a token of another kind (typ)",
            ),
        ] {
            check(&format!("{}.e30.AA", header(json)), expected);
        }
        for name in ["none", "None", "HS256", "RS512", "rs256", ""] {
            let token = format!("{}.e30.", header(&format!(r#"{{"alg":"{name}"}}"#)));
            assert_eq!(Jws::parse(&token).unwrap_err(), TokenError::Algorithm(name.into()));
        }
        let jwt = Jws::parse(&format!("{}.e30.AA", header(r#"{"alg":"EdDSA","kid":"a","typ":"jwt","x":1}"#)))
            .map(|jws| (jws.algorithm, jws.key_id));
        assert_eq!(jwt, Ok((Algorithm::Ed25519, Some("a".into()))));
    }
}
