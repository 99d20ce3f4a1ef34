//! Weights on disk to logits: the GGUF reader and decoder-only transformers (llama, gemma3) on the CPU. And to
//! embeddings: the safetensors reader and [`encoder`]s (BERT).
//!
//! [`CpuExecutor`] carries out the steps a scheduler plans. It copies every weight out of the file
//! at load, so the file may change or vanish afterwards.

pub mod config;
mod cpu;
mod decoder;
pub mod encoder;
pub mod gguf;
mod kv_memory;
pub mod safetensors;
mod weights;

pub use config::ModelConfig;
pub use cpu::{CpuExecutor, CpuOptions};
pub use gguf::{Gguf, GgufError};
pub use motet_kernels::kv::{BLOCK_TOKENS, KvFormat};
pub use motet_kernels::{Isa, Precision};
pub use weights::LoadProgress;

/// Why a model can't be run.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The file is not what a model needs.
    #[error(transparent)]
    File(#[from] GgufError),
    /// The system has not that much memory.
    #[error("the system refused {bytes} bytes for the KV arena; ask for less")]
    OutOfMemory {
        /// Bytes asked for.
        bytes: usize,
    },
    /// The KV arena is too small for one block.
    #[error(
        "{given} bytes of KV memory are less than a block of {tokens} tokens takes; give it at least {least} bytes"
    )]
    KvTooSmall {
        /// Bytes given.
        given: usize,
        /// Tokens of a block.
        tokens: usize,
        /// Bytes of a block over all layers.
        least: usize,
    },
}
