//! WordPiece (Schuster & Nakajima 2012) as BERT uses it: the tokens of a text for an encoder.
//!
//! The text is normalised and cut into words ([`normalize`]); of each word the longest piece that the vocabulary
//! has is taken again and again from its start. A word with a rest that is no piece, or of too many characters, is one
//! unknown token. Nothing here is ever cut or padded: what is too long is the caller's to refuse.
//!
//! Text never becomes a control token: `[SEP]` in a text is a bracket, a word and a bracket.

mod json;
mod normalize;

use std::collections::HashMap;

use motet_types::TokenId;
use normalize::{Normalizer, words};

/// Longest word in characters that is cut into pieces, where the file doesn't say.
const MAX_WORD_CHARS: usize = 100;
/// Most tokens of a vocabulary: more than any published one has, and a bound on what a file can make us keep.
const MAX_TOKENS: usize = 1 << 22;

/// Turns text into the token ids of an encoder.
pub struct WordPiece {
    /// Pieces that begin a word.
    starts: HashMap<Box<str>, TokenId>,
    /// Pieces that go on with one, without the mark that says so.
    continuations: HashMap<Box<str>, TokenId>,
    /// Bytes of the longest piece.
    longest: usize,
    size: usize,
    unknown: TokenId,
    first: TokenId,
    last: TokenId,
    max_word_chars: usize,
    normalizer: Normalizer,
}

/// What a vocabulary without a description of its own expects of letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Casing {
    /// Lower case without accents (`do_lower_case`).
    Lower,
    /// As written.
    Kept,
}

/// Why a vocabulary can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WordPieceError {
    /// Not the JSON it should be.
    #[error("is not JSON: {0}")]
    Json(String),
    /// A field is absent or has another shape.
    #[error("{field} {problem}")]
    Field {
        /// Its path, such as `model.vocab`.
        field: String,
        /// What is wrong with it.
        problem: String,
    },
    /// Something this tokenizer does not do.
    #[error("{field} is {value:?}, which is not supported; only BERT's WordPiece tokenizers are")]
    Unsupported {
        /// The field that asks for it.
        field: String,
        /// What it asks for.
        value: String,
    },
    /// A token every text needs is not there.
    #[error("the vocabulary has no {0} token")]
    NoToken(String),
    /// Too many tokens or ids.
    #[error("the vocabulary has {0} tokens; 1 to {MAX_TOKENS} can be used")]
    Size(usize),
}

/// A vocabulary and its rules, to be checked.
struct Spec {
    tokens: Vec<(String, TokenId)>,
    prefix: String,
    unknown: String,
    first: String,
    last: String,
    max_word_chars: usize,
    normalizer: Normalizer,
}

impl std::fmt::Debug for WordPiece {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WordPiece").field("vocab_size", &self.size).finish_non_exhaustive()
    }
}

impl WordPiece {
    /// Reads a `tokenizer.json`, as the `tokenizers` library writes it. What it says of truncation and padding is not
    /// looked at.
    ///
    /// # Errors
    /// Names the field that is missing, damaged or asks for something else than BERT's tokenizer.
    pub fn from_json(text: &str) -> Result<Self, WordPieceError> {
        Self::new(json::read(text)?)
    }

    /// Reads a `vocab.txt`: a token a line, the first with id 0.
    ///
    /// # Errors
    /// Where a token that every text needs is missing.
    pub fn from_vocab(text: &str, casing: Casing) -> Result<Self, WordPieceError> {
        let is_lower = casing == Casing::Lower;
        let lines = text.lines().zip(0..).map(|(line, id)| (line.to_owned(), id));
        Self::new(Spec {
            tokens: lines.collect(),
            prefix: "##".to_owned(),
            unknown: "[UNK]".to_owned(),
            first: "[CLS]".to_owned(),
            last: "[SEP]".to_owned(),
            max_word_chars: MAX_WORD_CHARS,
            normalizer: Normalizer {
                is_cleaning: true,
                is_spacing_chinese: true,
                is_stripping_accents: is_lower,
                is_lowercasing: is_lower,
            },
        })
    }

