//! What the user wrote, and what it means.
//!
//! [`RawConfig`] is text with its origin: the TOML file, `MOTET_…` variables and flags, the later
//! overriding the earlier. [`Config`] is checked and typed, with defaults filled in, and still knows
//! where each value came from. Every key is declared once, in [`KEYS`], but
//! for `[[models]]`, `[[lanes]]`, `[[tiers]]` and `[[oidc]]`, which are lists.

mod keys;
mod ladder;
mod lanes;
mod memory;
mod models;
mod oidc;
mod raw;
mod resolved;
mod tables;
mod tiers;
mod values;

pub(crate) use keys::KEYS;
pub(crate) use memory::KvMemory;
pub(crate) use memory::available as available_memory;
pub(crate) use models::ModelSettings;
pub(crate) use oidc::SignInProvider;
pub(crate) use raw::{RawConfig, Sources};
pub(crate) use resolved::{Auth, Config, EngineSettings, SamplingSettings, SpillSettings};
pub(crate) use tiers::Tier;
pub(crate) use values::{human_bytes, thousands};

/// What is wrong with a configuration, in one line.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct ConfigError(pub(crate) String);

#[cfg(test)]
mod tests;
