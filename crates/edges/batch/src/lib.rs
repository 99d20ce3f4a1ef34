//! Files and batches: a file of requests goes in, a file of answers comes out, within a day and over restarts.
//!
//! ```text
//! POST /v1/files ─► upload ─► disk (the lines) + store (that they are there)
//! POST /v1/batches ─► store (validating) ─► runner ─► input: every line checked
//!                                             │
//!                       for each line not answered yet: line ─► the gateway's own routes
//!                                             ▼
//!                     answers: two append-only files, of what succeeded and of what did not
//!                                             │ all answered, expired or cancelled
//!                                             ▼
//!                     store: the batch has ended and its files are there, in one transaction
//! ```
//!
//! Invariants:
//! - a line is answered in exactly one place, once: what is in the answers' files when a run begins is not asked again,
//!   and a line that was cut by a crash is not in them (module `answers`);
//! - one process runs the batches of a folder: it holds a lock on a file there, which the system gives back whatever
//!   the process's end;
//! - everything is its owner's: one user's of one tenant. Others are told that it does not exist;
//! - a line is sent as its owner *now*: a key that was revoked or a user who was disabled gets nothing more.
//!
//! The [`Runner`] owns its task, and the task every line in flight: dropping the runner cancels them.
//! There are no locks but the folder's and, inside one call, the store's.

mod answers;
mod batches;
mod config;
mod describe;
mod disk;
mod error;
mod files;
mod guard;
mod input;
mod line;
mod list;
mod run;
mod runner;
mod service;
mod upload;
mod wire;

pub use config::{BatchConfig, WallClock};
pub use describe::describe;
pub use line::RunAs;
pub use runner::Runner;
pub use service::{Batches, OpenStore};
