use std::{collections::BTreeMap, path::Path};

use motet_hub::ModelRef;
use motet_model::{BLOCK_TOKENS, Gguf, KvFormat, ModelConfig};
use serde::Serialize;

use crate::{
    config::{Config, human_bytes, thousands},
    failure::Failure,
    load::find,
    output::{harmless, print},
};

/// What a model file's header says.
#[derive(Debug, Serialize)]
struct Inspection {
    path: String,
    name: Option<String>,
    architecture: String,
    size_bytes: u64,
    files: usize,
    gguf_version: u32,
    parameters: u64,
    /// Bytes and tensors by block format.
    tensors: BTreeMap<&'static str, TensorShare>,
    context_length: Option<u64>,
    embedding_length: Option<u64>,
    layers: Option<u64>,
    heads: Option<u64>,
    kv_heads: Option<u64>,
    vocabulary: Option<usize>,
    tokenizer: Option<String>,
    tokenizer_pre: Option<String>,
    has_chat_template: bool,
    kv_bytes_per_token: Option<KvBytes>,
    /// Why Motet can't run it, when the header tells.
    problem: Option<String>,
}

#[derive(Debug, Default, Serialize)]
struct TensorShare {
    tensors: u64,
    bytes: u64,
}

/// Bytes of one token's keys and values over all layers, by `engine.kv_format`.
#[derive(Debug, Serialize)]
struct KvBytes {
    f16: usize,
    int8: usize,
}

impl KvBytes {
    fn of(config: &ModelConfig) -> Self {
        let bytes = |format| config.kv_block_bytes(format) / BLOCK_TOKENS;
        Self { f16: bytes(KvFormat::F16), int8: bytes(KvFormat::Int8) }
    }
}

/// Prints what the header of `model` says; the configured model without one.
pub(crate) async fn inspect(model: Option<&str>, config: &Config, as_json: bool) -> Result<(), Failure> {
    let model: ModelRef = match model {
        Some(text) => text.parse().map_err(Failure::usage)?,
        None => config.model.clone(),
    };
    let path = find(&model).await?;
    let inspection = read(&path)?;
    if as_json {
        let json = serde_json::to_string_pretty(&inspection).map_err(Failure::runtime)?;
        return print(&format!("{json}\n"));
    }
    print(&harmless(&text(&inspection)))
}

fn read(path: &Path) -> Result<Inspection, Failure> {
    let gguf = Gguf::open(path).map_err(Failure::usage)?;
    let text = |key: &str| gguf.str(key).ok().flatten().map(str::to_owned);
    let architecture = gguf.require_str("general.architecture").map_err(Failure::usage)?.to_owned();
    let number = |key: &str| gguf.u64(&format!("{architecture}.{key}")).ok().flatten();
    let config = ModelConfig::read(&gguf);
    let mut tensors: BTreeMap<&'static str, TensorShare> = BTreeMap::new();
    let mut parameters = 0;
    for tensor in gguf.tensors() {
        let share = tensors.entry(tensor.ty().name()).or_default();
        share.tensors += 1;
        share.bytes += tensor.size() as u64;
        parameters += tensor.shape().iter().map(|n| *n as u64).product::<u64>();
    }
    Ok(Inspection {
        path: path.display().to_string(),
        name: text("general.name"),
        size_bytes: gguf.file_size(),
        files: gguf.files().len(),
        gguf_version: gguf.version(),
        parameters,
        tensors,
        context_length: number("context_length"),
        embedding_length: number("embedding_length"),
        layers: number("block_count"),
        heads: number("attention.head_count"),
        kv_heads: number("attention.head_count_kv").or_else(|| number("attention.head_count")),
        vocabulary: gguf.str_array("tokenizer.ggml.tokens").ok().flatten().map(|tokens| tokens.len()),
        tokenizer: text("tokenizer.ggml.model"),
        tokenizer_pre: text("tokenizer.ggml.pre"),
        has_chat_template: motet_model::gguf::chat_template(&gguf).is_some(),
        kv_bytes_per_token: config.as_ref().ok().map(KvBytes::of),
        problem: config.err().map(|e| e.to_string()),
        architecture,
    })
}

fn text(i: &Inspection) -> String {
    let known = |value: &Option<u64>| value.map_or_else(|| "not given".to_owned(), |value| value.to_string());
    let words = |value: &Option<String>| value.clone().unwrap_or_else(|| "not given".to_owned());
    let formats: Vec<String> = i
        .tensors
        .iter()
        .map(|(name, share)| format!("{name} {} tensors, {}", share.tensors, human_bytes(share.bytes)))
        .collect();
    let kv = |name: &str, bytes: usize| {
        let tokens = thousands((1 << 30) / bytes.max(1) as u64);
        format!("{name}: {}, a GiB holds {tokens} tokens", human_bytes(bytes as u64))
    };
    let kv = i.kv_bytes_per_token.as_ref().map_or_else(
        || "unknown".to_owned(),
        |bytes| format!("{}; {}", kv("f16", bytes.f16), kv("int8", bytes.int8)),
    );
    let mut rows = vec![
        (
            "file",
            format!(
                "{} ({} in {} file(s), GGUF v{})",
                i.path,
                human_bytes(i.size_bytes),
                i.files,
                i.gguf_version
            ),
        ),
        ("name", words(&i.name)),
        ("architecture", i.architecture.clone()),
        ("parameters", format!("{:.1} million", i.parameters as f64 / 1e6)),
        ("weights", formats.join("; ")),
        ("context", format!("{} tokens", known(&i.context_length))),
        ("layers", format!("{}, width {}", known(&i.layers), known(&i.embedding_length))),
        ("heads", format!("{}, {} for keys and values", known(&i.heads), known(&i.kv_heads))),
        ("vocabulary", i.vocabulary.map_or_else(|| "not given".to_owned(), |n| format!("{n} tokens"))),
        ("tokenizer", format!("{} ({})", words(&i.tokenizer), words(&i.tokenizer_pre))),
        ("chat template", if i.has_chat_template { "yes" } else { "no" }.to_owned()),
        ("KV per token", kv),
    ];
    if let Some(problem) = &i.problem {
        rows.push(("can't run", problem.clone()));
    }
    rows.iter().map(|(name, value)| format!("{name:14} {value}\n")).collect()
}
