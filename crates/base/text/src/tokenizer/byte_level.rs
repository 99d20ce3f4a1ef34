//! Byte-level BPE: text is cut into pieces by a rule, and the bytes of each piece merge by rank.

use super::bpe::{Merges, Scratch};
use super::split::Splitter;
use motet_types::TokenId;
use std::collections::HashMap;

/// Tables of a byte-level vocabulary.
pub(super) struct ByteLevel {
    /// The token of each single byte.
    pub(super) byte_ids: [Option<TokenId>; 256],
    pub(super) merges: Merges,
    pub(super) splitter: Splitter,
    /// Whole pieces that are tokens without merging; empty where the model follows merges alone.
    pub(super) whole: HashMap<Box<[u8]>, TokenId>,
}

impl ByteLevel {
    /// Appends the tokens of text without special tokens.
    pub(super) fn encode(&self, text: &str, scratch: &mut Scratch, out: &mut Vec<TokenId>) {
        self.splitter.for_each(text, |piece| {
            if let Some(&id) = self.whole.get(piece.as_bytes()) {
                out.push(id);
                return;
            }
            scratch.load(piece.bytes().filter_map(|byte| self.byte_ids[byte as usize]));
            scratch.merge(&self.merges, out);
        });
    }
}
