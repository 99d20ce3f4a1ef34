//! JSON to template values.

use minijinja::Value;
use serde_json::Value as Json;
use std::borrow::Cow;

/// Where a string stands in the caller's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// A key of an object.
    Key,
    /// The `role` of a message.
    Role,
    /// Any other string.
    Text,
}

/// Converts caller data; `map` sees every string and may change it.
///
/// The depth of recursion is that of the JSON, which the parser bounds.
pub(super) fn to_value<'a>(json: &'a Json, map: &impl Fn(&'a str, Place) -> Cow<'a, str>) -> Value {
    convert(json, Place::Text, map)
}

fn convert<'a>(json: &'a Json, place: Place, map: &impl Fn(&'a str, Place) -> Cow<'a, str>) -> Value {
    match json {
        Json::Null => Value::from(()),
        Json::Bool(b) => Value::from(*b),
        Json::Number(n) => match (n.as_i64(), n.as_u64(), n.as_f64()) {
            (Some(i), ..) => Value::from(i),
            (_, Some(u), _) => Value::from(u),
            (.., f) => Value::from(f.unwrap_or(f64::NAN)),
        },
        Json::String(s) => Value::from(map(s, place).as_ref()),
        Json::Array(items) => items.iter().map(|item| convert(item, Place::Text, map)).collect(),
        Json::Object(fields) => Value::from_pairs(fields.iter().map(|(key, value)| {
            let place = if key == "role" { Place::Role } else { Place::Text };
            (map(key, Place::Key).into_owned(), convert(value, place, map))
        })),
    }
}

/// Calls `see` with every string of `json`, keys included.
pub(super) fn for_each_string<'a>(json: &'a Json, see: &mut impl FnMut(&'a str)) {
    match json {
        Json::Null | Json::Bool(_) | Json::Number(_) => {}
        Json::String(s) => see(s),
        Json::Array(items) => items.iter().for_each(|item| for_each_string(item, see)),
        Json::Object(fields) => fields.iter().for_each(|(key, value)| {
            see(key);
            for_each_string(value, see);
        }),
    }
}
