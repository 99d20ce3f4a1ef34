//! Accounts over HTTP, without a socket.

// Helpers of tests may fail as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub)]

mod bad_input;
mod keys;
mod session;
mod setup;
mod support;
mod usage;
mod users;
