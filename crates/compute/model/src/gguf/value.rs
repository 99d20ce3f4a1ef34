//! Metadata values: the thirteen types of the format, read within the bounds of the file.

use std::fmt;

use super::cursor::Cursor;
use super::error::{Field, GgufError, quote};

/// Arrays inside arrays beyond this depth are refused: no writer makes them, and each level costs stack.
const DEPTH_LIMIT: usize = 4;

/// A metadata value as the file types it.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    U64(u64),
    I64(i64),
    F32(f32),
    F64(f64),
    Bool(bool),
    String(String),
    Array(Array),
}

/// A metadata array; all elements have one type.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub enum Array {
    U8(Vec<u8>),
    I8(Vec<i8>),
    U16(Vec<u16>),
    I16(Vec<i16>),
    U32(Vec<u32>),
    I32(Vec<i32>),
    U64(Vec<u64>),
    I64(Vec<i64>),
    F32(Vec<f32>),
    F64(Vec<f64>),
    Bool(Vec<bool>),
    String(StrArray),
    Array(Vec<Array>),
}

/// Many strings in one buffer: a vocabulary has hundreds of thousands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StrArray {
    text: String,
    ends: Vec<usize>,
}

impl StrArray {
    /// Number of strings.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The string at `index`.
    pub fn get(&self, index: usize) -> Option<&str> {
        let end = *self.ends.get(index)?;
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        self.text.get(start..end)
    }

    /// The strings in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        let mut start = 0;
        self.ends.iter().map(move |&end| &self.text[std::mem::replace(&mut start, end)..end])
    }

    fn read(cursor: &mut Cursor<'_>, len: usize, key: &str) -> Result<Self, GgufError> {
        let first = cursor.position();
        let mut bytes = Vec::new();
        let mut ends = Vec::with_capacity(len);
        for index in 0..len {
            bytes.extend_from_slice(cursor.string_bytes(Field::Element(key, index))?);
            ends.push(bytes.len());
        }
        // One check of the joined text, then of every seam, equals checking each string.
        let bad_byte = match String::from_utf8(bytes) {
            Ok(text) => match ends.iter().find(|&&end| !text.is_char_boundary(end)) {
                None => return Ok(StrArray { text, ends }),
                Some(&end) => end - 1,
            },
            Err(e) => e.utf8_error().valid_up_to(),
        };
        let index = ends.partition_point(|&end| end <= bad_byte);
        let start = if index == 0 { 0 } else { ends[index - 1] };
        let at = first + (index * 8 + start) as u64;
        Err(Field::Element(key, index).malformed(cursor.file(), at, "the string is not valid UTF-8"))
    }
}

/// Type ids of the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ValueType {
    U8 = 0,
    I8 = 1,
    U16 = 2,
    I16 = 3,
    U32 = 4,
    I32 = 5,
    F32 = 6,
    Bool = 7,
    String = 8,
    Array = 9,
    U64 = 10,
    I64 = 11,
    F64 = 12,
}

impl ValueType {
    const BY_ID: [ValueType; 13] = [
        ValueType::U8,
        ValueType::I8,
        ValueType::U16,
        ValueType::I16,
        ValueType::U32,
        ValueType::I32,
        ValueType::F32,
        ValueType::Bool,
        ValueType::String,
        ValueType::Array,
        ValueType::U64,
        ValueType::I64,
        ValueType::F64,
    ];

    fn read(cursor: &mut Cursor<'_>, field: Field<'_>) -> Result<Self, GgufError> {
        let at = cursor.position();
        let id: u32 = cursor.number(field)?;
        Self::BY_ID
            .get(id as usize)
            .copied()
            .ok_or_else(|| field.malformed(cursor.file(), at, format!("{id} is not a value type (0 to 12)")))
    }

    /// Fewest bytes an element takes in the file.
    fn least_size(self) -> usize {
        match self {
            ValueType::U8 | ValueType::I8 | ValueType::Bool => 1,
            ValueType::U16 | ValueType::I16 => 2,
            ValueType::U32 | ValueType::I32 | ValueType::F32 => 4,
            ValueType::U64 | ValueType::I64 | ValueType::F64 | ValueType::String => 8,
            ValueType::Array => 12,
        }
    }
}

impl Value {
    /// Reads a type id and the value it announces.
    pub(super) fn read(cursor: &mut Cursor<'_>, key: &str) -> Result<Value, GgufError> {
        let ty = ValueType::read(cursor, Field::ValueType(key))?;
        let field = Field::Value(key);
        Ok(match ty {
            ValueType::U8 => Value::U8(cursor.number(field)?),
            ValueType::I8 => Value::I8(cursor.number(field)?),
            ValueType::U16 => Value::U16(cursor.number(field)?),
            ValueType::I16 => Value::I16(cursor.number(field)?),
            ValueType::U32 => Value::U32(cursor.number(field)?),
            ValueType::I32 => Value::I32(cursor.number(field)?),
            ValueType::U64 => Value::U64(cursor.number(field)?),
            ValueType::I64 => Value::I64(cursor.number(field)?),
            ValueType::F32 => Value::F32(cursor.number(field)?),
            ValueType::F64 => Value::F64(cursor.number(field)?),
            ValueType::Bool => {
                let at = cursor.position();
                let byte = cursor.number(field)?;
                Value::Bool(boolean(byte).ok_or_else(|| bad_bool(byte, field, cursor, at))?)
            }
            ValueType::String => Value::String(cursor.string(field)?),
            ValueType::Array => Value::Array(Array::read(cursor, key, 1)?),
        })
    }

