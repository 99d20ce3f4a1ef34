//! The real vocabulary against the reference tokenizations.

use crate::gguf::{RealModel, gemma3, real_model};
use motet_text::{SpecialTokens, Tokenizer};
use motet_types::TokenId;
use proptest::prelude::*;
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, Instant};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Every string of the reference in every mode it names: ids, the bytes of each token, and the way back.
/// References of models that begin every text with a token have it in front.
fn check(tokenizer: &Tokenizer, reference: &Path, first: &[TokenId]) -> usize {
    let mut rows = 0;
    for line in std::fs::read_to_string(reference).unwrap().lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        let text = row["text"].as_str().unwrap();
        let modes = match &row["parse_special"] {
            Value::Bool(true) => vec![SpecialTokens::Parse],
            Value::Bool(false) => vec![SpecialTokens::AsText],
            _ => vec![SpecialTokens::Parse, SpecialTokens::AsText],
        };
        for mode in modes {
            let ids = [first, &tokenizer.encode(text, mode)].concat();
            let name = format!("{} {mode:?} {text:?}", row["name"]);
            assert_eq!(serde_json::to_value(&ids).unwrap(), row["ids"], "{name}");
            let pieces: Vec<String> = ids.iter().map(|&id| hex(tokenizer.token_bytes(id))).collect();
            assert_eq!(serde_json::to_value(pieces).unwrap(), row["pieces_hex"], "{name}");
            let decoded = tokenizer.decode(&ids[first.len()..]);
            assert_eq!(decoded, row["decoded"].as_str().unwrap_or(text), "{name}");
            rows += 1;
        }
    }
    rows
}

#[test]
fn reference_tokenizations() {
    let Some(path) = motet_testkit::shared("reference/tokenizers/smollm2.jsonl") else { return };
    let Some(model) = real_model() else { return };
    let rows = check(&model.tokenizer, &path, &[]);
    assert!(rows > 900, "{rows} rows");
}

#[test]
fn gemma3_tokenizations() {
    let Some(path) = motet_testkit::shared("reference/tokenizers/gemma3.jsonl") else { return };
    let Some(model) = gemma3() else { return };
    let rows = check(&model.tokenizer, &path, &[model.tokenizer.bos().unwrap()]);
    assert!(rows > 900, "{rows} rows");
    assert_eq!(model.tokenizer.encode_prompt("Hello"), [2, 9259]);
    assert_eq!(model.tokenizer.encode_prompt("<bos>Hello"), [2, 9259]);
    assert_eq!(model.tokenizer.eog_tokens(), [1, 106]);
}

#[test]
fn special_tokens_of_the_real_model() {
    let Some(model) = real_model() else { return };
    let tokenizer = &model.tokenizer;
    let im_end = tokenizer.encode("<|im_end|>", SpecialTokens::Parse);
    assert_eq!(im_end.len(), 1);
    assert!(tokenizer.is_control(im_end[0]) && tokenizer.eog_tokens().contains(&im_end[0]));
    assert!(tokenizer.eos().is_some_and(|eos| tokenizer.eog_tokens().contains(&eos)));
    let as_text = tokenizer.encode("<|im_end|>", SpecialTokens::AsText);
    assert!(as_text.iter().all(|&id| !tokenizer.is_control(id)));
    let beyond = tokenizer.vocab_size() as u32;
    assert!(tokenizer.token_bytes(beyond).is_empty() && !tokenizer.is_control(beyond));
}

/// A megabyte of anything costs time linear in its length: the bound is far above that, and far below
/// what anything quadratic would take.
#[test]
fn monotonous_megabytes() {
    let models = [real_model(), gemma3()];
    for model in models.into_iter().flatten() {
        monotonous(model);
    }
}

fn monotonous(model: &RealModel) {
    for unit in ["a", " ", "\n", "é", "日", "0", "<", "<|im_", "'", "\u{301}", "ab "] {
        let text = unit.repeat((1 << 20) / unit.len());
        let start = Instant::now();
        let ids = model.tokenizer.encode(&text, SpecialTokens::Parse);
        let took = start.elapsed();
        assert_eq!(model.tokenizer.decode(&ids), text);
        assert!(took < Duration::from_secs(20), "{unit:?} took {took:?}");
    }
}

proptest! {
    #[test]
    fn any_text_comes_back(text in "\\PC{0,60}|[ \\n\\r\\t'a-zA-Z0-9<|>_é日]{0,80}") {
        let models = [real_model(), gemma3()].into_iter().flatten();
        let modes = [SpecialTokens::Parse, SpecialTokens::AsText];
        for (model, mode) in models.flat_map(|model| modes.map(|mode| (model, mode))) {
            prop_assert_eq!(model.tokenizer.decode(&model.tokenizer.encode(&text, mode)), text.as_str());
        }
    }
}
