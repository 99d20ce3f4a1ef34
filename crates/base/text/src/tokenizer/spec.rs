use motet_types::TokenId;

/// A vocabulary as a GGUF file stores it (`tokenizer.ggml.*`).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TokenizerSpec {
    /// `tokenizer.ggml.model`; `"gpt2"` (byte-level BPE) and `"llama"` (SentencePiece BPE) are supported.
    pub model: String,
    /// `tokenizer.ggml.pre`: which rule cuts text into pieces before merging; `None` is the GPT-2 rule.
    /// SentencePiece cuts nothing.
    pub pre: Option<String>,
    /// Text of every token, at the index of its id. Normal tokens of byte-level BPE are in GPT-2's byte
    /// alphabet; those of SentencePiece have `▁` for a space.
    pub tokens: Vec<String>,
    /// Kind of every token; empty means that all are [`TokenKind::Normal`].
    pub kinds: Vec<TokenKind>,
    /// Merge rules `"left right"`, most important first.
    pub merges: Vec<String>,
    /// Score of every token, for SentencePiece: what makes the highest one merges first.
    pub scores: Vec<f32>,
    /// Whether SentencePiece reads a text as if it began with a space.
    pub add_space_prefix: bool,
    /// Token that begins a text.
    pub bos: Option<TokenId>,
    /// Token that ends a text.
    pub eos: Option<TokenId>,
    /// Token that ends a turn, where the file names one.
    pub eot: Option<TokenId>,
    /// Token for bytes that the vocabulary lacks.
    pub unk: Option<TokenId>,
    /// Padding token.
    pub pad: Option<TokenId>,
    /// Whether a raw prompt begins with `bos`.
    pub add_bos: bool,
    /// Whether a raw text ends with `eos`. A prompt is to be continued, so nothing here acts on it.
    pub add_eos: bool,
}

/// What a token is (GGUF `tokenizer.ggml.token_type` 1..=6, in this order).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TokenKind {
    /// A piece of ordinary text.
    Normal,
    /// Stands for what the vocabulary cannot say; treated as control.
    Unknown,
    /// Steers the model (turn markers, end of text); never part of a reply's text.
    Control,
    /// Added whole strings; always matched in text.
    UserDefined,
    /// Reserved; never matched in text nor made by merging.
    Unused,
    /// One byte, written `<0xNN>`.
    Byte,
}

impl TokenKind {
    /// The kind that GGUF writes as `number`, if there is one.
    pub fn from_gguf(number: i64) -> Option<Self> {
        Some(match number {
            1 => Self::Normal,
            2 => Self::Unknown,
            3 => Self::Control,
            4 => Self::UserDefined,
            5 => Self::Unused,
            6 => Self::Byte,
            _ => return None,
        })
    }

    /// Whether text of this kind is matched only when control tokens are asked for.
    pub(crate) fn is_control(self) -> bool {
        matches!(self, Self::Control | Self::Unknown)
    }
}

/// Whether text like `<|im_end|>` becomes the control token it spells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SpecialTokens {
    /// It does: the text is trusted.
    Parse,
    /// It stays text. [`TokenKind::UserDefined`] tokens are matched all the same.
    AsText,
}

/// Why a vocabulary cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenizerError {
    /// A tokenizer family other than byte-level BPE and SentencePiece BPE.
    #[error(
        "tokenizer model \"{model}\" ({family}) is not supported; use a model whose tokenizer.ggml.model is \"gpt2\" (byte-level BPE) or \"llama\" (SentencePiece BPE)"
    )]
    UnsupportedModel {
        /// `tokenizer.ggml.model`.
        model: String,
        /// What that name stands for.
        family: &'static str,
    },
    /// No rule of that name for cutting text into pieces.
    #[error("pre-tokenizer \"{pre}\" (tokenizer.ggml.pre) is not supported; supported: {supported}")]
    UnsupportedPre {
        /// `tokenizer.ggml.pre`.
        pre: String,
        /// Names that are.
        supported: String,
    },
    /// No tokens at all.
    #[error("the vocabulary (tokenizer.ggml.tokens) is empty")]
    Empty,
    /// More tokens than ids, or more text than offsets can address.
    #[error("the vocabulary has {tokens} tokens and {bytes} bytes of text; at most 2^31 of either fit")]
    TooLarge {
        /// Number of tokens.
        tokens: usize,
        /// Sum of their lengths.
        bytes: usize,
    },
    /// `tokenizer.ggml.token_type` has another length than the vocabulary.
    #[error("tokenizer.ggml.token_type has {kinds} entries for {tokens} tokens")]
    KindCount {
        /// Entries in `token_type`.
        kinds: usize,
        /// Tokens.
        tokens: usize,
    },
    /// `tokenizer.ggml.scores` has another length than the vocabulary.
    #[error("tokenizer.ggml.scores has {scores} entries for {tokens} tokens")]
    ScoreCount {
        /// Entries in `scores`.
        scores: usize,
        /// Tokens.
        tokens: usize,
    },
    /// A special token's id is outside the vocabulary.
    #[error("the {name} token {id} is outside the vocabulary of {tokens} tokens")]
    SpecialOutOfRange {
        /// Which one.
        name: &'static str,
        /// Its id.
        id: TokenId,
        /// Tokens.
        tokens: usize,
    },
    /// A rule in `tokenizer.ggml.merges` cannot be read or names a text that is no token.
    #[error("merge {index} (\"{merge}\") {problem}")]
    BadMerge {
        /// Index into `tokenizer.ggml.merges`.
        index: usize,
        /// The rule.
        merge: String,
        /// What is wrong.
        problem: &'static str,
    },
}
