//! Keys of the tests' provider.

use base64::{
    Engine as _,
    prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD},
};
use ring::{
    rand::SystemRandom,
    rsa::{KeyPair as RsaKeyPair, PublicKeyComponents},
    signature::{
        ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256,
    },
};
use serde_json::{Value, json};

/// A key and its name.
pub(crate) struct Signer {
    pub(crate) id: String,
    pair: Pair,
}

enum Pair {
    Ed25519(Ed25519KeyPair),
    P256(EcdsaKeyPair),
    Rsa(Box<RsaKeyPair>),
}

impl Signer {
    pub(crate) fn ed25519(id: &str) -> Self {
        let made = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        let pair = Pair::Ed25519(Ed25519KeyPair::from_pkcs8(made.as_ref()).unwrap());
        Self { id: id.to_owned(), pair }
    }

    pub(crate) fn p256(id: &str) -> Self {
        let (algorithm, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
        let made = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        let pair = Pair::P256(EcdsaKeyPair::from_pkcs8(algorithm, made.as_ref(), &random).unwrap());
        Self { id: id.to_owned(), pair }
    }

    /// The one key of `make_rsa_key.sh`.
    pub(crate) fn rsa(id: &str) -> Self {
        let text: String = include_str!("rsa_key.base64").split_whitespace().collect();
        let pair = RsaKeyPair::from_pkcs8(&BASE64_STANDARD.decode(text).unwrap()).unwrap();
        Self { id: id.to_owned(), pair: Pair::Rsa(Box::new(pair)) }
    }

    pub(crate) fn algorithm(&self) -> &'static str {
        match self.pair {
            Pair::Ed25519(_) => "EdDSA",
            Pair::P256(_) => "ES256",
            Pair::Rsa(_) => "RS256",
        }
    }

    /// The public key as it is published.
    pub(crate) fn published(&self) -> Value {
        let mut key = match &self.pair {
            Pair::Ed25519(pair) => {
                json!({"kty": "OKP", "crv": "Ed25519", "x": text(pair.public_key().as_ref())})
            }
            Pair::P256(pair) => {
                let (x, y) = pair.public_key().as_ref()[1..].split_at(32);
                json!({"kty": "EC", "crv": "P-256", "x": text(x), "y": text(y)})
            }
            Pair::Rsa(pair) => {
                let public = PublicKeyComponents::<Vec<u8>>::from(pair.public());
                json!({"kty": "RSA", "n": text(&public.n), "e": text(&public.e)})
            }
        };
        key["kid"] = json!(self.id);
        key["use"] = json!("sig");
        key["alg"] = json!(self.algorithm());
        key
    }

    /// What somebody who has only the public key would use as a shared secret.
    pub(crate) fn public_bytes(&self) -> Vec<u8> {
        match &self.pair {
            Pair::Ed25519(pair) => pair.public_key().as_ref().to_vec(),
            Pair::P256(pair) => pair.public_key().as_ref().to_vec(),
            Pair::Rsa(pair) => pair.public().as_ref().to_vec(),
        }
    }

    /// A signed token with the usual header.
    pub(crate) fn token(&self, claims: &Value) -> String {
        self.token_with(&json!({"alg": self.algorithm(), "kid": self.id, "typ": "JWT"}), claims)
    }

    /// A signed token with a header that may say anything.
    pub(crate) fn token_with(&self, header: &Value, claims: &Value) -> String {
        let signed = unsigned(header, claims);
        format!("{signed}.{}", text(&self.sign(signed.as_bytes())))
    }

    fn sign(&self, bytes: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match &self.pair {
            Pair::Ed25519(pair) => pair.sign(bytes).as_ref().to_vec(),
            Pair::P256(pair) => pair.sign(&random, bytes).unwrap().as_ref().to_vec(),
            Pair::Rsa(pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &random, bytes, &mut signature).unwrap();
                signature
            }
        }
    }
}

/// Header and payload, as they are signed.
pub(crate) fn unsigned(header: &Value, claims: &Value) -> String {
    format!("{}.{}", text(header.to_string().as_bytes()), text(claims.to_string().as_bytes()))
}

/// A token signed with a shared secret.
pub(crate) fn token_with_secret(claims: &Value, id: &str, secret: &[u8]) -> String {
    let signed = unsigned(&json!({"alg": "HS256", "kid": id}), claims);
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret);
    format!("{signed}.{}", text(ring::hmac::sign(&key, signed.as_bytes()).as_ref()))
}

/// Base64url.
pub(crate) fn text(bytes: &[u8]) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}
