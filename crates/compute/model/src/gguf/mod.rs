//! GGUF files, version 2 and 3: metadata and tensors, memory-mapped.
//!
//! Nothing in a file is trusted. Every count, length, offset, dimension and alignment is checked with
//! overflow-safe arithmetic before it is used, allocations are bounded by the size of the file, and what
//! is wrong is told in one line that names file, field and byte offset. Once a [`Gguf`] exists:
//!
//! - metadata keys are unique, and so are tensor names, over all parts of a split model;
//! - every tensor has 1 to 4 dimensions, none of them 0, and whole blocks in each row;
//! - every tensor's data lies inside its file, aligned, and overlaps no other tensor's.
//!
//! The layout is that of the GGUF specification in the ggml repository.

mod cursor;
mod error;
mod folder;
mod header;
mod index;
mod metadata;
pub(crate) mod source;
mod split;
mod tensor_type;
mod tensors;
mod tokenizer;
mod value;

use std::path::{Path, PathBuf};

pub use error::{GgufError, Place};
pub use folder::{find_model, open_model};
pub use tensor_type::TensorType;
pub use tensors::TensorInfo;
pub use tokenizer::{chat_template, tokenizer_spec};
pub use value::{Array, StrArray, Value};

use error::{Field, quote};
use header::Header;
use index::NameIndex;
use metadata::Metadata;
use source::Source;

/// An open model: one GGUF file, or all parts of a split one.
#[derive(Debug)]
pub struct Gguf {
    path: PathBuf,
    version: u32,
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
    by_name: NameIndex,
    /// Byte offset of the first part's tensor directory.
    directory: u64,
    sources: Vec<Source>,
}

/// A tensor's description and its bytes.
#[derive(Debug, Clone, Copy)]
pub struct Tensor<'a> {
    /// The name, such as `blk.0.attn_q.weight`.
    pub name: &'a str,
    /// Elements per dimension in ggml's order: the first is the row length, contiguous in memory.
    pub shape: &'a [usize],
    /// How the elements are stored.
    pub ty: TensorType,
    /// The elements: rows one after the other, each of whole blocks.
    pub data: &'a [u8],
    /// Bytes from the start of its file to `data`.
    pub offset: u64,
    /// The file that holds it.
    pub file: &'a str,
    declared_at: u64,
}

impl Gguf {
    /// Opens a file. Any part of a split model (`NAME-00001-of-00003.gguf`) opens the whole model.
    pub fn open(path: &Path) -> Result<Gguf, GgufError> {
        split::refuse_byte_piece(path)?;
        match split::PartName::of(path)? {
            Some(part) => split::open_set(path, &part),
            None => {
                let source = Source::open(path)?;
                Self::whole(path.to_owned(), source)
            }
        }
    }

    /// Reads a file that is already in memory; `name` is what errors call it.
    pub fn from_bytes(name: &str, bytes: Vec<u8>) -> Result<Gguf, GgufError> {
        Self::whole(PathBuf::from(name), Source::from_bytes(name, bytes))
    }

    fn whole(path: PathBuf, source: Source) -> Result<Gguf, GgufError> {
        let header = Header::read(&source.name, source.bytes())?;
        split::refuse_lone_part(&source.name, &header)?;
        Self::assemble(path, vec![(source, header)])
    }

    /// Joins the parts; the first one's metadata counts.
    fn assemble(path: PathBuf, parts: Vec<(Source, Header)>) -> Result<Gguf, GgufError> {
        let mut sources = Vec::with_capacity(parts.len());
        let mut tensors = Vec::with_capacity(parts.iter().map(|(_, header)| header.tensors.len()).sum());
        let mut first = None;
        for (part, (source, header)) in parts.into_iter().enumerate() {
            sources.push(source);
            tensors.extend(header.tensors.into_iter().map(|tensor| tensor.in_part(part)));
            first.get_or_insert((header.version, header.metadata, header.directory));
        }
        let by_name = NameIndex::build(tensors.len(), |i| tensors[i].name())
            .map_err(|(earlier, later)| duplicate(&sources, &tensors[earlier], &tensors[later]))?;
        let Some((version, metadata, directory)) = first else {
            return Err(GgufError::selection(path.display(), "the model has no parts"));
        };
        Ok(Gguf { path, version, metadata, tensors, by_name, directory, sources })
    }

