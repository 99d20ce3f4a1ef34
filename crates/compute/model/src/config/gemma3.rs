use motet_kernels::{Gate, RopeOrder};

use super::keys::{Keys, Sizes};
use super::{ExtraNorms, LayerConfig, ModelConfig, RopeConfig};
use crate::gguf::{Gguf, GgufError};

/// Every so many layers one sees the whole context, where the file does not say how many.
const PATTERN: usize = 6;
/// Base of the rotary frequencies of windowed layers, where the file does not say.
const LOCAL_BASE: f32 = 10_000.0;
/// Layers of the 27B model, whose scores are scaled by its width and not by its head size.
const LAYERS_27B: usize = 62;

/// Index of the rotary table of layers that see everything, and of windowed ones.
const GLOBAL: usize = 0;
const LOCAL: usize = 1;

/// The text part of Gemma 3 (Gemma Team 2025).
pub(super) fn read(gguf: &Gguf) -> Result<ModelConfig, GgufError> {
    let keys = Keys { gguf, architecture: "gemma3" };
    for key in ["final_logit_softcapping", "attn_logit_softcapping"] {
        let is_on = gguf.f32(&keys.name(key))?.is_some_and(|cap| cap != 0.0);
        keys.refuse(key, is_on, "soft caps are not supported yet")?;
    }
    let sizes = keys.sizes()?;
    let global = keys.rope(sizes.head_dim)?;
    // Scaling stretches the layers that see far; windowed ones stay as they were trained.
    let base = keys.positive("rope.freq_base_swa", Some(LOCAL_BASE))?;
    let local = RopeConfig { base, divisor: 1.0, ..global };
    let width = if sizes.layers == LAYERS_27B { sizes.embedding / sizes.heads } else { sizes.head_dim };
    Ok(ModelConfig {
        architecture: keys.architecture,
        layers: layers(&keys, &sizes)?,
        embedding: sizes.embedding,
        feed_forward: sizes.feed_forward,
        heads: sizes.heads,
        kv_heads: sizes.kv_heads,
        head_dim: sizes.head_dim,
        embedding_scale: (sizes.embedding as f32).sqrt(),
        attention_scale: 1.0 / (width as f32).sqrt(),
        rope_order: RopeOrder::Halves,
        ropes: vec![global, local],
        activation: Gate::GeluTanh,
        norms: ExtraNorms::HeadsAndUpdates,
        norm_eps: sizes.norm_eps,
        context_length: sizes.context_length,
    })
}

/// Windowed layers, the last of every few of which sees everything.
fn layers(keys: &Keys<'_>, sizes: &Sizes) -> Result<Vec<LayerConfig>, GgufError> {
    let window = keys.size("attention.sliding_window", u32::MAX as usize)?.min(sizes.context_length);
    let key = "attention.sliding_window_pattern";
    let pattern = match keys.gguf.get(&keys.name(key)) {
        Some(_) => keys.size(key, u32::MAX as usize)?,
        None => PATTERN,
    };
    let layer = |index: usize| match (index + 1).is_multiple_of(pattern) {
        true => LayerConfig { window: None, rope: GLOBAL },
        false => LayerConfig { window: Some(window), rope: LOCAL },
    };
    Ok((0..sizes.layers).map(layer).collect())
}
