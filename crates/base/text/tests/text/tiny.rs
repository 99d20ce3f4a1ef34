//! A vocabulary small enough to read, for tests that always run.

use motet_text::{ReplyDecoder, SpecialTokens, TokenKind, Tokenizer, TokenizerError, TokenizerSpec};
use motet_types::TokenId;
use proptest::prelude::*;
use std::sync::Arc;

/// All single bytes in GPT-2's alphabet, a few merges, two control tokens and an added one.
pub(crate) fn spec() -> TokenizerSpec {
    let direct = |b: &u8| matches!(b, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let mut tokens: Vec<String> = (0..=255u8).filter(direct).map(|b| char::from(b).to_string()).collect();
    tokens.extend((0..68u32).map(|i| char::from_u32(0x100 + i).unwrap().to_string()));
    let merges = ["h e", "l l", "he ll", "hell o", "Ġ w", "Ã ©", "Ġ Ġ"];
    tokens.extend(merges.iter().map(|merge| merge.replace(' ', "")));
    let normal = tokens.len();
    tokens.extend(["<|im_start|>", "<|im_end|>", "<tool>", "<|im_end|>x"].map(str::to_owned));
    let mut kinds = vec![TokenKind::Normal; normal];
    kinds.extend([TokenKind::Control, TokenKind::Control, TokenKind::UserDefined, TokenKind::Unused]);
    TokenizerSpec {
        model: "gpt2".to_owned(),
        pre: Some("smollm".to_owned()),
        merges: merges.map(str::to_owned).to_vec(),
        bos: Some(normal as TokenId),
        eos: Some(normal as TokenId + 1),
        tokens,
        kinds,
        ..TokenizerSpec::default()
    }
}

pub(crate) fn tokenizer() -> Tokenizer {
    Tokenizer::new(spec()).unwrap()
}

fn check(text: &str, mode: SpecialTokens, expected: &[&str]) {
    let tokenizer = tokenizer();
    let ids = tokenizer.encode(text, mode);
    let pieces: Vec<String> = ids.iter().map(|&id| tokenizer.decode(&[id])).collect();
    assert_eq!(pieces, expected, "{text:?} {mode:?}");
}

#[test]
fn merges_and_special_tokens() {
    check("hello", SpecialTokens::Parse, &["hello"]);
    check("hellhe w", SpecialTokens::Parse, &["hell", "he", " w"]);
    check("é   w", SpecialTokens::Parse, &["é", "  ", " w"]);
    check("a<|im_end|>x<tool>", SpecialTokens::Parse, &["a", "<|im_end|>", "x", "<tool>"]);
    check("<tool>", SpecialTokens::AsText, &["<tool>"]);
    check("<|im", SpecialTokens::Parse, &["<", "|", "i", "m"]);
    let tokenizer = tokenizer();
    let ids = tokenizer.encode("<|im_end|>", SpecialTokens::AsText);
    assert_eq!((ids.len(), tokenizer.decode(&ids).as_str()), (10, "<|im_end|>"));
}

/// Raw prompts begin with exactly one begin-of-text token where the model wants one.
#[test]
fn one_bos_where_wanted() {
    let check = |add_bos, text: &str, expected: &[&str]| {
        let tokenizer = Tokenizer::new(TokenizerSpec { add_bos, ..spec() }).unwrap();
        let pieces: Vec<String> =
            tokenizer.encode_prompt(text).iter().map(|&id| tokenizer.decode(&[id])).collect();
        assert_eq!(pieces, expected);
    };
    check(true, "hello", &["<|im_start|>", "hello"]);
    check(true, "<|im_start|>hello", &["<|im_start|>", "hello"]);
    check(true, "", &["<|im_start|>"]);
    check(false, "hello", &["hello"]);
    check(false, "<|im_start|>", &["<|im_start|>"]);
}

/// A SentencePiece vocabulary: two control tokens, three added ones, a few pieces, and the bytes.
fn pieces(add_space_prefix: bool) -> Tokenizer {
    let pieces = [
        ("<unk>", TokenKind::Unknown, 0.0),
        ("<turn>", TokenKind::Control, 0.0),
        ("   ", TokenKind::UserDefined, 0.0),
        ("<b>", TokenKind::UserDefined, 0.0),
        ("a▁b", TokenKind::UserDefined, 0.0),
        ("▁", TokenKind::Normal, -9.0),
        ("a", TokenKind::Normal, -8.0),
        ("c", TokenKind::Normal, -8.0),
        ("▁a", TokenKind::Normal, -1.0),
        ("ac", TokenKind::Normal, -1.0),
        ("cc", TokenKind::Normal, -2.0),
        ("acc", TokenKind::Normal, -5.0),
        ("acca", TokenKind::Unused, -0.1),
    ];
    let bytes = (0..=255u8).map(|byte| (format!("<0x{byte:02X}>"), TokenKind::Byte, 0.0));
    let all = pieces.iter().map(|(text, kind, score)| ((*text).to_owned(), *kind, *score)).chain(bytes);
    let mut spec = TokenizerSpec { model: "llama".to_owned(), unk: Some(0), ..TokenizerSpec::default() };
    for (text, kind, score) in all {
        spec.tokens.push(text);
        spec.kinds.push(kind);
        spec.scores.push(score);
    }
    Tokenizer::new(TokenizerSpec { add_space_prefix, ..spec }).unwrap()
}

#[test]
fn sentence_pieces() {
    let check = |space: bool, text: &str, mode, expected: &[&str]| {
        let tokenizer = pieces(space);
        let ids = tokenizer.encode(text, mode);
        let pieces: Vec<String> = ids.iter().map(|&id| tokenizer.decode(&[id])).collect();
        assert_eq!(pieces, expected, "{text:?} {mode:?}");
    };
    let (parse, plain) = (SpecialTokens::Parse, SpecialTokens::AsText);
    check(false, "accacca", plain, &["acc", "acc", "a"]);
    // The leftmost of equals, and a higher score before a longer token.
    check(false, " ac", plain, &[" a", "c"]);
    check(false, "▁a", plain, &[" a"]);
    check(false, "a    c", plain, &["a", "   ", " ", "c"]);
    check(false, "a b", plain, &["a b"]);
    check(false, "a<b>c", plain, &["a", "<b>", "c"]);
    check(false, "c<turn>a", parse, &["c", "<turn>", "a"]);
    check(false, "<t", plain, &["<", "t"]);
    // A character that is no token is spelt in bytes.
    check(false, "aé", plain, &["a", "\u{fffd}", "\u{fffd}"]);
    // As if every text, and what follows a control token, began with a space.
    check(true, "a<turn>a<b>a", parse, &[" a", "<turn>", " a", "<b>", "a"]);
    check(true, "", parse, &[]);
    let tokenizer = pieces(false);
    assert!(tokenizer.is_control(1) && !tokenizer.is_control(3));
    assert_eq!(tokenizer.decode(&tokenizer.encode("<turn>é 日", plain)), "<turn>é 日");
    // Bytes of a character arrive one by one.
    let mut reply = ReplyDecoder::new(Arc::new(pieces(false)), Vec::new());
    let texts: Vec<String> =
        tokenizer.encode(" aé", plain).into_iter().map(|id| reply.push(id).text).collect();
    assert_eq!(texts, [" a", "", "é"]);
}

/// A character beyond the vocabulary is one unknown token where bytes can't spell it.
#[test]
fn unknown_characters() {
    let spec = TokenizerSpec {
        model: "llama".to_owned(),
        tokens: vec!["<unk>".to_owned(), "a".to_owned()],
        kinds: vec![TokenKind::Unknown, TokenKind::Normal],
        scores: vec![0.0, 0.0],
        unk: Some(0),
        ..TokenizerSpec::default()
    };
    assert_eq!(Tokenizer::new(spec).unwrap().encode("aéa", SpecialTokens::AsText), [1, 0, 1]);
}

#[test]
fn bad_vocabularies_say_what_is_wrong() {
    let check = |change: fn(&mut TokenizerSpec), expected: &str| {
        let mut spec = spec();
        change(&mut spec);
        let message = Tokenizer::new(spec).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    };
    check(|s| s.model = "bert".to_owned(), "\"bert\" (WordPiece) is not supported");
    check(|s| s.model = "llama".to_owned(), "tokenizer.ggml.scores has 0 entries for 267 tokens");
    check(
        |s| s.pre = Some("tekken".to_owned()),
        "\"tekken\" (tokenizer.ggml.pre) is not supported; supported: ",
    );
    check(|s| s.tokens.clear(), "is empty");
    check(|s| s.kinds.truncate(3), "has 3 entries for 267 tokens");
    check(|s| s.eot = Some(267), "the eot token 267 is outside the vocabulary of 267 tokens");
    check(|s| s.merges[1] = "ab".to_owned(), "merge 1 (\"ab\") is not two texts");
    check(|s| s.merges[1] = "hello hello".to_owned(), "makes a text that is not a token");
    check(|s| s.merges[1] = "xyz a".to_owned(), "joins a text that is not a token");
    let error = Tokenizer::new(TokenizerSpec::default()).unwrap_err();
    assert!(matches!(error, TokenizerError::UnsupportedModel { .. }));
}

proptest! {
    #[test]
    fn any_text_comes_back(text in "\\PC{0,30}|[hello wé\\n<|im_end>]{0,40}") {
        let tokenizer = tokenizer();
        for mode in [SpecialTokens::Parse, SpecialTokens::AsText] {
            prop_assert_eq!(tokenizer.decode(&tokenizer.encode(&text, mode)), text.as_str());
        }
    }
}
