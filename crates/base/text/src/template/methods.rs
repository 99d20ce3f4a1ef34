//! Python methods of strings and dicts that templates call.
//!
//! What is not here falls through to minijinja's own Python compatibility.

use super::args::Args;
use super::python::{View, ViewKind};
use crate::unicode::is_printable;
use minijinja::value::{DynObject, Tuple, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

/// Most digits of a width in a `str.format` template; more is an attempt to allocate gigabytes.
const MAX_WIDTH_DIGITS: usize = 5;

/// The unknown-method callback: calls `value.method(args)`.
pub(super) fn call(state: &mut State, value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    let known = match value.kind() {
        ValueKind::String => string_method(state, value.as_str().unwrap_or(""), method, args)?,
        ValueKind::Map => dict_method(value, method),
        _ => None,
    };
    match known {
        Some(result) => Ok(result),
        None => minijinja_contrib::pycompat::unknown_method_callback(state, value, method, args),
    }
}

/// Charges fuel for creating `bytes` before they exist; the engine itself charges one per 64 bytes.
pub(super) fn charge(state: &State, bytes: usize) -> Result<(), Error> {
    if bytes >= 64 { state.consume_fuel(bytes as u64 / 64) } else { Ok(()) }
}

/// What Python takes for white space: Unicode's, and the four separators U+001C..U+001F.
pub(super) fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

fn dict_method(value: &Value, method: &str) -> Option<Value> {
    let kind = match method {
        "keys" => ViewKind::Keys,
        "values" => ViewKind::Values,
        "items" => ViewKind::Items,
        _ => return None,
    };
    let pairs = value.as_object().and_then(DynObject::try_iter_pairs);
    let items = pairs.into_iter().flatten().map(|(key, item)| match kind {
        ViewKind::Keys => key,
        ViewKind::Values => item,
        ViewKind::Items | ViewKind::Generator => Value::from(Tuple::from([key, item])),
    });
    Some(Value::from_object(View { kind, items: items.collect() }))
}

fn string_method(state: &State, s: &str, method: &str, values: &[Value]) -> Result<Option<Value>, Error> {
    let args = Args::of_slice("str method", values)?;
    if let Some(value) = strip_method(s, method, &args)?.or(split_method(s, method, &args)?) {
        return Ok(Some(value));
    }
    if let Some(value) = pad_method(state, s, method, &args)?.or(find_method(s, method, &args)?) {
        return Ok(Some(value));
    }
    let all = |is: fn(char) -> bool| Value::from(!s.is_empty() && s.chars().all(is));
    let value = match method {
        "swapcase" => Value::from(swap_case(s)),
        "casefold" => Value::from(s.to_lowercase().replace('ß', "ss")),
        "removeprefix" => Value::from(s.strip_prefix(args.required_text(0, "prefix")?.as_str()).unwrap_or(s)),
        "removesuffix" => Value::from(s.strip_suffix(args.required_text(0, "suffix")?.as_str()).unwrap_or(s)),
        "isspace" => all(is_space),
        "isdecimal" => all(|c| c.is_ascii_digit()),
        "isprintable" => Value::from(s.chars().all(is_printable)),
        "format" => {
            check_widths(s)?;
            return Ok(None);
        }
        _ => return Ok(None),
    };
    Ok(Some(value))
}

fn strip_method(s: &str, method: &str, args: &Args) -> Result<Option<Value>, Error> {
    if !matches!(method, "strip" | "lstrip" | "rstrip") {
        return Ok(None);
    }
    let chars: Option<Vec<char>> = args.text(0, "chars")?.map(|chars| chars.chars().collect());
    args.finish(1)?;
    let strip = |c: char| chars.as_ref().map_or_else(|| is_space(c), |chars| chars.contains(&c));
    Ok(Some(Value::from(match method {
        "lstrip" => s.trim_start_matches(strip),
        "rstrip" => s.trim_end_matches(strip),
        _ => s.trim_matches(strip),
    })))
}

fn split_method(s: &str, method: &str, args: &Args) -> Result<Option<Value>, Error> {
    let parts: Vec<&str> = match method {
        "split" | "rsplit" => {
            let separator = args.text(0, "sep")?;
            let most = usize::try_from(args.int(1, "maxsplit", -1)?).unwrap_or(usize::MAX);
            args.finish(2)?;
            match separator.as_deref() {
                Some("") => return Err(invalid("empty separator")),
                Some(sep) if method == "split" => s.splitn(most.saturating_add(1), sep).collect(),
                Some(sep) => reversed(s.rsplitn(most.saturating_add(1), sep).collect()),
                None if method == "split" => split_space(s, most),
                None => rsplit_space(s, most),
            }
        }
        "splitlines" => split_lines(s, args.flag(0, "keepends", false)?),
        "partition" | "rpartition" => {
            let separator = args.required_text(0, "sep")?;
            if separator.is_empty() {
                return Err(invalid("empty separator"));
            }
            let first = method == "partition";
            let at = if first { s.find(&separator) } else { s.rfind(&separator) };
            let parts = match at {
                Some(i) => [&s[..i], &s[i..i + separator.len()], &s[i + separator.len()..]],
                None if first => [s, "", ""],
                None => ["", "", s],
            };
            return Ok(Some(Value::from(Tuple::from(parts.map(Value::from)))));
        }
        _ => return Ok(None),
    };
    Ok(Some(parts.into_iter().map(Value::from).collect()))
}

fn reversed(mut parts: Vec<&str>) -> Vec<&str> {
    parts.reverse();
    parts
}

/// Splits at runs of white space, at most `most` times; the last part keeps its inner space.
fn split_space(s: &str, most: usize) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = s.trim_start_matches(is_space);
    while !rest.is_empty() {
        let end = if parts.len() < most { rest.find(is_space) } else { None };
        let (part, after) = rest.split_at(end.unwrap_or(rest.len()));
        parts.push(part);
        rest = after.trim_start_matches(is_space);
    }
    parts
}

