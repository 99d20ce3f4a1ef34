//! The keys a provider publishes (RFC 7517), as far as they verify ID tokens.

use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};
use serde::Deserialize;

use crate::{
    TokenError,
    encoding::{from_base64url, reason, shortened},
    jws::Algorithm,
};

/// Most keys of a provider: they have a handful, and each that fits costs a comparison.
const MAX_KEYS: usize = 256;

/// A public key.
#[derive(Debug)]
pub(crate) struct Key {
    id: Option<String>,
    material: Material,
}

#[derive(Debug)]
enum Material {
    /// Modulus and exponent, big-endian.
    Rsa {
        n: Vec<u8>,
        e: Vec<u8>,
    },
    /// A point, uncompressed.
    P256(Vec<u8>),
    Ed25519(Vec<u8>),
}

/// What a provider publishes.
#[derive(Debug)]
pub(crate) struct KeySet(Vec<Key>);

#[derive(Deserialize)]
struct Document {
    keys: Vec<serde_json::Value>,
}

/// A key as published. What is not for verifying ID tokens is left out by [`RawKey::read`].
#[derive(Deserialize)]
struct RawKey {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    purpose: Option<String>,
    key_ops: Option<Vec<String>>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl KeySet {
    /// Reads the provider's document. Keys of other kinds and for other purposes are not an error: they are there for
    /// others.
    pub(crate) fn parse(document: &[u8]) -> Result<Self, String> {
        let document: Document = serde_json::from_slice(document)
            .map_err(|e| format!("are not a JSON object with keys: {}", reason(&e)))?;
        if document.keys.len() > MAX_KEYS {
            return Err(format!("are more than {MAX_KEYS}"));
        }
        let raw = document.keys.into_iter().filter_map(|key| serde_json::from_value::<RawKey>(key).ok());
        Ok(Self(raw.filter_map(RawKey::read).collect()))
    }

    /// The one key that a token can be signed with.
    pub(crate) fn find(&self, algorithm: Algorithm, id: Option<&str>) -> Result<&Key, TokenError> {
        let is_meant = |key: &&Key| key.algorithm() == algorithm && (id.is_none() || key.id.as_deref() == id);
        let mut fitting = self.0.iter().filter(is_meant);
        match (fitting.next(), fitting.next()) {
            (Some(key), None) => Ok(key),
            (Some(_), Some(_)) => Err(TokenError::AmbiguousKey),
            (None, _) => {
                let name = id.map_or_else(|| "at all".to_owned(), |id| format!("{:?}", shortened(id, 60)));
                Err(TokenError::UnknownKey(name))
            }
        }
    }
}

impl Key {
    /// The only algorithm it verifies: the key's type decides, and a token that says otherwise finds no key.
    fn algorithm(&self) -> Algorithm {
        match self.material {
            Material::Rsa { .. } => Algorithm::Rs256,
            Material::P256(_) => Algorithm::Es256,
            Material::Ed25519(_) => Algorithm::Ed25519,
        }
    }

    /// Whether it made this signature of these bytes.
    pub(crate) fn is_signature(&self, algorithm: Algorithm, bytes: &[u8], signature: &[u8]) -> bool {
        if algorithm != self.algorithm() {
            return false;
        }
        match &self.material {
            Material::Rsa { n, e } => {
                RsaPublicKeyComponents { n, e }.verify(&RSA_PKCS1_2048_8192_SHA256, bytes, signature)
            }
            Material::P256(point) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(bytes, signature)
            }
            Material::Ed25519(point) => UnparsedPublicKey::new(&ED25519, point).verify(bytes, signature),
        }
        .is_ok()
    }
}

