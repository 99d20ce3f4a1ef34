//! Files whose header is damaged but still parses: loading and running them never panics.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

use motet_model::{CpuExecutor, CpuOptions, Gguf, Isa, KvFormat, Precision};
use motet_testkit::{GgufBuilder, Meta, TinyModel, tiny_model};

const OPTIONS: CpuOptions = CpuOptions {
    threads: 1,
    kv_bytes: 1 << 20,
    precision: Precision::Fast,
    kv: KvFormat::F16,
    isa: Isa::Scalar,
};

fn load(bytes: Vec<u8>) -> Result<CpuExecutor, String> {
    let gguf = Gguf::from_bytes("tiny.gguf", bytes).map_err(|e| e.to_string())?;
    CpuExecutor::load(&gguf, OPTIONS).map_err(|e| e.to_string())
}

#[test]
fn every_header_byte_flipped() {
    let bytes = tiny_model(&TinyModel { layers: 1, ..TinyModel::default() });
    let header = TinyModel { layers: 1, ..TinyModel::default() }.builder().build_with_layout().1.header_end;
    let (mut loaded, mut refused) = (0, 0);
    for at in 0..header {
        for flip in [0xff, 0x01, 0x80] {
            let mut damaged = bytes.clone();
            damaged[at] ^= flip;
            match load(damaged) {
                // Damage to texts and constants loads; running it stays in bounds, whatever the numbers.
                Ok(mut model) => {
                    loaded += 1;
                    assert!(model.score(&[1, 2, 3], &[2]).is_ok());
                }
                Err(line) => {
                    refused += 1;
                    assert!(line.starts_with("tiny.gguf") && !line.contains('\n'), "{line}");
                }
            }
        }
    }
    println!("{loaded} loaded, {refused} refused");
    assert!(refused > 1000);
}

/// One change to a sound model and the line it is refused with.
#[test]
fn what_does_not_fit_together() {
    let check = |change: &dyn Fn(GgufBuilder) -> GgufBuilder, expected: &str| {
        let error = load(change(TinyModel::default().builder()).build()).err().unwrap_or_default();
        assert!(error.contains(expected), "{error:?} lacks {expected:?}");
    };
    let set = |key: &'static str, value: fn() -> Meta| move |b: GgufBuilder| b.set(key, value());
    check(&set("general.architecture", || "mamba".into()), "architecture \"mamba\" is not supported yet");
    check(&set("llama.attention.head_count_kv", || Meta::U32(3)), "3 does not divide the 4 attention heads");
    check(&set("llama.attention.head_count", || Meta::U32(0)), "0 is not between 1 and");
    check(
        &set("llama.attention.head_count", || Meta::U32(8)),
        "not an even number from 2 to the head size 8",
    );
    check(
        &set("llama.feed_forward_length", || Meta::U32(96)),
        "shape [64, 128] where the model's sizes ask for [64, 96]",
    );
    check(&set("llama.embedding_length", || Meta::U32(96)), "shape");
    check(&set("llama.block_count", || Meta::U32(3)), "tensor blk.2.attn_norm.weight is missing");
    check(&set("llama.block_count", || Meta::U32(1)), "does not use this tensor");
    check(&set("llama.block_count", || Meta::U32(u32::MAX)), "is not between 1 and 512");
    check(&set("llama.context_length", || Meta::U32(0)), "is not between 1 and");
    check(&set("llama.rope.dimension_count", || Meta::U32(17)), "17 is not an even number");
    check(&set("llama.rope.freq_base", || Meta::F32(-1.0)), "-1 is not a number above 0");
    check(&|b| b.without("llama.attention.layer_norm_rms_epsilon"), "layer_norm_rms_epsilon is missing");
    check(&|b| b.without_tensor("output_norm.weight"), "tensor output_norm.weight is missing");
    let name = "blk.0.ffn_down.weight";
    let q2_k = |b: GgufBuilder| b.without_tensor(name).tensor(name, &[256, 64], 10, vec![0; 64 * 84]);
    check(&q2_k, "shape");
    let vocabulary = |b: GgufBuilder| {
        b.without_tensor("token_embd.weight").tensor("token_embd.weight", &[64, 2], 0, vec![0; 64 * 2 * 4])
    };
    check(&vocabulary, "2 rows for the tokenizer's 285 tokens");
    let extra = |b: GgufBuilder| b.tensor("blk.0.attn_q.bias", &[64], 0, vec![0; 64 * 4]);
    check(&extra, "does not use this tensor");
    let norm = "output_norm.weight";
    let integers = |b: GgufBuilder| b.without_tensor(norm).tensor(norm, &[64], 26, vec![0; 64 * 4]);
    check(
        &integers,
        "quantisation I32 is not supported yet (supported: F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, \
         Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, MXFP4)",
    );
    check(&set("llama.expert_count", || Meta::U32(8)), "mixtures of experts are not supported yet");
}

#[test]
fn a_kv_arena_too_small_for_a_block_says_what_is_needed() {
    let gguf = Gguf::from_bytes("tiny.gguf", tiny_model(&TinyModel::default())).unwrap();
    let error = CpuExecutor::load(&gguf, CpuOptions { kv_bytes: 100, ..OPTIONS }).err().unwrap().to_string();
    assert!(error.contains("give it at least"), "{error}");
}
