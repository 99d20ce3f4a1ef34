//! Who may use how much: reserves up front, settles once.
//!
//! ```text
//!   reserve ─► Reservation ─┬─ settle: the real count ─────► balances hold what was used
//!     │            ▲  │     └─ expire: nobody came back ───► balances keep what was reserved
//!     │            └──┘ renew
//!     └─► Refusal: which limit, what is left, when it would pass
//! ```
//!
//! A request names its [`Scope`] and the [`Policy`] that holds for it: limits of the organisation, of the
//! account, and of the account's use of one model. It passes all of the limits or is charged to none.
//!
//! - **Per minute** (requests, tokens): buckets that refill continuously and hold one minute's worth. In any
//!   span of `t` minutes at most `limit × (1 + t)` pass: there is no boundary at which two windows meet.
//! - **Per day and month** (tokens, budget): calendar windows in UTC, because that is what an invoice and the
//!   usage report count, and what "resets at midnight" means. Any 24 hours see at most two days' worth, and the
//!   limits per minute spread it.
//! - **Concurrent** replies: reservations that are alive.
//!
//! A reservation charges `max(prompt + output, estimate)` tokens, so that requests sent together cannot all
//! pass one check. Settling gives back or charges the difference; where more was used than reserved the balance
//! goes into debt and later requests wait it off. The difference belongs to the day and month of the
//! reservation; once they are over it changes nothing. A reservation that nobody settles (a crash) expires:
//! its place among the concurrent is free again, and its tokens stay charged in full, because nobody
//! knows how many were used, and charging less would make crashing the cheaper way to end.
//!
//! Every number is an integer, and a per-minute balance counts tokens × 60,000, so that a millisecond's refill
//! is an integer too. All stay below 2^53: a store that computes in doubles gets the same numbers.
//! Whoever keeps the balances elsewhere judges with [`refusal`] and [`status`], as [`Quota`] does.

mod balance;
mod calendar;
mod check;
mod limits;
mod meter;
mod quota;
mod refusal;
mod request;

pub use balance::{Balance, Balances, Gauge, Status, status};
pub use limits::{Caps, Kind, Level, Limits, Policy};
pub use quota::{Counts, Quota};
pub use refusal::{Refusal, Retry, refusal};
pub use request::{Actual, Need, Request, Reservation, ReservationId, Scope, Settlement};

/// Milliseconds since the Unix epoch.
pub type Millis = u64;
