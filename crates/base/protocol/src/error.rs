use serde::{Deserialize, Serialize};

/// Longest piece of a client's own text that an error message repeats, in characters.
const SHOWN_CHARS: usize = 60;

/// The body of every error response, and of an error event inside a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// The only key.
    pub error: ErrorObject,
}

/// What went wrong; all four keys are always written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorObject {
    /// For a person: what happened and what to do.
    pub message: String,
    /// The class, such as `invalid_request_error`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The parameter at fault, as a path like `messages[2].content`.
    pub param: Option<String>,
    /// For a program, such as `context_length_exceeded`.
    pub code: Option<String>,
}

/// What is wrong with a request body.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RequestError {
    /// The kind of fault.
    pub problem: Problem,
    /// The parameter at fault, as a path; absent when the body as a whole is.
    pub param: Option<String>,
    /// For a person: what is wrong and what would be right.
    pub message: String,
}

/// Kinds of fault in a request body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Problem {
    /// The body is not a JSON object.
    NotJson,
    /// A required parameter is absent.
    Missing,
    /// A parameter has another JSON type than it should.
    WrongType,
    /// The type is right and the value is not.
    BadValue,
    /// It would change the result and can't be honoured.
    Unsupported,
}

impl Problem {
    /// The wire's `code`.
    pub fn code(self) -> &'static str {
        match self {
            Self::NotJson => "invalid_json",
            Self::Missing => "missing_required_parameter",
            Self::WrongType => "invalid_type",
            Self::BadValue => "invalid_value",
            Self::Unsupported => "unsupported_parameter",
        }
    }
}

impl RequestError {
    /// The body as a whole can't be read.
    pub fn not_json(message: impl Into<String>) -> Self {
        Self { problem: Problem::NotJson, param: None, message: message.into() }
    }

    /// `param` has to be there.
    pub fn missing(param: impl Into<String>) -> Self {
        let param = param.into();
        Self { problem: Problem::Missing, message: format!("'{param}' is required"), param: Some(param) }
    }

    /// `param` has to be `wanted`, such as "a string".
    pub fn wrong_type(param: impl Into<String>, wanted: &str, found: &serde_json::Value) -> Self {
        let param = param.into();
        let message = format!("'{param}' must be {wanted}, not {}", describe(found));
        Self { problem: Problem::WrongType, param: Some(param), message }
    }

    /// `param` breaks a rule: `message` says which and what would be right.
    pub fn bad_value(param: impl Into<String>, message: impl Into<String>) -> Self {
        let param = param.into();
        let message = format!("'{param}' {}", message.into());
        Self { problem: Problem::BadValue, param: Some(param), message }
    }

    /// `param` can't be honoured: `message` says what would work instead.
    pub fn unsupported(param: impl Into<String>, message: &str) -> Self {
        let param = param.into();
        let message = format!("'{param}' {message}");
        Self { problem: Problem::Unsupported, param: Some(param), message }
    }
}

/// A client's value in words short enough for a message.
fn describe(value: &serde_json::Value) -> String {
    use serde_json::Value;
    match value {
        Value::Null => "null".into(),
        Value::Bool(b) => format!("the boolean {b}"),
        Value::Number(n) => format!("the number {n}"),
        Value::String(s) => format!("the string \"{}\"", shorten(s)),
        Value::Array(_) => "an array".into(),
        Value::Object(_) => "an object".into(),
    }
}

/// At most [`SHOWN_CHARS`] characters of `text`, control characters replaced.
pub(crate) fn shorten(text: &str) -> String {
    let clean = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    let mut short: String = text.chars().take(SHOWN_CHARS).map(clean).collect();
    if text.chars().nth(SHOWN_CHARS).is_some() {
        short.push('…');
    }
    short
}
