//! A generated Gemma 3 model against logits that a plain script computed (`data/tiny_gemma3.py`), and
//! small trained-shape ones against transformers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

use motet_kv::NO_BLOCK;
use motet_model::{CpuExecutor, CpuOptions, Gguf, Isa, KvFormat, ModelConfig, Precision};
use motet_sched::{Chunk, Executor, StepOutput, StepPlan};
use motet_testkit::{GgufBuilder, Meta, TinyGemma3, WeightType};
use motet_types::SequenceId;
use serde_json::Value;

const EXACT: CpuOptions = CpuOptions {
    threads: 2,
    kv_bytes: 1 << 24,
    precision: Precision::Exact,
    kv: KvFormat::F32,
    isa: Isa::Scalar,
};

fn open(builder: &GgufBuilder) -> Gguf {
    Gguf::from_bytes("tiny.gguf", builder.build()).unwrap()
}

fn load(builder: &GgufBuilder) -> CpuExecutor {
    CpuExecutor::load(&open(builder), EXACT).unwrap()
}

fn ids(value: &Value) -> Vec<u32> {
    serde_json::from_value(value.clone()).unwrap()
}

fn worst(ours: &[f32], reference: &Value) -> f64 {
    let reference: Vec<f64> = serde_json::from_value(reference.clone()).unwrap();
    assert_eq!(ours.len(), reference.len());
    ours.iter().zip(reference).map(|(a, b)| (f64::from(*a) - b).abs()).fold(0.0, f64::max)
}

#[test]
fn golden_logits() {
    let golden: Value = serde_json::from_str(include_str!("data/tiny_gemma3.json")).unwrap();
    let rows = golden["rows"].as_array().unwrap();
    let wanted: Vec<usize> = rows.iter().map(|row| row["position"].as_u64().unwrap() as usize).collect();
    let logits = load(&TinyGemma3::default().builder()).score(&ids(&golden["ids"]), &wanted).unwrap();
    for (row, ours) in rows.iter().zip(logits.chunks_exact(logits.len() / wanted.len())) {
        let worst = worst(ours, &row["logits"]);
        println!("position {}: {worst:e}", row["position"]);
        assert!(worst < 1e-4, "position {}: {worst}", row["position"]);
    }
}

/// A file of the hub's layout as a GGUF: matrices as they are, norm weights with the one that the
/// architecture adds to them.
fn from_safetensors(config: &Value, file: &[u8]) -> GgufBuilder {
    let (length, rest) = file.split_first_chunk::<8>().unwrap();
    let (header, data) = rest.split_at(u64::from_le_bytes(*length) as usize);
    let header: Value = serde_json::from_slice(header).unwrap();
    let int = |key: &str| config[key].as_u64().unwrap() as u32;
    let mut builder = GgufBuilder::new()
        .meta("general.architecture", "gemma3")
        .meta("gemma3.context_length", int("max_position_embeddings"))
        .meta("gemma3.embedding_length", int("hidden_size"))
        .meta("gemma3.block_count", int("num_hidden_layers"))
        .meta("gemma3.feed_forward_length", int("intermediate_size"))
        .meta("gemma3.attention.head_count", int("num_attention_heads"))
        .meta("gemma3.attention.head_count_kv", int("num_key_value_heads"))
        .meta("gemma3.attention.key_length", int("head_dim"))
        .meta("gemma3.attention.value_length", int("head_dim"))
        .meta("gemma3.attention.sliding_window", int("sliding_window"))
        .meta("gemma3.attention.sliding_window_pattern", 3_u32)
        .meta("gemma3.attention.layer_norm_rms_epsilon", config["rms_norm_eps"].as_f64().unwrap() as f32)
        .meta("gemma3.rope.freq_base", config["rope_theta"].as_f64().unwrap() as f32);
    for (name, tensor) in header.as_object().unwrap().iter().filter(|(name, _)| *name != "__metadata__") {
        let range = ids(&tensor["data_offsets"]);
        let raw = &data[range[0] as usize..range[1] as usize];
        let mut values: Vec<f32> = match tensor["dtype"].as_str().unwrap() {
            "F32" => raw.as_chunks().0.iter().map(|four| f32::from_le_bytes(*four)).collect(),
            "BF16" => raw
                .as_chunks()
                .0
                .iter()
                .map(|two| f32::from_bits(u32::from(u16::from_le_bytes(*two)) << 16))
                .collect(),
            other => panic!("{other}"),
        };
        let mut shape: Vec<u64> = serde_json::from_value(tensor["shape"].clone()).unwrap();
        shape.reverse();
        if shape.len() == 1 {
            values.iter_mut().for_each(|value| *value += 1.0);
        }
        builder = builder.tensor(&gguf_name(name), &shape, 0, WeightType::F32.encode(&values));
    }
    builder
}

