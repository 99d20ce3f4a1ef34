use aho_corasick::{AhoCorasick, MatchKind};

use crate::category::{Category, Verdict};
use crate::check::Check;

/// How sure a key's shape is.
const SCORE: f64 = 0.95;
/// What opens a private key in PEM, and what ends that line.
const PEM: (&str, &str) = ("-----BEGIN ", "PRIVATE KEY-----");
/// Longest line between them: `ENCRYPTED `, `OPENSSH ` or a scheme's name.
const PEM_BYTES: usize = 40;

/// What comes after the start of a key.
struct Shape {
    start: &'static str,
    /// Fewest characters.
    least: usize,
    /// Whether more make it something else.
    is_exact: bool,
    /// Characters besides letters and digits.
    signs: &'static [u8],
    looks: Looks,
}

/// What a key's characters look like.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Looks {
    /// Both cases and digits, as random text of this length has and words have not.
    Random,
    /// No lower case.
    Upper,
    Any,
}

const fn shape(start: &'static str, least: usize, signs: &'static [u8]) -> Shape {
    Shape { start, least, is_exact: false, signs, looks: Looks::Random }
}

/// Keys that say what they are.
const SHAPES: &[Shape] = &[
    // Motet's own.
    Shape { is_exact: true, ..shape("mk-", 44, b"") },
    shape("sk-", 32, b"-_"),
    Shape { is_exact: true, looks: Looks::Upper, ..shape("AKIA", 16, b"") },
    Shape { is_exact: true, looks: Looks::Upper, ..shape("ASIA", 16, b"") },
    shape("ghp_", 36, b""),
    shape("gho_", 36, b""),
    shape("ghu_", 36, b""),
    shape("ghs_", 36, b""),
    shape("ghr_", 36, b""),
    shape("github_pat_", 60, b"_"),
    shape("glpat-", 20, b"-_"),
    Shape { looks: Looks::Any, ..shape("xoxb-", 40, b"-") },
    Shape { looks: Looks::Any, ..shape("xoxp-", 40, b"-") },
    shape("AIza", 35, b"-_"),
    shape("sk_live_", 24, b""),
    shape("rk_live_", 24, b""),
    shape("hf_", 34, b""),
    shape("npm_", 36, b""),
    shape("pypi-", 60, b"-_"),
];

/// Finds API keys of known shapes and private keys. It reads the text as it is: who leaks a key by mistake does not
/// dress it up. A key without a shape of its own, and a password, can't be told from other text.
pub struct Secrets {
    /// The starts of [`SHAPES`], and after them that of PEM.
    starts: AhoCorasick,
}

impl Secrets {
    /// Finds all known shapes.
    ///
    /// # Errors
    /// Never for the shapes of this version.
    pub fn new() -> Result<Self, crate::ListError> {
        let starts = SHAPES.iter().map(|shape| shape.start).chain([PEM.0]);
        let built = AhoCorasick::builder().match_kind(MatchKind::Standard).build(starts);
        built.map(|starts| Self { starts }).map_err(|error| crate::ListError(error.to_string()))
    }
}

impl Check for Secrets {
    fn check(&self, text: &str) -> Verdict {
        let bytes = text.as_bytes();
        let is_secret = self.starts.find_overlapping_iter(bytes).any(|found| {
            let rest = &bytes[found.end()..];
            match SHAPES.get(found.pattern().as_usize()) {
                Some(shape) => {
                    let is_start = found.start() == 0 || !bytes[found.start() - 1].is_ascii_alphanumeric();
                    is_start && shape.fits(rest)
                }
                None => is_private_key(rest),
            }
        });
        if is_secret { Verdict::of(Category::Secrets, SCORE) } else { Verdict::default() }
    }
}

impl Shape {
    /// Looks at one character more than the key needs, so that a text full of starts costs no more than others.
    fn fits(&self, rest: &[u8]) -> bool {
        let is_key = |byte: &&u8| byte.is_ascii_alphanumeric() || self.signs.contains(byte);
        let length = rest.iter().take(self.least + 1).take_while(is_key).count();
        let key = &rest[..length.min(self.least)];
        // Documentation is full of AKIA…EXAMPLE and of keys that are one letter many times.
        let is_example = key.ends_with(b"EXAMPLE") || key.iter().all(|byte| Some(byte) == key.first());
        let has = |is: fn(&u8) -> bool| key.iter().any(is);
        let is_one = match self.looks {
            Looks::Random => {
                has(u8::is_ascii_lowercase) && has(u8::is_ascii_uppercase) && has(u8::is_ascii_digit)
            }
            Looks::Upper => !has(u8::is_ascii_lowercase),
            Looks::Any => true,
        };
        length >= self.least && !(self.is_exact && length > self.least) && !is_example && is_one
    }
}

fn is_private_key(rest: &[u8]) -> bool {
    let line = &rest[..rest.len().min(PEM_BYTES)];
    line.windows(PEM.1.len()).any(|part| part == PEM.1.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random text of this length; no such key exists.
    fn tail(length: usize) -> String {
        "a1B2c3D4e5F6g7H8i9J0".chars().cycle().take(length).collect()
    }

    fn check(text: &str, want: bool) {
        let verdict = Secrets::new().unwrap().check(text);
        assert_eq!(verdict.is_flagged(Category::Secrets), want, "{text}");
        assert_eq!(verdict.moderation(), [0.0; 13], "{text}");
    }

    #[test]
    fn keys_of_known_shapes() {
        for shape in SHAPES.iter().filter(|shape| shape.looks == Looks::Random) {
            let key = format!("{}{}", shape.start, tail(shape.least));
            check(&key, true);
            check(&format!("export KEY=\"{key}\"\n"), true);
            check(&format!("é{key}é"), true);
            check(&key[..key.len() - 1], false);
            check(&format!("x{key}"), false);
            check(&format!("{}{}", shape.start, "x".repeat(shape.least)), false);
        }
        check("AKIAQ3EGRJPJ4LXGSQ7T", true);
        check("AKIAIOSFODNN7EXAMPLE", false);
        check("AKIAQ3EGRJPJ4LXGSQ7TA", false);
        check("akiaq3egrjpj4lxgsq7t and AKIAq3egrjpj4lxgsq7t", false);
        check(&format!("mk-{}", tail(45)), false);
        check(&format!("xoxb-123456789012-123456789012-{}", tail(24)), true);
        check("-----BEGIN RSA PRIVATE KEY-----\nMIIE", true);
        check("-----BEGIN PRIVATE KEY-----", true);
        check("-----BEGIN OPENSSH PRIVATE KEY-----", true);
    }

    #[test]
    fn what_looks_like_one_and_is_none() {
        check("", false);
        check("-----BEGIN PUBLIC KEY-----\nMIIB", false);
        check("-----BEGIN CERTIFICATE-----", false);
        check("-----BEGIN ", false);
        check("sk-learn-is-a-library-for-machine-learning-in-python", false);
        check("task-oriented risk-averse mk-1 hf_hub_download npm_config_registry", false);
        check("pypi-attestations AIzawa ASIA AKIA", false);
    }
}
