//! Metadata by key, with typed getters whose errors name file, key and offset.

use super::Gguf;
use super::error::{Field, GgufError, quote};
use super::index::NameIndex;
use super::value::{Array, StrArray, Value};

/// One key and its value.
#[derive(Debug)]
pub(super) struct Entry {
    pub key: String,
    pub value: Value,
    /// Byte offset of the key.
    pub key_at: u64,
}

impl Entry {
    /// Byte offset of the value's type, which stands between key and value.
    pub(super) fn value_at(&self) -> u64 {
        self.key_at + 8 + self.key.len() as u64
    }
}

/// The metadata of one file, keys unique.
#[derive(Debug)]
pub(super) struct Metadata {
    entries: Vec<Entry>,
    index: NameIndex,
    /// Byte offset of the first key.
    start: u64,
}

impl Metadata {
    pub(super) fn new(file: &str, start: u64, entries: Vec<Entry>) -> Result<Self, GgufError> {
        match NameIndex::build(entries.len(), |i| &entries[i].key) {
            Ok(index) => Ok(Metadata { entries, index, start }),
            Err((first, second)) => {
                let problem = format!(
                    "duplicate key {} (first at byte {})",
                    quote(&entries[first].key),
                    entries[first].key_at
                );
                Err(Field::Key(second).malformed(file, entries[second].key_at, problem))
            }
        }
    }

    pub(super) fn entry(&self, key: &str) -> Option<&Entry> {
        self.index.find(key, |i| &self.entries[i].key).map(|i| &self.entries[i])
    }

    pub(super) fn entries(&self) -> &[Entry] {
        &self.entries
    }
}

macro_rules! typed_getters {
    ($($(#[$doc:meta])* $optional:ident, $required:ident -> $t:ty, $wanted:literal, $convert:expr;)*) => {
        /// Typed metadata: `None` where the key is absent (an error in the `require_` flavour), an error
        /// where it has another type or does not fit.
        impl Gguf {
            $(
                $(#[$doc])*
                pub fn $optional(&self, key: &str) -> Result<Option<$t>, GgufError> {
                    self.typed(key, $wanted, $convert)
                }

                /// The same, for a key the model cannot do without.
                pub fn $required(&self, key: &str) -> Result<$t, GgufError> {
                    self.typed(key, $wanted, $convert)?.ok_or_else(|| self.missing_key(key))
                }
            )*
        }
    };
}

typed_getters! {
    /// An unsigned 32-bit number, from any integer type whose value fits.
    u32, require_u32 -> u32, "a whole number from 0 to 4294967295", integer;
    /// An unsigned 64-bit number, from any integer type whose value fits.
    u64, require_u64 -> u64, "a whole number from 0 to 18446744073709551615", integer;
    /// A size or count, from any integer type whose value fits.
    usize, require_usize -> usize, "a whole number that is not negative", integer;
    /// A signed 32-bit number, from any integer type whose value fits.
    i32, require_i32 -> i32, "a whole number from -2147483648 to 2147483647", integer;
    /// A finite number, from f32 or f64.
    f32, require_f32 -> f32, "a finite number", float;
    /// A truth value.
    bool, require_bool -> bool, "true or false", boolean;
    /// A string.
    str, require_str -> &str, "a string", string;
    /// Strings.
    str_array, require_str_array -> &StrArray, "an array of strings", strings;
    /// Signed 32-bit numbers, from any integer type whose values fit.
    i32_array, require_i32_array -> Vec<i32>, "an array of whole numbers that fit 32 bits", integers;
    /// Unsigned 32-bit numbers, from any integer type whose values fit.
    u32_array, require_u32_array -> Vec<u32>, "an array of whole numbers from 0 to 4294967295", integers;
    /// Numbers, from f32 or f64; not checked to be finite.
    f32_array, require_f32_array -> Vec<f32>, "an array of numbers", floats;
    /// Truth values.
    bool_array, require_bool_array -> &[bool], "an array of true or false", booleans;
}

impl Gguf {
    /// Every key and value in the file's order. A split model's metadata is that of its first part.
    pub fn metadata(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.metadata.entries().iter().map(|entry| (entry.key.as_str(), &entry.value))
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.metadata.entry(key).map(|entry| &entry.value)
    }

    /// The error for a key the model needs and the file lacks.
    pub fn missing_key(&self, key: &str) -> GgufError {
        GgufError::Missing {
            file: self.name().to_owned(),
            what: format!("metadata key {}", quote(key)),
            listed: self.metadata.entries().len(),
            offset: self.metadata.start,
        }
    }

    /// The error for a key whose value makes no sense: "9 does not divide 576".
    pub fn invalid_key(&self, key: &str, problem: impl Into<String>) -> GgufError {
        match self.metadata.entry(key) {
            Some(entry) => Field::Value(key).malformed(self.name(), entry.value_at(), problem),
            None => self.missing_key(key),
        }
    }

    /// The error for a key whose value asks for what Motet does not do: "architecture mamba is not supported yet".
    pub fn unsupported_key(&self, key: &str, problem: impl Into<String>) -> GgufError {
        match self.metadata.entry(key) {
            Some(entry) => Field::Value(key).unsupported(self.name(), entry.value_at(), problem),
            None => self.missing_key(key),
        }
    }

    fn typed<'a, T>(
        &'a self,
        key: &str,
        wanted: &str,
        convert: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, GgufError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match convert(value) {
            Some(converted) => Ok(Some(converted)),
            None => Err(self.invalid_key(key, format!("expected {wanted}, found {}", value.describe()))),
        }
    }
}

fn integer<T: TryFrom<i128>>(value: &Value) -> Option<T> {
    value.as_integer().and_then(|v| T::try_from(v).ok())
}

#[allow(clippy::cast_possible_truncation)]
fn float(value: &Value) -> Option<f32> {
    let number = match value {
        Value::F32(v) => *v,
        Value::F64(v) => *v as f32,
        _ => return None,
    };
    number.is_finite().then_some(number)
}

fn boolean(value: &Value) -> Option<bool> {
    if let Value::Bool(v) = value { Some(*v) } else { None }
}

fn string(value: &Value) -> Option<&str> {
    if let Value::String(v) = value { Some(v) } else { None }
}

fn strings(value: &Value) -> Option<&StrArray> {
    if let Value::Array(Array::String(v)) = value { Some(v) } else { None }
}

fn booleans(value: &Value) -> Option<&[bool]> {
    if let Value::Array(Array::Bool(v)) = value { Some(v) } else { None }
}

fn integers<T: TryFrom<i128>>(value: &Value) -> Option<Vec<T>> {
    fn fit<S: Copy + Into<i128>, T: TryFrom<i128>>(source: &[S]) -> Option<Vec<T>> {
        source.iter().map(|&v| T::try_from(v.into()).ok()).collect()
    }
    let Value::Array(array) = value else { return None };
    match array {
        Array::U8(v) => fit(v),
        Array::I8(v) => fit(v),
        Array::U16(v) => fit(v),
        Array::I16(v) => fit(v),
        Array::U32(v) => fit(v),
        Array::I32(v) => fit(v),
        Array::U64(v) => fit(v),
        Array::I64(v) => fit(v),
        _ => None,
    }
}

#[allow(clippy::cast_possible_truncation)]
fn floats(value: &Value) -> Option<Vec<f32>> {
    match value {
        Value::Array(Array::F32(v)) => Some(v.clone()),
        Value::Array(Array::F64(v)) => Some(v.iter().map(|&x| x as f32).collect()),
        _ => None,
    }
}