fn gguf_name(name: &str) -> String {
    const PARTS: [(&str, &str); 16] = [
        ("model.embed_tokens", "token_embd"),
        ("model.norm", "output_norm"),
        ("model.layers", "blk"),
        ("self_attn.q_norm", "attn_q_norm"),
        ("self_attn.k_norm", "attn_k_norm"),
        ("self_attn.q_proj", "attn_q"),
        ("self_attn.k_proj", "attn_k"),
        ("self_attn.v_proj", "attn_v"),
        ("self_attn.o_proj", "attn_output"),
        ("pre_feedforward_layernorm", "ffn_norm"),
        ("post_feedforward_layernorm", "post_ffw_norm"),
        ("post_attention_layernorm", "post_attention_norm"),
        ("input_layernorm", "attn_norm"),
        ("mlp.gate_proj", "ffn_gate"),
        ("mlp.up_proj", "ffn_up"),
        ("mlp.down_proj", "ffn_down"),
    ];
    PARTS.iter().fold(name.to_owned(), |name, (from, to)| name.replace(from, to))
}

#[test]
fn equals_transformers() {
    let Some(folder) = motet_testkit::shared("reference/tiny/gemma3_text") else { return };
    let json = |file: &str| -> Value {
        serde_json::from_str(&std::fs::read_to_string(folder.join(file)).unwrap()).unwrap()
    };
    let file = std::fs::read(folder.join("model.safetensors")).unwrap();
    let mut model = load(&from_safetensors(&json("config.json"), &file));
    let mut compared = 0;
    for case in json("expected.json")["prompts"].as_array().unwrap() {
        let mut tokens = ids(&case["ids"]);
        let prompt = tokens.len();
        let all: Vec<usize> = (0..prompt).collect();
        let logits = model.score(&tokens, &all).unwrap();
        let rows: Vec<&[f32]> = logits.chunks_exact(logits.len() / prompt).collect();
        if let Some(every) = case["logits"].as_array() {
            for (row, expected) in rows.iter().zip(every) {
                assert!(worst(row, expected) < 2e-4);
                compared += 1;
            }
        }
        if !case["last_logits"].is_null() {
            let worst = worst(rows[prompt - 1], &case["last_logits"]);
            println!("{prompt} tokens: {worst:e}");
            assert!(worst < 2e-4, "{prompt} tokens: {worst}");
            compared += 1;
        }
        let greedy = ids(&case["greedy"]);
        tokens.extend(&greedy);
        let steps: Vec<usize> = (prompt - 1..tokens.len() - 1).collect();
        let logits = model.score(&tokens, &steps).unwrap();
        let argmax = |row: &[f32]| (0..row.len()).max_by(|a, b| row[*a].total_cmp(&row[*b])).unwrap() as u32;
        let ours: Vec<u32> = logits.chunks_exact(logits.len() / steps.len()).map(argmax).collect();
        assert_eq!(ours, greedy);
    }
    assert!(compared > 2, "{compared} rows compared");
}

