//! A llama-architecture model small enough to run in milliseconds, made from a seed.
//!
//! Its text is noise, but noise with structure: replies depend on every prompt token, greedy replies vary
//! from token to token, mostly use printable ASCII and do not run into the end-of-turn token.

use std::path::{Path, PathBuf};

use crate::gguf::GgufBuilder;
use crate::quant::WeightType;

pub(crate) const EMBEDDING: usize = 64;
const HEAD_DIM: usize = 16;
const KV_HEADS: usize = 2;

/// What depends on the format: rows are whole blocks.
#[derive(Clone, Copy)]
struct Widths {
    embedding: usize,
    feed_forward: usize,
}

impl Widths {
    fn of(weights: WeightType) -> Self {
        let block = weights.block_len();
        Widths { embedding: block.max(64), feed_forward: block.max(128) }
    }

    /// Heads as wide as the embedding.
    fn heads(self) -> usize {
        self.embedding / HEAD_DIM
    }
}

/// Control tokens, with the ids 0, 1, 2.
const CONTROL: [&str; 3] = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"];

/// Byte-pair merges by rank; each result is a token.
const MERGES: [&str; 26] = [
    "Ġ t", "Ġ a", "h e", "i n", "r e", "o n", "e r", "Ġt he", "Ġ s", "Ġ w", "o u", "in g", "n d", "Ġa nd",
    "l l", "y ou", "Ġ you", "ll o", "he llo", "o r", "t h", "th e", "u s", "us er", "i s", "Ġ is",
];

const CHAT_TEMPLATE: &str = "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + \
     message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}{% if add_generation_prompt %}\
     {{ '<|im_start|>assistant\\n' }}{% endif %}";

/// Whether the output head is a tensor of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Head {
    /// No `output.weight`: the embedding serves as the head.
    Tied,
    /// An `output.weight` that differs from the embedding.
    Separate,
}

/// What may vary in the generated model.
#[derive(Debug, Clone)]
pub struct TinyModel {
    /// How matrices are stored; norms are F32. Formats with blocks of 256 make the model 256 wide instead of 64.
    pub weights: WeightType,
    /// Tied or separate output head.
    pub head: Head,
    /// Transformer layers.
    pub layers: usize,
    /// Longest context in tokens.
    pub context: u32,
    /// Where the weights come from.
    pub seed: u64,
}

impl Default for TinyModel {
    fn default() -> Self {
        TinyModel { weights: WeightType::F32, head: Head::Tied, layers: 2, context: 256, seed: 1 }
    }
}

impl TinyModel {
    /// The model as a builder, for tests that change something.
    pub fn builder(&self) -> GgufBuilder {
        let tokens = tokens();
        let vocabulary = tokens.len();
        let widths = Widths::of(self.weights);
        let Widths { embedding, feed_forward } = widths;
        let inner = widths.heads() * HEAD_DIM;
        let builder = metadata(self, tokens);
        let mut writer = Writer { builder, embedding, weights: self.weights, random: Random(self.seed) };
        writer.embedding("token_embd.weight", vocabulary, preference);
        for layer in 0..self.layers {
            let name = |part: &str| format!("blk.{layer}.{part}.weight");
            writer.norm(&name("attn_norm"), embedding, 1.0);
            writer.matrix(&name("attn_q"), embedding, inner, 2.0);
            writer.matrix(&name("attn_k"), embedding, KV_HEADS * HEAD_DIM, 2.0);
            writer.matrix(&name("attn_v"), embedding, KV_HEADS * HEAD_DIM, 1.5);
            writer.matrix(&name("attn_output"), inner, embedding, 1.5);
            writer.norm(&name("ffn_norm"), embedding, 1.0);
            writer.matrix(&name("ffn_gate"), embedding, feed_forward, 1.5);
            writer.matrix(&name("ffn_up"), embedding, feed_forward, 1.0);
            writer.matrix(&name("ffn_down"), feed_forward, embedding, 1.5);
        }
        writer.norm("output_norm.weight", embedding, 1.0);
        if self.head == Head::Separate {
            writer.embedding("output.weight", vocabulary, preference);
        }
        writer.builder
    }
}

