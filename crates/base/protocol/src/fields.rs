use std::fmt::Display;
use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use crate::error::RequestError;

/// A JSON object being read, and the path that names its fields in errors. `null` reads as absent.
pub(crate) struct Fields<'a> {
    map: &'a Map<String, Value>,
    path: String,
}

/// Which numbers a field takes.
pub(crate) enum Bounds {
    /// Both ends belong.
    Closed(f64, f64),
    /// The lower end does not belong.
    Above(f64, f64),
}

impl Display for Bounds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Closed(low, high) => write!(f, "between {low} and {high}"),
            Self::Above(low, high) => write!(f, "above {low} and at most {high}"),
        }
    }
}

impl Bounds {
    fn holds(&self, value: f64) -> bool {
        match *self {
            Self::Closed(low, high) => (low..=high).contains(&value),
            Self::Above(low, high) => value > low && value <= high,
        }
    }
}

impl<'a> Fields<'a> {
    /// The body itself.
    pub(crate) fn root(map: &'a Map<String, Value>) -> Self {
        Self { map, path: String::new() }
    }

    /// The object at `path`.
    pub(crate) fn of(value: &'a Value, path: String) -> Result<Self, RequestError> {
        match value {
            Value::Object(map) => Ok(Self { map, path }),
            other => Err(RequestError::wrong_type(path, "an object", other)),
        }
    }

    /// How errors name the field `name`.
    pub(crate) fn path(&self, name: &str) -> String {
        if self.path.is_empty() { name.into() } else { format!("{}.{name}", self.path) }
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &'a str> {
        self.map.iter().filter(|(_, value)| !value.is_null()).map(|(name, _)| name.as_str())
    }

    pub(crate) fn get(&self, name: &str) -> Option<&'a Value> {
        self.map.get(name).filter(|value| !value.is_null())
    }

    pub(crate) fn string(&self, name: &str) -> Result<Option<&'a str>, RequestError> {
        self.typed(name, "a string", Value::as_str)
    }

    pub(crate) fn required_string(&self, name: &str) -> Result<&'a str, RequestError> {
        self.string(name)?.ok_or_else(|| RequestError::missing(self.path(name)))
    }

    pub(crate) fn boolean(&self, name: &str) -> Result<Option<bool>, RequestError> {
        self.typed(name, "a boolean", Value::as_bool)
    }

    pub(crate) fn array(&self, name: &str) -> Result<Option<&'a Vec<Value>>, RequestError> {
        self.typed(name, "an array", Value::as_array)
    }

    pub(crate) fn object(&self, name: &str) -> Result<Option<Fields<'a>>, RequestError> {
        self.get(name).map(|value| Fields::of(value, self.path(name))).transpose()
    }

    pub(crate) fn map(&self, name: &str) -> Result<Option<&'a Map<String, Value>>, RequestError> {
        self.typed(name, "an object", Value::as_object)
    }

    pub(crate) fn number(&self, name: &str, bounds: Bounds) -> Result<Option<f32>, RequestError> {
        let Some(value) = self.typed(name, "a number", Value::as_f64)? else { return Ok(None) };
        if !bounds.holds(value) {
            return Err(RequestError::bad_value(self.path(name), format!("must be {bounds}, not {value}")));
        }
        Ok(Some(value as f32))
    }

    pub(crate) fn integer(
        &self,
        name: &str,
        bounds: RangeInclusive<i64>,
    ) -> Result<Option<i64>, RequestError> {
        self.get(name).map(|value| integer(value, &self.path(name), bounds)).transpose()
    }

    /// A number of tokens; whether a model can do that many is its host's business.
    pub(crate) fn count(&self, name: &str, least: i64) -> Result<Option<u32>, RequestError> {
        let value = self.integer(name, least..=i64::from(u32::MAX))?;
        Ok(value.map(|value| value as u32))
    }

    fn typed<T>(
        &self,
        name: &str,
        wanted: &str,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, RequestError> {
        let read =
            |value| read(value).ok_or_else(|| RequestError::wrong_type(self.path(name), wanted, value));
        self.get(name).map(read).transpose()
    }
}

/// An integer in `bounds`, possibly written as a float without a fraction.
pub(crate) fn integer(value: &Value, path: &str, bounds: RangeInclusive<i64>) -> Result<i64, RequestError> {
    let Value::Number(number) = value else {
        return Err(RequestError::wrong_type(path, "an integer", value));
    };
    let whole = |float: f64| (float.fract() == 0.0).then_some(float as i64);
    let read = number
        .as_i64()
        .or_else(|| number.as_u64().map(|_| i64::MAX))
        .or_else(|| number.as_f64().and_then(whole));
    let read = read.ok_or_else(|| RequestError::wrong_type(path, "an integer", value))?;
    if bounds.contains(&read) {
        return Ok(read);
    }
    let rule = match (*bounds.start(), *bounds.end()) {
        (low, i64::MAX) => format!("must be at least {low}, not {number}"),
        (low, high) => format!("must be between {low} and {high}, not {number}"),
    };
    Err(RequestError::bad_value(path, rule))
}
