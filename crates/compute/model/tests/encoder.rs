//! Encoders against vectors computed in double precision, against themselves, and what they refuse.

// Helpers of tests fail as tests do.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::path::Path;

use motet_model::Isa;
use motet_model::encoder::{self, EncodeError, Encoder};
use motet_testkit::{TinyBert, safetensors};
use motet_types::TokenId;
use proptest::prelude::*;
use serde_json::{Value, json};

fn tiny() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    TinyBert::default().write(folder.path());
    folder
}

fn load(folder: &Path, threads: usize, isa: Isa) -> Encoder {
    Encoder::load(folder, threads, isa).unwrap()
}

fn encode(encoder: &mut Encoder, sequences: &[Vec<TokenId>]) -> Vec<Vec<f32>> {
    let slices: Vec<&[TokenId]> = sequences.iter().map(Vec::as_slice).collect();
    let mut out = Vec::new();
    encoder.encode(&slices, &mut out).unwrap();
    out.chunks_exact(encoder.config().width).map(<[f32]>::to_vec).collect()
}

fn cases(json: &str) -> Vec<(Vec<TokenId>, Vec<f64>)> {
    let cases: Vec<Value> = serde_json::from_str(json).unwrap();
    let case = |case: Value| {
        let of = |name: &str| case[name].clone();
        (serde_json::from_value(of("ids")).unwrap(), serde_json::from_value(of("vector")).unwrap())
    };
    cases.into_iter().map(case).collect()
}

/// Every vector of the reference; `tests/data/encoder.py` computed it.
fn check_reference(encoder: &mut Encoder, json: &str) {
    let cases = cases(json);
    assert_eq!(cases.len(), 5);
    for (ids, want) in cases {
        let vector = encode(encoder, std::slice::from_ref(&ids)).remove(0);
        assert_eq!(vector.len(), want.len());
        let pairs = || vector.iter().map(|v| f64::from(*v)).zip(want.iter().copied());
        let worst = pairs().map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(worst < 2e-6, "{} tokens: off by {worst:e}", ids.len());
        let cosine: f64 = pairs().map(|(a, b)| a * b).sum();
        assert!(cosine > 0.999_999, "{} tokens: {cosine}", ids.len());
    }
}

#[test]
fn equals_the_definition() {
    let folder = tiny();
    for isa in Isa::available() {
        check_reference(&mut load(folder.path(), 2, isa), include_str!("data/encoder_tiny.json"));
    }
}

#[test]
fn minilm_equals_the_definition() {
    let Some(folder) = motet_testkit::embedding_model() else { return };
    let mut encoder = load(&folder, 2, Isa::detect());
    let config = encoder.config();
    assert_eq!((config.width, config.positions, config.context_length), (384, 512, 256));
    check_reference(&mut encoder, include_str!("data/encoder_minilm.json"));
    // Texts that mean the same are near each other.
    let tokenizer = encoder::tokenizer(&folder).unwrap();
    let texts = ["A man is eating food.", "Someone is having a meal.", "The girl plays the violin."];
    let vectors = encode(&mut encoder, &texts.map(|text| tokenizer.encode(text)));
    let cosine = |a: usize, b: usize| -> f32 { vectors[a].iter().zip(&vectors[b]).map(|(a, b)| a * b).sum() };
    assert!(cosine(0, 1) > 0.5 && cosine(0, 2) < 0.2, "{} {}", cosine(0, 1), cosine(0, 2));
}

fn bits(vectors: &[Vec<f32>]) -> Vec<Vec<u32>> {
    vectors.iter().map(|vector| vector.iter().map(|value| value.to_bits()).collect()).collect()
}

/// Contract 1: alone, in any batch, with any number of threads, on any instruction set.
#[test]
fn same_bits_in_any_company() {
    let folder = tiny();
    let sequence =
        |(index, len): (u32, usize)| (0..len as u32).map(|i| 5 + (i * 17 + index * 29) % 80).collect();
    let lengths = [1, 2, 15, 16, 17, 64, 96, 3, 40, 1];
    let sequences: Vec<Vec<TokenId>> = (0..).zip(lengths).map(sequence).collect();
    let mut reference = load(folder.path(), 1, Isa::Scalar);
    let alone: Vec<Vec<f32>> = sequences
        .iter()
        .map(|tokens| encode(&mut reference, std::slice::from_ref(tokens)).remove(0))
        .collect();
    for isa in Isa::available() {
        for threads in [1, 2, 5] {
            let mut encoder = load(folder.path(), threads, isa);
            for size in [1, 3, 10] {
                let together: Vec<Vec<f32>> =
                    sequences.chunks(size).flat_map(|part| encode(&mut encoder, part)).collect();
                assert_eq!(bits(&together), bits(&alone), "{isa:?}, {threads} threads, {size} at once");
            }
            let backwards: Vec<Vec<TokenId>> = sequences.iter().rev().cloned().collect();
            let mut back = encode(&mut encoder, &backwards);
            back.reverse();
            assert_eq!(bits(&back), bits(&alone));
        }
    }
}

#[test]
fn sequences_that_cannot_be() {
    let folder = tiny();
    let mut encoder = load(folder.path(), 1, Isa::detect());
    let vocab_size = encoder.config().vocab_size;
    let mut check = |sequences: &[&[TokenId]], want: EncodeError| {
        let mut out = Vec::new();
        assert_eq!(encoder.encode(sequences, &mut out), Err(want));
        assert!(out.is_empty());
    };
    check(&[&[5], &[]], EncodeError::Empty(1));
    check(&[&[5; 97]], EncodeError::TooLong { index: 0, tokens: 97, limit: 96 });
    let token = vocab_size as TokenId;
    check(&[&[5], &[5, token]], EncodeError::UnknownToken { index: 1, token, vocab_size });
    assert_eq!(encode(&mut encoder, &[]), Vec::<Vec<f32>>::new());
}

