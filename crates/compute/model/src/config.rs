use motet_kernels::attention::HeadShape;

use crate::gguf::{Gguf, GgufError};

/// Most layers a file may ask for: the largest published models have fewer than half as many.
const MAX_LAYERS: usize = 512;
/// Longest context a file may ask for, in tokens: positions stay exact in every type they pass through.
const MAX_CONTEXT: usize = 1 << 24;

/// Sizes and constants of a llama-architecture model, checked against each other.
#[derive(Debug, Clone, PartialEq)]
pub struct LlamaConfig {
    /// Transformer layers.
    pub layers: usize,
    /// Width of the residual stream.
    pub embedding: usize,
    /// Width of the feed-forward layer.
    pub feed_forward: usize,
    /// Attention heads.
    pub heads: usize,
    /// Key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Elements of a head that rotary embedding turns.
    pub rope_dims: usize,
    /// Base of the rotary frequencies.
    pub rope_base: f32,
    /// Every rotary angle is divided by it (linear scaling); 1 as a rule.
    pub rope_divisor: f32,
    /// Added to the mean square in the norms.
    pub norm_eps: f32,
    /// Positions the model was made for.
    pub context_length: usize,
}

impl LlamaConfig {
    /// Reads the metadata of a llama model; other architectures and variants are refused by name.
    pub fn read(gguf: &Gguf) -> Result<Self, GgufError> {
        let architecture = gguf.require_str("general.architecture")?;
        if architecture != "llama" {
            let problem = format!("architecture {architecture:?} is not supported yet (supported: llama)");
            return Err(gguf.unsupported_key("general.architecture", problem));
        }
        if gguf.u32("llama.expert_count")?.is_some_and(|n| n > 0) {
            return Err(
                gguf.unsupported_key("llama.expert_count", "mixtures of experts are not supported yet")
            );
        }
        let size = |key: &str, most: usize| -> Result<usize, GgufError> {
            match gguf.require_usize(key)? {
                n if (1..=most).contains(&n) => Ok(n),
                n => Err(gguf.invalid_key(key, format!("{n} is not between 1 and {most}"))),
            }
        };
        let embedding = size("llama.embedding_length", 1 << 20)?;
        let heads = size("llama.attention.head_count", 1 << 14)?;
        let kv_heads = match gguf.get("llama.attention.head_count_kv") {
            Some(_) => size("llama.attention.head_count_kv", heads)?,
            None => heads,
        };
        if !heads.is_multiple_of(kv_heads) {
            let problem = format!("{kv_heads} does not divide the {heads} attention heads");
            return Err(gguf.invalid_key("llama.attention.head_count_kv", problem));
        }
        let head_dim = head_dim(gguf, embedding, heads)?;
        let rope_dims = gguf.usize("llama.rope.dimension_count")?.unwrap_or(head_dim);
        if !(2..=head_dim).contains(&rope_dims) || !rope_dims.is_multiple_of(2) {
            let problem = format!("{rope_dims} is not an even number from 2 to the head size {head_dim}");
            return Err(gguf.invalid_key("llama.rope.dimension_count", problem));
        }
        Ok(Self {
            layers: size("llama.block_count", MAX_LAYERS)?,
            embedding,
            feed_forward: size("llama.feed_forward_length", 1 << 20)?,
            heads,
            kv_heads,
            head_dim,
            rope_dims,
            rope_base: positive(gguf, "llama.rope.freq_base", Some(10_000.0))?,
            rope_divisor: rope_divisor(gguf)?,
            norm_eps: positive(gguf, "llama.attention.layer_norm_rms_epsilon", None)?,
            context_length: size("llama.context_length", MAX_CONTEXT)?,
        })
    }

    /// Heads as the attention kernel wants them.
    pub fn head_shape(&self) -> HeadShape {
        HeadShape { heads: self.heads, kv_heads: self.kv_heads, head_dim: self.head_dim }
    }

    /// KV elements of one token over all layers: 2 × layers × KV heads × head dim.
    pub fn kv_elements_per_token(&self) -> usize {
        2 * self.layers * self.kv_heads * self.head_dim
    }
}

fn head_dim(gguf: &Gguf, embedding: usize, heads: usize) -> Result<usize, GgufError> {
    let key = "llama.attention.key_length";
    if let Some(dim) = gguf.usize(key)? {
        if !(2..=1 << 12).contains(&dim) || !dim.is_multiple_of(2) {
            return Err(gguf.invalid_key(key, format!("{dim} is not an even number from 2 to 4096")));
        }
        if gguf.usize("llama.attention.value_length")?.is_some_and(|v| v != dim) {
            let problem =
                format!("value heads of another size than the key heads' {dim} are not supported yet");
            return Err(gguf.unsupported_key("llama.attention.value_length", problem));
        }
        return Ok(dim);
    }
    if !embedding.is_multiple_of(heads) || !(embedding / heads).is_multiple_of(2) {
        let problem = format!("{heads} heads do not cut the width of {embedding} into even parts");
        return Err(gguf.invalid_key("llama.attention.head_count", problem));
    }
    Ok(embedding / heads)
}

fn rope_divisor(gguf: &Gguf) -> Result<f32, GgufError> {
    let old = "llama.rope.scale_linear";
    if gguf.f32(old)?.is_some_and(|scale| scale != 1.0) {
        return Err(gguf
            .unsupported_key(old, "this old form of rope scaling is not supported; convert the file again"));
    }
    let key = "llama.rope.scaling.type";
    match gguf.str(key)? {
        None | Some("none") => Ok(1.0),
        Some("linear") => positive(gguf, "llama.rope.scaling.factor", None),
        Some(other) => {
            let problem = format!("rope scaling {other:?} is not supported yet (supported: none, linear)");
            Err(gguf.unsupported_key(key, problem))
        }
    }
}

fn positive(gguf: &Gguf, key: &str, default: Option<f32>) -> Result<f32, GgufError> {
    let value = match (gguf.f32(key)?, default) {
        (Some(value), _) => value,
        (None, Some(default)) => default,
        (None, None) => gguf.require_f32(key)?,
    };
    if value.is_finite() && value > 0.0 {
        return Ok(value);
    }
    Err(gguf.invalid_key(key, format!("{value} is not a number above 0")))
}
