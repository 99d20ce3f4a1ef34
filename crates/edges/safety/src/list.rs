//! Lists of rules in TOML.
//!
//! ```toml
//! # Whether the built-in list holds too.
//! builtin = true
//! # A phrase of a rule does not count where one of these overlaps it.
//! allow = ["{a|the} fictional phrase in a film"]
//!
//! [[rules]]
//! categories = ["violence"]
//! score = 0.9
//! phrases = ["{the|that} fictional phrase"]
//! ```

use serde::Deserialize;

use crate::category::Category;

/// Longest list, in bytes. The phrases it stands for have bounds of their own.
pub const MAX_LIST_BYTES: usize = 1 << 20;

/// The built-in list.
pub(crate) const BUILTIN: &str = include_str!("builtin.toml");

/// What is wrong with a list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ListError(pub(crate) String);

/// A list as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct List {
    #[serde(default = "yes")]
    pub(crate) builtin: bool,
    #[serde(default)]
    pub(crate) allow: Vec<String>,
    #[serde(default)]
    pub(crate) rules: Vec<Rule>,
}

/// Phrases that mean the same.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rule {
    categories: Vec<String>,
    #[serde(default = "usual_score")]
    pub(crate) score: f64,
    pub(crate) phrases: Vec<String>,
}

fn yes() -> bool {
    true
}

/// Sure, as the phrase stands there; not certain, as nobody read the rest.
fn usual_score() -> f64 {
    0.9
}

impl List {
    /// Reads a list; its phrases are looked at by what compiles them.
    pub(crate) fn read(text: &str) -> Result<Self, ListError> {
        if text.len() > MAX_LIST_BYTES {
            return Err(ListError(format!("is longer than {MAX_LIST_BYTES} bytes")));
        }
        let list: Self = toml::from_str(text).map_err(|error| ListError(one_line(text, &error)))?;
        for rule in &list.rules {
            rule.categories()?;
            if !(rule.score > 0.0 && rule.score <= 1.0) {
                return Err(ListError(format!("the score {} is not above 0 and at most 1", rule.score)));
            }
        }
        Ok(list)
    }
}

impl Rule {
    pub(crate) fn categories(&self) -> Result<Vec<Category>, ListError> {
        if self.categories.is_empty() {
            return Err(ListError("a rule has no categories; give it at least one".to_owned()));
        }
        let known = |name: &String| {
            Category::from_name(name).ok_or_else(|| {
                let names: Vec<_> = Category::ALL.iter().map(|category| category.name()).collect();
                ListError(format!("there is no category {name:?}; there are {}", names.join(", ")))
            })
        };
        self.categories.iter().map(known).collect()
    }
}

/// The parser's own message shows the place in several lines.
fn one_line(text: &str, error: &toml::de::Error) -> String {
    let message = error.message().lines().next().unwrap_or_default();
    match error.span() {
        Some(span) => {
            let before = text.as_bytes().iter().take(span.start);
            format!("line {}: {message}", 1 + before.filter(|byte| **byte == b'\n').count())
        }
        None => message.to_owned(),
    }
}
