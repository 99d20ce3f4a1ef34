//! What can keep a measurement from being made. A single failed request is a result, not an error.

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// An option that can't be used; says what is allowed.
    #[error("{0}")]
    Option(String),
    /// A file that can't be used: a trace, prompts, saved results.
    #[error("{file}: {why}")]
    File {
        /// The file's name.
        file: String,
        /// What is wrong, with the line where there is one.
        why: String,
    },
    /// A target does not answer as it must; says which and what to do.
    #[error("target {target} ({url}): {why}")]
    Target {
        /// Its name.
        target: String,
        /// Its address.
        url: String,
        /// What happened and what to do.
        why: String,
    },
}
