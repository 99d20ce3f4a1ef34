//! Checks of texts, and the moderation endpoint on them.
//!
//! ```text
//! text ─► normal: one spelling for many ─► rules: phrases by category ─┐
//!   ├───► secrets: keys of known shapes ────────────────────────────────┼─► Verdict: a score for each category
//!   └───► leak: runs of words of a system prompt ───────────────────────┘
//!
//! POST /v1/moderations ─► routes ─► a Check ─► 13 categories in OpenAI's shape
//! ```
//!
//! **Rules are not a classifier.** They find phrases that were thought of before, in whatever costume, and nothing
//! else: no other wording, no other language than the list's, no irony, no context. They are written so that harmless
//! text passes, and much that is harmful passes too. Something that has to be kept out needs a classifier or a person
//! as well; both fit behind [`Check`].
//!
//! A check is synchronous, cheap and pure: time and memory are linear in the text, and the same text has the same verdict.

mod category;
mod check;
mod describe;
mod error;
mod leak;
mod list;
mod normal;
mod phrase;
mod routes;
mod rules;
mod secrets;

pub use category::{Category, FLAG_AT, Verdict};
pub use check::{All, Check};
pub use describe::describe;
pub use leak::PromptLeak;
pub use list::{ListError, MAX_LIST_BYTES};
pub use routes::{MODEL, Moderations};
pub use rules::{MAX_PHRASES, Rules};
pub use secrets::Secrets;
