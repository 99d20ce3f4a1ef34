//! SentencePiece's BPE (Kudo & Richardson 2018): characters merge by the score of what they make.
//!
//! There are no merge rules: two neighbours merge where their text together is a token, the one with the
//! highest score first, the leftmost of equals. As in [`bpe`](super::bpe) a linked list and a heap make
//! this n log n in the text, whatever it holds; a lookup costs at most the length of the longest token.
//!
//! Files write the space as `▁` (U+2581), and a `▁` in a text counts as a space. Here both are a space
//! throughout, so a token's text is what it adds to a reply.

use super::texts::TokenTexts;
use motet_types::TokenId;
use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hash::{BuildHasher, RandomState};

/// How files write a space.
pub(super) const SPACE: char = '\u{2581}';

/// No token, or no symbol.
const NONE: u32 = u32::MAX;

/// Tables of a SentencePiece vocabulary.
pub(super) struct SentencePiece {
    index: TextIndex,
    /// Of every token, its place in the order of merging, lowest first.
    ranks: Vec<u32>,
    /// The token of each single byte, for characters that are no token; unknown where there is none.
    byte_ids: [Option<TokenId>; 256],
    unknown: Option<TokenId>,
    /// Whether a text is read as if it began with a space.
    has_space_prefix: bool,
}

/// What a vocabulary says besides its texts.
pub(super) struct Pieces<'a> {
    /// Tokens that merging can make.
    pub(super) ids: &'a [TokenId],
    /// One per token.
    pub(super) scores: &'a [f32],
    pub(super) byte_ids: [Option<TokenId>; 256],
    pub(super) unknown: Option<TokenId>,
    pub(super) has_space_prefix: bool,
}

impl SentencePiece {
    pub(super) fn new(texts: &TokenTexts, pieces: Pieces<'_>) -> Self {
        Self {
            index: TextIndex::new(texts, pieces.ids),
            ranks: pieces.scores.iter().map(|score| rank(*score)).collect(),
            byte_ids: pieces.byte_ids,
            unknown: pieces.unknown,
            has_space_prefix: pieces.has_space_prefix,
        }
    }

    /// The text as tokens are matched against it.
    pub(super) fn normalize<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let is_plain = !text.contains(SPACE);
        match self.has_space_prefix && !text.is_empty() {
            false if is_plain => Cow::Borrowed(text),
            false => Cow::Owned(text.replace(SPACE, " ")),
            true => Cow::Owned(format!(" {}", text.replace(SPACE, " "))),
        }
    }

    /// Appends the tokens of normalised text without special tokens.
    pub(super) fn encode(
        &self,
        texts: &TokenTexts,
        text: &str,
        scratch: &mut Scratch,
        out: &mut Vec<TokenId>,
    ) {
        let merging = Merging { pieces: self, texts, text: text.as_bytes() };
        merging.load(text, scratch);
        while let Some(Reverse(best)) = scratch.heap.pop() {
            merging.apply(best, scratch);
        }
        for symbol in scratch.symbols.iter().filter(|symbol| symbol.len > 0) {
            match symbol.id {
                NONE => self.spell(merging.bytes(symbol), out),
                id => out.push(id),
            }
        }
    }

    /// Appends a character that is no token, byte by byte where the vocabulary has its bytes.
    fn spell(&self, bytes: &[u8], out: &mut Vec<TokenId>) {
        let ids = bytes.iter().map(|byte| self.byte_ids[*byte as usize]);
        if ids.clone().all(|id| id.is_some()) {
            out.extend(ids.flatten());
        } else {
            out.extend(self.unknown);
        }
    }
}

/// Higher scores have lower ranks; so is the order of IEEE 754's total order reversed.
fn rank(score: f32) -> u32 {
    // Adding zero makes -0 and 0 equal.
    let bits = (score + 0.0).to_bits();
    let ascending = if bits >> 31 == 0 { bits | 1 << 31 } else { !bits };
    !ascending
}

/// A part of the text that may still merge.
struct Symbol {
    start: u32,
    /// Bytes; 0 once it was merged into its left neighbour.
    len: u32,
    id: TokenId,
    prev: u32,
    next: u32,
}

/// Two neighbours that make a token; the order of the fields is the order of merging.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    rank: u32,
    left: u32,
    /// Bytes of both when this was found: symbols only grow, so equal length means that neither changed.
    len: u32,
    id: TokenId,
}

/// Buffers that one encoding reuses from part to part.
#[derive(Default)]
pub(super) struct Scratch {
    symbols: Vec<Symbol>,
    heap: BinaryHeap<Reverse<Candidate>>,
}

struct Merging<'a> {
    pieces: &'a SentencePiece,
    texts: &'a TokenTexts,
    text: &'a [u8],
}

