use std::{io, path::PathBuf};

use crate::RefError;

/// Why a model could not be found or fetched. Each message is one line that says what to do.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// The text names no model.
    #[error(transparent)]
    Ref(#[from] RefError),
    /// The default model is not in the models folder.
    #[error(
        "the default model {name} is not in {}; run `cargo xtask model` to fetch it, or pass --model", dir.display()
    )]
    NoDefault {
        /// The model's name.
        name: &'static str,
        /// Where it was looked for.
        dir: PathBuf,
    },
    /// The default model's file has another size.
    #[error(
        "{} has {got} bytes where the default model has {want}; remove it and run `cargo xtask model`", path.display()
    )]
    DefaultSize {
        /// The file.
        path: PathBuf,
        /// Bytes it has.
        got: u64,
        /// Bytes it should have.
        want: u64,
    },
    /// Nothing at the path.
    #[error("no model at {}: {hint}", path.display())]
    NoPath {
        /// What was written.
        path: PathBuf,
        /// What may have been meant.
        hint: String,
    },
    /// A folder or repository without a GGUF that can be used.
    #[error("{place} has no GGUF file to load{found}")]
    NoGguf {
        /// The folder or repository.
        place: String,
        /// What it has instead; empty or starting with a separator.
        found: String,
    },
    /// Several GGUFs and no clear choice.
    #[error("{place} has several GGUF files; name one, such as {example}. It has: {list}")]
    Ambiguous {
        /// The folder or repository.
        place: String,
        /// How to name one of them.
        example: String,
        /// Names and sizes.
        list: String,
    },
    /// The named file or quantisation is not there.
    #[error("{place} has no file {file:?}. It has: {list}")]
    NoSuchFile {
        /// The folder or repository.
        place: String,
        /// What was named.
        file: String,
        /// Names and sizes.
        list: String,
    },
    /// A repository or server sent a name that would leave the cache folder.
    #[error("the hub sent a {what} that can't be used as a file name: {name:?}")]
    UnsafeName {
        /// Commit, etag or file name.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// 401 or 403.
    #[error(
        "no access to {repo} (HTTP {status}): it is private, gated, or not there; \
         set HF_TOKEN to a token that may read it, and accept its licence at {page} if it asks for that{tail}"
    )]
    Denied {
        /// `owner/name`.
        repo: String,
        /// The answer's status.
        status: u16,
        /// The repository's page.
        page: String,
        /// Whether a token was sent, in words.
        tail: &'static str,
    },
    /// 404.
    #[error("{what} is not on the hub at {endpoint} (HTTP 404); check the spelling")]
    NotFound {
        /// Repository, or repository and file.
        what: String,
        /// The hub asked.
        endpoint: String,
    },
    /// The hub kept answering with an error that may pass.
    #[error("the hub at {endpoint} answered HTTP {status} {tries} times; try again later")]
    Unavailable {
        /// The hub asked.
        endpoint: String,
        /// The last status.
        status: u16,
        /// How often it was tried.
        tries: u32,
    },
    /// A status that trying again won't change.
    #[error("the hub answered HTTP {status} for {what}")]
    Status {
        /// What was asked for.
        what: String,
        /// The status.
        status: u16,
    },
    /// No connection, or one that kept breaking.
    #[error("the connection to {host} failed {tries} times: {why}; check the network and HF_ENDPOINT{kept}")]
    Network {
        /// Where to.
        host: String,
        /// How often it was tried.
        tries: u32,
        /// The last reason.
        why: String,
        /// What is kept for a resume, in words; may be empty.
        kept: String,
    },
    /// The answer lacks what the hub's API promises.
    #[error("the answer for {what} is not what a hub sends: {why}; check HF_ENDPOINT")]
    Protocol {
        /// What was asked for.
        what: String,
        /// What is missing or wrong.
        why: String,
    },
    /// The bytes are not those the hub announced.
    #[error(
        "{file} does not have the sha256 that the hub announced ({want}, got {got}); nothing was kept, try again"
    )]
    WrongSha {
        /// The file.
        file: String,
        /// Announced.
        want: String,
        /// Found.
        got: String,
    },
    /// No room for the file.
    #[error("the disk is full: {} needs {missing} more bytes; free some space or set HF_HOME to another disk", path.display())]
    DiskFull {
        /// The file being written.
        path: PathBuf,
        /// Bytes still to come.
        missing: u64,
    },
    /// Another failure of the file system.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// `HF_HUB_OFFLINE` is set and the cache lacks the file.
    #[error("{what} is not in the cache {} and HF_HUB_OFFLINE is set; unset it to fetch the file", cache.display())]
    Offline {
        /// Repository and file.
        what: String,
        /// The cache.
        cache: PathBuf,
    },
    /// `HF_ENDPOINT` or `HF_TOKEN` can't be used.
    #[error("{0}")]
    Config(String),
    /// The HTTP client could not be set up.
    #[error("the HTTP client could not start: {0}")]
    Client(String),
}

impl HubError {
    /// Wraps a file system error with the path it happened at.
    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }

    /// Whether a cached copy may be used instead: the hub could not be asked.
    pub(crate) fn is_unreachable(&self) -> bool {
        matches!(self, Self::Network { .. } | Self::Unavailable { .. } | Self::Client(_))
    }
}
