//! Tensors of a file, checked for shape and type, packed for the kernels.

use std::cell::RefCell;
use std::collections::HashSet;

use motet_kernels::{BlockFormat, PackedMatrix, Precision, Source, ThreadPool};

use super::EncoderConfig;
use crate::safetensors::{Dtype, Safetensors, SafetensorsError, Tensor};

/// Names that some files put in front of every tensor's.
const PREFIXES: [&str; 2] = ["", "bert."];
/// Tensors that files have and vectors do not depend on: the pooler is for another task, and positions are counted.
const UNUSED: [&str; 4] =
    ["embeddings.position_ids", "embeddings.token_type_ids", "pooler.dense.weight", "pooler.dense.bias"];

/// All weights of a model.
pub(super) struct Weights {
    pub(super) words: PackedMatrix,
    pub(super) positions: Vec<f32>,
    /// Of the first segment, the one that every token is in.
    pub(super) segment: Vec<f32>,
    pub(super) embedding_norm: Norm,
    pub(super) layers: Vec<LayerWeights>,
}

/// Weights of one layer.
pub(super) struct LayerWeights {
    pub(super) query: Linear,
    pub(super) key: Linear,
    pub(super) value: Linear,
    pub(super) attention_output: Linear,
    pub(super) attention_norm: Norm,
    pub(super) up: Linear,
    pub(super) down: Linear,
    pub(super) output_norm: Norm,
}

/// A product and what is added to it.
pub(super) struct Linear {
    pub(super) weight: PackedMatrix,
    pub(super) bias: Vec<f32>,
}

/// Of layer normalization.
pub(super) struct Norm {
    pub(super) weight: Vec<f32>,
    pub(super) bias: Vec<f32>,
}

impl Weights {
    /// Copies every tensor out of the file. A tensor that the architecture does not use is an error: the model would
    /// answer as another one.
    pub(super) fn load(
        file: &Safetensors,
        config: &EncoderConfig,
        pool: &ThreadPool,
    ) -> Result<Self, SafetensorsError> {
        let words = "embeddings.word_embeddings.weight";
        let prefix = PREFIXES.iter().find(|prefix| file.tensor(&format!("{prefix}{words}")).is_some());
        let loader = Loader { file, pool, prefix: prefix.unwrap_or(&""), used: RefCell::default() };
        let width = config.width;
        let mut segments =
            loader.values("embeddings.token_type_embeddings.weight", &[config.segments, width])?;
        segments.truncate(width);
        let weights = Self {
            words: loader.matrix(words, config.vocab_size, width)?,
            positions: loader.values("embeddings.position_embeddings.weight", &[config.positions, width])?,
            segment: segments,
            embedding_norm: loader.norm("embeddings.LayerNorm", width)?,
            layers: (0..config.layers).map(|index| loader.layer(config, index)).collect::<Result<_, _>>()?,
        };
        loader.check_all_used()?;
        Ok(weights)
    }
}

struct Loader<'a> {
    file: &'a Safetensors,
    pool: &'a ThreadPool,
    prefix: &'static str,
    used: RefCell<HashSet<String>>,
}

impl<'a> Loader<'a> {
    fn layer(&self, config: &EncoderConfig, index: usize) -> Result<LayerWeights, SafetensorsError> {
        let EncoderConfig { width, feed_forward, .. } = *config;
        let name = |part: &str| format!("encoder.layer.{index}.{part}");
        let linear = |part: &str, rows, cols| self.linear(&name(part), rows, cols);
        let layer = LayerWeights {
            query: linear("attention.self.query", width, width)?,
            key: linear("attention.self.key", width, width)?,
            value: linear("attention.self.value", width, width)?,
            attention_output: linear("attention.output.dense", width, width)?,
            attention_norm: self.norm(&name("attention.output.LayerNorm"), width)?,
            up: linear("intermediate.dense", feed_forward, width)?,
            down: linear("output.dense", width, feed_forward)?,
            output_norm: self.norm(&name("output.LayerNorm"), width)?,
        };
        // Packed weights and the file's are never both in memory as a whole.
        self.file.give_back();
        Ok(layer)
    }

    fn linear(&self, name: &str, rows: usize, cols: usize) -> Result<Linear, SafetensorsError> {
        Ok(Linear {
            weight: self.matrix(&format!("{name}.weight"), rows, cols)?,
            bias: self.values(&format!("{name}.bias"), &[rows])?,
        })
    }

    fn norm(&self, name: &str, width: usize) -> Result<Norm, SafetensorsError> {
        Ok(Norm {
            weight: self.values(&format!("{name}.weight"), &[width])?,
            bias: self.values(&format!("{name}.bias"), &[width])?,
        })
    }

    fn matrix(&self, name: &str, rows: usize, cols: usize) -> Result<PackedMatrix, SafetensorsError> {
        let (tensor, format) = self.tensor(name, &[rows, cols])?;
        let source = Source { format, raw: tensor.data, rows, cols };
        Ok(PackedMatrix::pack(self.pool, source, Precision::Fast))
    }

    fn values(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, SafetensorsError> {
        let (tensor, format) = self.tensor(name, shape)?;
        let mut values = vec![0f32; shape.iter().product()];
        format.dequantize(tensor.data, &mut values);
        Ok(values)
    }

    fn tensor(&self, name: &str, shape: &[usize]) -> Result<(Tensor<'a>, BlockFormat), SafetensorsError> {
        let name = format!("{}{name}", self.prefix);
        let tensor = self.file.require(&name)?;
        if tensor.info.shape != shape {
            let problem =
                format!("has the shape {:?} where config.json asks for {shape:?}", tensor.info.shape);
            return Err(self.file.invalid(&name, problem));
        }
        let format = match tensor.info.dtype {
            Dtype::F32 => BlockFormat::F32,
            Dtype::F16 => BlockFormat::F16,
            Dtype::BF16 => BlockFormat::BF16,
            other => {
                let problem = format!("is of {} numbers; F32, F16 and BF16 are supported", other.name());
                return Err(self.file.invalid(&name, problem));
            }
        };
        self.used.borrow_mut().insert(name);
        Ok((tensor, format))
    }

    fn check_all_used(&self) -> Result<(), SafetensorsError> {
        let used = self.used.borrow();
        let is_unused =
            |name: &str| UNUSED.iter().any(|known| name.strip_prefix(self.prefix) == Some(*known));
        match self.file.tensors().find(|info| !used.contains(&info.name) && !is_unused(&info.name)) {
            None => Ok(()),
            Some(extra) => Err(self.file.invalid(
                &extra.name,
                "is not used by BERT as config.json describes it; without it the model would answer as another one",
            )),
        }
    }
}
