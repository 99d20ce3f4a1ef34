//! Builds a [`Tokenizer`]'s tables from a vocabulary, checking everything that could be wrong with it.

use super::bytes::{CharToByte, byte_to_char, byte_token};
use super::split::Splitter;
use super::{END_OF_TURN, Specials, TokenKind, Tokenizer, TokenizerError, TokenizerSpec, bpe};
use motet_types::TokenId;
use std::collections::HashMap;

/// Ids and offsets are 32-bit, and the top id marks "none" while merging.
const MAX_TOKENS: usize = 1 << 31;

pub(super) fn build(spec: &TokenizerSpec) -> Result<Tokenizer, TokenizerError> {
    check_model(&spec.model)?;
    let (splitter, whole_pieces) = Splitter::named(spec.pre.as_deref())?;
    check_counts(spec)?;
    let kind = |id: usize| spec.kinds.get(id).copied().unwrap_or(TokenKind::Normal);
    let (bytes, ends) = token_bytes(spec, kind);
    let by_text: HashMap<&str, TokenId> =
        (0..).zip(&spec.tokens).map(|(id, text)| (text.as_str(), id)).collect();
    let specials = (0..).zip(&spec.tokens).filter_map(|(id, text)| {
        let kind = kind(id as usize);
        (kind.is_control() || kind == TokenKind::UserDefined).then_some((
            id,
            text.as_str(),
            kind.is_control(),
        ))
    });
    let specials = Specials::new(spec.tokens.len(), specials);
    let mut tokenizer = Tokenizer {
        bytes,
        ends,
        byte_ids: byte_ids(spec, kind, &by_text),
        merges: merges(spec, &by_text)?,
        splitter,
        whole: HashMap::new(),
        eog: end_of_reply(spec, kind),
        specials,
        bos: spec.bos,
        eos: spec.eos,
        add_bos: spec.add_bos,
    };
    if whole_pieces {
        let normal = (0..spec.tokens.len() as TokenId).filter(|&id| kind(id as usize) == TokenKind::Normal);
        tokenizer.whole = normal.map(|id| (tokenizer.token_bytes(id).into(), id)).collect();
    }
    Ok(tokenizer)
}

fn check_model(model: &str) -> Result<(), TokenizerError> {
    let family = match model {
        "gpt2" => return Ok(()),
        "llama" => "SentencePiece with scores",
        "bert" => "WordPiece",
        "t5" => "SentencePiece unigram",
        "rwkv" => "RWKV trie",
        "" => "not named in the file",
        _ => "unknown",
    };
    Err(TokenizerError::UnsupportedModel { model: model.to_owned(), family })
}

fn check_counts(spec: &TokenizerSpec) -> Result<(), TokenizerError> {
    let tokens = spec.tokens.len();
    let bytes = spec.tokens.iter().map(String::len).sum();
    if tokens == 0 {
        return Err(TokenizerError::Empty);
    }
    if tokens >= MAX_TOKENS || bytes >= MAX_TOKENS {
        return Err(TokenizerError::TooLarge { tokens, bytes });
    }
    if !spec.kinds.is_empty() && spec.kinds.len() != tokens {
        return Err(TokenizerError::KindCount { kinds: spec.kinds.len(), tokens });
    }
    let named = [
        ("bos", spec.bos),
        ("eos", spec.eos),
        ("eot", spec.eot),
        ("unknown", spec.unk),
        ("padding", spec.pad),
    ];
    for (name, id) in named {
        if let Some(id) = id.filter(|&id| id as usize >= tokens) {
            return Err(TokenizerError::SpecialOutOfRange { name, id, tokens });
        }
    }
    Ok(())
}

/// Every token's bytes, and where each ends.
fn token_bytes(spec: &TokenizerSpec, kind: impl Fn(usize) -> TokenKind) -> (Vec<u8>, Vec<u32>) {
    let alphabet = CharToByte::new();
    let mut bytes = Vec::with_capacity(spec.tokens.iter().map(String::len).sum());
    let mut ends = Vec::with_capacity(spec.tokens.len());
    for (id, text) in spec.tokens.iter().enumerate() {
        match kind(id) {
            TokenKind::Normal | TokenKind::Unused => alphabet.decode(text, &mut bytes),
            TokenKind::Byte if byte_token(text).is_some() => bytes.extend(byte_token(text)),
            _ => bytes.extend_from_slice(text.as_bytes()),
        }
        ends.push(bytes.len() as u32);
    }
    (bytes, ends)
}

/// The token of each byte: a normal token of that one byte, else a `<0xNN>` token, else the unknown token.
fn byte_ids(
    spec: &TokenizerSpec,
    kind: impl Fn(usize) -> TokenKind,
    by_text: &HashMap<&str, TokenId>,
) -> [Option<TokenId>; 256] {
    let mut ids = [spec.unk; 256];
    for (id, text) in (0..).zip(&spec.tokens) {
        if let Some(byte) = byte_token(text).filter(|_| kind(id as usize) == TokenKind::Byte) {
            ids[byte as usize] = Some(id);
        }
    }
    for byte in 0..=u8::MAX {
        let text = byte_to_char(byte).to_string();
        if let Some(&id) = by_text.get(text.as_str()) {
            ids[byte as usize] = Some(id);
        }
    }
    ids
}

fn merges(spec: &TokenizerSpec, by_text: &HashMap<&str, TokenId>) -> Result<bpe::Merges, TokenizerError> {
    let mut merges = bpe::Merges::default();
    merges.reserve(spec.merges.len());
    let mut joined = String::new();
    for (index, merge) in spec.merges.iter().enumerate() {
        let bad = |problem| TokenizerError::BadMerge { index, merge: merge.clone(), problem };
        let (left, right) =
            merge.split_once(' ').ok_or_else(|| bad("is not two texts with a space between"))?;
        joined.clear();
        joined.push_str(left);
        joined.push_str(right);
        let id = |text: &str| by_text.get(text).copied();
        let (left, right) = id(left).zip(id(right)).ok_or_else(|| bad("joins a text that is not a token"))?;
        let merged = id(&joined).ok_or_else(|| bad("makes a text that is not a token"))?;
        merges.entry((left, right)).or_insert((index as u32, merged));
    }
    Ok(merges)
}

/// Tokens that end a reply. Where a model has `<|return|>` and `<|call|>`, `<|end|>` only ends one of
/// several messages in a turn.
fn end_of_reply(spec: &TokenizerSpec, kind: impl Fn(usize) -> TokenKind) -> Vec<TokenId> {
    let is = |id: usize, text: &str| kind(id).is_control() && spec.tokens[id] == text;
    let has = |text| (0..spec.tokens.len()).any(|id| is(id, text));
    let messages_end = has("<|return|>") && has("<|call|>");
    let known = |id: usize| {
        END_OF_TURN.iter().any(|text| is(id, text)) && !(messages_end && spec.tokens[id] == "<|end|>")
    };
    let mut ids: Vec<TokenId> =
        (0..spec.tokens.len()).filter(|&id| known(id)).map(|id| id as TokenId).collect();
    ids.extend(spec.eos.into_iter().chain(spec.eot));
    ids.sort_unstable();
    ids.dedup();
    ids
}