    fn new(spec: Spec) -> Result<Self, WordPieceError> {
        let count = spec.tokens.len();
        let highest = spec.tokens.iter().map(|(_, id)| *id as usize + 1).max().unwrap_or(0);
        if count == 0 || count.max(highest) > MAX_TOKENS {
            return Err(WordPieceError::Size(count.max(highest)));
        }
        let longest = spec.tokens.iter().map(|(token, _)| token.len()).max().unwrap_or(0);
        let (mut starts, mut continuations) = (HashMap::with_capacity(count), HashMap::new());
        for (token, id) in spec.tokens {
            if let Some(piece) = token.strip_prefix(&spec.prefix).filter(|piece| !piece.is_empty()) {
                continuations.insert(piece.into(), id);
            }
            starts.insert(token.into_boxed_str(), id);
        }
        let id =
            |token: &str| starts.get(token).copied().ok_or_else(|| WordPieceError::NoToken(token.to_owned()));
        Ok(Self {
            unknown: id(&spec.unknown)?,
            first: id(&spec.first)?,
            last: id(&spec.last)?,
            starts,
            continuations,
            longest,
            size: highest,
            max_word_chars: spec.max_word_chars,
            normalizer: spec.normalizer,
        })
    }

    /// The tokens of `text`, between the token that begins and the one that ends every text.
    pub fn encode(&self, text: &str) -> Vec<TokenId> {
        let text = self.normalizer.normalize(text);
        // English has a token in about five bytes.
        let mut out = Vec::with_capacity(text.len() / 4 + 2);
        out.push(self.first);
        words(&text, |word| self.pieces(word, &mut out));
        out.push(self.last);
        out
    }

    fn pieces(&self, word: &str, out: &mut Vec<TokenId>) {
        let begin = out.len();
        // A byte count above the limit of characters is the cheaper question.
        if word.len() > self.max_word_chars && word.chars().nth(self.max_word_chars).is_some() {
            return out.push(self.unknown);
        }
        let mut rest = word;
        while !rest.is_empty() {
            let table = if rest.len() == word.len() { &self.starts } else { &self.continuations };
            let Some((id, len)) = self.longest_piece(table, rest) else {
                out.truncate(begin);
                return out.push(self.unknown);
            };
            out.push(id);
            rest = &rest[len..];
        }
    }

    /// The longest start of `text` that is in the table, and its length in bytes.
    fn longest_piece(&self, table: &HashMap<Box<str>, TokenId>, text: &str) -> Option<(TokenId, usize)> {
        let ends = (1..=text.len().min(self.longest)).rev().filter(|&end| text.is_char_boundary(end));
        ends.into_iter().find_map(|end| Some((*table.get(&text[..end])?, end)))
    }

    /// Ids are below this.
    pub fn vocab_size(&self) -> usize {
        self.size
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VOCAB: &str = "[PAD]\n[UNK]\n[CLS]\n[SEP]\nun\n##aff\n##able\n##a\nü\n,\n##ü\nab\n";

    #[test]
    fn longest_pieces_first() {
        let tokenizer = WordPiece::from_vocab(VOCAB, Casing::Kept).unwrap();
        let check = |text: &str, want: &[TokenId]| {
            let ids = tokenizer.encode(text);
            assert_eq!((ids[0], ids[ids.len() - 1]), (2, 3));
            assert_eq!(&ids[1..ids.len() - 1], want, "{text}");
        };
        check("", &[]);
        check("unaffable", &[4, 5, 6]);
        check("unaffablex", &[1]);
        check("un,unaff ü", &[4, 9, 4, 5, 8]);
        check("abüü", &[11, 10, 10]);
        check("[SEP]", &[1, 1, 1]);
        check(&format!("un{}", "a".repeat(98)), &[&[4][..], &[7; 98]].concat());
        check(&format!("un{}", "a".repeat(99)), &[1]);
        assert_eq!(tokenizer.vocab_size(), 12);
    }

    #[test]
    fn what_is_missing_is_named() {
        let check = |vocab: &str, want: &str| {
            let error = WordPiece::from_vocab(vocab, Casing::Lower).unwrap_err().to_string();
            assert!(error.contains(want), "{error}");
        };
        check("", "0 tokens");
        check("[UNK]\n[CLS]\n", "no [SEP] token");
        check("a\n", "no [UNK] token");
    }
}
