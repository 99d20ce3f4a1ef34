//! Tokenizers, chat templates, incremental detokenizing and stop strings.
//!
//! Text enters the engine here and leaves it here:
//!
//! - [`Tokenizer`] turns text into token ids and back (byte-level BPE or SentencePiece BPE from a
//!   GGUF vocabulary).
//! - [`WordPiece`] turns text into the tokens of an encoder, which reads them all at once and generates none.
//! - [`ChatTemplate`] turns messages into a prompt, as `transformers` renders them, and keeps text of
//!   the caller from ever becoming a control token.
//! - [`ReplyDecoder`] turns generated tokens into text deltas that are always whole characters and
//!   end at the first stop string.
//!
//! Nothing here does I/O or reads a clock.

mod reply;
mod template;
mod tokenizer;
mod unicode;
mod wordpiece;

pub use reply::{Delta, ReplyDecoder};
pub use template::{AbsentValue, ChatTemplate, CivilTime, RenderInput, TemplateError};
pub use tokenizer::{SpecialTokens, TokenKind, Tokenizer, TokenizerError, TokenizerSpec};
pub use wordpiece::{Casing, WordPiece, WordPieceError};
