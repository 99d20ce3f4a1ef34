//! Metadata that architectures have in common.

use super::RopeConfig;
use crate::gguf::{Gguf, GgufError};

/// Most layers a file may ask for: the largest published models have fewer than half as many.
const MAX_LAYERS: usize = 512;
/// Longest context a file may ask for, in tokens: positions stay exact in every type they pass through.
const MAX_CONTEXT: usize = 1 << 24;

/// A file's keys below the name of its architecture.
pub(super) struct Keys<'a> {
    pub(super) gguf: &'a Gguf,
    pub(super) architecture: &'static str,
}

/// Sizes that every architecture gives.
pub(super) struct Sizes {
    pub(super) layers: usize,
    pub(super) embedding: usize,
    pub(super) feed_forward: usize,
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
    pub(super) head_dim: usize,
    pub(super) norm_eps: f32,
    pub(super) context_length: usize,
}

impl Keys<'_> {
    /// The whole name of a key.
    pub(super) fn name(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture)
    }

    /// A size from 1 to `most`.
    pub(super) fn size(&self, key: &str, most: usize) -> Result<usize, GgufError> {
        let key = self.name(key);
        match self.gguf.require_usize(&key)? {
            n if (1..=most).contains(&n) => Ok(n),
            n => Err(self.gguf.invalid_key(&key, format!("{n} is not between 1 and {most}"))),
        }
    }

    /// A number above 0; `default` where the file has none, and an error without one.
    pub(super) fn positive(&self, key: &str, default: Option<f32>) -> Result<f32, GgufError> {
        let key = self.name(key);
        let value = match (self.gguf.f32(&key)?, default) {
            (Some(value), _) => value,
            (None, Some(default)) => default,
            (None, None) => self.gguf.require_f32(&key)?,
        };
        if value.is_finite() && value > 0.0 {
            return Ok(value);
        }
        Err(self.gguf.invalid_key(&key, format!("{value} is not a number above 0")))
    }

    /// Refuses a key whose value turns something on that can't be run.
    pub(super) fn refuse(&self, key: &str, is_on: bool, problem: &str) -> Result<(), GgufError> {
        if is_on { Err(self.gguf.unsupported_key(&self.name(key), problem)) } else { Ok(()) }
    }

    pub(super) fn sizes(&self) -> Result<Sizes, GgufError> {
        let experts = self.gguf.u32(&self.name("expert_count"))?.is_some_and(|n| n > 0);
        self.refuse("expert_count", experts, "mixtures of experts are not supported yet")?;
        let embedding = self.size("embedding_length", 1 << 20)?;
        let heads = self.size("attention.head_count", 1 << 14)?;
        let kv_key = "attention.head_count_kv";
        let kv_heads = match self.gguf.get(&self.name(kv_key)) {
            Some(_) => self.size(kv_key, heads)?,
            None => heads,
        };
        if !heads.is_multiple_of(kv_heads) {
            let problem = format!("{kv_heads} does not divide the {heads} attention heads");
            return Err(self.gguf.invalid_key(&self.name(kv_key), problem));
        }
        Ok(Sizes {
            layers: self.size("block_count", MAX_LAYERS)?,
            embedding,
            feed_forward: self.size("feed_forward_length", 1 << 20)?,
            heads,
            kv_heads,
            head_dim: self.head_dim(embedding, heads)?,
            norm_eps: self.positive("attention.layer_norm_rms_epsilon", None)?,
            context_length: self.size("context_length", MAX_CONTEXT)?,
        })
    }

    fn head_dim(&self, embedding: usize, heads: usize) -> Result<usize, GgufError> {
        let key = self.name("attention.key_length");
        if let Some(dim) = self.gguf.usize(&key)? {
            if !(2..=1 << 12).contains(&dim) || !dim.is_multiple_of(2) {
                return Err(self
                    .gguf
                    .invalid_key(&key, format!("{dim} is not an even number from 2 to 4096")));
            }
            let values = self.gguf.usize(&self.name("attention.value_length"))?;
            let problem =
                format!("value heads of another size than the key heads' {dim} are not supported yet");
            self.refuse("attention.value_length", values.is_some_and(|v| v != dim), &problem)?;
            return Ok(dim);
        }
        if !embedding.is_multiple_of(heads) || !(embedding / heads).is_multiple_of(2) {
            let problem = format!("{heads} heads do not cut the width of {embedding} into even parts");
            return Err(self.gguf.invalid_key(&self.name("attention.head_count"), problem));
        }
        Ok(embedding / heads)
    }

    /// The rotary table of `rope.*`.
    pub(super) fn rope(&self, head_dim: usize) -> Result<RopeConfig, GgufError> {
        let key = self.name("rope.dimension_count");
        let dims = self.gguf.usize(&key)?.unwrap_or(head_dim);
        if !(2..=head_dim).contains(&dims) || !dims.is_multiple_of(2) {
            let problem = format!("{dims} is not an even number from 2 to the head size {head_dim}");
            return Err(self.gguf.invalid_key(&key, problem));
        }
        let base = self.positive("rope.freq_base", Some(10_000.0))?;
        Ok(RopeConfig { dims, base, divisor: self.rope_divisor()? })
    }

    fn rope_divisor(&self) -> Result<f32, GgufError> {
        let old = "rope.scale_linear";
        let is_scaled = self.gguf.f32(&self.name(old))?.is_some_and(|scale| scale != 1.0);
        self.refuse(
            old,
            is_scaled,
            "this old form of rope scaling is not supported; convert the file again",
        )?;
        let key = self.name("rope.scaling.type");
        match self.gguf.str(&key)? {
            None | Some("none") => Ok(1.0),
            Some("linear") => self.positive("rope.scaling.factor", None),
            Some(other) => {
                let problem =
                    format!("rope scaling {other:?} is not supported yet (supported: none, linear)");
                Err(self.gguf.unsupported_key(&key, problem))
            }
        }
    }
}
