//! The scheduler over a machine whose time is computed and whose memory is checked.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod cases;
mod fairness;
mod memory;
mod property;
mod returns;
mod samples;
mod trace;
mod world;
