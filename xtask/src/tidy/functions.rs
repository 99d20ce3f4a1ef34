//! Functions that tell one thing.
//!
//! The source is formatted, so a function ends at the first closing brace in the column of its `fn` line.

use super::lexer;
use super::{Finding, SourceFile};

/// Longer functions are worth a note.
const NOTED_LINES: usize = 60;
/// Longer functions are an error.
const MAX_LINES: usize = 100;

/// Functions that may be long, as `path fn_name`, each with the reason.
const ALLOWED: &[(&str, &str)] = &[];

/// A finding for every long function of a Rust file.
pub(crate) fn check(file: &SourceFile) -> Vec<Finding> {
    if !file.has_extension(&["rs"]) {
        return Vec::new();
    }
    let code = lexer::split(&file.text).code;
    let lines: Vec<&str> = code.lines().collect();
    let starts = lines.iter().enumerate().filter_map(|(index, line)| Some((index, function_name(line)?)));
    let long = starts.filter_map(|(start, name)| {
        let length = length_from(&lines[start..])?;
        let is_allowed = ALLOWED.iter().any(|(allowed, _)| *allowed == format!("{} {name}", file.path));
        (length > NOTED_LINES && !is_allowed).then(|| {
            let place = format!("{}:{}", file.path, start + 1);
            let what = format!("`{name}` has {length} lines; aim for {NOTED_LINES}");
            if length > MAX_LINES { Finding::error(place, what) } else { Finding::note(place, what) }
        })
    });
    long.collect()
}

fn function_name(line: &str) -> Option<&str> {
    let (before, after) = line.split_once("fn ")?;
    let is_start = before.split_whitespace().all(|word| {
        matches!(word, "pub" | "const" | "async" | "unsafe" | "extern") || word.starts_with("pub(")
    });
    let name = after.split(|c| !lexer::is_word(c)).next().unwrap_or_default();
    (is_start && !name.is_empty()).then_some(name)
}

/// How many lines the function that starts at the first line has; `None` without a body.
fn length_from(lines: &[&str]) -> Option<usize> {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let column = indent(lines[0]);
    for (index, line) in lines.iter().enumerate() {
        let end = line.trim_end();
        let is_own = !end.trim_start().is_empty() && indent(line) == column;
        if is_own && end.ends_with(';') {
            return None;
        }
        if is_own && end.ends_with('}') {
            return Some(index + 1);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::Severity;
    use super::*;

    #[test]
    fn long_functions_are_found() {
        let check = |lines: usize, expected: &[Severity]| {
            let body = "        x();\n".repeat(lines - 2);
            let text = format!(
                "impl A {{\n    pub(crate) fn long(&self) {{\n{body}    }}\n\n    fn short() {{}}\n}}\n"
            );
            let file = SourceFile { path: "a.rs".to_owned(), text };
            let found: Vec<_> = check(&file).into_iter().map(|finding| finding.severity).collect();
            assert_eq!(found, expected, "{lines}");
        };
        check(60, &[]);
        check(61, &[Severity::Note]);
        check(101, &[Severity::Error]);
    }

    #[test]
    fn a_method_without_a_body_has_no_length() {
        let lines = ["    fn f(&self);", "    fn g(&self) {", "    }"];
        assert_eq!(length_from(&lines), None);
        assert_eq!(length_from(&lines[1..]), Some(2));
    }
}
