//! Jinja2 filters that minijinja lacks or that behave differently there.

use super::args::Args;
use super::env::RenderState;
use super::methods::{charge, is_space};
use super::python::{View, ViewKind, as_float, py_str, write_repr};
use minijinja::filters as builtin;
use minijinja::value::{DynObject, Kwargs, Rest, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, State, Value};
use std::borrow::Cow;

/// Registers them all.
pub(super) fn register(env: &mut Environment<'static>) {
    env.add_filter("tojson", super::json::tojson);
    env.add_filter("string", string);
    env.add_filter(super::rewrite::STR, string);
    env.add_filter(super::rewrite::ITER, iterable);
    env.add_filter(super::rewrite::PERCENT, percent);
    env.add_filter("escape", escape);
    env.add_filter("e", escape);
    env.add_filter("forceescape", force_escape);
    env.add_filter("striptags", strip_tags);
    env.add_filter("int", int);
    env.add_filter("float", float);
    env.add_filter("trim", trim);
    env.add_filter("indent", indent);
    env.add_filter("center", center);
    env.add_filter("wordcount", word_count);
    env.add_filter("truncate", truncate);
    env.add_filter("wordwrap", word_wrap);
    env.add_filter("filesizeformat", file_size);
    env.add_filter("urlencode", url_encode);
    env.add_filter("attr", attr);
    register_generators(env);
}

/// Filters that give generators in Jinja2, and lists in minijinja. A generator is true even when it is
/// empty and cannot be serialised.
fn register_generators(env: &mut Environment<'static>) {
    type Args = Rest<ValueOrKwargs>;
    fn generator(items: Vec<Value>) -> Value {
        Value::from_object(View { kind: ViewKind::Generator, items })
    }
    env.add_filter("map", |state: &mut State, value: Value, args: Args| {
        builtin::map(state, value, args).map(generator)
    });
    env.add_filter("select", |state: &mut State, value: Value, test: Option<Cow<'_, str>>, args: Args| {
        builtin::select(state, value, test, args).map(generator)
    });
    env.add_filter("reject", |state: &mut State, value: Value, test: Option<Cow<'_, str>>, args: Args| {
        builtin::reject(state, value, test, args).map(generator)
    });
    env.add_filter(
        "selectattr",
        |state: &mut State, value: Value, attr: Cow<'_, str>, test: Option<Cow<'_, str>>, args: Args| {
            builtin::selectattr(state, value, attr, test, args).map(generator)
        },
    );
    env.add_filter(
        "rejectattr",
        |state: &mut State, value: Value, attr: Cow<'_, str>, test: Option<Cow<'_, str>>, args: Args| {
            builtin::rejectattr(state, value, attr, test, args).map(generator)
        },
    );
}

fn text_of(state: &State, value: &Value) -> Result<String, Error> {
    Ok(py_str(value, &RenderState::of(state))?.into_owned())
}

/// `str(value)`; markup stays markup.
fn string(state: &State, value: &Value) -> Result<Value, Error> {
    if value.as_str().is_some() { Ok(value.clone()) } else { text_of(state, value).map(Value::from) }
}

/// What a `for` loop runs over. Jinja2 refuses `None`, which minijinja takes for an empty list.
fn iterable(value: &Value) -> Result<Value, Error> {
    if value.is_none() {
        return Err(Error::new(ErrorKind::InvalidOperation, "'NoneType' object is not iterable"));
    }
    Ok(value.clone())
}

/// `'format' % arguments`.
fn percent(state: &mut State, format: &Value, arguments: &Value) -> Result<Value, Error> {
    let mut args = Vec::new();
    if arguments.is_tuple() {
        args.extend(arguments.try_iter()?);
    } else if arguments.kind() == ValueKind::Map {
        let pairs = arguments.as_object().and_then(DynObject::try_iter_pairs);
        let kwargs: Kwargs =
            pairs.into_iter().flatten().map(|(key, value)| (key.to_string(), value)).collect();
        args.push(Value::from(kwargs));
    } else {
        args.push(arguments.clone());
    }
    let format = replace_repr(state, format.as_str().unwrap_or(""), &mut args)?;
    args.insert(0, Value::from(format));
    state.apply_filter("format", &args)
}

/// Turns every `%r` into `%s` and its argument into its `repr`, which the engine's formatter lacks.
fn replace_repr(state: &State, format: &str, args: &mut [Value]) -> Result<String, Error> {
    let mut out = String::with_capacity(format.len());
    let mut next_arg = 0;
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        out.push(c);
        if c != '%' {
            continue;
        }
        let is_flag = |c: char| matches!(c, '-' | '+' | ' ' | '#' | '.' | '0'..='9');
        let flags: String = chars.clone().take_while(|&c| is_flag(c)).collect();
        out.push_str(&flags);
        let conversion = chars.by_ref().nth(flags.len());
        match (conversion, args.get_mut(next_arg)) {
            (Some('r' | 'a'), Some(arg)) => {
                let mut text = String::new();
                write_repr(arg, &RenderState::of(state), 0, &mut text)?;
                *arg = Value::from(text);
                out.push('s');
            }
            (conversion, _) => out.extend(conversion),
        }
        next_arg += usize::from(conversion != Some('%'));
    }
    Ok(out)
}