/// Loads the tiny model with one file replaced, or removed.
fn load_with(name: &str, content: Option<String>) -> Result<Encoder, String> {
    let folder = tiny();
    let path = folder.path().join(name);
    match content {
        Some(content) => fs::write(&path, content).unwrap(),
        None => fs::remove_file(&path).unwrap(),
    }
    Encoder::load(folder.path(), 1, Isa::Scalar).map_err(|error| error.to_string())
}

#[test]
fn files_that_do_not_fit_are_refused_by_name() {
    let check = |name: &str, content: Option<String>, want: &str| {
        let error = load_with(name, content).err().unwrap_or_default();
        assert!(error.contains(want) && !error.contains('\n'), "{error:?} lacks {want:?}");
    };
    let config = |key: &str, value: Value| {
        let mut config = TinyBert::default().config();
        config[key] = value;
        Some(config.to_string())
    };
    let name = "config.json";
    check(name, None, "config.json: there is no such file; name the folder");
    check(name, Some("{".into()), "config.json: is not JSON");
    check(name, config("model_type", json!("roberta")), "model_type is \"roberta\"; only BERT models");
    check(name, config("position_embedding_type", json!("relative_key")), "only absolute positions");
    check(name, config("hidden_size", json!(0)), "hidden_size is 0; a whole number from 1 to");
    check(name, config("hidden_size", json!(1u64 << 60)), "hidden_size is 1152921504606846976;");
    check(name, config("hidden_size", json!(null)), "hidden_size is missing");
    check(name, config("hidden_size", json!(27)), "where config.json asks for");
    check(name, config("num_attention_heads", json!(5)), "(5) does not divide hidden_size (24)");
    check(
        name,
        config("num_hidden_layers", json!(3)),
        "\"encoder.layer.2.attention.self.query.weight\" is missing",
    );
    check(name, config("num_hidden_layers", json!(1)), "is not used by BERT as config.json describes it");
    check(name, config("hidden_act", json!("relu")), "hidden_act is \"relu\"; gelu and gelu_new");
    check(name, config("layer_norm_eps", json!(-1.0)), "layer_norm_eps is -1");
    check(
        "1_Pooling/config.json",
        Some(json!({"pooling_mode_max_tokens": true}).to_string()),
        "another pooling",
    );
    let dense = json!([{"type": "sentence_transformers.models.Dense"}]);
    check(
        "modules.json",
        Some(dense.to_string()),
        "models.Dense\"; Transformer, Pooling, Normalize are supported",
    );
    check("model.safetensors", None, "model.safetensors: cannot open");
    check("model.safetensors", Some("x".into()), "the header's length is not there");
}

#[test]
fn variants_that_are_the_same_model() {
    let folder = tiny();
    let ids = [vec![5, 6, 7, 8]];
    let want = bits(&encode(&mut load(folder.path(), 1, Isa::Scalar), &ids));
    // Another prefix, and tensors that nothing depends on.
    let mut tensors = TinyBert::default().tensors();
    tensors.iter_mut().for_each(|(name, ..)| name.insert_str(0, "bert."));
    fs::write(folder.path().join("model.safetensors"), safetensors(&tensors)).unwrap();
    fs::remove_dir_all(folder.path().join("1_Pooling")).unwrap();
    assert_eq!(bits(&encode(&mut load(folder.path(), 1, Isa::Scalar), &ids)), want);
    // The first token's vector instead of the mean.
    fs::create_dir(folder.path().join("1_Pooling")).unwrap();
    let first = json!({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false}).to_string();
    fs::write(folder.path().join("1_Pooling/config.json"), first).unwrap();
    let other = encode(&mut load(folder.path(), 1, Isa::Scalar), &ids);
    assert_ne!(bits(&other), want);
    let length: f32 = other[0].iter().map(|value| value * value).sum();
    assert!((length - 1.0).abs() < 1e-5);
}

#[test]
fn tokenizers_of_folders() {
    let folder = tiny();
    let tokenizer = encoder::tokenizer(folder.path()).unwrap();
    let ids = tokenizer.encode("The cats!");
    assert_eq!(ids.len(), 6);
    let tokens: Value = TinyBert::default().tokenizer()["model"]["vocab"].clone();
    let lines: Vec<&str> = tokens.as_object().unwrap().keys().map(String::as_str).collect();
    fs::write(folder.path().join("vocab.txt"), lines.join("\n")).unwrap();
    fs::remove_file(folder.path().join("tokenizer.json")).unwrap();
    assert_eq!(encoder::tokenizer(folder.path()).unwrap().encode("The cats!"), ids);
    fs::write(folder.path().join("tokenizer_config.json"), r#"{"do_lower_case": false}"#).unwrap();
    assert_ne!(encoder::tokenizer(folder.path()).unwrap().encode("The cats!"), ids);
    fs::remove_file(folder.path().join("vocab.txt")).unwrap();
    let error = encoder::tokenizer(folder.path()).unwrap_err().to_string();
    assert!(error.contains("neither this file nor vocab.txt"), "{error}");
}

proptest! {
    /// Any batch equals its sequences alone.
    #[test]
    fn batches(sequences in proptest::collection::vec(proptest::collection::vec(0u32..100, 1..20), 1..6)) {
        let folder = tiny();
        let mut encoder = load(folder.path(), 2, Isa::detect());
        let together = encode(&mut encoder, &sequences);
        for (tokens, vector) in sequences.iter().zip(&together) {
            let alone = encode(&mut encoder, std::slice::from_ref(tokens));
            prop_assert_eq!(bits(&alone), bits(std::slice::from_ref(vector)));
        }
    }
}
