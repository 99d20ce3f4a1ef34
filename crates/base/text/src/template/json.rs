//! `tojson` as `transformers` defines it for chat templates: Python's `json.dumps`, not escaping
//! non-ASCII text or HTML unless asked.

use super::args::Args;
use super::env::RenderState;
use super::python::{as_float, check_size, float_repr};
use minijinja::value::{DynObject, Rest, ValueKind, ValueOrKwargs};
use minijinja::{Error, ErrorKind, State, Value};
use std::fmt::Write;

/// Most spaces of one indentation level.
const MAX_INDENT: usize = 64;

struct Writer<'a> {
    out: String,
    render: &'a RenderState,
    ensure_ascii: bool,
    sort_keys: bool,
    indent: Option<String>,
    item_separator: String,
    key_separator: String,
}

/// The filter `tojson(ensure_ascii=False, indent=None, separators=None, sort_keys=False)`.
pub(super) fn tojson(state: &State, value: &Value, rest: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    let render = RenderState::of(state);
    let args = Args::new("tojson", rest)?;
    let indent = args.get(1, "indent")?.as_ref().map(indent_text).transpose()?.flatten();
    let default = (if indent.is_some() { "," } else { ", " }.to_owned(), ": ".to_owned());
    let (item_separator, key_separator) = match args.get(2, "separators")? {
        Some(pair) if !pair.is_none() => separators(&pair)?,
        _ => default,
    };
    let mut writer = Writer {
        out: String::new(),
        render: &render,
        ensure_ascii: args.flag(0, "ensure_ascii", false)?,
        sort_keys: args.flag(3, "sort_keys", false)?,
        indent,
        item_separator,
        key_separator,
    };
    args.finish(4)?;
    writer.value(value, 0)?;
    Ok(Value::from(writer.out))
}

/// `indent` as Python takes it: a number of spaces or the text itself.
fn indent_text(value: &Value) -> Result<Option<String>, Error> {
    if value.is_none() {
        return Ok(None);
    }
    if let Some(text) = value.as_str() {
        return Ok(Some(text.chars().take(MAX_INDENT).collect()));
    }
    let width = i64::try_from(value.clone())?.max(0) as usize;
    Ok(Some(" ".repeat(width.min(MAX_INDENT))))
}

fn separators(pair: &Value) -> Result<(String, String), Error> {
    let texts: Vec<Value> = pair.try_iter()?.collect();
    match texts.as_slice() {
        [item, key] if item.as_str().is_some() && key.as_str().is_some() => {
            Ok((item.to_string(), key.to_string()))
        }
        _ => Err(Error::new(ErrorKind::InvalidOperation, "tojson: separators must be two strings")),
    }
}

impl Writer<'_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        check_size(depth, &self.out)?;
        if let Some(text) = value.as_str() {
            self.string(text);
            return Ok(());
        }
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.out.push_str(&number(value)),
            ValueKind::Seq => self.array(value, depth)?,
            ValueKind::Map => self.object(value, depth)?,
            kind => return Err(not_serializable(kind)),
        }
        Ok(())
    }

    fn array(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        self.out.push('[');
        let mut any = false;
        for item in value.try_iter()? {
            self.separate(any, depth + 1);
            any = true;
            self.value(&item, depth + 1)?;
        }
        self.close(any, depth, ']');
        Ok(())
    }

    fn object(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        self.out.push('{');
        let pairs = value.as_object().and_then(DynObject::try_iter_pairs);
        let mut pairs: Vec<(Value, Value)> = pairs.into_iter().flatten().collect();
        if self.sort_keys {
            pairs.sort_by(|a, b| a.0.cmp(&b.0));
        }
        for (i, (key, item)) in pairs.iter().enumerate() {
            self.separate(i > 0, depth + 1);
            match (key.as_str(), key.kind()) {
                (Some(text), _) => self.string(text),
                (None, ValueKind::None) => self.out.push_str("\"null\""),
                (None, ValueKind::Bool) => {
                    self.out.push_str(if key.is_true() { "\"true\"" } else { "\"false\"" })
                }
                (None, ValueKind::Number) => self.string(&number(key)),
                (None, kind) => return Err(not_serializable(kind)),
            }
            self.out.push_str(&self.key_separator);
            self.value(item, depth + 1)?;
        }
        self.close(!pairs.is_empty(), depth, '}');
        Ok(())
    }

    fn separate(&mut self, has_item: bool, depth: usize) {
        if has_item {
            self.out.push_str(&self.item_separator);
        }
        self.new_line(depth);
    }

    fn close(&mut self, has_item: bool, depth: usize, bracket: char) {
        if has_item {
            self.new_line(depth);
        }
        self.out.push(bracket);
    }

    fn new_line(&mut self, depth: usize) {
        if let Some(indent) = &self.indent {
            self.out.push('\n');
            self.out.extend(std::iter::repeat_n(indent.as_str(), depth));
        }
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                c if (c as u32) < 0x20 || (self.ensure_ascii && self.must_escape(c)) => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        // Writing to a string cannot fail.
                        let _ = write!(self.out, "\\u{unit:04x}");
                    }
                }
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }

    /// Whether `ensure_ascii` escapes `c`. The marker is not text and has to survive as itself.
    fn must_escape(&self, c: char) -> bool {
        !(' '..='~').contains(&c) && self.render.marker != Some(c)
    }
}

fn number(value: &Value) -> String {
    match as_float(value) {
        Some(f) if f.is_nan() => "NaN".to_owned(),
        Some(f) if f.is_infinite() => if f > 0.0 { "Infinity" } else { "-Infinity" }.to_owned(),
        Some(f) => float_repr(f),
        None => value.to_string(),
    }
}

fn not_serializable(kind: ValueKind) -> Error {
    let name = match kind {
        ValueKind::Undefined => "Undefined".to_owned(),
        ValueKind::Iterable => "generator".to_owned(),
        kind => kind.to_string(),
    };
    Error::new(ErrorKind::InvalidOperation, format!("Object of type {name} is not JSON serializable"))
}
