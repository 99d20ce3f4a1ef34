//! The small files of a model's folder.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

use motet_text::{Casing, WordPiece};
use serde_json::Value;

use super::EncoderError;

/// Most bytes of a tokenizer's file: a vocabulary of a million tokens, and a bound on what a wrong path can cost.
const TOKENIZER_BYTES: u64 = 64 << 20;
/// Most bytes of any other JSON file.
const CONFIG_BYTES: u64 = 1 << 20;

/// A JSON file and the path that errors call it.
pub(super) struct Json {
    pub(super) file: String,
    pub(super) value: Value,
}

pub(super) fn tokenizer(folder: &Path) -> Result<WordPiece, EncoderError> {
    let wrong = |name: &str, error: motet_text::WordPieceError| problem(folder, name, error.to_string());
    if let Some(text) = text(folder, "tokenizer.json", TOKENIZER_BYTES)? {
        return WordPiece::from_json(&text).map_err(|error| wrong("tokenizer.json", error));
    }
    let Some(vocabulary) = text(folder, "vocab.txt", TOKENIZER_BYTES)? else {
        let what =
            "there is neither this file nor vocab.txt; name the folder of a sentence-transformers model";
        return Err(problem(folder, "tokenizer.json", what));
    };
    let is_lower = match json(folder, "tokenizer_config.json")? {
        Some(config) => config.flag("do_lower_case")?.unwrap_or(true),
        None => true,
    };
    let casing = if is_lower { Casing::Lower } else { Casing::Kept };
    WordPiece::from_vocab(&vocabulary, casing).map_err(|error| wrong("vocab.txt", error))
}

/// A JSON object of the folder; `None` where there is no such file.
pub(super) fn json(folder: &Path, name: &str) -> Result<Option<Json>, EncoderError> {
    let Some(text) = text(folder, name, CONFIG_BYTES)? else { return Ok(None) };
    match serde_json::from_str::<Value>(&text) {
        Ok(value) => Ok(Some(Json { file: path(folder, name), value })),
        Err(error) => Err(problem(folder, name, format!("is not JSON: {error}"))),
    }
}

fn text(folder: &Path, name: &str, limit: u64) -> Result<Option<String>, EncoderError> {
    let path = folder.join(name);
    let io = |source| EncoderError::Io { file: self::path(folder, name), source };
    // Opening a pipe would wait for its writer.
    match std::fs::metadata(&path) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(io(error)),
        Ok(kind) if !kind.is_file() => return Err(problem(folder, name, "is not a regular file")),
        Ok(_) => {}
    }
    let mut bytes = Vec::new();
    File::open(&path).map_err(io)?.take(limit + 1).read_to_end(&mut bytes).map_err(io)?;
    if bytes.len() as u64 > limit {
        return Err(problem(folder, name, format!("is larger than {limit} bytes")));
    }
    String::from_utf8(bytes).map(Some).map_err(|_| problem(folder, name, "is not UTF-8"))
}

pub(super) fn problem(folder: &Path, name: &str, problem: impl Into<String>) -> EncoderError {
    EncoderError::File { file: path(folder, name), problem: problem.into() }
}

fn path(folder: &Path, name: &str) -> String {
    folder.join(name).to_string_lossy().escape_debug().to_string()
}

impl Json {
    /// The error for a key of this file.
    pub(super) fn wrong(&self, key: &str, problem: impl Into<String>) -> EncoderError {
        EncoderError::File { file: self.file.clone(), problem: format!("{key} {}", problem.into()) }
    }

    /// A value that is there.
    fn get(&self, key: &str) -> Option<&Value> {
        self.value.get(key).filter(|value| !value.is_null())
    }

    pub(super) fn flag(&self, key: &str) -> Result<Option<bool>, EncoderError> {
        let wrong = || self.wrong(key, "is not true or false");
        self.get(key).map(|value| value.as_bool().ok_or_else(wrong)).transpose()
    }

    pub(super) fn string(&self, key: &str) -> Result<Option<&str>, EncoderError> {
        let wrong = || self.wrong(key, "is not a string");
        self.get(key).map(|value| value.as_str().ok_or_else(wrong)).transpose()
    }

    pub(super) fn float(&self, key: &str) -> Result<Option<f64>, EncoderError> {
        let wrong = || self.wrong(key, "is not a number");
        self.get(key).map(|value| value.as_f64().ok_or_else(wrong)).transpose()
    }

    /// A whole number from 1 to `most`, if it is there.
    pub(super) fn size(&self, key: &str, most: usize) -> Result<Option<usize>, EncoderError> {
        let size = |value: &Value| {
            let size = value.as_u64().and_then(|size| usize::try_from(size).ok());
            size.filter(|size| (1..=most).contains(size)).ok_or_else(|| {
                let shown: String = value.to_string().chars().take(40).collect();
                self.wrong(key, format!("is {shown}; a whole number from 1 to {most} is needed"))
            })
        };
        self.get(key).map(size).transpose()
    }

    /// The same, which has to be there.
    pub(super) fn needed_size(&self, key: &str, most: usize) -> Result<usize, EncoderError> {
        self.size(key, most)?.ok_or_else(|| self.wrong(key, "is missing"))
    }
}