/// HTML escaping as MarkupSafe writes it.
pub(super) fn escape_html(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 8);
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&#34;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

fn escape(state: &State, value: &Value) -> Result<Value, Error> {
    if value.is_safe() { Ok(value.clone()) } else { force_escape(state, value) }
}

fn force_escape(state: &State, value: &Value) -> Result<Value, Error> {
    Ok(Value::from_safe_string(escape_html(&text_of(state, value)?)))
}

/// Drops tags and comments and collapses white space.
fn strip_tags(state: &State, value: &Value) -> Result<Value, Error> {
    let text = text_of(state, value)?;
    let mut out = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some(start) = rest.find('<') {
        let (end, skip) = if rest[start..].starts_with("<!--") { ("-->", 3) } else { (">", 1) };
        let Some(len) = rest[start..].find(end) else { break };
        out.push_str(&rest[..start]);
        rest = &rest[start + len + skip..];
    }
    out.push_str(rest);
    let words: Vec<&str> = out.split(is_space).filter(|word| !word.is_empty()).collect();
    Ok(Value::from(unescape(&words.join(" "))))
}

fn unescape(text: &str) -> String {
    text.replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&#34;", "\"")
        .replace("&quot;", "\"")
        .replace("&#39;", "'")
        .replace("&amp;", "&")
}

/// `int(value, default=0, base=10)`.
fn int(value: &Value, rest: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    let args = Args::new("int", rest)?;
    let default = args.get(0, "default")?.unwrap_or_else(|| Value::from(0));
    let base = args.int(1, "base", 10)?.clamp(2, 36) as u32;
    args.finish(2)?;
    if let Some(text) = value.as_str() {
        let text = text.trim_matches(is_space).replace('_', "");
        let digits = match base {
            16 => text.trim_start_matches("0x"),
            8 => text.trim_start_matches("0o"),
            2 => text.trim_start_matches("0b"),
            _ => &text,
        };
        if let Ok(n) = i128::from_str_radix(digits, base) {
            return Ok(Value::from(n));
        }
        return Ok(text.parse::<f64>().ok().and_then(truncated).unwrap_or(default));
    }
    Ok(match (as_float(value), value.kind()) {
        (Some(f), _) => truncated(f).unwrap_or(default),
        (None, ValueKind::Number) => value.clone(),
        (None, ValueKind::Bool) => Value::from(i64::from(value.is_true())),
        _ => default,
    })
}

fn truncated(f: f64) -> Option<Value> {
    (f.is_finite() && f.abs() < 1e38).then(|| Value::from(f.trunc() as i128))
}

/// `float(value, default=0.0)`.
fn float(value: &Value, rest: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    let args = Args::new("float", rest)?;
    let default = args.get(0, "default")?.unwrap_or_else(|| Value::from(0.0));
    args.finish(1)?;
    let parsed = match value.as_str() {
        Some(text) => text.trim_matches(is_space).replace('_', "").parse::<f64>().ok(),
        None if value.kind() == ValueKind::Bool => Some(f64::from(u8::from(value.is_true()))),
        None => f64::try_from(value.clone()).ok(),
    };
    Ok(parsed.map_or(default, Value::from))
}

/// `trim(value, chars=None)`.
fn trim(state: &State, value: &Value, rest: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    let args = Args::new("trim", rest)?;
    let chars: Option<Vec<char>> = args.text(0, "chars")?.map(|chars| chars.chars().collect());
    args.finish(1)?;
    let text = text_of(state, value)?;
    let strip = |c: char| chars.as_ref().map_or_else(|| is_space(c), |chars| chars.contains(&c));
    Ok(Value::from(text.trim_matches(strip)))
}

/// `indent(s, width=4, first=False, blank=False)`; the width may be the text to indent with.
fn indent(state: &State, value: &Value, rest: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    let args = Args::new("indent", rest)?;
    let width = args.get(0, "width")?.unwrap_or_else(|| Value::from(4));
    let (first, blank) = (args.flag(1, "first", false)?, args.flag(2, "blank", false)?);
    args.finish(3)?;
    let text = text_of(state, value)?;
    let lines: Vec<&str> = text.split('\n').collect();
    let indention = match width.as_str() {
        Some(indention) => indention.to_owned(),
        None => {
            let width = usize::try_from(i64::try_from(width)?).unwrap_or(0);
            charge(state, width.saturating_mul(lines.len()))?;
            " ".repeat(width)
        }
    };
    charge(state, indention.len().saturating_mul(lines.len()))?;
    let mut out = String::with_capacity(text.len());
    for (i, line) in lines.iter().enumerate() {
        out.push_str(if i > 0 { "\n" } else { "" });
        if if i == 0 { first } else { blank || !line.is_empty() } {
            out.push_str(&indention);
        }
        out.push_str(line);
    }
    Ok(Value::from(out))
}

