//! Sizes and constants of a model, read from a file's metadata and checked against each other.
//!
//! A file per architecture says what its keys mean; what they share is in [`keys`].

mod gemma3;
mod keys;
mod llama;

use motet_kernels::attention::HeadShape;
use motet_kernels::kv::KvFormat;
use motet_kernels::{Gate, RopeOrder};

use crate::gguf::{Gguf, GgufError};

/// Architectures that can be read, by the name that files give them.
const SUPPORTED: [&str; 2] = ["llama", "gemma3"];

/// A decoder-only transformer: what the forward pass has to know besides the weights.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelConfig {
    /// The name that the file gives the architecture.
    pub architecture: &'static str,
    /// What differs from layer to layer, in order.
    pub layers: Vec<LayerConfig>,
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
    /// Factor on the embeddings; 1 as a rule.
    pub embedding_scale: f32,
    /// Factor on the attention scores; 1/√head_dim as a rule.
    pub attention_scale: f32,
    /// Which elements rotary embedding turns together.
    pub rope_order: RopeOrder,
    /// Rotary tables, which layers name by index.
    pub ropes: Vec<RopeConfig>,
    /// What the feed-forward layer's gate goes through.
    pub activation: Gate,
    /// Norms besides those before attention, before the feed-forward layer and before the head.
    pub norms: ExtraNorms,
    /// Added to the mean square in the norms.
    pub norm_eps: f32,
    /// Positions the model was made for.
    pub context_length: usize,
}

/// What differs from layer to layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayerConfig {
    /// Positions a query sees, its own included; `None`: all before it.
    pub window: Option<usize>,
    /// Index into [`ModelConfig::ropes`].
    pub rope: usize,
}

/// Frequencies of rotary embedding.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RopeConfig {
    /// Elements of a head that are turned; even.
    pub dims: usize,
    /// Base of the frequencies.
    pub base: f32,
    /// Every angle is divided by it (linear scaling); 1 as a rule.
    pub divisor: f32,
}

/// Which norms a layer has besides those before its two halves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExtraNorms {
    /// None.
    Absent,
    /// On every head of queries and keys before they are turned, and on what attention and feed-forward
    /// layer add to the residual stream.
    HeadsAndUpdates,
}

/// Layers with equal KV needs, which share block tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerGroup {
    /// Positions that the layers see; `None`: all.
    pub window: Option<usize>,
    /// Indices of the layers, ascending.
    pub layers: Vec<usize>,
}

impl ModelConfig {
    /// Reads the metadata of a model; architectures and variants that can't be run are refused by name.
    pub fn read(gguf: &Gguf) -> Result<Self, GgufError> {
        match gguf.require_str("general.architecture")? {
            "llama" => llama::read(gguf),
            "gemma3" => gemma3::read(gguf),
            other => {
                let supported = SUPPORTED.join(", ");
                let problem = format!("architecture {other:?} is not supported yet (supported: {supported})");
                Err(gguf.unsupported_key("general.architecture", problem))
            }
        }
    }

    /// Heads as the attention kernel wants them.
    pub fn head_shape(&self) -> HeadShape {
        HeadShape { heads: self.heads, kv_heads: self.kv_heads, head_dim: self.head_dim }
    }

    /// Bytes of a KV block over all layers.
    pub fn kv_block_bytes(&self, format: KvFormat) -> usize {
        self.layers.len() * format.block_bytes(self.head_shape())
    }

    /// The layers by window: those that see everything first, where there are such.
    pub fn groups(&self) -> Vec<LayerGroup> {
        let mut groups: Vec<LayerGroup> = Vec::new();
        for (index, layer) in self.layers.iter().enumerate() {
            match groups.iter_mut().find(|group| group.window == layer.window) {
                Some(group) => group.layers.push(index),
                None => groups.push(LayerGroup { window: layer.window, layers: vec![index] }),
            }
        }
        groups.sort_by_key(|group| group.window.unwrap_or(0));
        groups
    }
}
