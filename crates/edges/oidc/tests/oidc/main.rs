//! Sign-in against a provider on this machine: as it should be, and with every misbehaviour that is thought of.

#![allow(clippy::unwrap_used, clippy::panic)]

mod accounts;
mod browser;
mod keys;
mod misbehaviour;
mod mutation;
mod provider;
mod sign_in;
mod signer;
