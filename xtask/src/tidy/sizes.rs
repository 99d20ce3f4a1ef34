//! Files short enough to read in one go.

use super::{Finding, SourceFile};

/// Longer files are worth a note.
const NOTED_LINES: usize = 500;
/// Longer files are an error.
const MAX_LINES: usize = 800;
const CODE: &[&str] = &["rs", "ts", "tsx", "js", "mjs", "css", "py", "sh"];

/// Files that are tables, with the reason.
const TABLES: &[(&str, &str)] = &[];

/// A finding when the file is long.
pub(crate) fn check(file: &SourceFile) -> Option<Finding> {
    let lines = file.text.lines().count();
    let is_table = TABLES.iter().any(|(path, _)| *path == file.path);
    if !file.has_extension(CODE) || is_table || lines <= NOTED_LINES {
        return None;
    }
    let what = format!("{lines} lines; aim for {NOTED_LINES}: split it by idea");
    Some(if lines > MAX_LINES { Finding::error(&file.path, what) } else { Finding::note(&file.path, what) })
}

#[cfg(test)]
mod tests {
    use super::super::Severity;
    use super::*;

    #[test]
    fn long_code_is_found() {
        let check = |path: &str, lines: usize, expected: Option<Severity>| {
            let file = SourceFile { path: path.to_owned(), text: "x\n".repeat(lines) };
            assert_eq!(check(&file).map(|finding| finding.severity), expected, "{path} {lines}");
        };
        check("a.rs", 500, None);
        check("a.rs", 501, Some(Severity::Note));
        check("a.rs", 801, Some(Severity::Error));
        check("data.json", 5_000, None);
    }
}
