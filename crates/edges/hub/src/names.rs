//! What names from users and hubs may look like. They become paths, so nothing here may lead out of
//! the folder it is joined to.

/// `owner/name`, each of letters, digits, `-`, `_` and `.`, not starting with `.` or `-`.
pub(crate) fn is_repo(text: &str) -> bool {
    text.split_once('/').is_some_and(|(owner, name)| is_repo_part(owner) && is_repo_part(name))
}

fn is_repo_part(part: &str) -> bool {
    is_component(part) && !part.starts_with('-') && !part.contains("..") && !part.contains("--")
}

/// A single path component that a hub chose: a commit or an etag.
pub(crate) fn is_component(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !text.is_empty() && text.len() <= 200 && !text.starts_with('.') && text.chars().all(allowed)
}

/// A relative path with `/` between components that stays inside the folder it is joined to.
pub(crate) fn check_file(text: &str) -> Result<(), &'static str> {
    let bytes = text.as_bytes();
    if text.is_empty() {
        return Err("it is empty");
    }
    if text.len() > 1024 {
        return Err("it is longer than 1024 bytes");
    }
    if text.starts_with('/') || (bytes.len() > 1 && bytes[1] == b':') {
        return Err("it is an absolute path");
    }
    if text.contains('\\') {
        return Err("it has a backslash");
    }
    if text.chars().any(char::is_control) {
        return Err("it has a control character");
    }
    for part in text.split('/') {
        match part {
            "" => return Err("it has an empty part"),
            "." | ".." => return Err("it has a part \".\" or \"..\""),
            _ => {}
        }
    }
    Ok(())
}

/// Lower-case hex of 32 bytes.
pub(crate) fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// `text` with what a URL path does not allow escaped; `/` stays.
pub(crate) fn url_path(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b'/' => {
                out.push(char::from(byte))
            }
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}