#[test]
fn what_is_not_supported_is_refused_by_name() {
    let check = |change: &dyn Fn(GgufBuilder) -> GgufBuilder, expected: &str| {
        let gguf = open(&change(TinyGemma3::default().builder()));
        let error = CpuExecutor::load(&gguf, EXACT).err().map_or_else(String::new, |e| e.to_string());
        assert!(error.contains(expected), "{error:?} lacks {expected:?}");
    };
    let set = |key: &'static str, value: Meta| move |b: GgufBuilder| b.without(key).meta(key, value.clone());
    check(&set("gemma3.final_logit_softcapping", Meta::F32(30.0)), "soft caps are not supported yet");
    check(&set("gemma3.rope.scaling.type", "yarn".into()), "rope scaling \"yarn\" is not supported yet");
    check(&set("gemma3.attention.sliding_window", Meta::U32(0)), "0 is not between 1 and");
    check(&|b| b.without("gemma3.attention.sliding_window"), "sliding_window is missing");
    check(&|b| b.without_tensor("blk.1.post_ffw_norm.weight"), "blk.1.post_ffw_norm.weight is missing");
    check(
        &|b| b.tensor("rope_freqs.weight", &[16], 0, vec![0; 64]),
        "the gemma3 architecture does not use this tensor",
    );
}

#[test]
fn layers_and_memory_follow_the_file() {
    let config =
        ModelConfig::read(&open(&TinyGemma3 { layers: 7, ..TinyGemma3::default() }.builder())).unwrap();
    let windows: Vec<Option<usize>> = config.layers.iter().map(|layer| layer.window).collect();
    let w = Some(24);
    assert_eq!(windows, [w, w, None, w, w, None, w]);
    assert_eq!((config.ropes[0].base, config.ropes[0].divisor), (1e6, 8.0));
    assert_eq!((config.ropes[1].base, config.ropes[1].divisor), (1e4, 1.0));
    let model = load(&TinyGemma3::default().builder());
    assert!(model.kv_bytes() <= EXACT.kv_bytes && model.kv_bytes() > EXACT.kv_bytes / 100 * 98);
    let block = config.kv_block_bytes(KvFormat::F32) / 7 * 4;
    let equal = EXACT.kv_bytes / block * 16;
    assert!(model.kv_tokens(250) > equal, "windows leave room for more tokens");
    assert!(model.kv_tokens(30) < equal, "and less for short sequences");
}

/// A sequence cut into chunks, whose blocks leave the windowed group's table as the window passes.
#[test]
fn blocks_that_left_the_window_are_not_needed() {
    let mut model = load(&TinyGemma3::default().builder());
    let tokens: Vec<u32> = (0..90).map(|i| 10 + i * 37 % 300).collect();
    let whole = model.score(&tokens, &[89]).unwrap();
    let chunk = |start: usize, end: usize| {
        let blocks: Vec<u32> = (0..end.div_ceil(16) as u32).map(|i| (i * 5 + 3) % 32).collect();
        let mut windowed = blocks.clone();
        windowed[..(start + 1).saturating_sub(24) / 16].fill(NO_BLOCK);
        Chunk {
            sequence: SequenceId(1),
            siblings: Vec::new(),
            tokens: tokens[start..end].to_vec(),
            start: start as u32,
            stored: start as u32,
            tables: vec![blocks, windowed],
            wants_logits: end == tokens.len(),
        }
    };
    let mut run = |chunk: Chunk| {
        let plan = StepPlan { chunks: vec![chunk], ..StepPlan::default() };
        let mut output = StepOutput::default();
        model.execute(&plan, &mut output).map(|()| output.logits)
    };
    let mut logits = Vec::new();
    for cut in [0, 7, 40, 55, 56, 71, 90].windows(2) {
        logits = run(chunk(cut[0], cut[1])).unwrap();
    }
    let bits = |logits: &[f32]| logits.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&logits), bits(&whole));

    let mut refused = |change: &dyn Fn(&mut Chunk), expected: &str| {
        let mut chunk = chunk(71, 90);
        change(&mut chunk);
        let error = run(chunk).unwrap_err().to_string();
        assert!(error.contains(expected), "{error:?} lacks {expected:?}");
    };
    refused(&|c| c.tables[1][3] = NO_BLOCK, "block 4294967295 of");
    refused(&|c| c.tables[0][0] = NO_BLOCK, "block 4294967295 of");
    refused(&|c| c.tables.truncate(1), "1 block tables for 2 groups");
    refused(&|c| c.tables[1].truncate(5), "90 tokens in 5 blocks of group 1");
}
