//! The arithmetic of a step: quantised matmul, attention, norms and rotary embedding.
//!
//! # Invariants (contract 1, same bits)
//! - Every output element of a matmul is one ascending chain over K, computed by one thread,
//!   whatever the number of rows, threads or lanes: a SIMD lane is an output row, so widening the
//!   vector widens the panel and leaves each chain as it was.
//! - Integer dot products inside a block are exact; their sums meet floats once per block.
//! - Attention walks KV in tiles of 16 tokens at absolute positions.
//! - Every SIMD function has a scalar twin that gives equal bits; tests compare them.
//!
//! `unsafe` here is pointers into packed weights and the KV arena; bounds are checked once at the
//! safe entry points.
#![allow(unsafe_code)]

mod activations;
pub mod attention;
mod blocks;
mod elementwise;
mod isa;
pub mod kv;
mod lines;
mod matmul;
mod panels;
mod pool;

pub use activations::Activations;
pub use blocks::BlockFormat;
pub use elementwise::{RopeFrequencies, add_assign, rms_norm, rope, silu_mul};
pub use isa::Isa;
pub use matmul::{Product, matmul};
pub use panels::{PackedMatrix, Precision, Source};
pub use pool::ThreadPool;

/// Output rows of a weight matrix that are interleaved into one panel: the lanes of the widest vector.
pub const PANEL_ROWS: usize = 16;
/// Weights or activations that share one scale, in every 32-block format.
pub const BLOCK: usize = 32;
