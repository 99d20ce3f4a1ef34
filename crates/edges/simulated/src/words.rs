//! A vocabulary of single bytes and a few words: any text can be a prompt, and replies read like prose.

use std::sync::Arc;

use motet_text::{TokenKind, Tokenizer, TokenizerError, TokenizerSpec};
use motet_types::TokenId;

/// Ends a turn.
pub(crate) const END: TokenId = 256;
const FIRST_WORD: TokenId = 257;
const WORDS: [&str; 15] = [
    "many",
    "voices",
    "enter",
    "and",
    "leave",
    "each",
    "in",
    "its",
    "own",
    "time",
    "over",
    "one",
    "instrument",
    "as",
    "written",
];
/// All token ids are below it.
pub(crate) const VOCAB: u32 = FIRST_WORD + WORDS.len() as u32;

/// The word of a number.
pub(crate) fn word(number: u64) -> TokenId {
    FIRST_WORD + (number % WORDS.len() as u64) as u32
}

/// The tokenizer of every simulated replica.
///
/// # Errors
/// None that depends on the caller.
pub fn tokenizer() -> Result<Arc<Tokenizer>, TokenizerError> {
    let bytes = (0..=255).map(|byte| byte_letter(byte).to_string());
    // `Ġ` is a space in the alphabet of byte-level tokens.
    let words = WORDS.iter().map(|word| format!("Ġ{word}"));
    let tokens: Vec<String> = bytes.chain(["<|im_end|>".to_owned()]).chain(words).collect();
    let mut kinds = vec![TokenKind::Normal; tokens.len()];
    kinds[END as usize] = TokenKind::Control;
    let spec =
        TokenizerSpec { model: "gpt2".into(), tokens, kinds, eos: Some(END), ..TokenizerSpec::default() };
    Tokenizer::new(spec).map(Arc::new)
}

/// GPT-2's printable letter for a byte: itself where it is printable, else the next free one from U+0100.
fn byte_letter(byte: u8) -> char {
    let is_printable = |b: u8| matches!(b, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    if is_printable(byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|&b| !is_printable(b)).count() as u32;
    char::from_u32(0x100 + before).unwrap_or(char::REPLACEMENT_CHARACTER)
}