/// The bytes of a tiny GGUF model; the same for the same options.
pub fn tiny_model(options: &TinyModel) -> Vec<u8> {
    options.builder().build()
}

/// A tiny model in a file of its own, removed when this is dropped.
#[derive(Debug)]
pub struct TinyModelFile {
    folder: tempfile::TempDir,
}

impl TinyModelFile {
    /// The GGUF file.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("tiny.gguf")
    }

    /// The folder that holds only this file.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}

/// Writes a tiny model to a temporary folder.
///
/// # Panics
/// The system's temporary folder cannot be written.
pub fn tiny_model_file(options: &TinyModel) -> TinyModelFile {
    let file = TinyModelFile { folder: tempfile::tempdir().expect("a temporary folder") };
    std::fs::write(file.path(), tiny_model(options)).expect("writing a temporary file");
    file
}

fn metadata(options: &TinyModel, tokens: Vec<String>) -> GgufBuilder {
    let kinds: Vec<i32> = (0..tokens.len()).map(|id| if id < CONTROL.len() { 3 } else { 1 }).collect();
    let merges: Vec<String> = MERGES.iter().map(|merge| (*merge).to_owned()).collect();
    let widths = Widths::of(options.weights);
    GgufBuilder::new()
        .meta("general.architecture", "llama")
        .meta("general.name", "tiny")
        .meta("llama.context_length", options.context)
        .meta("llama.embedding_length", widths.embedding as u32)
        .meta("llama.block_count", options.layers as u32)
        .meta("llama.feed_forward_length", widths.feed_forward as u32)
        .meta("llama.vocab_size", tokens.len() as u32)
        .meta("llama.rope.dimension_count", HEAD_DIM as u32)
        .meta("llama.rope.freq_base", 10_000.0_f32)
        .meta("llama.attention.head_count", widths.heads() as u32)
        .meta("llama.attention.head_count_kv", KV_HEADS as u32)
        .meta("llama.attention.layer_norm_rms_epsilon", 1e-5_f32)
        .meta("tokenizer.ggml.model", "gpt2")
        .meta("tokenizer.ggml.pre", "smollm")
        .meta("tokenizer.ggml.tokens", tokens)
        .meta("tokenizer.ggml.token_type", kinds)
        .meta("tokenizer.ggml.merges", merges)
        .meta("tokenizer.ggml.bos_token_id", 1_u32)
        .meta("tokenizer.ggml.eos_token_id", 2_u32)
        .meta("tokenizer.ggml.unknown_token_id", 0_u32)
        .meta("tokenizer.ggml.padding_token_id", 2_u32)
        .meta("tokenizer.ggml.add_bos_token", false)
        .meta("tokenizer.chat_template", CHAT_TEMPLATE)
}

/// Control tokens, the 256 bytes in GPT-2's spelling and order, and what the merges make.
fn tokens() -> Vec<String> {
    let control = CONTROL.iter().map(|text| (*text).to_owned());
    let bytes = byte_spellings().into_iter().map(|(_, spelling)| spelling.to_string());
    control.chain(bytes).chain(MERGES.iter().map(|merge| merge.replace(' ', ""))).collect()
}

/// GPT-2 spells printable Latin-1 bytes as themselves and the others as letters from U+0100 on.
fn byte_spellings() -> Vec<(u8, char)> {
    let is_plain = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let plain = (0..=255).filter(is_plain).map(|byte| (byte, char::from(byte)));
    let others = (0..=255).filter(|byte| !is_plain(byte)).zip('\u{100}'..);
    plain.chain(others).collect()
}

