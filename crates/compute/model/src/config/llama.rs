use motet_kernels::{Gate, RopeOrder};

use super::keys::Keys;
use super::{ExtraNorms, LayerConfig, ModelConfig};
use crate::gguf::{Gguf, GgufError};

/// Llama (Touvron et al. 2023) and the many models that share its layout.
pub(super) fn read(gguf: &Gguf) -> Result<ModelConfig, GgufError> {
    let keys = Keys { gguf, architecture: "llama" };
    let sizes = keys.sizes()?;
    Ok(ModelConfig {
        architecture: keys.architecture,
        layers: vec![LayerConfig { window: None, rope: 0 }; sizes.layers],
        embedding: sizes.embedding,
        feed_forward: sizes.feed_forward,
        heads: sizes.heads,
        kv_heads: sizes.kv_heads,
        head_dim: sizes.head_dim,
        embedding_scale: 1.0,
        attention_scale: 1.0 / (sizes.head_dim as f32).sqrt(),
        rope_order: RopeOrder::Pairs,
        ropes: vec![keys.rope(sizes.head_dim)?],
        activation: Gate::Silu,
        norms: ExtraNorms::Absent,
        norm_eps: sizes.norm_eps,
        context_length: sizes.context_length,
    })
}
