//! Decides what runs in the next step.
//!
//! A step is described by a [`StepPlan`] and carried out by an [`Executor`]; this crate knows
//! neither weights nor clocks, so the simulator can drive the same decisions. The first policy is
//! [`Fifo`].

mod fifo;
mod step;

pub use fifo::{Fifo, Limits, QueueFull, SequenceSpec};
pub use step::{Capacity, Chunk, ExecuteError, Executor, StepOutput, StepPlan};
