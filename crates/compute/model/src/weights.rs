//! Tensors of a file, checked for shape and type, packed for the kernels.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;

use motet_kernels::{BlockFormat, PackedMatrix, Precision, RopeFrequencies, Source, ThreadPool};

use crate::config::{ExtraNorms, ModelConfig, RopeConfig};
use crate::gguf::{Gguf, GgufError, Tensor, TensorType};

/// The types the kernels compute with.
const SUPPORTED: [(TensorType, BlockFormat); BlockFormat::ALL.len()] = [
    (TensorType::F32, BlockFormat::F32),
    (TensorType::F16, BlockFormat::F16),
    (TensorType::BF16, BlockFormat::BF16),
    (TensorType::Q4_0, BlockFormat::Q4_0),
    (TensorType::Q4_1, BlockFormat::Q4_1),
    (TensorType::Q5_0, BlockFormat::Q5_0),
    (TensorType::Q5_1, BlockFormat::Q5_1),
    (TensorType::Q8_0, BlockFormat::Q8_0),
    (TensorType::Q2_K, BlockFormat::Q2_K),
    (TensorType::Q3_K, BlockFormat::Q3_K),
    (TensorType::Q4_K, BlockFormat::Q4_K),
    (TensorType::Q5_K, BlockFormat::Q5_K),
    (TensorType::Q6_K, BlockFormat::Q6_K),
    (TensorType::IQ4_NL, BlockFormat::IQ4_NL),
    (TensorType::IQ4_XS, BlockFormat::IQ4_XS),
    (TensorType::MXFP4, BlockFormat::MXFP4),
];

/// How much of a model's weights has been read and packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadProgress {
    /// Bytes of the file's tensors that are packed.
    pub bytes: u64,
    /// Bytes of all tensors.
    pub total: u64,
}

/// All weights of a model.
pub(crate) struct Weights {
    pub(crate) embedding: PackedMatrix,
    pub(crate) layers: Vec<LayerWeights>,
    pub(crate) output_norm: Vec<f32>,
    /// `None`: the embedding is the output head too (tied).
    pub(crate) output: Option<PackedMatrix>,
    /// One per rotary table of the configuration.
    pub(crate) ropes: Vec<RopeFrequencies>,
}

/// Weights of one transformer layer.
pub(crate) struct LayerWeights {
    pub(crate) attention_norm: Vec<f32>,
    pub(crate) query: PackedMatrix,
    pub(crate) key: PackedMatrix,
    pub(crate) value: PackedMatrix,
    /// Of every head of queries and keys.
    pub(crate) head_norms: Option<HeadNorms>,
    pub(crate) attention_output: PackedMatrix,
    /// Of what attention adds to the residual stream.
    pub(crate) post_attention_norm: Option<Vec<f32>>,
    pub(crate) feed_forward_norm: Vec<f32>,
    pub(crate) gate: PackedMatrix,
    pub(crate) up: PackedMatrix,
    pub(crate) down: PackedMatrix,
    /// Of what the feed-forward layer adds to the residual stream.
    pub(crate) post_feed_forward_norm: Option<Vec<f32>>,
}

impl LayerWeights {
    /// All matrices a token is multiplied with.
    pub(crate) fn matrices(&self) -> [&PackedMatrix; 7] {
        [&self.query, &self.key, &self.value, &self.attention_output, &self.gate, &self.up, &self.down]
    }
}

/// Norm weights of one head, the same for all heads of a layer.
pub(crate) struct HeadNorms {
    pub(crate) query: Vec<f32>,
    pub(crate) key: Vec<f32>,
}

impl Weights {
    /// Copies every tensor out of the file. A tensor of the file that the architecture does not use
    /// is an error: the model would answer as another one.
    pub(crate) fn load(
        gguf: &Gguf,
        config: &ModelConfig,
        precision: Precision,
        pool: &ThreadPool,
        progress: &dyn Fn(LoadProgress),
    ) -> Result<Self, GgufError> {
        gguf.check_unchanged()?;
        let total = gguf.tensors().map(|tensor| tensor.size() as u64).sum();
        let loader = Loader {
            gguf,
            precision,
            pool,
            used: RefCell::default(),
            progress,
            loaded: Cell::new(LoadProgress { bytes: 0, total }),
        };
        let width = config.embedding;
        let embedding = loader.embedding(width)?;
        let vocab = embedding.rows();
        let mut layers = Vec::with_capacity(config.layers.len());
        for index in 0..config.layers.len() {
            layers.push(loader.layer(config, index)?);
            // Packed weights and the file's are never both in memory as a whole.
            gguf.give_back();
        }
        let weights = Self {
            embedding,
            layers,
            output_norm: loader.vector("output_norm.weight", width)?,
            output: match gguf.tensor("output.weight") {
                Some(_) => Some(loader.matrix("output.weight", vocab, width)?),
                None => None,
            },
            ropes: loader.ropes(config)?,
        };
        loader.check_all_used(config.architecture)?;
        gguf.check_unchanged()?;
        gguf.give_back();
        Ok(weights)
    }

    /// Rows of the output head.
    pub(crate) fn head(&self) -> &PackedMatrix {
        self.output.as_ref().unwrap_or(&self.embedding)
    }
}

struct Loader<'a> {
    gguf: &'a Gguf,
    precision: Precision,
    pool: &'a ThreadPool,
    used: RefCell<HashSet<String>>,
    progress: &'a dyn Fn(LoadProgress),
    loaded: Cell<LoadProgress>,
}

