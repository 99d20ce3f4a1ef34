//! Safetensors files: named tensors, memory-mapped.
//!
//! Nothing in a file is trusted: the header's length, its JSON, names, types, shapes and offsets are checked with
//! overflow-safe arithmetic before they are used, and allocations are bounded by the header's size. Once a
//! [`Safetensors`] exists:
//!
//! - names are unique;
//! - every tensor's data has the size that its type and shape give and lies inside the file;
//! - the tensors fill the data section without overlap or gap, so that nothing else hides in it.
//!
//! The format is that of the safetensors library.

mod header;

use std::path::Path;

use crate::GgufError;
use crate::gguf::source::Source;

pub use header::{Dtype, TensorInfo};

/// An open file.
#[derive(Debug)]
pub struct Safetensors {
    source: Source,
    /// Sorted by name.
    tensors: Vec<TensorInfo>,
    /// Where the data section begins.
    data: usize,
}

/// A tensor's description and its bytes.
#[derive(Debug, Clone, Copy)]
pub struct Tensor<'a> {
    /// What it is and where.
    pub info: &'a TensorInfo,
    /// Its elements, little-endian, the last dimension contiguous. At any alignment.
    pub data: &'a [u8],
}

/// Why a safetensors file can't be used; one line.
#[derive(Debug, thiserror::Error)]
pub enum SafetensorsError {
    /// It could not be opened, or changed while it was read.
    #[error(transparent)]
    File(#[from] GgufError),
    /// It contradicts the format or itself.
    #[error("{file}: {field} {problem}")]
    Malformed {
        /// The file as it was given.
        file: String,
        /// What is wrong, with the tensor it belongs to.
        field: String,
        /// In which way.
        problem: String,
    },
    /// A tensor that is needed is not there.
    #[error("{file}: tensor \"{name}\" is missing: not among the {listed} of the file")]
    Missing {
        /// The file.
        file: String,
        /// The tensor.
        name: String,
        /// How many there are.
        listed: usize,
    },
}

impl Safetensors {
    /// Opens a file.
    pub fn open(path: &Path) -> Result<Self, SafetensorsError> {
        Self::read(Source::open(path)?)
    }

    /// Reads a file that is already in memory; `name` is what errors call it.
    pub fn from_bytes(name: &str, bytes: Vec<u8>) -> Result<Self, SafetensorsError> {
        Self::read(Source::from_bytes(name, bytes))
    }

    fn read(source: Source) -> Result<Self, SafetensorsError> {
        let (tensors, data) = header::read(source.bytes()).map_err(|problem| {
            let header::Problem { field, problem } = problem;
            SafetensorsError::Malformed { file: source.name.clone(), field, problem }
        })?;
        Ok(Self { source, tensors, data })
    }

    /// What errors call the file: its path, on one line.
    pub fn name(&self) -> &str {
        &self.source.name
    }

    /// Every tensor, by name.
    pub fn tensors(&self) -> impl ExactSizeIterator<Item = &TensorInfo> {
        self.tensors.iter()
    }

    /// The tensor called `name`, with its bytes.
    pub fn tensor(&self, name: &str) -> Option<Tensor<'_>> {
        let index = self.tensors.binary_search_by(|info| info.name.as_str().cmp(name)).ok()?;
        let info = &self.tensors[index];
        let data = self.source.bytes().get(self.data..)?.get(info.range())?;
        Some(Tensor { info, data })
    }

    /// The tensor called `name`, or an error that says it is missing.
    pub fn require(&self, name: &str) -> Result<Tensor<'_>, SafetensorsError> {
        self.tensor(name).ok_or_else(|| SafetensorsError::Missing {
            file: self.name().to_owned(),
            name: name.to_owned(),
            listed: self.tensors.len(),
        })
    }

    /// The error for a tensor that does not fit the model.
    pub fn invalid(&self, name: &str, problem: impl Into<String>) -> SafetensorsError {
        let field = format!("tensor {}", header::quoted(name));
        SafetensorsError::Malformed { file: self.name().to_owned(), field, problem: problem.into() }
    }

    /// Whether the file still has the size and time it was opened with. A loader calls it after it has copied the
    /// weights out of the map.
    pub fn check_unchanged(&self) -> Result<(), SafetensorsError> {
        Ok(self.source.check_unchanged()?)
    }

    /// Gives the memory back that the file's bytes took as they were read.
    pub fn give_back(&self) {
        self.source.give_back();
    }
}