    /// The value as a whole number, from any integer type.
    pub fn as_integer(&self) -> Option<i128> {
        Some(match *self {
            Value::U8(v) => v.into(),
            Value::I8(v) => v.into(),
            Value::U16(v) => v.into(),
            Value::I16(v) => v.into(),
            Value::U32(v) => v.into(),
            Value::I32(v) => v.into(),
            Value::U64(v) => v.into(),
            Value::I64(v) => v.into(),
            _ => return None,
        })
    }
}

impl Array {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Array::U8(v) => v.len(),
            Array::I8(v) => v.len(),
            Array::U16(v) => v.len(),
            Array::I16(v) => v.len(),
            Array::U32(v) => v.len(),
            Array::I32(v) => v.len(),
            Array::U64(v) => v.len(),
            Array::I64(v) => v.len(),
            Array::F32(v) => v.len(),
            Array::F64(v) => v.len(),
            Array::Bool(v) => v.len(),
            Array::String(v) => v.len(),
            Array::Array(v) => v.len(),
        }
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn element_name(&self) -> &'static str {
        match self {
            Array::U8(_) => "u8",
            Array::I8(_) => "i8",
            Array::U16(_) => "u16",
            Array::I16(_) => "i16",
            Array::U32(_) => "u32",
            Array::I32(_) => "i32",
            Array::U64(_) => "u64",
            Array::I64(_) => "i64",
            Array::F32(_) => "f32",
            Array::F64(_) => "f64",
            Array::Bool(_) => "bool",
            Array::String(_) => "string",
            Array::Array(_) => "array",
        }
    }

    fn read(cursor: &mut Cursor<'_>, key: &str, depth: usize) -> Result<Array, GgufError> {
        let at = cursor.position();
        let ty = ValueType::read(cursor, Field::ElementType(key))?;
        if ty == ValueType::Array && depth == DEPTH_LIMIT {
            let problem = format!("arrays are nested deeper than {DEPTH_LIMIT} levels");
            return Err(Field::ElementType(key).malformed(cursor.file(), at, problem));
        }
        let len = cursor.count(ty.least_size(), Field::ArrayLength(key))?;
        let field = Field::Value(key);
        Ok(match ty {
            ValueType::U8 => Array::U8(cursor.numbers(len, field)?),
            ValueType::I8 => Array::I8(cursor.numbers(len, field)?),
            ValueType::U16 => Array::U16(cursor.numbers(len, field)?),
            ValueType::I16 => Array::I16(cursor.numbers(len, field)?),
            ValueType::U32 => Array::U32(cursor.numbers(len, field)?),
            ValueType::I32 => Array::I32(cursor.numbers(len, field)?),
            ValueType::U64 => Array::U64(cursor.numbers(len, field)?),
            ValueType::I64 => Array::I64(cursor.numbers(len, field)?),
            ValueType::F32 => Array::F32(cursor.numbers(len, field)?),
            ValueType::F64 => Array::F64(cursor.numbers(len, field)?),
            ValueType::Bool => Array::Bool(booleans(cursor, len, key)?),
            ValueType::String => Array::String(StrArray::read(cursor, len, key)?),
            ValueType::Array => {
                // Grown as elements arrive: nested counts would otherwise multiply what is reserved.
                let mut arrays = Vec::new();
                for _ in 0..len {
                    arrays.push(Array::read(cursor, key, depth + 1)?);
                }
                Array::Array(arrays)
            }
        })
    }
}

fn booleans(cursor: &mut Cursor<'_>, len: usize, key: &str) -> Result<Vec<bool>, GgufError> {
    let first = cursor.position();
    let bytes: Vec<u8> = cursor.numbers(len, Field::Value(key))?;
    let read = |(index, byte): (usize, u8)| {
        boolean(byte).ok_or_else(|| bad_bool(byte, Field::Element(key, index), cursor, first + index as u64))
    };
    bytes.into_iter().enumerate().map(read).collect()
}

fn boolean(byte: u8) -> Option<bool> {
    match byte {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

fn bad_bool(byte: u8, field: Field<'_>, cursor: &Cursor<'_>, at: u64) -> GgufError {
    field.malformed(cursor.file(), at, format!("{byte} is not a boolean (0 or 1)"))
}

/// One line: numbers and strings in full, arrays as their length and element type.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::U8(v) => write!(f, "{v}"),
            Value::I8(v) => write!(f, "{v}"),
            Value::U16(v) => write!(f, "{v}"),
            Value::I16(v) => write!(f, "{v}"),
            Value::U32(v) => write!(f, "{v}"),
            Value::I32(v) => write!(f, "{v}"),
            Value::U64(v) => write!(f, "{v}"),
            Value::I64(v) => write!(f, "{v}"),
            Value::F32(v) => write!(f, "{v}"),
            Value::F64(v) => write!(f, "{v}"),
            Value::Bool(v) => write!(f, "{v}"),
            Value::String(v) => write!(f, "{}", super::error::one_line(v)),
            Value::Array(v) => write!(f, "array of {} {} values", v.len(), v.element_name()),
        }
    }
}

impl Value {
    /// What the value is, for a message that says it should be something else.
    pub(super) fn describe(&self) -> String {
        match self {
            Value::String(text) => format!("the string \"{}\"", quote(text)),
            Value::Array(_) => format!("an {self}"),
            other => other.to_string(),
        }
    }
}
