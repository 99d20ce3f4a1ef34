use super::env::Raised;
use minijinja::ErrorKind;
use std::error::Error as _;

/// Why a template cannot be read or gives no prompt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// The source is not a template.
    #[error("the chat template does not parse (line {line}): {message}")]
    Syntax {
        /// Line in the template, from 1; 0 if unknown.
        line: usize,
        /// What is wrong.
        message: String,
    },
    /// The source is too long to be a chat template.
    #[error("the chat template has {bytes} bytes; at most {limit} are read")]
    SourceTooLarge {
        /// Its length.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The template refuses these messages (it called `raise_exception`). The text is the template's own
    /// and meant for whoever sent them.
    #[error("{0}")]
    Raised(String),
    /// The template failed on these messages.
    #[error("the chat template failed (line {line}): {message}")]
    Render {
        /// Line in the template, from 1; 0 if unknown.
        line: usize,
        /// What went wrong.
        message: String,
    },
    /// The template does more work, or writes more text, than any real conversation needs.
    #[error("the chat template exceeded its limit: {0}")]
    Limit(&'static str),
    /// An extra variable has the name of one that the template gets anyway.
    #[error("\"{0}\" cannot be set as an extra template variable")]
    Reserved(String),
    /// The thread that renders could not be started, or it panicked.
    #[error("the chat template could not be run: {0}")]
    Thread(String),
    /// The input uses all characters that could mark its control tokens as text.
    #[error("the messages contain every private-use character; remove some")]
    NoMarker,
}

impl TemplateError {
    /// From a failure to compile.
    pub(super) fn syntax(error: &minijinja::Error) -> Self {
        Self::Syntax { line: error.line().unwrap_or(0), message: message(error) }
    }

    /// From a failure to render.
    pub(super) fn render(error: &minijinja::Error) -> Self {
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
        while let Some(e) = cause {
            if let Some(Raised(text)) = e.downcast_ref() {
                return Self::Raised(text.clone());
            }
            if e.downcast_ref::<minijinja::Error>().is_some_and(|e| e.kind() == ErrorKind::OutOfFuel) {
                return Self::Limit("too many steps or too much text");
            }
            cause = e.source();
        }
        Self::Render { line: error.line().unwrap_or(0), message: message(error) }
    }
}

/// What happened, without the place (the caller has the line).
fn message(error: &minijinja::Error) -> String {
    let kind = error.kind().to_string();
    let mut text = error.detail().map_or(kind.clone(), |detail| format!("{kind}: {detail}"));
    if let Some(source) = error.source() {
        text += &format!(": {source}");
    }
    text
}
