//! Lock files that work with any configured npm registry.

use super::{Finding, SourceFile};

/// A finding when a lock file pins the address of a registry.
pub(crate) fn check(file: &SourceFile) -> Option<Finding> {
    let is_lock = file.path.ends_with("package-lock.json");
    (is_lock && file.text.contains("\"resolved\": \"http")).then(|| {
        let advice = "names a registry: create it with `npm install --omit-lockfile-registry-resolved`";
        Finding::error(&file.path, advice)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_in_lock_files_are_found() {
        let check = |path: &str, text: &str| {
            check(&SourceFile { path: path.to_owned(), text: text.to_owned() }).is_some()
        };
        assert!(check("web/package-lock.json", "\"resolved\": \"https://h/x.tgz\""));
        assert!(!check("web/package-lock.json", "\"integrity\": \"sha512-x\""));
        assert!(!check("web/notes.json", "\"resolved\": \"https://h/x.tgz\""));
    }
}
