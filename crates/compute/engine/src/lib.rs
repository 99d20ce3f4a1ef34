//! The step loop: schedule, execute, sample, publish.
//!
//! The schedule is shared under a lock so that a request is refused at once, with a reason; the lock is
//! held for a plan or a commit, never while a step computes. One thread owns the executor, the replies and
//! the second tier. Events go out through one bounded channel per reply: the loop never waits for a
//! reader, and a reader that leaves is noticed at the next step.
//!
//! Beside it, [`EmbedEngine`] runs an encoder on a thread of its own.

mod embed;
mod engine;
mod moves;
mod reply;
mod shared;
mod step_loop;
mod tier;

pub use embed::{EmbedConfig, EmbedEngine, Encode};
pub use engine::{CacheConfig, Engine, EngineConfig, StartError};
pub use motet_kv::CacheKey;
pub use motet_sched::{LaneConfig, LaneKind, SchedConfig};
pub use tier::TierConfig;
