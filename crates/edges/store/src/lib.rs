//! Who may ask and what was used: organisations, users, API keys, sessions and usage, in SQLite or PostgreSQL; and which
//! files and batches there are.
//!
//! [`Store::open`] takes an address, `sqlite:PATH` or `postgres://…`, and brings the database to the newest version. The
//! same statements run on both (module `db` says how). [`UsageWriter`] stands between replies and the database: what it
//! has taken is in a journal and survives the process.
//!
//! Invariants:
//! - a secret (key, session token, password) is in the database only as a hash, and no secret is logged;
//! - a call that lists or changes an organisation's or a user's rows names the organisation or the user;
//! - time is an argument, in milliseconds since 1970-01-01 UTC;
//! - `usage_daily` is the sum of `usage_events`: both change in one transaction, once per event id;
//! - a revoked key, a disabled user or a changed role counts at once in this process, and in others when their key
//!   cache forgets ([`KeyCacheLimits::fresh_ms`]).
//!
//! Locks are leaves: the key cache's, the journal's and the throttle's are never held across an await or together.

mod batches;
mod db;
mod error;
mod external;
mod files;
mod ids;
mod key_cache;
mod keys;
mod migrate;
mod open;
mod password;
mod principal;
mod secret;
mod sessions;
mod store;
mod throttle;
mod usage;
mod users;

pub use batches::{Batch, BatchBounds, BatchCounts, BatchEnd, BatchStatus, BatchTimes, NewBatch, Whose};
pub use error::{Result, StoreError};
pub use external::{ExternalId, ExternalOutcome, ExternalSignIn, LinkedIdentity, MAX_IDENTITIES_PER_USER};
pub use files::{DataOwner, Deleted, FileBounds, FileInfo, Order, Page};
pub use ids::{BatchId, FileId, KeyId, OrgId, SessionId, UserId};
pub use key_cache::KeyCacheLimits;
pub use keys::{CreatedKey, KeyInfo, MAX_KEYS_PER_USER, NewKey};
pub use password::{MAX_PASSWORD_BYTES, MIN_PASSWORD_CHARS, PasswordCost};
pub use principal::{Credential, Owner, Principal, Scope, Scopes};
pub use secret::Secret;
pub use sessions::{
    CreatedSession, MAX_SESSIONS_PER_USER, NewSession, SessionAuth, SessionInfo, SessionPolicy,
};
pub use store::{Store, StoreOptions};
pub use throttle::{Backoff, LoginThrottle, TryLater};
pub use usage::{
    CSV_HEADER, DailyUsage, JournalError, Recorded, Span, UsageEvent, UsageFinish, UsageGroup, UsageId,
    UsageQuery, UsageSum, UsageWriter, UsageWriterOptions, UsageWriterStatus, date_of, day_of, day_of_date,
    month_of,
};
pub use users::{FirstOwner, MAX_FIELD_CHARS, MAX_PAGE, NewUser, Org, Role, User, UserChange};
