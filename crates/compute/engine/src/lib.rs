//! The step loop: schedule, execute, sample, publish.
//!
//! One thread owns the schedule and the executor. Requests come in through a bounded inbox, events
//! go out through one bounded channel per reply, so neither side ever waits for the other's
//! pace: the loop never blocks on a reader, and a reader that leaves is noticed at the next step.

mod engine;
mod inbox;
mod reply;
mod step_loop;

pub use engine::{Engine, EngineConfig, StartError};
pub use motet_sched::Limits;
