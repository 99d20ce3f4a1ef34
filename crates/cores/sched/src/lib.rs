//! Decides what runs in the next step, and in which blocks.
//!
//! ```text
//!                    ┌───────────────────────── preempt ─────────────────────────┐
//!                    ▼                                                           │
//!   submit ─► Waiting (in its lane) ─ admit: blocks, a slot, its turn ─► Running ┴─ end, cancel, expire ─►
//! ```
//!
//! [`Scheduler::plan`] describes a step, an [`Executor`] carries it out, [`Scheduler::commit`] takes what
//! became of it. This crate knows neither weights nor clocks: a simulator drives the same decisions.
//!
//! - **No phases.** A sequence has tokens and those of them that are stored; a step lets it catch up. One
//!   token behind is a decode, more is a prompt (or a reply that was preempted).
//! - **A step** takes decodes first, then chunks of prompts, until the [`CostModel`] says that it would take
//!   longer than the inter-token target. How many decodes fit bounds the batch.
//! - **Lanes** have turns by tokens served ÷ weight, users of a lane by tokens served. What a lane does not
//!   use is lent; it gets it back at once: its prompts go first, and slots and blocks that another holds
//!   beyond its own share are taken back. Background lanes run in what is left of a step.
//! - **Out of blocks:** the last in the order of claims (lane, then arrival) gives up its blocks. They stay
//!   cached; it returns to the head of its lane and computes what is gone by then. The first in the order
//!   never gives up its blocks for another to grow, so someone always gets on. The last waits.
//! - **Parallel samples** are one sequence until their first token, then share its blocks, copying on write.

mod admit;
mod budget;
mod check;
mod commit;
mod config;
mod cost;
mod counts;
mod estimate;
mod fit;
mod lane;
mod plan;
mod reclaim;
mod scheduler;
mod sequence;
mod states;
mod step;
mod submission;
mod turns;

pub use config::{LaneConfig, LaneKind, SchedConfig};
pub use cost::{CostModel, StepShape};
pub use counts::{Counts, LaneCounts};
pub use estimate::Outlook;
pub use lane::LaneTotals;
pub use scheduler::Scheduler;
pub use step::{Capacity, Chunk, ExecuteError, Executor, Next, Outcome, StepOutput, StepPlan};
pub use submission::{Admitted, Refusal, Submission, UserKey};
