//! The bytes of one file: a read-only map, or a buffer in tests.

use std::fs::{File, Metadata};
use std::path::Path;
use std::time::SystemTime;

use memmap2::{Mmap, MmapOptions};

use super::error::{GgufError, one_line};

/// One file of a model.
#[derive(Debug)]
pub(crate) struct Source {
    /// The file as it was given, fit for a message.
    pub name: String,
    bytes: Bytes,
}

#[derive(Debug)]
enum Bytes {
    Mapped { map: Mmap, file: File, modified: Option<SystemTime> },
    Owned(Vec<u8>),
}

impl Source {
    pub(crate) fn from_bytes(name: &str, bytes: Vec<u8>) -> Self {
        Source { name: one_line(name), bytes: Bytes::Owned(bytes) }
    }

    /// Maps a regular file. Anything else (a pipe, a device) is refused, since opening it could block.
    pub(crate) fn open(path: &Path) -> Result<Self, GgufError> {
        let name = one_line(&path.to_string_lossy());
        let io = |action| {
            let file = name.clone();
            move |source| GgufError::Io { file, action, source }
        };
        let kind = std::fs::metadata(path).map_err(io("open"))?;
        if kind.is_dir() {
            return Err(GgufError::selection(name, "is a folder, not a GGUF file"));
        }
        if !kind.is_file() {
            return Err(GgufError::selection(name, "is not a regular file"));
        }
        let file = File::open(path).map_err(io("open"))?;
        let status = file.metadata().map_err(io("read the size of"))?;
        let len = usize::try_from(status.len())
            .map_err(|_| GgufError::selection(&name, "is larger than this machine can address"))?;
        if len == 0 {
            return Ok(Source { name, bytes: Bytes::Owned(Vec::new()) });
        }
        let map = map(&file, len).map_err(io("map"))?;
        let modified = status.modified().ok();
        Ok(Source { name, bytes: Bytes::Mapped { map, file, modified } })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Mapped { map, .. } => map,
            Bytes::Owned(bytes) => bytes,
        }
    }

    /// Gives back the memory of pages that were read; reading them again takes them from the system's cache of the
    /// file, or from the file. A hint: a system that refuses it keeps them.
    #[allow(unsafe_code)]
    pub(crate) fn give_back(&self) {
        #[cfg(unix)]
        if let Bytes::Mapped { map, .. } = &self.bytes {
            // SAFETY: the map is read-only and of a file, so that dropped pages come back as the file has them.
            let _ = unsafe { map.unchecked_advise(memmap2::UncheckedAdvice::DontNeed) };
        }
    }

    /// Refuses a file that has another size or modification time than when it was opened.
    pub(crate) fn check_unchanged(&self) -> Result<(), GgufError> {
        let Bytes::Mapped { map, file, modified } = &self.bytes else { return Ok(()) };
        let same = |now: &Metadata| now.len() == map.len() as u64 && now.modified().ok() == *modified;
        match file.metadata() {
            Ok(now) if same(&now) => Ok(()),
            _ => Err(GgufError::Changed { file: self.name.clone() }),
        }
    }
}

#[allow(unsafe_code)]
fn map(file: &File, len: usize) -> std::io::Result<Mmap> {
    // SAFETY: the map is read-only, and nothing derived from it is trusted to stay the same: the header is
    // copied before it is checked, and tensor bytes are plain bytes, valid whatever they hold. Cutting the
    // file while it is mapped makes reads beyond the cut fault; loaders copy the weights out at once and
    // call `check_unchanged` around that.
    unsafe { MmapOptions::new().len(len).map(file) }
}
