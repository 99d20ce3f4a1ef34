//! `tokenizer.json`, as far as it describes BERT's tokenizer.

use motet_types::TokenId;
use serde_json::Value;

use super::normalize::Normalizer;
use super::{MAX_WORD_CHARS, Spec, WordPieceError};

/// Longest value of the file that a message repeats, in characters.
const SHOWN_CHARS: usize = 60;

pub(super) fn read(text: &str) -> Result<Spec, WordPieceError> {
    let root: Value = serde_json::from_str(text).map_err(|error| WordPieceError::Json(error.to_string()))?;
    expect(&root, "/model/type", &["WordPiece"])?;
    expect(&root, "/normalizer/type", &["BertNormalizer"])?;
    expect(&root, "/pre_tokenizer/type", &["BertPreTokenizer"])?;
    check_added_tokens(&root)?;
    let (first, last) = around(&root)?;
    Ok(Spec {
        tokens: vocabulary(&root)?,
        prefix: string(&root, "/model/continuing_subword_prefix")?.unwrap_or("##").to_owned(),
        unknown: string(&root, "/model/unk_token")?.unwrap_or("[UNK]").to_owned(),
        first,
        last,
        max_word_chars: max_word_chars(&root)?,
        normalizer: normalizer(&root)?,
    })
}

fn vocabulary(root: &Value) -> Result<Vec<(String, TokenId)>, WordPieceError> {
    let at = "/model/vocab";
    let map = root.pointer(at).and_then(Value::as_object).ok_or_else(|| field(at, "is not an object"))?;
    let token = |(token, id): (&String, &Value)| {
        let id = id.as_u64().and_then(|id| TokenId::try_from(id).ok());
        let id = id.ok_or_else(|| field(at, format!("has no id for {:?}", shown(token))))?;
        Ok((token.clone(), id))
    };
    map.iter().map(token).collect()
}

fn normalizer(root: &Value) -> Result<Normalizer, WordPieceError> {
    let switch = |name: &str| flag(root, &format!("/normalizer/{name}"));
    let is_lowercasing = switch("lowercase")?.unwrap_or(true);
    Ok(Normalizer {
        is_cleaning: switch("clean_text")?.unwrap_or(true),
        is_spacing_chinese: switch("handle_chinese_chars")?.unwrap_or(true),
        // Where it isn't said, accents go with the case.
        is_stripping_accents: switch("strip_accents")?.unwrap_or(is_lowercasing),
        is_lowercasing,
    })
}

fn max_word_chars(root: &Value) -> Result<usize, WordPieceError> {
    let at = "/model/max_input_chars_per_word";
    match root.pointer(at) {
        None | Some(Value::Null) => Ok(MAX_WORD_CHARS),
        Some(value) => {
            let chars = value.as_u64().and_then(|chars| usize::try_from(chars).ok());
            // Cutting a word takes time in the square of its length.
            chars.filter(|chars| *chars <= 10 * MAX_WORD_CHARS).ok_or_else(|| {
                field(
                    at,
                    format!("is {}; at most {} can be used", shown(&value.to_string()), 10 * MAX_WORD_CHARS),
                )
            })
        }
    }
}

/// Added tokens that aren't special are matched in every text, which BERT's published models have none of.
fn check_added_tokens(root: &Value) -> Result<(), WordPieceError> {
    let tokens = root.pointer("/added_tokens").and_then(Value::as_array);
    let plain = tokens.into_iter().flatten().find(|token| token["special"] != Value::Bool(true));
    match plain {
        None => Ok(()),
        Some(token) => Err(WordPieceError::Unsupported {
            field: "an entry of added_tokens that is not special".to_owned(),
            value: shown(token["content"].as_str().unwrap_or_default()),
        }),
    }
}

/// The tokens in front of and behind a text.
fn around(root: &Value) -> Result<(String, String), WordPieceError> {
    let at = "/post_processor";
    match expect(root, "/post_processor/type", &["TemplateProcessing", "BertProcessing"])? {
        "BertProcessing" => {
            let token = |name: &str| {
                let text = root.pointer(&format!("{at}/{name}/0")).and_then(Value::as_str);
                text.map(str::to_owned).ok_or_else(|| field(at, format!("has no {name}")))
            };
            Ok((token("cls")?, token("sep")?))
        }
        _ => {
            let single = root.pointer("/post_processor/single").and_then(Value::as_array);
            let special =
                |part: &Value| part.pointer("/SpecialToken/id").and_then(Value::as_str).map(str::to_owned);
            match single.map(Vec::as_slice) {
                Some([first, text, last]) if text.get("Sequence").is_some() => {
                    special(first).zip(special(last))
                }
                _ => None,
            }
            .ok_or_else(|| field("/post_processor/single", "is not a token, the text and a token"))
        }
    }
}

