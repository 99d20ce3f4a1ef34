//! WordPiece against what the `tokenizers` library says; `tests/data/wordpiece.py` asked it.

use motet_text::{Casing, WordPiece};
use motet_types::TokenId;
use proptest::prelude::*;
use serde_json::Value;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

static REFERENCE: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(include_str!("../data/wordpiece.json")).unwrap());

/// Every text of the reference, whose ids are under `name`.
fn check(tokenizer: &WordPiece, name: &str) {
    let cases = REFERENCE["cases"].as_array().unwrap();
    assert!(cases.len() > 300, "{} texts", cases.len());
    for case in cases {
        let text = case["text"].as_str().unwrap();
        let ids = serde_json::to_value(tokenizer.encode(text)).unwrap();
        assert_eq!(ids, case[name], "{name}: {text:?}");
    }
}

#[test]
fn small_vocabularies() {
    for name in ["lower", "cased"] {
        check(&WordPiece::from_json(&REFERENCE[name].to_string()).unwrap(), name);
    }
}

#[test]
fn vocabulary_of_minilm() {
    let Some(folder) = motet_testkit::embedding_model() else { return };
    let read = |file: &str| std::fs::read_to_string(folder.join(file)).unwrap();
    let tokenizer = WordPiece::from_json(&read("tokenizer.json")).unwrap();
    assert_eq!(tokenizer.vocab_size(), 30_522);
    check(&tokenizer, "minilm");
    check(&WordPiece::from_vocab(&read("vocab.txt"), Casing::Lower).unwrap(), "minilm");
}

/// A megabyte of anything costs time linear in its length: the bound is far above that, and far below what anything
/// quadratic would take.
#[test]
fn monotonous_megabytes() {
    let tokenizer = WordPiece::from_json(&REFERENCE["lower"].to_string()).unwrap();
    for unit in ["a", " ", "é", "東", "\u{301}", "e\u{301}", "\u{0}", ".", "#", "quick "] {
        let text = unit.repeat((1 << 20) / unit.len());
        let start = Instant::now();
        let ids = tokenizer.encode(&text);
        let took = start.elapsed();
        assert!(ids.len() <= text.len() + 2);
        assert!(took < Duration::from_secs(20), "{unit:?} took {took:?}");
    }
}

proptest! {
    /// The space between two texts is where a word ends, so their tokens follow each other.
    #[test]
    fn texts_apart_are_texts_together(a in "\\PC{0,40}", b in "\\PC{0,40}") {
        let tokenizer = WordPiece::from_json(&REFERENCE["lower"].to_string()).unwrap();
        let inner = |text: &str| -> Vec<TokenId> {
            let ids = tokenizer.encode(text);
            ids[1..ids.len() - 1].to_vec()
        };
        prop_assert_eq!(inner(&format!("{a} {b}")), [inner(&a), inner(&b)].concat());
    }
}
