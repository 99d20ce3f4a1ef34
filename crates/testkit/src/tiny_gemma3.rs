use crate::gguf::GgufBuilder;
use crate::quant::WeightType;
use crate::tiny::{EMBEDDING, Random, Writer};

const HEAD_DIM: usize = 32;
const HEADS: usize = 4;
const KV_HEADS: usize = 2;
const FEED_FORWARD: usize = 96;

/// Control tokens, with the ids 0 to 5.
const CONTROL: [&str; 6] = ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"];
/// Tokens that are matched whole.
const ADDED: [&str; 4] = ["\n\n", "  ", "   ", "<b>"];
/// Pieces that merging makes, the likeliest first.
const PIECES: [&str; 12] = ["▁t", "he", "▁the", "in", "re", "▁a", "ou", "▁you", "ll", "hello", "▁w", "ing"];

/// A Gemma 3 model small enough to run in milliseconds, made from a seed: what [`TinyModel`] is to llama.
///
/// Every third layer sees everything, the others a window. It has no chat template.
///
/// [`TinyModel`]: crate::TinyModel
#[derive(Debug, Clone)]
pub struct TinyGemma3 {
    /// How matrices are stored; norms are F32.
    pub weights: WeightType,
    /// Transformer layers.
    pub layers: usize,
    /// Positions that a windowed layer sees.
    pub window: u32,
    /// Longest context in tokens.
    pub context: u32,
    /// Where the weights come from.
    pub seed: u64,
}

impl Default for TinyGemma3 {
    fn default() -> Self {
        Self { weights: WeightType::F32, layers: 4, window: 24, context: 256, seed: 1 }
    }
}

impl TinyGemma3 {
    /// The model as a builder.
    pub fn builder(&self) -> GgufBuilder {
        let tokens = tokens();
        let vocabulary = tokens.len();
        let random = Random(self.seed);
        let mut writer =
            Writer { builder: metadata(self, tokens), embedding: EMBEDDING, weights: self.weights, random };
        writer.embedding("token_embd.weight", vocabulary, preference);
        for layer in 0..self.layers {
            let name = |part: &str| format!("blk.{layer}.{part}.weight");
            writer.norm(&name("attn_norm"), EMBEDDING, 1.0);
            writer.matrix(&name("attn_q"), EMBEDDING, HEADS * HEAD_DIM, 1.0);
            writer.matrix(&name("attn_k"), EMBEDDING, KV_HEADS * HEAD_DIM, 1.0);
            writer.matrix(&name("attn_v"), EMBEDDING, KV_HEADS * HEAD_DIM, 1.0);
            writer.norm(&name("attn_q_norm"), HEAD_DIM, 1.5);
            writer.norm(&name("attn_k_norm"), HEAD_DIM, 1.5);
            writer.matrix(&name("attn_output"), HEADS * HEAD_DIM, EMBEDDING, 1.0);
            writer.norm(&name("post_attention_norm"), EMBEDDING, 2.5);
            writer.norm(&name("ffn_norm"), EMBEDDING, 1.0);
            writer.matrix(&name("ffn_gate"), EMBEDDING, FEED_FORWARD, 1.5);
            writer.matrix(&name("ffn_up"), EMBEDDING, FEED_FORWARD, 1.0);
            writer.matrix(&name("ffn_down"), FEED_FORWARD, EMBEDDING, 1.0);
            writer.norm(&name("post_ffw_norm"), EMBEDDING, 2.5);
        }
        writer.norm("output_norm.weight", EMBEDDING, 1.0);
        writer.builder
    }
}

fn metadata(options: &TinyGemma3, tokens: Vec<String>) -> GgufBuilder {
    let kinds: Vec<i32> = (0..tokens.len()).map(kind).collect();
    // Only the order counts, as in published vocabularies.
    let scores: Vec<f32> = (0..tokens.len()).map(|id| -(id as f32)).collect();
    GgufBuilder::new()
        .meta("general.architecture", "gemma3")
        .meta("general.name", "tiny gemma")
        .meta("gemma3.context_length", options.context)
        .meta("gemma3.embedding_length", EMBEDDING as u32)
        .meta("gemma3.block_count", options.layers as u32)
        .meta("gemma3.feed_forward_length", FEED_FORWARD as u32)
        .meta("gemma3.attention.head_count", HEADS as u32)
        .meta("gemma3.attention.head_count_kv", KV_HEADS as u32)
        .meta("gemma3.attention.key_length", HEAD_DIM as u32)
        .meta("gemma3.attention.value_length", HEAD_DIM as u32)
        .meta("gemma3.attention.layer_norm_rms_epsilon", 1e-6_f32)
        .meta("gemma3.attention.sliding_window", options.window)
        .meta("gemma3.attention.sliding_window_pattern", 3_u32)
        .meta("gemma3.rope.freq_base", 1_000_000.0_f32)
        .meta("gemma3.rope.scaling.type", "linear")
        .meta("gemma3.rope.scaling.factor", 8.0_f32)
        .meta("tokenizer.ggml.model", "llama")
        .meta("tokenizer.ggml.pre", "default")
        .meta("tokenizer.ggml.tokens", tokens)
        .meta("tokenizer.ggml.token_type", kinds)
        .meta("tokenizer.ggml.scores", scores)
        .meta("tokenizer.ggml.bos_token_id", 2_u32)
        .meta("tokenizer.ggml.eos_token_id", 1_u32)
        .meta("tokenizer.ggml.unknown_token_id", 3_u32)
        .meta("tokenizer.ggml.padding_token_id", 0_u32)
        .meta("tokenizer.ggml.add_bos_token", true)
        .meta("tokenizer.ggml.add_space_prefix", false)
}

/// Control tokens, added ones, the 256 bytes, what merging makes, and single characters.
fn tokens() -> Vec<String> {
    let whole = CONTROL.iter().chain(&ADDED).map(|text| (*text).to_owned());
    let bytes = (0..=255_u8).map(|byte| format!("<0x{byte:02X}>"));
    let pieces = PIECES.iter().map(|text| (*text).to_owned());
    let characters = ('!'..='~').chain(['▁']).map(String::from);
    whole.chain(bytes).chain(pieces).chain(characters).collect()
}

/// `tokenizer.ggml.token_type` of a token.
fn kind(id: usize) -> i32 {
    let added = CONTROL.len()..CONTROL.len() + ADDED.len();
    match id {
        3 => 2,
        id if id < added.start => 3,
        id if id < added.end => 4,
        id if id < added.end + 256 => 6,
        _ => 1,
    }
}

/// Control tokens and bytes weigh little as output.
fn preference(id: usize) -> f32 {
    match kind(id) {
        2 | 3 => 0.02,
        6 => 0.3,
        _ => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vocabulary_has_no_duplicates() {
        let tokens = tokens();
        let distinct: std::collections::HashSet<&String> = tokens.iter().collect();
        assert_eq!(tokens.len(), distinct.len());
        assert_eq!((tokens[2].as_str(), kind(2), kind(3), kind(9), kind(10)), ("<bos>", 3, 2, 4, 6));
    }

    #[test]
    fn the_same_options_give_the_same_bytes() {
        let model = |seed| TinyGemma3 { seed, ..TinyGemma3::default() }.builder().build();
        assert_eq!(model(1), model(1));
        assert_ne!(model(1), model(2));
    }
}
