//! Keeps quotas: in memory, or in Redis where several gateways share them.
//!
//! ```no_run
//! # use std::sync::Arc;
//! # use motet_limits::{Actual, Keeper, MemoryQuota, Policy, QuotaError, Request, Scope};
//! # async fn serve() -> Result<(), QuotaError> {
//! let keeper = Keeper::new(Arc::new(MemoryQuota::new(MemoryQuota::HOLD)));
//! let request = Request {
//!     scope: Scope::new("org", "ann", "motet"),
//!     policy: Policy::default(),
//!     prompt: 12,
//!     output: 256,
//!     estimate: 0,
//!     cost: 0,
//! };
//! let mut held = keeper.hold(&request).await?;
//! held.report(40, 0); // Dropped from here on it settles with this.
//! held.settle(Actual::Used { tokens: 97, cost: 0 }).await?;
//! # Ok(())
//! # }
//! ```
//!
//! What is decided, and which numbers, is [`motet_quota`]'s matter. A [`QuotaStore`] keeps the balances; a
//! [`Keeper`] makes sure that every reservation ends, however its request does.

mod alive;
mod clock;
mod held;
mod keeper;
mod memory;
mod redis;
mod store;

pub use self::redis::{RedisConfig, RedisQuota};
pub use clock::{Clock, system_clock};
pub use held::Held;
pub use keeper::Keeper;
pub use memory::MemoryQuota;
pub use store::{QuotaError, QuotaStore, Ticket, Unavailable};

pub use motet_quota::{
    Actual, Gauge, Kind, Level, Limits, Millis, Policy, Refusal, Request, Reservation, ReservationId, Retry,
    Scope, Settlement, Status,
};