/// Like [`split_space`] from the right.
fn rsplit_space(s: &str, most: usize) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = s.trim_end_matches(is_space);
    while !rest.is_empty() {
        let last = rest.char_indices().rev().find(|&(_, c)| is_space(c));
        match last {
            Some((i, c)) if parts.len() < most => {
                parts.push(&rest[i + c.len_utf8()..]);
                rest = rest[..i].trim_end_matches(is_space);
            }
            _ => {
                parts.push(rest);
                break;
            }
        }
    }
    reversed(parts)
}

/// Splits at Python's line boundaries.
fn split_lines(s: &str, keep_ends: bool) -> Vec<&str> {
    let is_break =
        |c: char| matches!(c, '\n'..='\r' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}');
    let mut lines = Vec::new();
    let mut rest = s;
    while !rest.is_empty() {
        let end = rest.find(is_break).unwrap_or(rest.len());
        let after = &rest[end..];
        let len = if after.starts_with("\r\n") { 2 } else { after.chars().next().map_or(0, char::len_utf8) };
        lines.push(&rest[..if keep_ends { end + len } else { end }]);
        rest = &rest[end + len..];
    }
    lines
}

fn pad_method(state: &State, s: &str, method: &str, args: &Args) -> Result<Option<Value>, Error> {
    if !matches!(method, "ljust" | "rjust" | "center" | "zfill") {
        return Ok(None);
    }
    let width = usize::try_from(args.int(0, "width", 0)?).unwrap_or(0);
    let fill = args.text(1, "fillchar")?.unwrap_or_else(|| " ".to_owned());
    let (Some(fill), 1) = (fill.chars().next(), fill.chars().count()) else {
        return Err(invalid("the fill character must be exactly one character long"));
    };
    charge(state, width.saturating_mul(fill.len_utf8()))?;
    let missing = width.saturating_sub(s.chars().count());
    let pad = |n: usize, fill: char| std::iter::repeat_n(fill, n).collect::<String>();
    Ok(Some(Value::from(match method {
        "ljust" => s.to_owned() + &pad(missing, fill),
        "rjust" => pad(missing, fill) + s,
        "zfill" => {
            let sign = s.len() - s.trim_start_matches(['+', '-']).len();
            let sign = sign.min(1);
            format!("{}{}{}", &s[..sign], pad(missing, '0'), &s[sign..])
        }
        // CPython puts the odd character on the left when the width is odd.
        _ => {
            let left = missing / 2 + (missing & width & 1);
            pad(left, fill) + s + &pad(missing - left, fill)
        }
    })))
}

fn find_method(s: &str, method: &str, args: &Args) -> Result<Option<Value>, Error> {
    if !matches!(method, "index" | "rindex") {
        return Ok(None);
    }
    let what = args.required_text(0, "sub")?;
    let at = if method == "index" { s.find(&what) } else { s.rfind(&what) };
    at.map(|i| Some(Value::from(s[..i].chars().count()))).ok_or_else(|| invalid("substring not found"))
}

fn swap_case(s: &str) -> String {
    let mut out = String::with_capacity(s.len());
    for c in s.chars() {
        if c.is_uppercase() {
            out.extend(c.to_lowercase());
        } else {
            out.extend(c.to_uppercase());
        }
    }
    out
}

/// Refuses `str.format` templates with a width or precision that would allocate gigabytes.
fn check_widths(format: &str) -> Result<(), Error> {
    let mut digits = 0;
    for c in format.chars() {
        digits = if c.is_ascii_digit() { digits + 1 } else { 0 };
        if digits > MAX_WIDTH_DIGITS {
            return Err(invalid("a width in the format string is too large"));
        }
    }
    Ok(())
}

fn invalid(message: &'static str) -> Error {
    Error::new(ErrorKind::InvalidOperation, message)
}
