//! Accounts over HTTP: the first account, sign-in, devices, keys, users and usage. What a page or a program may send
//! and gets is written down in `docs/api.md`, which changes with this crate.
//!
//! [`Identity::routes`] are the routes. A request's way through:
//!
//! 1. `credentials` reads an API key or the session's cookie and, where the session got a new token, sets it on the
//!    answer, whatever that is. `request` reads the body within bounds and checks it field by field.
//! 2. `session`, `setup`, `devices`, `keys`, `users` and `usage` answer, each in the shapes of `wire`.
//! 3. `error` turns what went wrong into a status code.
//!
//! Invariants:
//! - with a cookie, a request that changes something counts only with the session's CSRF token, and only if it names no
//!   foreign `Origin`; with an API key neither is needed, for a foreign page has no key to send;
//! - who somebody is comes from credentials, and where they are from the connection: no header makes a request local;
//! - a password is hashed or checked only while there is a turn for it ([`HASHING_AT_ONCE`]), and counted by the
//!   throttle before that;
//! - an administrator changes members only, an owner everybody; the last owner stays (the store's contract);
//! - no secret is logged, and each is shown once.

mod credentials;
mod describe;
mod devices;
mod error;
mod identity;
mod keys;
mod request;
mod session;
mod setup;
mod usage;
mod users;
mod wire;

pub use credentials::{NotKnown, Who};
pub use describe::describe;
pub use identity::{Begun, Client, HASHING_AT_ONCE, Identity, IdentityConfig, Provider};
