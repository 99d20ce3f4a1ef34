//! Files and batches over their routes.

// Helpers of tests may fail as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub)]

mod bad_input;
mod files;
mod resume;
mod runs;
mod support;
