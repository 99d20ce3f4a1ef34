//! Finds and fetches models: local paths, the hub's HTTP API and its cache.
//!
//! A [`ModelRef`] is what a user writes; [`Hub::resolve`] turns it into the path of one GGUF file.
//! Files of a hub repository live in the cache that other hub clients share
//! (`models--owner--name/{blobs,refs,snapshots}`), so a file fetched by one is found by all.
//!
//! Invariants of the cache:
//! - a file named `blobs/<etag>` is whole: it is renamed there from `<etag>.incomplete` only after
//!   its size and, where the hub gives one, its sha256 have been checked;
//! - whoever writes an `.incomplete` file holds the lock `.locks/models--owner--name/<etag>.lock`;
//! - `snapshots/<commit>/<file>` links to a blob that exists.

mod cache;
mod choose;
mod client;
mod config;
mod default_model;
mod download;
mod error;
mod installed;
mod local;
mod model_ref;
mod names;
mod progress;
mod resolve;
mod retry;
mod split;

pub use config::{DEFAULT_ENDPOINT, HubConfig};
pub use default_model::{DEFAULT_MODEL, DefaultModel, models_dir};
pub use error::HubError;
pub use installed::{Installed, installed};
pub use model_ref::{ModelRef, RefError};
pub use progress::{NoProgress, Progress};
pub use resolve::Hub;
pub use retry::RetryPolicy;
