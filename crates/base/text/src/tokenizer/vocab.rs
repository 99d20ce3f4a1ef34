//! Builds a [`Tokenizer`]'s tables from a vocabulary, checking everything that could be wrong with it.

use super::byte_level::ByteLevel;
use super::bytes::{CharToByte, byte_to_char, byte_token};
use super::sentence_piece::{Pieces, SPACE, SentencePiece};
use super::split::Splitter;
use super::texts::TokenTexts;
use super::{END_OF_TURN, Family, Specials, TokenKind, Tokenizer, TokenizerError, TokenizerSpec, bpe};
use motet_types::TokenId;
use std::collections::HashMap;

/// Ids and offsets are 32-bit, and the top id marks "none" while merging.
const MAX_TOKENS: usize = 1 << 31;

pub(super) fn build(spec: &TokenizerSpec) -> Result<Tokenizer, TokenizerError> {
    let (texts, family) = match spec.model.as_str() {
        "gpt2" => byte_level(spec)?,
        "llama" => sentence_piece(spec)?,
        other => return Err(unsupported(other)),
    };
    Ok(Tokenizer {
        texts,
        family,
        eog: end_of_reply(spec, |id| kind(spec, id)),
        specials: specials(spec),
        bos: spec.bos,
        eos: spec.eos,
        add_bos: spec.add_bos,
    })
}

fn kind(spec: &TokenizerSpec, id: usize) -> TokenKind {
    spec.kinds.get(id).copied().unwrap_or(TokenKind::Normal)
}

fn specials(spec: &TokenizerSpec) -> Specials {
    let special = |(id, text): (TokenId, &String)| match kind(spec, id as usize) {
        kind if kind.is_control() => Some((id, text.clone(), true)),
        TokenKind::UserDefined if spec.model == "llama" => Some((id, text.replace(SPACE, " "), false)),
        TokenKind::UserDefined => Some((id, text.clone(), false)),
        _ => None,
    };
    Specials::new(spec.tokens.len(), (0..).zip(&spec.tokens).filter_map(special))
}

fn byte_level(spec: &TokenizerSpec) -> Result<(TokenTexts, Family), TokenizerError> {
    let (splitter, has_whole_pieces) = Splitter::named(spec.pre.as_deref())?;
    check_counts(spec)?;
    let alphabet = CharToByte::new();
    let texts = TokenTexts::new(spec.tokens.iter().enumerate(), |(id, text), bytes| match kind(spec, id) {
        TokenKind::Normal | TokenKind::Unused => alphabet.decode(text, bytes),
        TokenKind::Byte if byte_token(text).is_some() => bytes.extend(byte_token(text)),
        _ => bytes.extend_from_slice(text.as_bytes()),
    });
    let by_text: HashMap<&str, TokenId> =
        (0..).zip(&spec.tokens).map(|(id, text)| (text.as_str(), id)).collect();
    let normal = (0..spec.tokens.len()).filter(|&id| kind(spec, id) == TokenKind::Normal);
    let whole = normal.map(|id| (texts.get(id as TokenId).into(), id as TokenId));
    let tables = ByteLevel {
        byte_ids: alphabet_ids(spec, &by_text),
        merges: merges(spec, &by_text)?,
        splitter,
        whole: if has_whole_pieces { whole.collect() } else { HashMap::new() },
    };
    Ok((texts, Family::ByteLevel(Box::new(tables))))
}

fn sentence_piece(spec: &TokenizerSpec) -> Result<(TokenTexts, Family), TokenizerError> {
    check_counts(spec)?;
    let tokens = spec.tokens.len();
    if spec.scores.len() != tokens {
        return Err(TokenizerError::ScoreCount { scores: spec.scores.len(), tokens });
    }
    let texts = TokenTexts::new(spec.tokens.iter().enumerate(), |(id, text), bytes| match kind(spec, id) {
        TokenKind::Control | TokenKind::Unknown => bytes.extend_from_slice(text.as_bytes()),
        TokenKind::Byte if byte_token(text).is_some() => bytes.extend(byte_token(text)),
        _ => bytes.extend_from_slice(text.replace(SPACE, " ").as_bytes()),
    });
    let is_piece = |id: &TokenId| {
        matches!(kind(spec, *id as usize), TokenKind::Normal | TokenKind::UserDefined)
            && !texts.get(*id).is_empty()
    };
    let ids: Vec<TokenId> = (0..tokens as TokenId).filter(is_piece).collect();
    let pieces = Pieces {
        ids: &ids,
        scores: &spec.scores,
        byte_ids: byte_token_ids(spec, None),
        unknown: spec.unk,
        has_space_prefix: spec.add_space_prefix,
    };
    let tables = SentencePiece::new(&texts, pieces);
    Ok((texts, Family::SentencePiece(Box::new(tables))))
}

fn unsupported(model: &str) -> TokenizerError {
    let family = match model {
        "bert" => "WordPiece",
        "t5" => "SentencePiece unigram",
        "rwkv" => "RWKV trie",
        "" => "not named in the file",
        _ => "unknown",
    };
    TokenizerError::UnsupportedModel { model: model.to_owned(), family }
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

/// The `<0xNN>` token of each byte, else `other`.
fn byte_token_ids(spec: &TokenizerSpec, other: Option<TokenId>) -> [Option<TokenId>; 256] {
    let mut ids = [other; 256];
    for (id, text) in (0..).zip(&spec.tokens) {
        if kind(spec, id as usize) == TokenKind::Byte
            && let Some(byte) = byte_token(text)
        {
            ids[byte as usize] = Some(id);
        }
    }
    ids
}

/// The token of each byte: a normal token of that one byte, else a `<0xNN>` token, else the unknown token.
fn alphabet_ids(spec: &TokenizerSpec, by_text: &HashMap<&str, TokenId>) -> [Option<TokenId>; 256] {
    let mut ids = byte_token_ids(spec, spec.unk);
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