/// The string at a path, which has to be one of `known`.
fn expect<'a>(root: &'a Value, at: &str, known: &[&str]) -> Result<&'a str, WordPieceError> {
    let value = string(root, at)?.ok_or_else(|| field(at, "is missing"))?;
    if known.contains(&value) {
        return Ok(value);
    }
    Err(WordPieceError::Unsupported { field: dotted(at), value: shown(value) })
}

fn string<'a>(root: &'a Value, at: &str) -> Result<Option<&'a str>, WordPieceError> {
    match root.pointer(at) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => value.as_str().map(Some).ok_or_else(|| field(at, "is not a string")),
    }
}

fn flag(root: &Value, at: &str) -> Result<Option<bool>, WordPieceError> {
    match root.pointer(at) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => value.as_bool().map(Some).ok_or_else(|| field(at, "is not true or false")),
    }
}

fn field(at: &str, problem: impl Into<String>) -> WordPieceError {
    WordPieceError::Field { field: dotted(at), problem: problem.into() }
}

/// `/model/type` as people write it: `model.type`.
fn dotted(at: &str) -> String {
    at.trim_start_matches('/').replace('/', ".")
}

fn shown(text: &str) -> String {
    text.chars().take(SHOWN_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::super::WordPiece;
    use serde_json::{Value, json};

    fn sound() -> Value {
        json!({
            "truncation": {"max_length": 3}, "padding": {"strategy": {"Fixed": 9}},
            "added_tokens": [{"id": 0, "special": true, "content": "[UNK]"}],
            "normalizer": {"type": "BertNormalizer", "lowercase": true, "strip_accents": null},
            "pre_tokenizer": {"type": "BertPreTokenizer"},
            "post_processor": {"type": "TemplateProcessing", "single": [
                {"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                {"SpecialToken": {"id": "</s>", "type_id": 0}}]},
            "model": {"type": "WordPiece", "unk_token": "[UNK]", "max_input_chars_per_word": 4,
                "vocab": {"[UNK]": 0, "<s>": 1, "</s>": 2, "a": 7, "##a": 4}}
        })
    }

    #[test]
    fn the_file_is_followed() {
        let tokenizer = WordPiece::from_json(&sound().to_string()).unwrap();
        assert_eq!(tokenizer.encode("Äaa aaaaa a b aa"), [1, 7, 4, 4, 0, 7, 0, 7, 4, 2]);
        assert_eq!(tokenizer.vocab_size(), 8);
        let mut bert = sound();
        bert["post_processor"] = json!({"type": "BertProcessing", "sep": ["</s>", 2], "cls": ["<s>", 1]});
        assert_eq!(WordPiece::from_json(&bert.to_string()).unwrap().encode(""), [1, 2]);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let check = |at: &str, value: Value, want: &str| {
            let mut file = sound();
            *file.pointer_mut(at).unwrap() = value;
            let error = WordPiece::from_json(&file.to_string()).unwrap_err().to_string();
            assert!(error.contains(want), "{error:?} lacks {want:?}");
        };
        check("/model/type", json!("BPE"), "model.type is \"BPE\", which is not supported");
        check("/model/vocab", json!([]), "model.vocab is not an object");
        check("/model/vocab", json!({}), "0 tokens");
        check("/model/vocab", json!({"a": -1}), "has no id for \"a\"");
        check("/model/vocab", json!({"a": 1u32 << 30}), "1073741825 tokens");
        check("/model/vocab", json!({"[UNK]": 1}), "no <s> token");
        check("/model/max_input_chars_per_word", json!(1u64 << 40), "at most 1000 can be used");
        check("/normalizer", json!(null), "normalizer.type is missing");
        check("/normalizer/lowercase", json!(1), "normalizer.lowercase is not true or false");
        check("/pre_tokenizer/type", json!("Whitespace"), "pre_tokenizer.type is \"Whitespace\"");
        check(
            "/post_processor/single",
            json!([]),
            "post_processor.single is not a token, the text and a token",
        );
        check("/added_tokens/0/special", json!(false), "not special is \"[UNK]\"");
        let error = WordPiece::from_json("{").unwrap_err().to_string();
        assert!(error.starts_with("is not JSON"), "{error}");
    }
}
