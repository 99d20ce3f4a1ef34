//! Values as Python writes them: `str()`, `repr()` and floats.

use super::env::RenderState;
use crate::unicode::is_printable;
use minijinja::value::{DynObject, Enumerator, Object, ObjectRepr, ValueKind};
use minijinja::{Error, ErrorKind, Value};
use std::borrow::Cow;
use std::fmt::Write;
use std::sync::Arc;

/// How deep containers may nest when they are printed or serialised; a template could build any depth.
const MAX_DEPTH: usize = 128;

/// Longest text that one value may become. A value can hold itself twice over again and again, so that
/// its text is exponentially longer than the work it took to build.
const MAX_TEXT: usize = 32 << 20;

/// Refuses to go on with a value that is too deep or whose text is too long.
pub(super) fn check_size(depth: usize, text: &str) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        return Err(too_deep());
    }
    if text.len() > MAX_TEXT {
        return Err(Error::new(ErrorKind::OutOfFuel, "value is too large to print"));
    }
    Ok(())
}

/// The error for containers nested deeper than [`MAX_DEPTH`].
fn too_deep() -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("value is nested more than {MAX_DEPTH} levels deep"))
}

/// The value as a float, if it is one (integers and booleans are not).
pub(super) fn as_float(value: &Value) -> Option<f64> {
    let is_float = value.kind() == ValueKind::Number && !value.is_integer();
    if is_float { f64::try_from(value.clone()).ok() } else { None }
}

/// `repr` of a float: the shortest digits that read back the same, in exponent form below 1e-4 and from
/// 1e16 on.
pub(super) fn float_repr(f: f64) -> String {
    if f.is_nan() {
        return "nan".to_owned();
    }
    if f.is_infinite() {
        return if f > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let scientific = format!("{f:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let plain = format!("{f}");
        return if plain.contains('.') { plain } else { plain + ".0" };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

/// `str(value)`.
pub(super) fn py_str<'a>(value: &'a Value, render: &RenderState) -> Result<Cow<'a, str>, Error> {
    if let Some(text) = value.as_str() {
        return Ok(Cow::Borrowed(text));
    }
    if value.is_undefined() {
        return Ok(Cow::Borrowed(""));
    }
    let mut out = String::new();
    write_repr(value, render, 0, &mut out)?;
    Ok(Cow::Owned(out))
}

/// Appends `repr(value)`.
pub(super) fn write_repr(
    value: &Value,
    render: &RenderState,
    depth: usize,
    out: &mut String,
) -> Result<(), Error> {
    check_size(depth, out)?;
    if let Some(text) = value.as_str() {
        write_str_repr(text, render, out);
        return Ok(());
    }
    match value.kind() {
        ValueKind::Undefined => out.push_str("Undefined"),
        ValueKind::Number if as_float(value).is_some() => {
            out.push_str(&float_repr(as_float(value).unwrap_or(0.0)));
        }
        ValueKind::Seq => write_sequence(value, render, depth, out)?,
        ValueKind::Map => write_mapping(value, render, depth, out)?,
        ValueKind::Iterable => match value.downcast_object_ref::<View>() {
            Some(View { kind: ViewKind::Generator, .. }) => out.push_str("<generator object>"),
            Some(view) => {
                out.push_str(view.kind.name());
                out.push('(');
                write_list(&view.items, render, depth, out)?;
                out.push(')');
            }
            None => write_sequence(value, render, depth, out)?,
        },
        _ => write!(out, "{value}").map_err(|_| Error::from(ErrorKind::WriteFailure))?,
    }
    Ok(())
}

fn write_sequence(value: &Value, render: &RenderState, depth: usize, out: &mut String) -> Result<(), Error> {
    let items: Vec<Value> = value.try_iter()?.collect();
    if !value.is_tuple() {
        return write_list(&items, render, depth, out);
    }
    out.push('(');
    for (i, item) in items.iter().enumerate() {
        out.push_str(if i > 0 { ", " } else { "" });
        write_repr(item, render, depth + 1, out)?;
    }
    out.push_str(if items.len() == 1 { ",)" } else { ")" });
    Ok(())
}

fn write_list(items: &[Value], render: &RenderState, depth: usize, out: &mut String) -> Result<(), Error> {
    out.push('[');
    for (i, item) in items.iter().enumerate() {
        out.push_str(if i > 0 { ", " } else { "" });
        write_repr(item, render, depth + 1, out)?;
    }
    out.push(']');
    Ok(())
}

fn write_mapping(value: &Value, render: &RenderState, depth: usize, out: &mut String) -> Result<(), Error> {
    out.push('{');
    let pairs = value.as_object().and_then(DynObject::try_iter_pairs);
    for (i, (key, item)) in pairs.into_iter().flatten().enumerate() {
        out.push_str(if i > 0 { ", " } else { "" });
        write_repr(&key, render, depth + 1, out)?;
        out.push_str(": ");
        write_repr(&item, render, depth + 1, out)?;
    }
    out.push('}');
    Ok(())
}

fn write_str_repr(text: &str, render: &RenderState, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\\' => out.push_str("\\\\"),
            c if c == quote => out.extend(['\\', c]),
            c if is_printable(c) || render.marker == Some(c) => out.push(c),
            // Writing to a string cannot fail.
            c => drop(match c as u32 {
                n @ 0..=0xff => write!(out, "\\x{n:02x}"),
                n @ 0x100..=0xffff => write!(out, "\\u{n:04x}"),
                n => write!(out, "\\U{n:08x}"),
            }),
        }
    }
    out.push(quote);
}

/// Which kind of iterable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ViewKind {
    /// `dict.keys()`
    Keys,
    /// `dict.values()`
    Values,
    /// `dict.items()`
    Items,
    /// What filters like `map` and `select` give.
    Generator,
}

impl ViewKind {
    fn name(self) -> &'static str {
        match self {
            Self::Keys => "dict_keys",
            Self::Values => "dict_values",
            Self::Items => "dict_items",
            Self::Generator => "generator",
        }
    }
}

/// Something to loop over that is no list: `tojson` refuses it and printing shows what it is.
#[derive(Debug)]
pub(super) struct View {
    pub(super) kind: ViewKind,
    pub(super) items: Vec<Value>,
}

impl Object for View {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Iterable
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.items.clone())
    }

    fn is_true(self: &Arc<Self>) -> bool {
        self.kind == ViewKind::Generator || !self.items.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_and_strings_as_python_writes_them() {
        let floats = [1.0, -0.0, 0.1 + 0.2, 1e16, 1e15, 123_456_789.123, 1e-5, 0.0001, 5e-324, 1e22, -2.5e-7];
        let expected = "1.0 -0.0 0.30000000000000004 1e+16 1000000000000000.0 123456789.123 1e-05 0.0001 5e-324 1e+22 -2.5e-07";
        assert_eq!(floats.map(float_repr).join(" "), expected);
        let check = |text: &str, expected: &str| {
            let mut out = String::new();
            write_str_repr(text, &RenderState::default(), &mut out);
            assert_eq!(out, expected);
        };
        check("it's", r#""it's""#);
        check("it's \"x\"", r#"'it\'s "x"'"#);
        check("a\n\\\u{7f}\u{a0}\u{200b}\u{10ffff}é日", r"'a\n\\\x7f\xa0\u200b\U0010ffffé日'");
    }
}
