//! Encoders: models that read a whole text at once and give one vector for it (BERT, Devlin et al. 2018, with the
//! pooling of Sentence-BERT, Reimers & Gurevych 2019).
//!
//! A model is a folder as its library writes it: `config.json`, `model.safetensors`, `tokenizer.json` or `vocab.txt`,
//! and where they are there `modules.json`, `1_Pooling/config.json` and `sentence_bert_config.json`.
//!
//! # Same bits (contract 1)
//! Sequences stand one after the other without padding. A row meets the others of its own sequence only, and only in
//! attention and in pooling, which take them in order; so a vector depends on the weights and its own tokens alone,
//! not on what is computed beside it, the number of threads or the instruction set.

mod config;
mod files;
mod forward;
mod weights;

use std::path::Path;

use motet_kernels::{Isa, ThreadPool};
use motet_text::WordPiece;
use motet_types::TokenId;

use crate::safetensors::{Safetensors, SafetensorsError};

pub use config::{EncoderConfig, Pooling};
use forward::Buffers;
use weights::Weights;

/// Why an encoder can't be used; one line.
#[derive(Debug, thiserror::Error)]
pub enum EncoderError {
    /// What is wrong with the weights.
    #[error(transparent)]
    Weights(#[from] SafetensorsError),
    /// A file can't be read.
    #[error("{file} can't be read: {source}")]
    Io {
        /// Its path.
        file: String,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A file says something that can't be.
    #[error("{file}: {problem}")]
    File {
        /// Its path.
        file: String,
        /// What is wrong.
        problem: String,
    },
}

/// Why a batch can't be computed: the caller's mistake.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// A sequence without tokens.
    #[error("sequence {0} is empty")]
    Empty(usize),
    /// More tokens than there are positions.
    #[error("sequence {index} has {tokens} tokens; at most {limit} fit")]
    TooLong {
        /// Which one.
        index: usize,
        /// How many it has.
        tokens: usize,
        /// How many may be.
        limit: usize,
    },
    /// An id outside the vocabulary.
    #[error("token {token} of sequence {index} is outside the vocabulary of {vocab_size}")]
    UnknownToken {
        /// Which sequence.
        index: usize,
        /// The id.
        token: TokenId,
        /// Ids are below this.
        vocab_size: usize,
    },
}

/// A loaded encoder.
pub struct Encoder {
    config: EncoderConfig,
    weights: Weights,
    pool: ThreadPool,
    isa: Isa,
    buffers: Buffers,
}

/// The tokenizer of a model's folder.
///
/// # Errors
/// Where there is none, or one that isn't BERT's.
pub fn tokenizer(folder: &Path) -> Result<WordPiece, EncoderError> {
    files::tokenizer(folder)
}

impl Encoder {
    /// Reads configuration and weights of a model's folder, and copies them: the files may change or vanish then.
    ///
    /// # Errors
    /// What is missing, damaged or not supported, by name.
    pub fn load(folder: &Path, threads: usize, isa: Isa) -> Result<Self, EncoderError> {
        let config = EncoderConfig::read(folder)?;
        let pool = ThreadPool::new(threads);
        let file = Safetensors::open(&folder.join("model.safetensors"))?;
        let weights = Weights::load(&file, &config, &pool)?;
        file.check_unchanged()?;
        file.give_back();
        Ok(Self { config, weights, pool, isa, buffers: Buffers::default() })
    }

    /// Sizes and limits.
    pub fn config(&self) -> &EncoderConfig {
        &self.config
    }

    /// Appends the vector of each sequence to `out`: `config().width` numbers of length 1.
    ///
    /// Takes memory for some `width × 6 + feed_forward` floats a token of all sequences together, and keeps it.
    ///
    /// # Errors
    /// Where a sequence can't be one of this model's; nothing is computed then.
    pub fn encode(&mut self, sequences: &[&[TokenId]], out: &mut Vec<f32>) -> Result<(), EncodeError> {
        for (index, tokens) in sequences.iter().enumerate() {
            self.check(index, tokens)?;
        }
        forward::run(self, sequences, out);
        Ok(())
    }

    /// What indexes tables is checked here, once.
    fn check(&self, index: usize, tokens: &[TokenId]) -> Result<(), EncodeError> {
        let (limit, vocab_size) = (self.config.positions, self.config.vocab_size);
        if tokens.is_empty() {
            return Err(EncodeError::Empty(index));
        }
        if tokens.len() > limit {
            return Err(EncodeError::TooLong { index, tokens: tokens.len(), limit });
        }
        match tokens.iter().find(|token| **token as usize >= vocab_size) {
            Some(&token) => Err(EncodeError::UnknownToken { index, token, vocab_size }),
            None => Ok(()),
        }
    }
}
