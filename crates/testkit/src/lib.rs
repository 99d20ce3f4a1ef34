//! Test support: reference data, the real model and a tiny generated one.
//!
//! The only place that reaches outside the project. What is absent is skipped with a message that
//! names it, so a clone without the reference folder still passes.

// A test helper that cannot do its work ends the test, with the reason.
#![allow(clippy::expect_used, clippy::cast_possible_truncation)]

mod gguf;
mod quant;
mod reference;
mod tiny;
mod tiny_bert;
mod tiny_gemma3;

pub use gguf::{GgufBuilder, Layout, Meta, TensorLayout};
pub use quant::WeightType;
pub use reference::{default_model, embedding_model, gemma3_model, shared, skip};
pub use tiny::{Head, TinyModel, TinyModelFile, tiny_model, tiny_model_file};
pub use tiny_bert::{F32Tensor, TinyBert, safetensors};
pub use tiny_gemma3::TinyGemma3;
