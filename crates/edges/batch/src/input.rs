//! A batch's input: lines of JSON, each a request. All are checked before the first is sent.

use std::collections::HashSet;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use serde::Serialize;
use serde_json::Value;

/// Most problems that are told: a file that is wrong throughout is told by its first lines.
const MAX_PROBLEMS: usize = 100;
/// Longest `custom_id` in characters. Each is kept in the answers.
const MAX_ID_CHARS: usize = 512;

/// Names of lines, as numbers: what they are is in the files, and 50,000 would take memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct Names(RandomState, RandomState);

impl Names {
    /// Two names have the same number with a chance of 2⁻¹²⁸.
    pub(crate) fn number(&self, name: &str) -> u128 {
        u128::from(self.0.hash_one(name)) << 64 | u128::from(self.1.hash_one(name))
    }
}

/// Where a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Where it begins.
    pub(crate) offset: u64,
    /// How long it is, without its end.
    pub(crate) length: usize,
    /// The number of its `custom_id`.
    pub(crate) name: u128,
}

/// What may be in an input.
#[derive(Debug, Clone)]
pub(crate) struct Rules<'a> {
    pub(crate) endpoint: &'a str,
    pub(crate) max_lines: usize,
    pub(crate) max_line_bytes: usize,
}

/// Something wrong with an input, in the words of the API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Problem {
    pub(crate) code: &'static str,
    /// The line, counted from 1; absent when it is the file.
    pub(crate) line: Option<usize>,
    pub(crate) message: String,
    pub(crate) param: Option<&'static str>,
}

/// A request of an input.
#[derive(Debug, PartialEq)]
pub(crate) struct Ask {
    pub(crate) custom_id: String,
    pub(crate) body: serde_json::Map<String, Value>,
}

impl Problem {
    pub(crate) fn of_file(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, line: None, message: message.into(), param: None }
    }
}

/// Reads a whole input: where its lines are, or what is wrong with them.
pub(crate) fn read(
    path: &Path,
    rules: &Rules<'_>,
    names: &Names,
) -> io::Result<Result<Vec<Entry>, Vec<Problem>>> {
    let mut reader = BufReader::with_capacity(1 << 16, File::open(path)?);
    let (mut entries, mut problems, mut seen) = (Vec::new(), Vec::new(), HashSet::new());
    let (mut offset, mut number) = (0, 0);
    let mut line = Vec::new();
    while problems.len() < MAX_PROBLEMS {
        line.clear();
        // One byte more than a line may have, and its end.
        let most = rules.max_line_bytes as u64 + 2;
        let read = reader.by_ref().take(most).read_until(b'\n', &mut line)?;
        if read == 0 {
            break;
        }
        number += 1;
        let start = offset;
        offset += read as u64;
        let is_whole = line.last() == Some(&b'\n');
        let (skipped, text) = trimmed(&line, start == 0);
        if text.len() > rules.max_line_bytes || (!is_whole && read as u64 == most) {
            let message = format!("a line may have {} bytes; this one has more", rules.max_line_bytes);
            problems.push(Problem { code: "line_too_long", line: Some(number), message, param: None });
            if !is_whole {
                offset += skip_line(&mut reader)?;
            }
            continue;
        }
        if text.is_empty() {
            continue;
        }
        if entries.len() == rules.max_lines {
            let message = format!("a batch may have {} lines; this one has more: split it", rules.max_lines);
            problems.push(Problem::of_file("too_many_tasks", message));
            break;
        }
        let mut problem = |code, param, message| {
            problems.push(Problem { code, line: Some(number), message, param });
        };
        match parse(text, rules.endpoint) {
            Err((code, param, message)) => problem(code, param, message),
            Ok(ask) => {
                let name = names.number(&ask.custom_id);
                if !seen.insert(name) {
                    let message = format!(
                        "the custom_id {:?} was on an earlier line; give each line its own",
                        shown(&ask.custom_id)
                    );
                    problem("duplicate_custom_id", Some("custom_id"), message);
                }
                entries.push(Entry { offset: start + skipped as u64, length: text.len(), name });
            }
        }
    }
    if entries.is_empty() && problems.is_empty() {
        problems.push(Problem::of_file("empty_file", "the input has no lines; write one request on each"));
    }
    Ok(if problems.is_empty() { Ok(entries) } else { Err(problems) })
}

/// A line without its end and blanks, and how many bytes were before it.
fn trimmed(line: &[u8], is_first: bool) -> (usize, &[u8]) {
    // A byte order mark, which some editors write.
    let marked = if is_first { line.strip_prefix(b"\xef\xbb\xbf") } else { None };
    let text = marked.unwrap_or(line).trim_ascii_start();
    (line.len() - text.len(), text.trim_ascii_end())
}

/// Reads to the end of a line; returns how much that was.
fn skip_line(reader: &mut impl BufRead) -> io::Result<u64> {
    let mut skipped = 0;
    loop {
        let buffer = reader.fill_buf()?;
        if buffer.is_empty() {
            return Ok(skipped);
        }
        let end = buffer.iter().position(|&byte| byte == b'\n').map(|at| at + 1);
        let used = end.unwrap_or(buffer.len());
        reader.consume(used);
        skipped += used as u64;
        if end.is_some() {
            return Ok(skipped);
        }
    }
}

/// Code, parameter and message.
type Wrong = (&'static str, Option<&'static str>, String);

