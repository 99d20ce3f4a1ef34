//! Signing in with an OpenID Connect provider: code flow with PKCE, and ID tokens that are verified here.
//!
//! ```text
//!  browser ── GET /api/oidc/{provider} ──► begin: discovery, a Flow is kept, its cookie is set
//!     │ 302                                                                       │
//!     ▼                                                                           │
//!  provider: who is it? ── 302 with a code ──► GET /api/oidc/{provider}/callback  ▼
//!                                                 │ the Flow of this state and this browser, once
//!                                                 ▼
//!                              finish: code → ID token → signature, claims → (userinfo) → Identity
//!                                                 │
//!                                                 ▼
//!                              SignIn: the application's account and session ── 303 to where it began
//! ```
//!
//! [`Provider`] speaks to one provider, [`Flows`] keeps what is under way, [`routes`] puts both behind HTTP. Accounts and
//! sessions are the application's, behind [`SignIn`].
//!
//! Invariants:
//! - an ID token counts only with a signature by a key that the provider publishes now (refreshed hourly), by an
//!   algorithm that fits the key's type, and never by `none` or with a shared secret;
//! - a flow is good once, for ten minutes, and only in the browser that began it;
//! - where a user is sent back to is a path of this server;
//! - every answer of a provider has a bound in bytes and in time, and no redirect is followed;
//! - time is an argument, in milliseconds since 1970-01-01 UTC.
//!
//! Locks: metadata and keys have an asynchronous lock each, held across their own fetch so that many sign-ins make
//! one; the keys' is taken after the metadata's is free. The flows' is a leaf.
//!
//! Signatures are verified with `ring`, which TLS brings anyway: the libraries for this bring 37 crates and more.

mod cached;
mod claims;
mod config;
mod describe;
mod discovery;
mod encoding;
mod error;
mod fetch;
mod flow;
mod identity;
mod jws;
mod keys;
mod page;
mod provider;
mod return_to;
mod routes;
mod secret;
mod token;

pub use config::{ConfigError, ProviderConfig};
pub use describe::describe;
pub use error::{Class, SignInError, TokenError};
pub use fetch::HttpLimits;
pub use flow::{ENTROPY_BYTES, FLOW_LIFETIME_MS, Flow, Flows, MAX_FLOWS};
pub use identity::Identity;
pub use provider::{Callback, Provider};
pub use routes::{Clock, Denied, SignIn, SignedIn, routes};
pub use secret::Secret;
