//! The header: its length as 8 bytes, then JSON. Behind it is the data section.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};

/// Bytes of the header's length.
const LENGTH_BYTES: usize = 8;
/// Longest header in bytes: some 100,000 tensors. The library's own limit is 100 MB, which no model comes near.
const MAX_HEADER: u64 = 16 << 20;
/// Most dimensions of a tensor; weights have one to four.
const MAX_DIMENSIONS: usize = 8;
/// Longest text of the file that a message repeats, in characters.
const SHOWN_CHARS: usize = 80;
/// The one key that is no tensor.
const METADATA: &str = "__metadata__";

/// How elements are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // the format's own names
pub enum Dtype {
    Bool,
    U8,
    I8,
    F8E4M3,
    F8E5M2,
    U16,
    I16,
    F16,
    BF16,
    U32,
    I32,
    F32,
    U64,
    I64,
    F64,
}

/// Names in files, types, and bytes of an element.
const DTYPES: [(&str, Dtype, usize); 15] = [
    ("BOOL", Dtype::Bool, 1),
    ("U8", Dtype::U8, 1),
    ("I8", Dtype::I8, 1),
    ("F8_E4M3", Dtype::F8E4M3, 1),
    ("F8_E5M2", Dtype::F8E5M2, 1),
    ("U16", Dtype::U16, 2),
    ("I16", Dtype::I16, 2),
    ("F16", Dtype::F16, 2),
    ("BF16", Dtype::BF16, 2),
    ("U32", Dtype::U32, 4),
    ("I32", Dtype::I32, 4),
    ("F32", Dtype::F32, 4),
    ("U64", Dtype::U64, 8),
    ("I64", Dtype::I64, 8),
    ("F64", Dtype::F64, 8),
];

impl Dtype {
    /// The name in files.
    pub fn name(self) -> &'static str {
        DTYPES.iter().find(|(_, dtype, _)| *dtype == self).map_or("", |(name, _, _)| name)
    }
}

/// A tensor's description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    /// Its name, such as `encoder.layer.0.output.dense.weight`.
    pub name: String,
    /// How elements are stored.
    pub dtype: Dtype,
    /// Elements per dimension, the last one contiguous in memory.
    pub shape: Vec<usize>,
    start: usize,
    end: usize,
}

impl TensorInfo {
    /// Of its bytes, in the data section.
    pub(super) fn range(&self) -> Range<usize> {
        self.start..self.end
    }
}

/// What is wrong, and with what.
pub(super) struct Problem {
    pub(super) field: String,
    pub(super) problem: String,
}

fn problem(field: impl Into<String>, problem: impl Into<String>) -> Problem {
    Problem { field: field.into(), problem: problem.into() }
}

/// A tensor as the file writes it.
#[derive(Deserialize)]
struct Written {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: [u64; 2],
}

/// All tensors in the order written, repeated names included: a map would hide them.
struct Entries(Vec<(String, Written)>);

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Entries;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
                let mut entries = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    if name == METADATA {
                        map.next_value::<HashMap<String, String>>()?;
                    } else {
                        entries.push((name, map.next_value()?));
                    }
                }
                Ok(Entries(entries))
            }
        }
        deserializer.deserialize_map(Reader)
    }
}

/// The tensors, sorted by name, and where the data section begins.
pub(super) fn read(bytes: &[u8]) -> Result<(Vec<TensorInfo>, usize), Problem> {
    let field = "the header's length";
    let Some((length, rest)) = bytes.split_first_chunk::<LENGTH_BYTES>() else {
        return Err(problem(field, format!("is not there: the file has {} bytes", bytes.len())));
    };
    let length = u64::from_le_bytes(*length);
    if length > MAX_HEADER {
        return Err(problem(field, format!("is {length}; at most {MAX_HEADER} bytes can be read")));
    }
    let header = usize::try_from(length).ok().and_then(|length| rest.split_at_checked(length));
    let Some((header, data)) = header else {
        let of = bytes.len();
        return Err(problem(field, format!("is {length}, past the end of the file ({of} bytes)")));
    };
    let entries = serde_json::from_slice(header).map_err(|error| {
        // It may repeat a text of the file, of any length.
        let why: String = error.to_string().chars().take(2 * SHOWN_CHARS).collect();
        problem("the header", format!("can't be read: {}", why.escape_debug()))
    });
    let Entries(entries) = entries?;
    let mut tensors = Vec::with_capacity(entries.len());
    for (name, written) in entries {
        tensors.push(tensor(name, written, data.len())?);
    }
    check_filled(&mut tensors, data.len())?;
    tensors.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    match tensors.windows(2).find(|pair| pair[0].name == pair[1].name) {
        Some(pair) => Err(problem(format!("tensor {}", quoted(&pair[0].name)), "is there twice")),
        None => Ok((tensors, LENGTH_BYTES + header.len())),
    }
}

fn tensor(name: String, written: Written, data: usize) -> Result<TensorInfo, Problem> {
    let wrong = |what: String| problem(format!("tensor {}", quoted(&name)), what);
    let Some((_, dtype, bytes)) = DTYPES.iter().find(|(known, _, _)| *known == written.dtype) else {
        return Err(wrong(format!("has the type {}, which is not known", quoted(&written.dtype))));
    };
    if written.shape.len() > MAX_DIMENSIONS {
        return Err(wrong(format!(
            "has {} dimensions; at most {MAX_DIMENSIONS} can be read",
            written.shape.len()
        )));
    }
    let shape: Option<Vec<usize>> = written.shape.iter().map(|n| usize::try_from(*n).ok()).collect();
    let size = shape.as_ref().and_then(|shape| shape.iter().try_fold(*bytes, |size, n| size.checked_mul(*n)));
    let (Some(shape), Some(size)) = (shape, size) else {
        return Err(wrong(format!("has the shape {:?}, whose size overflows", written.shape)));
    };
    let [start, end] = written.data_offsets;
    let range = usize::try_from(start).ok().zip(usize::try_from(end).ok());
    match range.filter(|(start, end)| start <= end && *end <= data) {
        Some((start, end)) if end - start == size => {
            Ok(TensorInfo { name, dtype: *dtype, shape, start, end })
        }
        Some((start, end)) => Err(wrong(format!(
            "has {} bytes of data where {} of shape {shape:?} take {size}",
            end - start,
            dtype.name()
        ))),
        None => Err(wrong(format!("has its data at {start}..{end} of {data} bytes"))),
    }
}

/// Whether each tensor begins where another ends, from the start of the data section to its end.
fn check_filled(tensors: &mut [TensorInfo], data: usize) -> Result<(), Problem> {
    tensors.sort_unstable_by_key(|tensor| (tensor.start, tensor.end));
    let mut filled = 0;
    for tensor in tensors.iter() {
        if tensor.start != filled {
            let what =
                if tensor.start < filled { "overlaps the one before it" } else { "leaves a gap before it" };
            let what = format!("{what}: it begins at {}, and not at {filled}", tensor.start);
            return Err(problem(format!("tensor {}", quoted(&tensor.name)), what));
        }
        filled = tensor.end;
    }
    if filled != data {
        return Err(problem("the data", format!("has {data} bytes where the tensors take {filled}")));
    }
    Ok(())
}

/// A text of the file on one line, shortened.
pub(super) fn quoted(text: &str) -> String {
    let shown: String = text.chars().take(SHOWN_CHARS).collect();
    format!("{shown:?}")
}