    /// The path that was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What errors call the file: its path, on one line. For a split model, that of its first part.
    pub fn name(&self) -> &str {
        self.sources.first().map_or("", |source| &source.name)
    }

    /// The names of all files of the model, in order.
    pub fn files(&self) -> impl ExactSizeIterator<Item = &str> {
        self.sources.iter().map(|source| source.name.as_str())
    }

    /// Bytes of all files of the model.
    pub fn file_size(&self) -> u64 {
        self.sources.iter().map(|source| source.bytes().len() as u64).sum()
    }

    /// The version of the format: 2 or 3.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Every tensor in the file's order.
    pub fn tensors(&self) -> impl ExactSizeIterator<Item = &TensorInfo> {
        self.tensors.iter()
    }

    /// The tensor called `name`, with its bytes.
    pub fn tensor(&self, name: &str) -> Option<Tensor<'_>> {
        let info = &self.tensors[self.by_name.find(name, |i| self.tensors[i].name())?];
        let source = self.sources.get(info.part)?;
        let start = usize::try_from(info.offset()).ok()?;
        Some(Tensor {
            name: info.name(),
            shape: info.shape(),
            ty: info.ty(),
            data: source.bytes().get(start..start.checked_add(info.size())?)?,
            offset: info.offset(),
            file: &source.name,
            declared_at: info.declared_at(),
        })
    }

    /// The tensor called `name`, or an error that says it is missing.
    pub fn require_tensor(&self, name: &str) -> Result<Tensor<'_>, GgufError> {
        self.tensor(name).ok_or_else(|| GgufError::Missing {
            file: self.name().to_owned(),
            what: format!("tensor {}", quote(name)),
            listed: self.tensors.len(),
            offset: self.directory,
        })
    }

    /// Whether the files still have the size and time they were opened with. A loader calls it before
    /// and after it copies the weights out of the map.
    pub fn check_unchanged(&self) -> Result<(), GgufError> {
        self.sources.iter().try_for_each(Source::check_unchanged)
    }

    /// Gives the memory back that the files' bytes took as they were read. Nothing is lost: what is read again comes
    /// from the system's cache.
    pub fn give_back(&self) {
        self.sources.iter().for_each(Source::give_back);
    }
}

impl Tensor<'_> {
    /// The error for a tensor that does not fit the model: "shape [64, 2] where [64, 64] is needed".
    pub fn invalid(&self, problem: impl Into<String>) -> GgufError {
        Field::TensorEntry(self.name).malformed(self.file, self.declared_at, problem)
    }

    /// The error for a tensor whose type the model cannot compute with.
    pub fn unsupported_type(&self, supported: &[TensorType]) -> GgufError {
        let names: Vec<&str> = supported.iter().map(|ty| ty.name()).collect();
        let problem =
            format!("quantisation {} is not supported yet (supported: {})", self.ty, names.join(", "));
        Field::TensorEntry(self.name).unsupported(self.file, self.declared_at, problem)
    }
}

fn duplicate(sources: &[Source], earlier: &TensorInfo, later: &TensorInfo) -> GgufError {
    let name = |tensor: &TensorInfo| sources.get(tensor.part).map_or("", |source| source.name.as_str());
    let elsewhere = if earlier.part == later.part { String::new() } else { format!(" in {}", name(earlier)) };
    let problem = format!("duplicate tensor name, first at byte {}{elsewhere}", earlier.declared_at());
    Field::TensorEntry(later.name()).malformed(name(later), later.declared_at(), problem)
}
