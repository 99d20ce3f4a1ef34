//! The arithmetic of a step: quantised matmul, attention, norms and rotary embedding.
//!
//! # Invariants (contract 1, same bits)
//! - Every output element of a matmul is one ascending chain over K, computed by one thread,
//!   whatever the number of rows, threads or lanes: a SIMD lane is an output row, so widening the
//!   vector widens the panel and leaves each chain as it was.
//! - Integer dot products inside a block are exact; their sums meet floats once per block.
//! - Attention walks KV in chunks of 64 tokens at absolute positions, and folds segments of 1,024 in order.
//! - Every SIMD function has a scalar twin that gives equal bits; tests compare them.
//!
//! `unsafe` here is pointers into packed weights and the KV arena; bounds are checked once at the
//! safe entry points.
#![allow(unsafe_code)]

mod activations;
pub mod attention;
mod blocks;
mod cpus;
mod elementwise;
mod full_attention;
mod gate;
mod isa;
pub mod kv;
mod lines;
pub mod machine;
mod matmul;
mod pages;
mod panels;
mod patience;
mod pool;
mod simd;
#[cfg(target_arch = "x86_64")]
mod tiles;

pub use activations::Activations;
pub use blocks::BlockFormat;
pub use cpus::available_threads;
pub use elementwise::{
    Gelu, RopeFrequencies, RopeOrder, add_assign, add_bias_and_gelu, l2_normalize, layer_norm_in_place,
    rms_norm, rms_norm_in_place, rope,
};
pub use full_attention::FullAttention;
pub use isa::Isa;
pub use matmul::{Gate, Product, Sum, gated, matmul};
pub use pages::{HugePages, huge_pages, memory_nodes};
pub use panels::{PackedMatrix, Precision, Source};
pub use pool::{Affinity, PoolOptions, ThreadPool};

/// Output rows of a weight matrix that are interleaved into one panel: the lanes of the widest vector.
pub const PANEL_ROWS: usize = 16;
/// Weights or activations that share one scale, in every 32-block format.
pub const BLOCK: usize = 32;
