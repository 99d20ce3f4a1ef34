//! The `motet` binary, from outside.

// Helpers of tests may fail as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub)]

mod accounts;
#[cfg(unix)]
mod batches;
mod bench;
mod config;
mod help;
mod mistakes;
mod models;
mod replies;
#[cfg(unix)]
mod serve;
#[cfg(unix)]
mod several;
mod support;