/// A line as a request.
pub(crate) fn parse(line: &[u8], endpoint: &str) -> Result<Ask, Wrong> {
    let value: Value = serde_json::from_slice(line)
        .map_err(|error| ("invalid_json_line", None, format!("the line is not JSON: {error}")))?;
    let Value::Object(mut fields) = value else {
        return Err(("invalid_json_line", None, "the line is not a JSON object".to_owned()));
    };
    let mut text = |name: &'static str| match fields.get_mut(name).map(Value::take) {
        Some(Value::String(text)) => Ok(text),
        None | Some(Value::Null) => Err(missing(name)),
        Some(_) => Err(("invalid_type", Some(name), format!("'{name}' must be a string"))),
    };
    let (custom_id, method, url) = (text("custom_id")?, text("method")?, text("url")?);
    if custom_id.is_empty() || custom_id.chars().count() > MAX_ID_CHARS {
        let message = format!("'custom_id' must have 1 to {MAX_ID_CHARS} characters");
        return Err(("invalid_custom_id", Some("custom_id"), message));
    }
    if method != "POST" {
        let message = format!("'method' must be POST, not {:?}", shown(&method));
        return Err(("invalid_method", Some("method"), message));
    }
    if url != endpoint {
        let message = format!("'url' must be the batch's endpoint {endpoint}, not {:?}", shown(&url));
        return Err(("invalid_url", Some("url"), message));
    }
    match fields.get_mut("body").map(Value::take) {
        Some(Value::Object(body)) => Ok(Ask { custom_id, body }),
        None | Some(Value::Null) => Err(missing("body")),
        Some(_) => Err(("invalid_type", Some("body"), "'body' must be an object".to_owned())),
    }
}

fn missing(name: &'static str) -> Wrong {
    ("missing_required_parameter", Some(name), format!("'{name}' is required"))
}

/// The start of a client's own text, for a message.
fn shown(text: &str) -> String {
    text.chars().take(60).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: Rules<'_> = Rules { endpoint: "/v1/completions", max_lines: 3, max_line_bytes: 200 };

    fn line(id: &str) -> String {
        format!(r#"{{"custom_id":"{id}","method":"POST","url":"/v1/completions","body":{{"model":"m"}}}}"#)
    }

    fn check(text: &[u8], expected: &[(&str, Option<usize>)]) -> Vec<Entry> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let shown = String::from_utf8_lossy(text).chars().take(200).collect::<String>();
        match read(file.path(), &RULES, &Names::default()).unwrap() {
            Ok(entries) => {
                assert!(expected.is_empty(), "{shown}");
                for entry in &entries {
                    let start = usize::try_from(entry.offset).unwrap();
                    let line = &text[start..start + entry.length];
                    assert!(parse(line, RULES.endpoint).is_ok(), "{shown}");
                }
                entries
            }
            Err(problems) => {
                let told: Vec<_> = problems.iter().map(|problem| (problem.code, problem.line)).collect();
                assert_eq!(told, expected, "{shown} {problems:?}");
                Vec::new()
            }
        }
    }

    #[test]
    fn inputs() {
        let (a, b) = (line("a"), line("b"));
        assert_eq!(check(format!("{a}\n{b}\n").as_bytes(), &[]).len(), 2);
        assert_eq!(check(format!("\u{feff}{a}\r\n\n  {b}  ").as_bytes(), &[]).len(), 2);
        check(b"", &[("empty_file", None)]);
        check(b"\n\r\n", &[("empty_file", None)]);
        check(format!("{a}\n{a}\n{b}").as_bytes(), &[("duplicate_custom_id", Some(2))]);
        check(
            format!("{a}\n{{\n\n7\n").as_bytes(),
            &[("invalid_json_line", Some(2)), ("invalid_json_line", Some(4))],
        );
        check(b"\xff\xfe\n", &[("invalid_json_line", Some(1))]);
        let deep = format!("{}1{}", "[".repeat(90), "]".repeat(90));
        check(deep.as_bytes(), &[("invalid_json_line", Some(1))]);
        let four = ["a", "b", "c", "d"].map(line).join("\n");
        check(four.as_bytes(), &[("too_many_tasks", None)]);
        let long = format!("{a}\n{}\n{b}\n{}", line(&"x".repeat(200)), "y".repeat(100_000));
        check(long.as_bytes(), &[("line_too_long", Some(2)), ("line_too_long", Some(4))]);
        let bad = "x\n".repeat(1000);
        let expected: Vec<_> = (1..=100).map(|line| ("invalid_json_line", Some(line))).collect();
        check(bad.as_bytes(), &expected);
    }

    #[test]
    fn a_line_as_long_as_it_may_be() {
        let room = RULES.max_line_bytes - line("").len();
        for (more, is_good) in [(0, true), (1, false)] {
            let text = line(&"x".repeat(room + more));
            let expected: &[_] = if is_good { &[] } else { &[("line_too_long", Some(1))] };
            for end in ["", "\n", "\r\n"] {
                check(format!("{text}{end}").as_bytes(), expected);
            }
        }
    }

    #[test]
    fn lines() {
        let check = |name: &str, value: Value, code: &str| {
            let mut fields: Value = serde_json::from_str(&line("a")).unwrap();
            fields[name] = value;
            let (found, param, message) = parse(fields.to_string().as_bytes(), RULES.endpoint).unwrap_err();
            assert_eq!((found, param), (code, Some(name)), "{message}");
        };
        for name in ["custom_id", "method", "url", "body"] {
            check(name, Value::Null, "missing_required_parameter");
            check(name, 7.into(), "invalid_type");
        }
        check("custom_id", "".into(), "invalid_custom_id");
        check("custom_id", "é".repeat(513).into(), "invalid_custom_id");
        check("method", "GET".into(), "invalid_method");
        check("url", "/v1/chat/completions".into(), "invalid_url");
        check("body", Value::Array(Vec::new()), "invalid_type");
    }
}
