//! The header of one GGUF file: magic, version, metadata and tensor directory.

use super::cursor::Cursor;
use super::error::{Field, GgufError};
use super::metadata::{Entry, Metadata};
use super::tensors::{self, TensorInfo};
use super::value::Value;

/// Alignment of tensor data where the file does not say.
const DEFAULT_ALIGNMENT: u64 = 32;
/// Longest metadata key the format allows, in bytes.
const KEY_LIMIT: usize = 65535;
/// Fewest bytes a metadata entry takes: key length, one byte of key, value type, one byte of value.
const LEAST_ENTRY: usize = 8 + 1 + 4 + 1;
/// Entries reserved for up front. A header can declare far more than it holds; beyond this, lists grow as
/// entries arrive.
pub(super) const RESERVE_LIMIT: usize = 1024;

/// What one file declares; tensor ranges are known to lie inside the file and apart from each other.
#[derive(Debug)]
pub(super) struct Header {
    pub version: u32,
    pub metadata: Metadata,
    pub tensors: Vec<TensorInfo>,
    /// Byte offset of the tensor directory.
    pub directory: u64,
}

impl Header {
    /// Reads and checks the header of `bytes`, the whole file called `file`.
    pub(super) fn read(file: &str, bytes: &[u8]) -> Result<Header, GgufError> {
        let mut cursor = Cursor::new(file, bytes);
        magic(&mut cursor)?;
        let version = version(&mut cursor)?;
        let tensor_count = cursor.count(tensors::LEAST_ENTRY, Field::TensorCount)?;
        let key_count = cursor.count(LEAST_ENTRY, Field::KeyCount)?;
        let metadata = metadata(&mut cursor, key_count)?;
        let alignment = alignment(file, &metadata)?;
        let directory = cursor.position();
        // The count was checked before the metadata took its share of the file.
        cursor.fits(tensor_count as u64, tensors::LEAST_ENTRY, Field::TensorCount, 8)?;
        let tensors = tensors::read(&mut cursor, tensor_count, alignment)?;
        Ok(Header { version, metadata, tensors, directory })
    }
}

/// What other files begin with, so that the message can say what was given.
const OTHER_FORMATS: &[(&[u8], &str)] = &[
    (b"FUGG", "this is a big-endian GGUF (byte order reversed); convert it to little-endian"),
    (b"tjgg", "this is a GGJT file from before GGUF; convert the model to GGUF again"),
    (b"fmgg", "this is a GGMF file from before GGUF; convert the model to GGUF again"),
    (b"lmgg", "this is a GGML file from before GGUF; convert the model to GGUF again"),
    (b"PK\x03\x04", "this is a zip archive (a PyTorch checkpoint?); Motet reads GGUF"),
    (b"vers", "this looks like a Git LFS pointer; fetch the real file with `git lfs pull`"),
    (b"<!DO", "this is a web page, not a model; download the file itself"),
    (b"<htm", "this is a web page, not a model; download the file itself"),
];

fn magic(cursor: &mut Cursor<'_>) -> Result<(), GgufError> {
    let file = cursor.file();
    if cursor.left() == 0 {
        return Err(Field::Magic.malformed(file, 0, "the file is empty"));
    }
    let magic = cursor.take(4, Field::Magic)?;
    if magic == b"GGUF" {
        return Ok(());
    }
    let known = OTHER_FORMATS.iter().find(|(start, _)| *start == magic);
    let problem = known.map_or_else(
        || format!("not a GGUF file: it begins with \"{}\" instead of \"GGUF\"", magic.escape_ascii()),
        |(_, what)| (*what).to_owned(),
    );
    Err(Field::Magic.malformed(file, 0, problem))
}

fn version(cursor: &mut Cursor<'_>) -> Result<u32, GgufError> {
    let at = cursor.position();
    let version: u32 = cursor.number(Field::Version)?;
    let problem = match version {
        2 | 3 => return Ok(version),
        1 => "GGUF version 1 is not supported (versions 2 and 3 are); convert the model again".to_owned(),
        // Both byte orders share the magic; a small version read the wrong way round gives it away.
        v if (1..=0xffff).contains(&v.swap_bytes()) => format!(
            "this is a big-endian GGUF (byte order reversed, version {}); convert it to little-endian",
            v.swap_bytes()
        ),
        v => format!("GGUF version {v} is not supported (versions 2 and 3 are)"),
    };
    Err(Field::Version.unsupported(cursor.file(), at, problem))
}

fn metadata(cursor: &mut Cursor<'_>, count: usize) -> Result<Metadata, GgufError> {
    let start = cursor.position();
    let mut entries = Vec::with_capacity(count.min(RESERVE_LIMIT));
    for index in 0..count {
        let at = cursor.position();
        let key = cursor.string(Field::Key(index))?;
        if key.is_empty() || key.len() > KEY_LIMIT {
            let problem = format!("a key of {} bytes (1 to {KEY_LIMIT} are allowed)", key.len());
            return Err(Field::Key(index).malformed(cursor.file(), at, problem));
        }
        let value = Value::read(cursor, &key)?;
        entries.push(Entry { key, value, key_at: at });
    }
    Metadata::new(cursor.file(), start, entries)
}

fn alignment(file: &str, metadata: &Metadata) -> Result<u64, GgufError> {
    let Some(entry) = metadata.entry("general.alignment") else { return Ok(DEFAULT_ALIGNMENT) };
    let declared = entry.value.as_integer().and_then(|v| u64::try_from(v).ok());
    match declared {
        Some(v) if v >= 8 && v.is_power_of_two() => Ok(v),
        _ => {
            let problem =
                format!("{} is not an alignment (a power of two from 8 on)", entry.value.describe());
            Err(Field::Value(&entry.key).malformed(file, entry.value_at(), problem))
        }
    }
}
