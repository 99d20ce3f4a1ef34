/// Longest path to come back to.
const MAX_BYTES: usize = 2048;

/// Whether a browser that is sent to this place stays on this server. Only a path can do that: two slashes, or a
/// backslash, which browsers take for one, begin another host's name; tabs and line breaks are dropped by browsers
/// before they look.
pub(crate) fn is_local(place: &str) -> bool {
    let second = place.as_bytes().get(1);
    place.starts_with('/')
        && second != Some(&b'/')
        && place.len() <= MAX_BYTES
        && place.bytes().all(|b| b.is_ascii_graphic() && b != b'\\')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use reqwest::Url;

    use super::*;

    #[test]
    fn paths_are_local_and_other_hosts_are_not() {
        for place in
            ["/", "/c/1?x=//y#z", "/a//b", "/%2f%2fevil.example", "/..//evil.example", "/@evil.example"]
        {
            assert!(is_local(place), "{place}");
        }
        let long = format!("/{}", "a".repeat(MAX_BYTES));
        for place in [
            "",
            "c",
            "//evil.example",
            "/\\evil.example",
            "\\/evil.example",
            "https://evil.example",
            "/\t/evil.example",
            "/a\r\nset-cookie: x=1",
            "javascript:alert(1)",
            "/ü",
            " /a",
            &long,
        ] {
            assert!(!is_local(place), "{place}");
        }
    }

    proptest! {
        #[test]
        fn what_is_local_stays_on_the_server(place in "[/\\\\.@:a-z?#%\t\n 0-9]{0,12}") {
            let base = Url::parse("https://chat.example/api/oidc/corp/callback").unwrap();
            if is_local(&place) {
                prop_assert_eq!(base.join(&place).unwrap().origin(), base.origin());
            }
        }
    }
}
