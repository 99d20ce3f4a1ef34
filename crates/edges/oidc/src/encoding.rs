use base64::{
    Engine as _,
    prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD},
};
use reqwest::Url;

/// Bytes as base64url without padding.
pub(crate) fn base64url(bytes: &[u8]) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

/// The bytes of base64url text. Exactly one text stands for them: padding, white space and spare bits are refused, so
/// that no byte of a token can change without notice.
pub(crate) fn from_base64url(text: &str) -> Option<Vec<u8>> {
    BASE64_URL_SAFE_NO_PAD.decode(text).ok()
}

/// Bytes as the header `Authorization: Basic` wants them.
pub(crate) fn base64(bytes: &[u8]) -> String {
    BASE64_STANDARD.encode(bytes)
}

/// Names and values as `application/x-www-form-urlencoded`.
pub(crate) fn form(pairs: &[(&str, &str)]) -> String {
    // `Url` has the only encoder for it among what is there; the address around it is never used.
    let Ok(mut url) = Url::parse("http://form.invalid/") else { return String::new() };
    url.query_pairs_mut().extend_pairs(pairs);
    url.query().unwrap_or_default().to_owned()
}

/// One value as a form encodes it.
pub(crate) fn form_value(text: &str) -> String {
    form(&[("", text)]).trim_start_matches('=').to_owned()
}

/// A stranger's text for a message: one line, at most `most` characters.
pub(crate) fn shortened(text: &str, most: usize) -> String {
    let clean = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    let mut short: String = text.chars().take(most).map(clean).collect();
    if text.chars().nth(most).is_some() {
        short.push('…');
    }
    short
}

/// What a JSON parser says, which may quote what it read.
pub(crate) fn reason(error: &serde_json::Error) -> String {
    shortened(&error.to_string(), 120)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_encoded() {
        assert_eq!(form(&[("a", "1 2"), ("b", "ü&=")]), "a=1+2&b=%C3%BC%26%3D");
        assert_eq!(form_value("=p:w d"), "%3Dp%3Aw+d");
        assert_eq!(form_value(""), "");
    }

    #[test]
    fn one_text_stands_for_bytes() {
        assert_eq!(from_base64url("AQI"), Some(vec![1, 2]));
        for other in ["AQJ", "AQI=", " AQI", "AQ+/", "A"] {
            assert_eq!(from_base64url(other), None, "{other}");
        }
    }

    #[test]
    fn texts_of_others_are_one_short_line() {
        assert_eq!(shortened("a\nb\u{1b}[1m", 10), "a\u{fffd}b\u{fffd}[1m");
        assert_eq!(shortened("abcdef", 3), "abc…");
    }
}