/// How strongly a token is preferred as output: control tokens and bytes that are not text weigh little.
fn preference(id: usize) -> f32 {
    match id.checked_sub(CONTROL.len()) {
        None => 0.02,
        Some(byte) => match byte_spellings().get(byte) {
            Some((b' '..=b'~' | b'\n', _)) | None => 1.0,
            Some(_) => 0.3,
        },
    }
}

pub(crate) struct Writer {
    pub(crate) builder: GgufBuilder,
    /// Width of embedding rows.
    pub(crate) embedding: usize,
    pub(crate) weights: WeightType,
    pub(crate) random: Random,
}

impl Writer {
    /// Rows of deviation 1/4, small beside what the layers add: replies do not just repeat a token.
    /// `preference` says how strongly a token is preferred as output.
    pub(crate) fn embedding(&mut self, name: &str, vocabulary: usize, preference: impl Fn(usize) -> f32) {
        let mut values = Vec::with_capacity(vocabulary * self.embedding);
        for id in 0..vocabulary {
            let scale = 0.25 * preference(id);
            values.extend((0..self.embedding).map(|_| self.random.normal() * scale));
        }
        self.add(name, [self.embedding, vocabulary], &values);
    }

    /// Entries that turn an input of deviation 1 into an output of deviation `gain`.
    pub(crate) fn matrix(&mut self, name: &str, inputs: usize, outputs: usize, gain: f32) {
        let scale = gain / (inputs as f32).sqrt();
        let values: Vec<f32> = (0..inputs * outputs).map(|_| self.random.normal() * scale).collect();
        self.add(name, [inputs, outputs], &values);
    }

    /// Norm weights near `gain`, all different, so that a swapped norm shows.
    pub(crate) fn norm(&mut self, name: &str, len: usize, gain: f32) {
        let values: Vec<f32> = (0..len).map(|_| gain * (1.0 + 0.1 * self.random.normal())).collect();
        let data = WeightType::F32.encode(&values);
        self.builder =
            std::mem::take(&mut self.builder).tensor(name, &[len as u64], WeightType::F32.id(), data);
    }

    fn add(&mut self, name: &str, shape: [usize; 2], values: &[f32]) {
        let data = self.weights.encode(values);
        let shape = shape.map(|length| length as u64);
        self.builder = std::mem::take(&mut self.builder).tensor(name, &shape, self.weights.id(), data);
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Mean 0, deviation 1: the sum of twelve uniforms, the same on every platform.
    fn normal(&mut self) -> f32 {
        (0..12).map(|_| (self.next() >> 40) as f32 / (1_u32 << 24) as f32).sum::<f32>() - 6.0
    }
}

#[cfg(test)]
mod tests {
    use super::{Head, MERGES, TinyModel, tiny_model, tokens};
    use crate::quant::WeightType;

    #[test]
    fn the_same_options_give_the_same_bytes() {
        let model = |seed| tiny_model(&TinyModel { seed, ..TinyModel::default() });
        assert_eq!(model(1), model(1));
        assert_ne!(model(1), model(2));
    }

    #[test]
    fn the_vocabulary_has_no_duplicates() {
        let tokens = tokens();
        let distinct: std::collections::HashSet<&String> = tokens.iter().collect();
        assert_eq!((tokens.len(), distinct.len()), (3 + 256 + MERGES.len(), tokens.len()));
        assert_eq!(&tokens[..5], ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "!", "\""]);
    }

    #[test]
    fn every_merge_joins_two_tokens() {
        let tokens = tokens();
        for merge in MERGES {
            let (left, right) = merge.split_once(' ').unwrap();
            assert!([left, right].iter().all(|half| tokens.iter().any(|token| token == half)), "{merge}");
        }
    }

    #[test]
    fn every_weight_type_and_head_can_be_written() {
        for weights in WeightType::ALL {
            for head in [Head::Tied, Head::Separate] {
                assert!(!tiny_model(&TinyModel { weights, head, ..TinyModel::default() }).is_empty());
            }
        }
    }
}
