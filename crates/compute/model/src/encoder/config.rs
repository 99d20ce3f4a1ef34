//! What a model's folder says of its shape.

use std::path::Path;

use motet_kernels::Gelu;
use serde_json::Value;

use super::EncoderError;
use super::files::{Json, json, problem};

/// Shape and limits of an encoder.
#[derive(Debug, Clone, PartialEq)]
pub struct EncoderConfig {
    /// Numbers of a vector.
    pub width: usize,
    /// Layers.
    pub layers: usize,
    /// Heads of a layer.
    pub heads: usize,
    /// Width of the feed-forward layers.
    pub feed_forward: usize,
    /// Token ids are below this.
    pub vocab_size: usize,
    /// Rows of the table of positions: most tokens of a sequence that can be computed.
    pub positions: usize,
    /// Most tokens of a text that the model is meant for, at most `positions`.
    pub context_length: usize,
    /// Rows of the table of segments, of which the first is used.
    pub(crate) segments: usize,
    pub(crate) norm_eps: f32,
    pub(crate) activation: Gelu,
    /// How the vectors of a text's tokens become one.
    pub pooling: Pooling,
}

/// How the vectors of a text's tokens become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pooling {
    /// Their mean.
    Mean,
    /// The first one's.
    First,
}

/// Bounds on sizes: above any published encoder's, and small enough that no product of them overflows.
const MOST_WIDTH: usize = 1 << 14;
const MOST_LAYERS: usize = 256;
const MOST_FEED_FORWARD: usize = 1 << 17;
const MOST_TOKENS: usize = 1 << 22;
const MOST_POSITIONS: usize = 1 << 15;
const MOST_SEGMENTS: usize = 16;

/// The steps of a sentence-transformers model that are computed here; vectors get length 1 in any case.
const MODULES: [&str; 3] = ["Transformer", "Pooling", "Normalize"];

impl EncoderConfig {
    /// Reads the files of a folder.
    pub(super) fn read(folder: &Path) -> Result<Self, EncoderError> {
        let name = "config.json";
        let config = json(folder, name)?.ok_or_else(|| {
            problem(folder, name, "there is no such file; name the folder of a sentence-transformers model")
        })?;
        expect(&config, "model_type", "bert", "only BERT models can be embedding models")?;
        expect(&config, "position_embedding_type", "absolute", "only absolute positions are supported")?;
        check_modules(folder)?;
        let width = config.needed_size("hidden_size", MOST_WIDTH)?;
        let heads = config.needed_size("num_attention_heads", width)?;
        if width % heads != 0 {
            return Err(config
                .wrong("num_attention_heads", format!("({heads}) does not divide hidden_size ({width})")));
        }
        let positions = config.needed_size("max_position_embeddings", MOST_POSITIONS)?;
        let meant = match json(folder, "sentence_bert_config.json")? {
            Some(sentences) => sentences.size("max_seq_length", MOST_POSITIONS)?,
            None => None,
        };
        Ok(Self {
            width,
            heads,
            layers: config.needed_size("num_hidden_layers", MOST_LAYERS)?,
            feed_forward: config.needed_size("intermediate_size", MOST_FEED_FORWARD)?,
            vocab_size: config.needed_size("vocab_size", MOST_TOKENS)?,
            positions,
            context_length: meant.unwrap_or(positions).min(positions),
            segments: config.size("type_vocab_size", MOST_SEGMENTS)?.unwrap_or(2),
            norm_eps: norm_eps(&config)?,
            activation: activation(&config)?,
            pooling: pooling(folder)?,
        })
    }
}

/// A key that has to be `wanted` where it is there.
fn expect(config: &Json, key: &str, wanted: &str, why: &str) -> Result<(), EncoderError> {
    match config.string(key)? {
        Some(value) if value != wanted => {
            let shown: String = value.chars().take(40).collect();
            Err(config.wrong(key, format!("is {shown:?}; {why}")))
        }
        _ => Ok(()),
    }
}

fn norm_eps(config: &Json) -> Result<f32, EncoderError> {
    let key = "layer_norm_eps";
    let eps = config.float(key)?.unwrap_or(1e-12);
    if (0.0..=0.1).contains(&eps) { Ok(eps as f32) } else { Err(config.wrong(key, format!("is {eps}"))) }
}

fn activation(config: &Json) -> Result<Gelu, EncoderError> {
    let key = "hidden_act";
    match config.string(key)?.unwrap_or("gelu") {
        "gelu" | "gelu_python" => Ok(Gelu::Erf),
        "gelu_new" | "gelu_pytorch_tanh" | "gelu_fast" => Ok(Gelu::Tanh),
        other => {
            let shown: String = other.chars().take(40).collect();
            Err(config.wrong(key, format!("is {shown:?}; gelu and gelu_new are supported")))
        }
    }
}

/// A step that would change the vectors and isn't computed here is an error, not another model's answer.
fn check_modules(folder: &Path) -> Result<(), EncoderError> {
    let Some(file) = json(folder, "modules.json")? else { return Ok(()) };
    let types =
        file.value.as_array().into_iter().flatten().map(|module| module["type"].as_str().unwrap_or_default());
    let unknown = types.into_iter().find(|name| {
        let last = name.rsplit('.').next().unwrap_or_default();
        !MODULES.contains(&last)
    });
    match unknown {
        None => Ok(()),
        Some(name) => {
            let shown: String = name.chars().take(80).collect();
            Err(file.wrong("type", format!("is {shown:?}; {} are supported", MODULES.join(", "))))
        }
    }
}

/// Mean pooling where nothing else is said.
fn pooling(folder: &Path) -> Result<Pooling, EncoderError> {
    let Some(config) = json(folder, "1_Pooling/config.json")? else { return Ok(Pooling::Mean) };
    let modes = config.value.as_object().into_iter().flatten();
    let is_on = |value: &Value| *value == Value::Bool(true);
    let on: Vec<&str> = modes
        .filter(|(key, value)| key.starts_with("pooling_mode_") && is_on(value))
        .map(|(key, _)| key.as_str())
        .collect();
    match on[..] {
        ["pooling_mode_mean_tokens"] => Ok(Pooling::Mean),
        ["pooling_mode_cls_token"] => Ok(Pooling::First),
        _ => Err(config.wrong(
            "pooling_mode_…",
            "asks for another pooling than one of pooling_mode_mean_tokens and pooling_mode_cls_token",
        )),
    }
}
