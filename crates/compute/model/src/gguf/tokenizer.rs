//! The vocabulary and chat template a GGUF file carries.

use motet_text::{TokenKind, TokenizerSpec};

use super::{Gguf, GgufError};

const TOKENS: &str = "tokenizer.ggml.tokens";
const KINDS: &str = "tokenizer.ggml.token_type";

/// Pre-tokenizers of models that begin every text with `bos` although their files do not say so.
const PRE_WITH_BOS: [&str; 4] = ["llama3", "llama-v3", "llama-bpe", "falcon3"];

/// Reads the `tokenizer.ggml.*` keys. Special tokens are known to be in the vocabulary.
///
/// # Errors
/// A key is missing, has another type, or contradicts the vocabulary.
pub fn tokenizer_spec(gguf: &Gguf) -> Result<TokenizerSpec, GgufError> {
    let model = gguf.require_str("tokenizer.ggml.model")?.to_owned();
    let pre = gguf.str("tokenizer.ggml.pre")?.map(str::to_owned);
    let tokens = gguf.require_str_array(TOKENS)?;
    if tokens.is_empty() {
        return Err(gguf.invalid_key(TOKENS, "the vocabulary is empty"));
    }
    let merges = gguf.str_array("tokenizer.ggml.merges")?;
    let special = |key: &str| special_token(gguf, key, tokens.len());
    let add_bos = gguf.bool("tokenizer.ggml.add_bos_token")?;
    let add_space_prefix = gguf.bool("tokenizer.ggml.add_space_prefix")?;
    Ok(TokenizerSpec {
        tokens: tokens.iter().map(str::to_owned).collect(),
        kinds: kinds(gguf, tokens.len())?,
        merges: merges.map(|merges| merges.iter().map(str::to_owned).collect()).unwrap_or_default(),
        scores: gguf.f32_array("tokenizer.ggml.scores")?.unwrap_or_default(),
        // Sentence pieces begin with a space unless the file says otherwise.
        add_space_prefix: add_space_prefix.unwrap_or(model == "llama"),
        bos: special("tokenizer.ggml.bos_token_id")?,
        eos: special("tokenizer.ggml.eos_token_id")?,
        eot: special("tokenizer.ggml.eot_token_id")?,
        unk: special("tokenizer.ggml.unknown_token_id")?,
        // Nothing depends on padding, and published files have ids such as -1 here.
        pad: special("tokenizer.ggml.padding_token_id").ok().flatten(),
        add_bos: add_bos.unwrap_or_else(|| bos_by_default(&model, pre.as_deref())),
        add_eos: gguf.bool("tokenizer.ggml.add_eos_token")?.unwrap_or(false),
        model,
        pre,
    })
}

/// The Jinja source of the chat template, where the file has one.
pub fn chat_template(gguf: &Gguf) -> Option<&str> {
    gguf.str("tokenizer.chat_template").ok().flatten()
}

fn kinds(gguf: &Gguf, vocabulary: usize) -> Result<Vec<TokenKind>, GgufError> {
    let Some(numbers) = gguf.i32_array(KINDS)? else { return Ok(Vec::new()) };
    if numbers.len() != vocabulary {
        let problem = format!("{} token types for {vocabulary} tokens", numbers.len());
        return Err(gguf.invalid_key(KINDS, problem));
    }
    let kind = |(id, number): (usize, i32)| match number {
        // Undefined: written by converters that knew no better.
        0 => Ok(TokenKind::Normal),
        _ => TokenKind::from_gguf(number.into()).ok_or_else(|| {
            gguf.invalid_key(KINDS, format!("token {id} has the type {number} (0 to 6 are known)"))
        }),
    };
    numbers.into_iter().enumerate().map(kind).collect()
}

fn special_token(gguf: &Gguf, key: &str, vocabulary: usize) -> Result<Option<u32>, GgufError> {
    match gguf.u32(key)? {
        Some(id) if id as usize >= vocabulary => {
            Err(gguf.invalid_key(key, format!("token {id} is not in the vocabulary of {vocabulary} tokens")))
        }
        id => Ok(id),
    }
}

/// SentencePiece vocabularies ("llama") begin with bos unless the file says otherwise; byte-level ones do not.
fn bos_by_default(model: &str, pre: Option<&str>) -> bool {
    model == "llama" || pre.is_some_and(|pre| PRE_WITH_BOS.contains(&pre))
}
