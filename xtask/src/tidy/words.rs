//! Words that do not belong in the source.

use super::lexer::{self, is_word};
use super::{Finding, SourceFile};

/// Where a word is looked for.
#[derive(Clone, Copy)]
enum In {
    /// Rust code: no comments, no literals.
    Code,
    /// Comments in Rust, and every other text file whole.
    Comments,
}

/// A word that must not appear.
struct Rule {
    word: &'static str,
    searched: In,
    /// Only below one of these folders; empty for everywhere.
    below: &'static [&'static str],
    /// Not where the path has one of these in it.
    except: &'static [&'static str],
    why: &'static str,
}

const CORES: &[&str] = &["crates/cores/"];
const CORES_WHY: &str = "a core is deterministic and does no I/O: take it as an argument";
const UNFINISHED: &str = "finish it, or open an issue and leave it out";

const RULES: &[Rule] = &[
    anywhere("todo!", In::Code, UNFINISHED),
    anywhere("unimplemented!", In::Code, UNFINISHED),
    anywhere("dbg!", In::Code, "remove it, or use tracing"),
    anywhere("TODO", In::Comments, UNFINISHED),
    anywhere("FIXME", In::Comments, UNFINISHED),
    anywhere("XXX", In::Comments, UNFINISHED),
    anywhere("HACK", In::Comments, "say why it has to be so"),
    Rule {
        word: "unsafe",
        searched: In::Code,
        below: &[],
        except: &["crates/compute/"],
        why: "unsafe code belongs in crates/compute",
    },
    core("std::fs"),
    core("std::net"),
    core("std::thread"),
    core("std::env"),
    core("Instant::now"),
    core("SystemTime"),
    core("async fn"),
];

const fn anywhere(word: &'static str, searched: In, why: &'static str) -> Rule {
    Rule { word, searched, below: &[], except: &[], why }
}

const fn core(word: &'static str) -> Rule {
    // Their tests and benchmarks may share threads and measure time.
    Rule { word, searched: In::Code, below: CORES, except: &["/tests/", "/benches/"], why: CORES_WHY }
}

/// This table names the words it forbids.
const SELF: &str = "xtask/src/tidy/words.rs";

/// Every place in the file where a rule's word stands.
pub(crate) fn check(file: &SourceFile) -> Vec<Finding> {
    if file.path == SELF {
        return Vec::new();
    }
    let is_rust = file.has_extension(&["rs"]);
    let parts = is_rust.then(|| lexer::split(&file.text));
    let mut findings = Vec::new();
    for rule in RULES.iter().filter(|rule| rule.covers(&file.path)) {
        let text = match (&parts, rule.searched) {
            (Some(parts), In::Code) => &parts.code,
            (Some(parts), In::Comments) => &parts.comments,
            (None, In::Code) => continue,
            (None, In::Comments) => &file.text,
        };
        let hits = text.lines().enumerate().filter(|(_, line)| has_word(line, rule.word));
        findings.extend(hits.map(|(index, _)| {
            Finding::error(format!("{}:{}", file.path, index + 1), format!("`{}`: {}", rule.word, rule.why))
        }));
    }
    findings
}

impl Rule {
    fn covers(&self, path: &str) -> bool {
        let is_below = self.below.is_empty() || self.below.iter().any(|folder| path.starts_with(folder));
        is_below && !self.except.iter().any(|part| path.contains(part))
    }
}

/// Whether the word stands in the line and is not a piece of a longer one.
fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        let is_edge = |inner: Option<char>, outer: Option<char>| {
            !(inner.is_some_and(is_word) && outer.is_some_and(is_word))
        };
        is_edge(word.chars().next(), before) && is_edge(word.chars().next_back(), after)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_where_they_matter() {
        let check = |path: &str, text: &str, expected: &[&str]| {
            let file = SourceFile { path: path.to_owned(), text: text.to_owned() };
            let places: Vec<String> = check(&file).into_iter().map(|finding| finding.place).collect();
            assert_eq!(places, expected, "{path}: {text}");
        };
        check("a.rs", "fn f() {\n    todo!()\n}", &["a.rs:2"]);
        check("a.rs", "let text = \"todo!()\"; // todo! is a macro", &[]);
        check("a.rs", "// FIXME: later", &["a.rs:1"]);
        check("a.rs", "let is_unsafe = 1;", &[]);
        check("crates/edges/a.rs", "unsafe { f() }", &["crates/edges/a.rs:1"]);
        check("crates/compute/a.rs", "unsafe { f() }", &[]);
        check("crates/cores/kv/src/lib.rs", "use std::fs;", &["crates/cores/kv/src/lib.rs:1"]);
        check("crates/cores/kv/benches/a.rs", "use std::fs;", &[]);
        check("crates/base/a.rs", "use std::fs;", &[]);
        check("a.sh", "mktemp -t XXXXXX", &[]);
        check("a.md", "FIXME", &["a.md:1"]);
    }
}