fn center(state: &mut State, value: &Value, width: Option<i64>) -> Result<Value, Error> {
    let text = Value::from(text_of(state, value)?);
    text.call_method(state, "center", &[Value::from(width.unwrap_or(80))])
}

fn word_count(state: &State, value: &Value) -> Result<Value, Error> {
    let text = text_of(state, value)?;
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    Ok(Value::from(text.split(|c| !is_word(c)).filter(|word| !word.is_empty()).count()))
}

/// `truncate(s, length=255, killwords=False, end='...', leeway=5)`.
fn truncate(state: &State, value: &Value, rest: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    let args = Args::new("truncate", rest)?;
    let length = usize::try_from(args.int(0, "length", 255)?).unwrap_or(0);
    let whole_words = !args.flag(1, "killwords", false)?;
    let end = args.text(2, "end")?.unwrap_or_else(|| "...".to_owned());
    let leeway = usize::try_from(args.int(3, "leeway", 5)?).unwrap_or(0);
    args.finish(4)?;
    let text = text_of(state, value)?;
    if text.chars().count() <= length.saturating_add(leeway) {
        return Ok(Value::from(text));
    }
    let cut: String = text.chars().take(length.saturating_sub(end.chars().count())).collect();
    let kept =
        if whole_words { cut.rsplit_once(' ').map_or(cut.as_str(), |(before, _)| before) } else { &cut };
    Ok(Value::from(kept.to_owned() + &end))
}

/// `wordwrap(s, width=79, break_long_words=True, wrapstring="\n")`, breaking only at spaces and inside
/// words that are longer than a line.
fn word_wrap(state: &State, value: &Value, rest: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    let args = Args::new("wordwrap", rest)?;
    let width = usize::try_from(args.int(0, "width", 79)?).unwrap_or(1).max(1);
    let break_long = args.flag(1, "break_long_words", true)?;
    let wrap = args.text(2, "wrapstring")?.unwrap_or_else(|| "\n".to_owned());
    args.finish(3)?;
    let text = text_of(state, value)?;
    let mut lines: Vec<String> = Vec::new();
    for paragraph in text.split('\n') {
        let mut line = String::new();
        for word in paragraph.split(' ').filter(|word| !word.is_empty()) {
            let mut word: Vec<char> = word.chars().collect();
            if !line.is_empty() && line.chars().count() + 1 + word.len() > width {
                lines.push(std::mem::take(&mut line));
            }
            while break_long && word.len() > width {
                lines.push(word.drain(..width).collect());
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.extend(word);
        }
        lines.push(line);
    }
    charge(state, wrap.len().saturating_mul(lines.len()))?;
    Ok(Value::from(lines.join(&wrap)))
}

fn file_size(value: &Value, binary: Option<bool>) -> Result<Value, Error> {
    let bytes = f64::try_from(value.clone())?;
    let binary = binary.unwrap_or(false);
    let (base, units) = if binary { (1024.0, "KMGTPEZY") } else { (1000.0, "kMGTPEZY") };
    if bytes == 1.0 {
        return Ok(Value::from("1 Byte"));
    }
    if bytes < base {
        return Ok(Value::from(format!("{} Bytes", bytes.trunc())));
    }
    let mut unit = base;
    for (i, prefix) in units.chars().enumerate() {
        unit *= base;
        if bytes < unit || i + 1 == units.len() {
            let suffix = if binary { "iB" } else { "B" };
            return Ok(Value::from(format!("{:.1} {prefix}{suffix}", base * bytes / unit)));
        }
    }
    Ok(Value::from(""))
}

/// Percent-encodes text, or the pairs of a mapping as a query string.
fn url_encode(state: &State, value: &Value) -> Result<Value, Error> {
    if value.kind() != ValueKind::Map {
        return Ok(Value::from(quote(&text_of(state, value)?, "/", "%20")));
    }
    let pairs = value.as_object().and_then(DynObject::try_iter_pairs);
    let mut parts = Vec::new();
    for (key, item) in pairs.into_iter().flatten() {
        let (key, item) = (text_of(state, &key)?, text_of(state, &item)?);
        parts.push(format!("{}={}", quote(&key, "", "+"), quote(&item, "", "+")));
    }
    Ok(Value::from(parts.join("&")))
}

fn quote(text: &str, safe: &str, space: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        let c = char::from(byte);
        match c {
            ' ' => out.push_str(space),
            'a'..='z' | 'A'..='Z' | '0'..='9' | '_' | '.' | '-' | '~' => out.push(c),
            c if c.is_ascii() && safe.contains(c) => out.push(c),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// `getattr`, which finds no items: a mapping's keys are not its attributes.
fn attr(value: &Value, name: &str) -> Result<Value, Error> {
    if value.kind() == ValueKind::Map { Ok(Value::UNDEFINED) } else { value.get_attr(name) }
}
