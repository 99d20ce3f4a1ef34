use crate::error::{Result, StoreError};

const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Text that must not reach a log: `Debug` hides it, and there is no `Display`. Comparing takes the same time whatever
/// it is.
#[derive(Clone, Eq, serde::Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Random letters and digits, 5.95 bits each.
    ///
    /// # Errors
    /// The system has no random numbers to give.
    pub fn random(chars: usize) -> Result<Self> {
        random_text(chars).map(Self)
    }

    /// The secret itself, for the one place that shows or sends it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        is_equal(&self.0, &other.0)
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(hidden)")
    }
}

/// Random characters of base62, 5.95 bits each, from the system's generator.
pub(crate) fn random_text(chars: usize) -> Result<String> {
    let mut text = String::with_capacity(chars);
    let mut bytes = [0_u8; 64];
    while text.len() < chars {
        getrandom::fill(&mut bytes).map_err(|error| StoreError::Random(error.to_string()))?;
        // 248 = 4 × 62: the bytes above would make the first characters likelier.
        let fair =
            bytes.iter().filter(|&&byte| byte < 248).map(|&byte| char::from(BASE62[usize::from(byte % 62)]));
        text.extend(fair.take(chars - text.len()));
    }
    Ok(text)
}

/// What a stored hash is of; a hash of one kind never equals one of another.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    ApiKey,
    SessionToken,
    /// Only for comparing: equal hashes mean equal texts, and take the same time whatever they are.
    Compared,
}

/// The hash of a random secret. A fast one will do: 160 bits can't be guessed at any speed, unlike a password.
pub(crate) fn hash(kind: Kind, secret: &str) -> blake3::Hash {
    let context = match kind {
        Kind::ApiKey => "motet store 2026-11 api key",
        Kind::SessionToken => "motet store 2026-11 session token",
        Kind::Compared => "motet store 2026-11 compared",
    };
    blake3::Hasher::new_derive_key(context).update(secret.as_bytes()).finalize()
}

/// Whether two texts are equal, in a time that does not depend on where they differ.
pub(crate) fn is_equal(one: &str, other: &str) -> bool {
    // `blake3::Hash` compares in constant time.
    hash(Kind::Compared, one) == hash(Kind::Compared, other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_text_has_the_length_and_the_letters() {
        let text = random_text(500).unwrap();
        assert_eq!(text.len(), 500);
        assert!(text.bytes().all(|byte| BASE62.contains(&byte)));
        assert_ne!(text, random_text(500).unwrap());
        assert!(BASE62.iter().all(|&letter| random_text(4000).unwrap().contains(char::from(letter))));
    }

    #[test]
    fn kinds_of_hashes_differ_and_secrets_hide() {
        assert_ne!(hash(Kind::ApiKey, "a"), hash(Kind::SessionToken, "a"));
        assert!(is_equal("abc", "abc") && !is_equal("abc", "abd") && !is_equal("abc", "abcd"));
        assert_eq!(format!("{:?}", Some(Secret::new("mk-abc"))), "Some(Secret(hidden))");
    }
}
