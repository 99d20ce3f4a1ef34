use std::{fmt, path::PathBuf, str::FromStr};

use crate::{DEFAULT_MODEL, names};

/// What a user writes to name a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelRef {
    /// [`DEFAULT_MODEL`].
    Default,
    /// A GGUF file, a folder with one, or the bare name of a file in the models folder.
    Path(PathBuf),
    /// A hub repository, `hf:owner/name[:file]`.
    Hub {
        /// `owner/name`.
        repo: String,
        /// A file of the repository, or a quantisation such as `Q8_0`; `None` lets the repository's
        /// content decide.
        file: Option<String>,
    },
}

/// Why a text names no model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RefError {
    /// Nothing was written.
    #[error("the model name is empty; write a GGUF path, a folder, or hf:owner/name[:file]")]
    Empty,
    /// `hf:` is not followed by `owner/name`.
    #[error("{text:?} names no repository; write hf:owner/name or hf:owner/name:file.gguf")]
    Repo {
        /// What was written.
        text: String,
    },
    /// The part after the second colon can't be a file of a repository.
    #[error("{file:?} is not a file name inside a repository: {why}")]
    File {
        /// What was written.
        file: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Another scheme, such as `https:`.
    #[error("{text:?} is an address; Motet takes a GGUF path, a folder, or hf:owner/name[:file]")]
    Address {
        /// What was written.
        text: String,
    },
}

impl FromStr for ModelRef {
    type Err = RefError;

    fn from_str(text: &str) -> Result<Self, RefError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(RefError::Empty);
        }
        if text.contains("://") {
            return Err(RefError::Address { text: text.to_owned() });
        }
        if let Some(rest) = text.strip_prefix("hf:") {
            return hub_ref(text, rest);
        }
        if text == "default" || text == DEFAULT_MODEL.name {
            return Ok(Self::Default);
        }
        Ok(Self::Path(PathBuf::from(text)))
    }
}

fn hub_ref(text: &str, rest: &str) -> Result<ModelRef, RefError> {
    let (repo, file) = match rest.split_once(':') {
        Some((repo, file)) => (repo, Some(file)),
        None => (rest, None),
    };
    if !names::is_repo(repo) {
        return Err(RefError::Repo { text: text.to_owned() });
    }
    if let Some(file) = file {
        names::check_file(file).map_err(|why| RefError::File { file: file.to_owned(), why })?;
    }
    Ok(ModelRef::Hub { repo: repo.to_owned(), file: file.map(str::to_owned) })
}

impl fmt::Display for ModelRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str(DEFAULT_MODEL.name),
            Self::Path(path) => path.display().fmt(f),
            Self::Hub { repo, file: None } => write!(f, "hf:{repo}"),
            Self::Hub { repo, file: Some(file) } => write!(f, "hf:{repo}:{file}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hub(repo: &str, file: Option<&str>) -> ModelRef {
        ModelRef::Hub { repo: repo.into(), file: file.map(Into::into) }
    }

    #[test]
    fn parses() {
        let check = |text: &str, expected: ModelRef| {
            assert_eq!(text.parse(), Ok(expected.clone()), "{text}");
            assert_eq!(expected.to_string().parse(), Ok(expected), "{text} and back");
        };
        check("default", ModelRef::Default);
        check(DEFAULT_MODEL.name, ModelRef::Default);
        check("hf:owner/name", hub("owner/name", None));
        check("hf:owner/name:a.gguf", hub("owner/name", Some("a.gguf")));
        check("hf:owner/name:sub/a.Q8_0.gguf", hub("owner/name", Some("sub/a.Q8_0.gguf")));
        check("hf:owner/name:Q8_0", hub("owner/name", Some("Q8_0")));
        check(" ./a.gguf ", ModelRef::Path("./a.gguf".into()));
        check("owner/name", ModelRef::Path("owner/name".into()));
        check("C:\\models\\a.gguf", ModelRef::Path("C:\\models\\a.gguf".into()));
    }

    #[test]
    fn refuses() {
        let check = |text: &str, part: &str| {
            let error = text.parse::<ModelRef>().expect_err(text).to_string();
            assert!(error.contains(part) && !error.contains('\n'), "{text}: {error}");
        };
        check("", "is empty");
        check("hf:", "hf:owner/name");
        check("hf:name", "hf:owner/name");
        check("hf:a/b/c", "hf:owner/name");
        check("hf:../b", "hf:owner/name");
        check("hf:a/b?x", "hf:owner/name");
        check("hf:a/b:", "is empty");
        check("hf:a/b:../../etc/passwd", "\"..\"");
        check("hf:a/b:/etc/passwd", "absolute");
        check("hf:a/b:x\\y.gguf", "backslash");
        check("https://example.org/a.gguf", "is an address");
    }
}
