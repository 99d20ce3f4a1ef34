//! What a reply has said so far, kept for readers that come late, leave and come back.
//!
//! ```text
//! producer ─ Writer ─► log of a reply: chunk 0, 1, 2, … ─► Reader (cursor) ─► first response
//!                                                      ├─► Reader ─► the same request, sent again
//!                                                      └─► …
//! ```
//!
//! The producer appends and never waits for a reader. A reader has a cursor, gets every chunk from its cursor on once and in
//! order, and waits where there is none yet. Logs are found by name; a name belongs to one log at a time.
//!
//! **Bounds.** A log that grows beyond its own bound, or beyond its reserve when all logs together are at theirs, gives up
//! its oldest chunks: whoever has not read them is told so and gets no text with a hole. Logs that have ended and that
//! nobody reads go when their life is over, or before it, the oldest first, when there is no room for a new one.
//!
//! **Time** is an argument. Everything is in memory: with the process the logs are gone.

mod handles;
mod state;

pub use handles::{Audience, Begun, ReadError, Reader, ReplyLogs, Writer};
pub use state::{CHUNK_OVERHEAD, Full, LogLimits};
