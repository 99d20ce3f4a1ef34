//! A BERT encoder of a few kilobytes with numbers that look like chance: its vectors mean nothing, and are the same
//! everywhere.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

/// Shape of a generated encoder.
#[derive(Debug, Clone, Copy)]
pub struct TinyBert {
    /// Numbers of a vector.
    pub width: usize,
    /// Layers.
    pub layers: usize,
    /// Heads of a layer.
    pub heads: usize,
    /// Width of the feed-forward layers.
    pub feed_forward: usize,
    /// Rows of the table of positions.
    pub positions: usize,
    /// Most tokens of a text, as `sentence_bert_config.json` says it.
    pub context: usize,
}

impl Default for TinyBert {
    fn default() -> Self {
        // No size is a multiple of what kernels compute at once.
        Self { width: 24, layers: 2, heads: 3, feed_forward: 40, positions: 96, context: 64 }
    }
}

/// Adds a tensor: name, shape, and what its numbers are scaled by and moved by.
type Add<'a> = dyn FnMut(String, &[usize], f32, f32) + 'a;

/// A tensor to be written: name, shape, numbers.
pub type F32Tensor = (String, Vec<usize>, Vec<f32>);

impl TinyBert {
    /// Writes the model's folder.
    ///
    /// # Panics
    /// Where it can't be written.
    pub fn write(&self, folder: &Path) {
        let write = |name: &str, bytes: &[u8]| {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder that can be made");
            fs::write(path, bytes).expect("a file that can be written");
        };
        write("model.safetensors", &safetensors(&self.tensors()));
        write("config.json", self.config().to_string().as_bytes());
        write("tokenizer.json", self.tokenizer().to_string().as_bytes());
        write("sentence_bert_config.json", json!({"max_seq_length": self.context}).to_string().as_bytes());
        let pooling = json!({"word_embedding_dimension": self.width, "pooling_mode_cls_token": false,
            "pooling_mode_mean_tokens": true, "pooling_mode_max_tokens": false});
        write("1_Pooling/config.json", pooling.to_string().as_bytes());
    }

    /// `config.json`.
    pub fn config(&self) -> Value {
        json!({
            "model_type": "bert", "hidden_act": "gelu", "position_embedding_type": "absolute",
            "hidden_size": self.width, "num_hidden_layers": self.layers, "num_attention_heads": self.heads,
            "intermediate_size": self.feed_forward, "max_position_embeddings": self.positions,
            "type_vocab_size": 2, "vocab_size": vocabulary().len(), "layer_norm_eps": 1e-12,
        })
    }

    /// `tokenizer.json`: letters, digits and marks of ASCII, and a few words.
    pub fn tokenizer(&self) -> Value {
        let vocabulary: serde_json::Map<String, Value> =
            vocabulary().into_iter().zip(0..).map(|(token, id): (String, u32)| (token, id.into())).collect();
        let special = |id: &str| json!({"SpecialToken": {"id": id, "type_id": 0}});
        json!({
            "version": "1.0", "truncation": null, "padding": null,
            "added_tokens": [],
            "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
                "strip_accents": null, "lowercase": true},
            "pre_tokenizer": {"type": "BertPreTokenizer"},
            "post_processor": {"type": "TemplateProcessing", "single":
                [special("[CLS]"), {"Sequence": {"id": "A", "type_id": 0}}, special("[SEP]")]},
            "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                "max_input_chars_per_word": 100, "vocab": vocabulary},
        })
    }

    /// All weights, in the order of their names' layers.
    pub fn tensors(&self) -> Vec<F32Tensor> {
        let Self { width, feed_forward, .. } = *self;
        let mut out = Vec::new();
        let mut add = |name: String, shape: &[usize], scale: f32, offset: f32| {
            let values = numbers(shape.iter().product(), out.len() as u64);
            let values = values.map(|value| value * scale + offset).collect();
            out.push((name, shape.to_vec(), values));
        };
        let linear = |name: &str, rows: usize, cols: usize, add: &mut Add<'_>| {
            // Scaled so that products neither vanish nor saturate.
            add(format!("{name}.weight"), &[rows, cols], 2.0 / (cols as f32).sqrt(), 0.0);
            add(format!("{name}.bias"), &[rows], 0.3, 0.0);
        };
        let norm = |name: &str, add: &mut Add<'_>| {
            add(format!("{name}.weight"), &[width], 0.3, 1.0);
            add(format!("{name}.bias"), &[width], 0.2, 0.0);
        };
        add("embeddings.word_embeddings.weight".into(), &[vocabulary().len(), width], 1.0, 0.0);
        add("embeddings.position_embeddings.weight".into(), &[self.positions, width], 0.3, 0.0);
        add("embeddings.token_type_embeddings.weight".into(), &[2, width], 0.3, 0.0);
        norm("embeddings.LayerNorm", &mut add);
        for layer in 0..self.layers {
            let name = |part: &str| format!("encoder.layer.{layer}.{part}");
            for part in ["query", "key", "value"] {
                linear(&name(&format!("attention.self.{part}")), width, width, &mut add);
            }
            linear(&name("attention.output.dense"), width, width, &mut add);
            norm(&name("attention.output.LayerNorm"), &mut add);
            linear(&name("intermediate.dense"), feed_forward, width, &mut add);
            linear(&name("output.dense"), width, feed_forward, &mut add);
            norm(&name("output.LayerNorm"), &mut add);
        }
        linear("pooler.dense", width, width, &mut add);
        out
    }
}

/// Bytes of a safetensors file with these tensors one after the other.
pub fn safetensors(tensors: &[F32Tensor]) -> Vec<u8> {
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    header.insert("__metadata__".into(), json!({"format": "pt"}));
    for (name, shape, values) in tensors {
        let start = data.len();
        data.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        header.insert(
            name.clone(),
            json!({"dtype": "F32", "shape": shape, "data_offsets": [start, data.len()]}),
        );
    }
    let header = Value::Object(header).to_string();
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat()
}

fn vocabulary() -> Vec<String> {
    let letters = || ('a'..='z').chain('0'..='9');
    let special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"].map(str::to_owned);
    let marks = ('!'..='~').filter(char::is_ascii_punctuation).map(String::from);
    let words = ["the", "a", "of", "cat", "dog", "##s", "##ing", "hello", "world"].map(str::to_owned);
    let all =
        special.into_iter().chain(letters().map(String::from)).chain(letters().map(|c| format!("##{c}")));
    let mut seen = std::collections::HashSet::new();
    all.chain(marks).chain(words).filter(|token| seen.insert(token.clone())).collect()
}

/// Numbers from −1 to 1 (SplitMix64: Steele, Lea and Flood 2014).
fn numbers(count: usize, seed: u64) -> impl Iterator<Item = f32> {
    let mut state = (seed + 1).wrapping_mul(0xd1b5_4a32_d192_ed03);
    (0..count).map(move |_| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 40) as f32 / (1 << 23) as f32 - 1.0
    })
}
