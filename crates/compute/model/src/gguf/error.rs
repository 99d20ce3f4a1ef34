//! What can be wrong with a GGUF file, each as one line that names file, field and byte offset.

use std::fmt;

/// Longest piece of text from the file that a message repeats, in characters.
const QUOTE_LIMIT: usize = 80;

/// Why a GGUF file cannot be used. `Display` is a single line fit to show the user.
#[derive(Debug, thiserror::Error)]
pub enum GgufError {
    /// The operating system refused to open, stat or map the file.
    #[error("{file}: cannot {action}: {source}")]
    Io {
        /// The file as it was given.
        file: String,
        /// What was tried: "open", "map".
        action: &'static str,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The path leads to something that is not one whole model; the text says what to give instead.
    #[error("{file}: {problem}")]
    Selection {
        /// The file or folder.
        file: String,
        /// What is wrong and what to do.
        problem: String,
    },
    /// The file contradicts the format or itself.
    #[error("{place}: {problem}")]
    Malformed {
        /// The field that is wrong.
        place: Place,
        /// What is wrong with it.
        problem: String,
    },
    /// The file is well formed and asks for something Motet does not do.
    #[error("{place}: {problem}")]
    Unsupported {
        /// The field that asks for it.
        place: Place,
        /// What it asks for, by name.
        problem: String,
    },
    /// A metadata key or tensor the model needs is not in the file.
    #[error("{file}: {what} is missing: not among the {listed} listed from byte {offset} on")]
    Missing {
        /// The file.
        file: String,
        /// "metadata key llama.block_count", "tensor output_norm.weight".
        what: String,
        /// How many entries the list has.
        listed: usize,
        /// Where the list starts.
        offset: u64,
    },
    /// The file was cut or replaced while it was being read.
    #[error("{file}: the file changed while it was being read; copy it again and retry")]
    Changed {
        /// The file.
        file: String,
    },
}

impl GgufError {
    /// Whether the file is sound and only uses a feature that is not there yet.
    pub fn is_unsupported(&self) -> bool {
        matches!(self, GgufError::Unsupported { .. })
    }

    pub(super) fn selection(file: impl fmt::Display, problem: impl Into<String>) -> Self {
        GgufError::Selection { file: one_line(&file.to_string()), problem: problem.into() }
    }
}

/// A field of a file: where an error is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file as it was given.
    pub file: String,
    /// The field, with the key or tensor it belongs to.
    pub field: String,
    /// Byte offset of the field from the start of the file.
    pub offset: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} at byte {}", self.file, self.field, self.offset)
    }
}

/// A field of the format; formatted only when an error needs it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Field<'a> {
    Magic,
    Version,
    TensorCount,
    KeyCount,
    Key(usize),
    ValueType(&'a str),
    Value(&'a str),
    ElementType(&'a str),
    ArrayLength(&'a str),
    Element(&'a str, usize),
    TensorName(usize),
    DimensionCount(&'a str),
    Dimension(&'a str, usize),
    TensorType(&'a str),
    TensorOffset(&'a str),
    TensorEntry(&'a str),
}

impl fmt::Display for Field<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Field::Magic => write!(f, "magic"),
            Field::Version => write!(f, "version"),
            Field::TensorCount => write!(f, "n_tensors"),
            Field::KeyCount => write!(f, "n_kv"),
            Field::Key(index) => write!(f, "metadata entry {index}, key"),
            Field::ValueType(key) => write!(f, "metadata key {}, value type", quote(key)),
            Field::Value(key) => write!(f, "metadata key {}, value", quote(key)),
            Field::ElementType(key) => write!(f, "metadata key {}, array element type", quote(key)),
            Field::ArrayLength(key) => write!(f, "metadata key {}, array length", quote(key)),
            Field::Element(key, index) => write!(f, "metadata key {}, element {index}", quote(key)),
            Field::TensorName(index) => write!(f, "tensor entry {index}, name"),
            Field::DimensionCount(name) => write!(f, "tensor {}, n_dims", quote(name)),
            Field::Dimension(name, index) => write!(f, "tensor {}, dimension {index}", quote(name)),
            Field::TensorType(name) => write!(f, "tensor {}, type", quote(name)),
            Field::TensorOffset(name) => write!(f, "tensor {}, offset", quote(name)),
            Field::TensorEntry(name) => write!(f, "tensor {}", quote(name)),
        }
    }
}

impl Field<'_> {
    pub(super) fn at(self, file: &str, offset: u64) -> Place {
        Place { file: file.to_owned(), field: self.to_string(), offset }
    }

    pub(super) fn malformed(self, file: &str, offset: u64, problem: impl Into<String>) -> GgufError {
        GgufError::Malformed { place: self.at(file, offset), problem: problem.into() }
    }

    pub(super) fn unsupported(self, file: &str, offset: u64, problem: impl Into<String>) -> GgufError {
        GgufError::Unsupported { place: self.at(file, offset), problem: problem.into() }
    }
}

/// Text from an untrusted file, cut to a length a line can hold, control characters escaped.
pub(super) fn quote(text: &str) -> String {
    let mut quoted = one_line(text);
    if let Some((cut, _)) = quoted.char_indices().nth(QUOTE_LIMIT) {
        quoted.truncate(cut);
        quoted.push('…');
    }
    quoted
}

/// The text with control characters escaped, so that a message stays one line.
pub(super) fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}') {
            line.extend(c.escape_default());
        } else {
            line.push(c);
        }
    }
    line
}
