//! Test support: reference data, the real model and a tiny generated one.
//!
//! The only place that reaches outside the project. What is absent is skipped with a message that
//! names it, so a clone without the reference folder still passes.

mod reference;

pub use reference::{default_model, shared, skip};