impl<'a> Loader<'a> {
    fn layer(&self, config: &ModelConfig, index: usize) -> Result<LayerWeights, GgufError> {
        let ModelConfig { embedding: width, feed_forward, heads, kv_heads, head_dim, norms, .. } = *config;
        let matrix = |part: &str, rows, cols| self.matrix(&format!("blk.{index}.{part}.weight"), rows, cols);
        let vector = |part: &str, len| self.vector(&format!("blk.{index}.{part}.weight"), len);
        let extra = |part: &str, len| match norms {
            ExtraNorms::Absent => Ok(None),
            ExtraNorms::HeadsAndUpdates => vector(part, len).map(Some),
        };
        let head_norms = extra("attn_q_norm", head_dim)?.zip(extra("attn_k_norm", head_dim)?);
        Ok(LayerWeights {
            attention_norm: vector("attn_norm", width)?,
            query: matrix("attn_q", heads * head_dim, width)?,
            key: matrix("attn_k", kv_heads * head_dim, width)?,
            value: matrix("attn_v", kv_heads * head_dim, width)?,
            head_norms: head_norms.map(|(query, key)| HeadNorms { query, key }),
            attention_output: matrix("attn_output", width, heads * head_dim)?,
            post_attention_norm: extra("post_attention_norm", width)?,
            feed_forward_norm: vector("ffn_norm", width)?,
            gate: matrix("ffn_gate", feed_forward, width)?,
            up: matrix("ffn_up", feed_forward, width)?,
            down: matrix("ffn_down", width, feed_forward)?,
            post_feed_forward_norm: extra("post_ffw_norm", width)?,
        })
    }

    /// The vocabulary's size is the number of rows, which the tokenizer has to match.
    fn embedding(&self, width: usize) -> Result<PackedMatrix, GgufError> {
        let name = "token_embd.weight";
        let tensor = self.gguf.require_tensor(name)?;
        let vocab = tensor.shape.get(1).copied().unwrap_or(0);
        if vocab > u32::MAX as usize {
            return Err(tensor.invalid(format!("{vocab} rows are more than token ids can name")));
        }
        if let Some(tokens) = self.gguf.str_array("tokenizer.ggml.tokens")?
            && tokens.len() > vocab
        {
            let problem = format!("{vocab} rows for the tokenizer's {} tokens", tokens.len());
            return Err(tensor.invalid(problem));
        }
        self.matrix(name, vocab, width)
    }

    fn matrix(&self, name: &str, rows: usize, cols: usize) -> Result<PackedMatrix, GgufError> {
        let tensor = self.tensor(name, &[cols, rows])?;
        let source = Source { format: format_of(&tensor)?, raw: tensor.data, rows, cols };
        let packed = PackedMatrix::pack(self.pool, source, self.precision);
        let LoadProgress { bytes, total } = self.loaded.get();
        self.loaded.set(LoadProgress { bytes: bytes + tensor.data.len() as u64, total });
        (self.progress)(self.loaded.get());
        Ok(packed)
    }

    fn vector(&self, name: &str, len: usize) -> Result<Vec<f32>, GgufError> {
        let tensor = self.tensor(name, &[len])?;
        let mut values = vec![0f32; len];
        format_of(&tensor)?.dequantize(tensor.data, &mut values);
        Ok(values)
    }

    /// The rotary tables. Factors of the frequencies apply where there is one table for all layers.
    fn ropes(&self, config: &ModelConfig) -> Result<Vec<RopeFrequencies>, GgufError> {
        let name = "rope_freqs.weight";
        let table = |rope: &RopeConfig| {
            let mut divisors = vec![1.0; rope.dims / 2];
            if config.ropes.len() == 1 && self.gguf.tensor(name).is_some() {
                divisors = self.vector(name, rope.dims / 2)?;
                if let Some(bad) = divisors.iter().find(|d| !d.is_finite() || **d <= 0.0) {
                    let problem = format!("frequency factor {bad} is not above 0");
                    return Err(self.gguf.require_tensor(name)?.invalid(problem));
                }
            }
            divisors.iter_mut().for_each(|d| *d *= rope.divisor);
            Ok(RopeFrequencies::new(rope.base, &divisors))
        };
        config.ropes.iter().map(table).collect()
    }

    fn tensor(&self, name: &str, shape: &[usize]) -> Result<Tensor<'a>, GgufError> {
        let tensor = self.gguf.require_tensor(name)?;
        // Trailing dimensions of 1 are written by some converters.
        let (given, rest) = tensor.shape.split_at(shape.len().min(tensor.shape.len()));
        if given != shape || rest.iter().any(|&n| n != 1) {
            return Err(
                tensor.invalid(format!("shape {:?} where the model's sizes ask for {shape:?}", tensor.shape))
            );
        }
        self.used.borrow_mut().insert(name.to_owned());
        Ok(tensor)
    }

    fn check_all_used(&self, architecture: &str) -> Result<(), GgufError> {
        let used = self.used.borrow();
        match self.gguf.tensors().find(|tensor| !used.contains(tensor.name())) {
            Some(extra) => Err(self.gguf.require_tensor(extra.name())?.invalid(format!(
                "the {architecture} architecture does not use this tensor; without it the model would answer as another one"
            ))),
            None => Ok(()),
        }
    }
}

fn format_of(tensor: &Tensor<'_>) -> Result<BlockFormat, GgufError> {
    let supported = SUPPORTED.iter().find(|(ty, _)| *ty == tensor.ty);
    supported.map(|(_, format)| *format).ok_or_else(|| tensor.unsupported_type(&SUPPORTED.map(|(ty, _)| ty)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reader_and_kernels_agree_on_layouts() {
        assert_eq!(SUPPORTED.map(|(_, format)| format), BlockFormat::ALL);
        for (ty, format) in SUPPORTED {
            let of_kernels = (format.name(), format.block_len(), format.block_bytes());
            assert_eq!((ty.name(), ty.block_size(), ty.type_size()), of_kernels);
        }
    }
}