impl RawKey {
    fn read(self) -> Option<Key> {
        let is_for_signatures = self.purpose.as_deref().is_none_or(|purpose| purpose == "sig")
            && self.key_ops.as_ref().is_none_or(|ops| ops.iter().any(|op| op == "verify"));
        let number = |text: &Option<String>| text.as_deref().and_then(from_base64url);
        let material = match (self.kty.as_str(), self.crv.as_deref()) {
            ("RSA", _) => Material::Rsa { n: stripped(number(&self.n)?), e: stripped(number(&self.e)?) },
            ("EC", Some("P-256")) => {
                let (x, y) = (number(&self.x)?, number(&self.y)?);
                (x.len() == 32 && y.len() == 32).then(|| Material::P256([&[4], &x[..], &y[..]].concat()))?
            }
            ("OKP", Some("Ed25519")) => Material::Ed25519(number(&self.x).filter(|x| x.len() == 32)?),
            _ => return None,
        };
        let key = Key { id: self.kid, material };
        let fits = self.alg.is_none_or(|alg| Algorithm::from_name(&alg) == Some(key.algorithm()));
        (is_for_signatures && fits).then_some(key)
    }
}

/// A number without leading zeros, which some providers write and `ring` refuses.
fn stripped(mut number: Vec<u8>) -> Vec<u8> {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    number.drain(..zeros);
    number
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encoding::base64url;

    fn set(keys: &str) -> Result<KeySet, String> {
        KeySet::parse(format!(r#"{{"keys":[{keys}]}}"#).as_bytes())
    }

    fn ed(extra: &str) -> String {
        format!(r#"{{"kty":"OKP","crv":"Ed25519","x":"{}"{extra}}}"#, base64url(&[7; 32]))
    }

    fn p256(extra: &str) -> String {
        let half = base64url(&[7; 32]);
        format!(r#"{{"kty":"EC","crv":"P-256","x":"{half}","y":"{half}"{extra}}}"#)
    }

    #[test]
    fn keys_for_other_purposes_are_left_out() {
        let count = |key: &str, expected: usize| assert_eq!(set(key).unwrap().0.len(), expected, "{key}");
        count(&ed(""), 1);
        count(&ed(r#","use":"sig","alg":"EdDSA","key_ops":["verify"]"#), 1);
        count(&ed(r#","use":"enc""#), 0);
        count(&ed(r#","key_ops":["sign"]"#), 0);
        count(&ed(r#","alg":"RS256""#), 0);
        count(&p256(r#","alg":"ES256""#), 1);
        count(r#"{"kty":"oct","k":"c2VjcmV0"}"#, 0);
        count(r#"{"kty":"EC","crv":"P-521","x":"AA","y":"AA"}"#, 0);
        count(r#"{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}"#, 0);
        count(r#"{"kty":"RSA","n":"AA"}"#, 0);
        count(r#"{"no":"key"}, 3, "text""#, 0);
        assert!(KeySet::parse(b"{}").is_err() && KeySet::parse(b"[]").is_err());
        let many = vec!["1"; MAX_KEYS + 1].join(",");
        assert_eq!(set(&many).unwrap_err(), "are more than 256");
    }

    #[test]
    fn a_token_finds_the_one_key_that_is_meant() {
        let keys = [ed(r#","kid":"a""#), ed(r#","kid":"b""#), p256(r#","kid":"a""#)].join(",");
        let set = set(&keys).unwrap();
        let find = |algorithm, id| set.find(algorithm, id).map(|key| key.id.clone().unwrap());
        assert_eq!(find(Algorithm::Ed25519, Some("a")), Ok("a".into()));
        assert_eq!(find(Algorithm::Es256, Some("a")), Ok("a".into()));
        assert_eq!(find(Algorithm::Es256, None), Ok("a".into()));
        assert_eq!(find(Algorithm::Ed25519, None), Err(TokenError::AmbiguousKey));
        assert_eq!(find(Algorithm::Es256, Some("b")), Err(TokenError::UnknownKey("\"b\"".into())));
        assert_eq!(find(Algorithm::Rs256, None), Err(TokenError::UnknownKey("at all".into())));
    }
}
