//! Byte-level BPE and SentencePiece BPE from a GGUF vocabulary.
//!
//! Encoding runs in stages, each linear (merging: n log n) in the text:
//!
//! 1. [`special`]: the text is cut at special tokens, the longest at each position.
//! 2. [`byte_level`]: what lies between is cut into pieces by the model's pre-tokenizer ([`split`]), and
//!    the bytes of a piece merge by rank until no rule applies ([`bpe`]). Or [`sentence_piece`]: its
//!    characters merge by score.
//!
//! Decoding is a table: every token adds a fixed string of bytes, and characters may span tokens.

mod bpe;
mod byte_level;
mod bytes;
mod sentence_piece;
mod spec;
mod special;
mod split;
mod texts;
mod trie;
mod vocab;

pub use spec::{SpecialTokens, TokenKind, TokenizerError, TokenizerSpec};
pub(crate) use special::Specials;

use byte_level::ByteLevel;
use motet_types::TokenId;
use sentence_piece::SentencePiece;
use special::{Matched, Span};
use texts::TokenTexts;

/// Texts of control tokens that end a turn in published models, besides the ones a file names.
const END_OF_TURN: &[&str] = &[
    "<|eot_id|>",
    "<|eom_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|EOT|>",
    "<EOT>",
    "_<EOT>",
    "[EOS]",
    "[EOT]",
    "</s>",
    "<end_of_turn>",
    "<turn|>",
    "<end_of_utterance>",
    "<｜end▁of▁sentence｜>",
];

/// Turns text into token ids and back.
pub struct Tokenizer {
    texts: TokenTexts,
    family: Family,
    specials: Specials,
    bos: Option<TokenId>,
    eos: Option<TokenId>,
    eog: Vec<TokenId>,
    add_bos: bool,
}

/// How text between special tokens becomes tokens.
enum Family {
    ByteLevel(Box<ByteLevel>),
    SentencePiece(Box<SentencePiece>),
}

/// Buffers of one encoding.
#[derive(Default)]
struct Scratch {
    bytes: bpe::Scratch,
    pieces: sentence_piece::Scratch,
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer")
            .field("vocab_size", &self.vocab_size())
            .field("family", &self.family.name())
            .field("bos", &self.bos)
            .field("eos", &self.eos)
            .field("eog", &self.eog)
            .field("add_bos", &self.add_bos)
            .finish_non_exhaustive()
    }
}

impl Tokenizer {
    /// Checks a vocabulary and builds its tables.
    ///
    /// # Errors
    /// A family or pre-tokenizer that is not supported, and any inconsistency; see [`TokenizerError`].
    pub fn new(spec: TokenizerSpec) -> Result<Self, TokenizerError> {
        vocab::build(&spec)
    }

    /// The tokens of `text`. No begin-of-text token is added.
    pub fn encode(&self, text: &str, special: SpecialTokens) -> Vec<TokenId> {
        // Four bytes a token is what prose gives; the vector grows where text is denser.
        let mut out = Vec::with_capacity(text.len() / 4 + 4);
        let mut scratch = Scratch::default();
        self.encode_into(text, special, &mut scratch, &mut out);
        out
    }

    /// The tokens of a raw prompt: control tokens are parsed, and where the model wants a begin-of-text
    /// token there is exactly one in front. Text that already begins with it gets no second.
    pub fn encode_prompt(&self, text: &str) -> Vec<TokenId> {
        let mut ids = self.encode(text, SpecialTokens::Parse);
        if let Some(bos) = self.bos.filter(|_| self.add_bos)
            && ids.first() != Some(&bos)
        {
            ids.insert(0, bos);
        }
        ids
    }

    /// Like [`encode`](Self::encode) with control tokens parsed, except those that hold `marker`
    /// somewhere inside. The marker itself leaves no token behind.
    pub(crate) fn encode_marked(&self, text: &str, marker: char) -> Vec<TokenId> {
        let mut out = Vec::with_capacity(text.len() / 4 + 4);
        let mut scratch = Scratch::default();
        self.specials.split(text, self.matched(SpecialTokens::Parse), |span| match span {
            Span::Token(id) => out.push(id),
            Span::Plain(part) if part.contains(marker) => {
                let part = part.replace(marker, "");
                self.encode_into(&part, SpecialTokens::AsText, &mut scratch, &mut out);
            }
            Span::Plain(part) => self.encode_plain(part, &mut scratch, &mut out),
        });
        out
    }

    fn encode_into(&self, text: &str, mode: SpecialTokens, scratch: &mut Scratch, out: &mut Vec<TokenId>) {
        self.specials.split(text, self.matched(mode), |span| match span {
            Span::Token(id) => out.push(id),
            Span::Plain(part) => self.encode_plain(part, scratch, out),
        });
    }

    /// What is cut out of a text as it was written. SentencePiece matches added tokens later, after it
    /// has normalised the text.
    fn matched(&self, mode: SpecialTokens) -> Matched {
        match (&self.family, mode) {
            (Family::ByteLevel(_), SpecialTokens::Parse) => Matched::All,
            (Family::ByteLevel(_), SpecialTokens::AsText) => Matched::Added,
            (Family::SentencePiece(_), SpecialTokens::Parse) => Matched::Controls,
            (Family::SentencePiece(_), SpecialTokens::AsText) => Matched::Nothing,
        }
    }

    fn encode_plain(&self, text: &str, scratch: &mut Scratch, out: &mut Vec<TokenId>) {
        match &self.family {
            Family::ByteLevel(bytes) => bytes.encode(text, &mut scratch.bytes, out),
            Family::SentencePiece(pieces) => {
                let text = pieces.normalize(text);
                self.specials.split(&text, Matched::Added, |span| match span {
                    Span::Token(id) => out.push(id),
                    Span::Plain(part) => pieces.encode(&self.texts, part, &mut scratch.pieces, out),
                });
            }
        }
    }

    /// The exact bytes that token `id` adds to a text; special tokens: their own text. Empty for an id
    /// outside the vocabulary.
    pub fn token_bytes(&self, id: TokenId) -> &[u8] {
        self.texts.get(id)
    }

    /// Whether `id` is a control token, which adds no text to a reply.
    pub fn is_control(&self, id: TokenId) -> bool {
        self.specials.is_control(id)
    }

    /// Number of tokens; ids are below it.
    pub fn vocab_size(&self) -> usize {
        self.texts.len()
    }

    /// The token that begins a text.
    pub fn bos(&self) -> Option<TokenId> {
        self.bos
    }

    /// The token that ends a text.
    pub fn eos(&self) -> Option<TokenId> {
        self.eos
    }

    /// Tokens that end a reply: the ones the file names, and control tokens with a text that is known to
    /// end a turn. Sorted, without repeats.
    pub fn eog_tokens(&self) -> &[TokenId] {
        &self.eog
    }

    /// The text of `ids`, control tokens included; bytes that are not UTF-8 become U+FFFD.
    pub fn decode(&self, ids: &[TokenId]) -> String {
        let mut bytes = Vec::with_capacity(ids.len() * 4);
        for &id in ids {
            bytes.extend_from_slice(self.token_bytes(id));
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The strings that are matched whole.
    pub(crate) fn specials(&self) -> &Specials {
        &self.specials
    }
}

impl Family {
    fn name(&self) -> &'static str {
        match self {
            Self::ByteLevel(_) => "byte-level BPE",
            Self::SentencePiece(_) => "SentencePiece BPE",
        }
    }
}