impl Merging<'_> {
    fn bytes(&self, symbol: &Symbol) -> &[u8] {
        &self.text[symbol.start as usize..][..symbol.len as usize]
    }

    /// One symbol per character, and all pairs that merge.
    fn load(&self, text: &str, scratch: &mut Scratch) {
        scratch.symbols.clear();
        scratch.heap.clear();
        for (start, c) in text.char_indices() {
            let (at, len) = (scratch.symbols.len() as u32, c.len_utf8());
            let id = self.pieces.index.find(self.texts, &self.text[start..][..len]).unwrap_or(NONE);
            let prev = at.checked_sub(1).unwrap_or(NONE);
            scratch.symbols.push(Symbol { start: start as u32, len: len as u32, id, prev, next: at + 1 });
        }
        if let Some(last) = scratch.symbols.last_mut() {
            last.next = NONE;
        }
        (0..scratch.symbols.len() as u32).for_each(|left| self.consider(left, scratch));
    }

    /// Puts the pair that starts at `left` on the heap, if its text is a token.
    fn consider(&self, left: u32, scratch: &mut Scratch) {
        let symbol = &scratch.symbols[left as usize];
        let Some(next) = scratch.symbols.get(symbol.next as usize) else { return };
        let len = symbol.len + next.len;
        let text = &self.text[symbol.start as usize..][..len as usize];
        if let Some(id) = self.pieces.index.find(self.texts, text) {
            scratch.heap.push(Reverse(Candidate { rank: self.pieces.ranks[id as usize], left, len, id }));
        }
    }

    fn apply(&self, best: Candidate, scratch: &mut Scratch) {
        let symbols = &mut scratch.symbols;
        let Symbol { len, next, prev, .. } = symbols[best.left as usize];
        let Some(right) = symbols.get_mut(next as usize) else { return };
        if len == 0 || len + right.len != best.len {
            return;
        }
        right.len = 0;
        let after = right.next;
        let left = &mut symbols[best.left as usize];
        (left.len, left.id, left.next) = (best.len, best.id, after);
        if let Some(after) = symbols.get_mut(after as usize) {
            after.prev = best.left;
        }
        self.consider(best.left, scratch);
        if prev != NONE {
            self.consider(prev, scratch);
        }
    }
}

/// Token ids by text: an open-addressing table that keeps no text of its own.
struct TextIndex {
    /// A power of two of places, at most half of them taken; [`NONE`] where there is no token.
    places: Vec<TokenId>,
    /// Keyed, so that no file can be made whose texts all meet in one place.
    hasher: RandomState,
    /// Bytes of the longest text.
    longest: usize,
}

impl TextIndex {
    /// Of equal texts the first is found.
    fn new(texts: &TokenTexts, ids: &[TokenId]) -> Self {
        let size = (ids.len() * 2).next_power_of_two();
        let longest = ids.iter().map(|id| texts.get(*id).len()).max().unwrap_or(0);
        let mut index = Self { places: vec![NONE; size], hasher: RandomState::new(), longest };
        for &id in ids {
            if let Err(place) = index.place(texts, texts.get(id)) {
                index.places[place] = id;
            }
        }
        index
    }

    fn find(&self, texts: &TokenTexts, text: &[u8]) -> Option<TokenId> {
        if text.len() > self.longest {
            return None;
        }
        self.place(texts, text).ok()
    }

    /// The token with this text, or the place where it would be.
    fn place(&self, texts: &TokenTexts, text: &[u8]) -> Result<TokenId, usize> {
        let mask = self.places.len() - 1;
        let mut place = self.hasher.hash_one(text) as usize & mask;
        loop {
            match self.places[place] {
                NONE => return Err(place),
                id if texts.get(id) == text => return Ok(id),
                _ => place = (place + 1) & mask,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Merges the best pair again and again by scanning all pairs.
    fn naive(text: &str, tokens: &[(String, f32)]) -> Vec<Option<TokenId>> {
        let mut parts: Vec<String> = text.chars().map(String::from).collect();
        let find = |text: &str| tokens.iter().position(|token| token.0 == text);
        loop {
            let mut best: Option<(f32, usize)> = None;
            for i in 0..parts.len().saturating_sub(1) {
                if let Some(id) = find(&[&parts[i][..], &parts[i + 1]].concat())
                    && best.is_none_or(|(score, _)| tokens[id].1 > score)
                {
                    best = Some((tokens[id].1, i));
                }
            }
            let Some((_, i)) = best else { break };
            let right = parts.remove(i + 1);
            parts[i].push_str(&right);
        }
        parts.iter().map(|part| find(part).map(|id| id as TokenId)).collect()
    }

    proptest! {
        #[test]
        fn equals_the_naive_merge(
            text in "[abé ]{0,40}",
            tokens in prop::collection::vec(("[abé ]{1,5}", -4i8..4), 0..40),
        ) {
            let mut tokens: Vec<(String, f32)> =
                tokens.into_iter().map(|(text, score)| (text, f32::from(score) / 2.0)).collect();
            let mut seen = std::collections::HashSet::new();
            tokens.retain(|(text, _)| seen.insert(text.clone()));
            let texts = TokenTexts::new(tokens.iter(), |t, bytes| bytes.extend_from_slice(t.0.as_bytes()));
            let ids: Vec<TokenId> = (0..tokens.len() as TokenId).collect();
            let scores: Vec<f32> = tokens.iter().map(|token| token.1).collect();
            let unknown = Some(1000);
            let pieces = SentencePiece::new(&texts, Pieces {
                ids: &ids, scores: &scores, byte_ids: [None; 256], unknown, has_space_prefix: false,
            });
            let mut out = Vec::new();
            pieces.encode(&texts, &text, &mut Scratch::default(), &mut out);
            let expected: Vec<TokenId> =
                naive(&text, &tokens).into_iter().map(|id| id.or(unknown).unwrap()).collect();
            prop_assert_eq!(out, expected);
        }
    }

    #[test]
    fn ranks_order_scores_from_high_to_low() {
        let scores = [f32::INFINITY, 1.0, 0.5, 0.0, -0.5, -1000.0, f32::NEG_INFINITY];
        assert!(scores.windows(2).all(|pair| rank(pair[0]) < rank(pair[1])));
        assert_eq!(rank(-0.0), rank(0.0));
    }
}
