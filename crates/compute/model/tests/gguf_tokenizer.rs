//! The tokenizer and chat template read from a file.

// Helpers of tests fail as tests do.
#![allow(clippy::unwrap_used)]

use motet_model::gguf::{Gguf, chat_template, tokenizer_spec};
use motet_testkit::{GgufBuilder, Meta, TinyModel};
use motet_text::TokenKind;

fn open(builder: &GgufBuilder) -> Gguf {
    Gguf::from_bytes("m.gguf", builder.build()).unwrap()
}

fn tiny() -> GgufBuilder {
    TinyModel::default().builder()
}

#[test]
fn the_tiny_model_has_a_tokenizer_and_a_template() {
    let gguf = open(&tiny());
    let spec = tokenizer_spec(&gguf).unwrap();
    assert_eq!((spec.model.as_str(), spec.pre.as_deref()), ("gpt2", Some("smollm")));
    assert_eq!(
        (spec.bos, spec.eos, spec.eot, spec.unk, spec.pad),
        (Some(1), Some(2), None, Some(0), Some(2))
    );
    assert_eq!((spec.add_bos, spec.add_eos), (false, false));
    assert_eq!(spec.tokens[..3], ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]);
    assert_eq!(spec.kinds[2..4], [TokenKind::Control, TokenKind::Normal]);
    assert_eq!((spec.tokens.len(), spec.kinds.len(), spec.merges.len()), (285, 285, 26));
    assert!(chat_template(&gguf).unwrap().contains("<|im_start|>assistant\\n"));
    assert_eq!(chat_template(&open(&tiny().without("tokenizer.chat_template"))), None);
}

#[test]
fn the_default_model_has_a_tokenizer() {
    let Some(path) = motet_testkit::default_model() else { return };
    let spec = tokenizer_spec(&Gguf::open(&path).unwrap()).unwrap();
    assert_eq!((spec.tokens.len(), spec.merges.len()), (49152, 48900));
    assert_eq!((spec.bos, spec.eos, spec.add_bos), (Some(1), Some(2), false));
}

#[test]
fn bos_is_added_as_the_file_says_or_the_family_does() {
    let rows: [(&str, Option<&str>, Option<bool>, bool); 6] = [
        ("gpt2", Some("smollm"), None, false),
        ("gpt2", None, None, false),
        ("gpt2", Some("llama-bpe"), None, true),
        ("gpt2", Some("llama-bpe"), Some(false), false),
        ("llama", None, None, true),
        ("llama", None, Some(false), false),
    ];
    for (model, pre, declared, expected) in rows {
        let mut builder = tiny()
            .without("tokenizer.ggml.add_bos_token")
            .without("tokenizer.ggml.pre")
            .set("tokenizer.ggml.model", model);
        if let Some(pre) = pre {
            builder = builder.meta("tokenizer.ggml.pre", pre);
        }
        if let Some(declared) = declared {
            builder = builder.meta("tokenizer.ggml.add_bos_token", declared);
        }
        assert_eq!(
            tokenizer_spec(&open(&builder)).unwrap().add_bos,
            expected,
            "{model} {pre:?} {declared:?}"
        );
    }
}

#[test]
fn contradictions_name_the_key() {
    let rows: Vec<(GgufBuilder, &str)> = vec![
        (tiny().without("tokenizer.ggml.model"), "metadata key tokenizer.ggml.model is missing"),
        (tiny().without("tokenizer.ggml.tokens"), "metadata key tokenizer.ggml.tokens is missing"),
        (tiny().set("tokenizer.ggml.tokens", Meta::Array(vec![])), "expected an array of strings"),
        (tiny().set("tokenizer.ggml.token_type", vec![1_i32; 4]), "4 token types for 285 tokens"),
        (
            tiny().set("tokenizer.ggml.token_type", vec![9_i32; 285]),
            "token 0 has the type 9 (0 to 6 are known)",
        ),
        (
            tiny().set("tokenizer.ggml.eos_token_id", 285_u32),
            "token 285 is not in the vocabulary of 285 tokens",
        ),
        (tiny().set("tokenizer.ggml.bos_token_id", -1_i32), "expected a whole number"),
    ];
    for (builder, expected) in rows {
        let error = tokenizer_spec(&open(&builder)).unwrap_err().to_string();
        assert!(error.starts_with("m.gguf: metadata key tokenizer.ggml."), "{error}");
        assert!(error.contains(expected), "{error}");
    }
    let padded = tiny().set("tokenizer.ggml.padding_token_id", -1_i32);
    assert_eq!(tokenizer_spec(&open(&padded)).unwrap().pad, None);
}
