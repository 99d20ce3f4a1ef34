//! Byte-pair merging of one piece, in O(n log n) whatever the piece holds.
//!
//! The symbols of a piece form a linked list; a heap holds the mergeable neighbours by (rank, position).
//! The best pair is merged, its neighbours form new pairs, and heap entries whose symbols have changed since
//! are skipped when they come up. So a megabyte of one letter costs no more per byte than prose.

use motet_types::TokenId;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

/// Merge rules: a pair of tokens → (rank, merged token). A lower rank goes first.
pub(super) type Merges = HashMap<(TokenId, TokenId), (u32, TokenId), BuildHasherDefault<PairHasher>>;

/// Multiplicative hash of two 32-bit ids; the keys come from the vocabulary, so they need no keyed hash.
#[derive(Default)]
pub(super) struct PairHasher(u64);

impl Hasher for PairHasher {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u32(u32::from(byte));
        }
    }

    fn write_u32(&mut self, value: u32) {
        self.0 = (self.0.rotate_left(29) ^ u64::from(value)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// No symbol: the end of the list, or a symbol that was merged into its left neighbour.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Symbol {
    id: TokenId,
    prev: u32,
    next: u32,
}

/// A mergeable pair; the order of the fields is the order of merging.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    rank: u32,
    left: u32,
    /// The symbols when this was found.
    ids: (TokenId, TokenId),
    merged: TokenId,
}

/// Buffers that one encoding reuses from piece to piece.
#[derive(Default)]
pub(super) struct Scratch {
    symbols: Vec<Symbol>,
    heap: BinaryHeap<Reverse<Candidate>>,
}

impl Scratch {
    /// Starts a piece of the given symbols.
    pub(super) fn load(&mut self, ids: impl Iterator<Item = TokenId>) {
        self.symbols.clear();
        self.heap.clear();
        for (i, id) in ids.enumerate() {
            let i = i as u32;
            self.symbols.push(Symbol { id, prev: i.checked_sub(1).unwrap_or(NONE), next: i + 1 });
        }
        if let Some(last) = self.symbols.last_mut() {
            last.next = NONE;
        }
    }

    /// Merges until no rule applies and appends the resulting tokens to `out`.
    pub(super) fn merge(&mut self, merges: &Merges, out: &mut Vec<TokenId>) {
        for left in 0..self.symbols.len().saturating_sub(1) as u32 {
            self.consider(left, merges);
        }
        while let Some(Reverse(best)) = self.heap.pop() {
            self.apply(best, merges);
        }
        let mut at = if self.symbols.is_empty() { NONE } else { 0 };
        while at != NONE {
            let symbol = self.symbols[at as usize];
            out.push(symbol.id);
            at = symbol.next;
        }
    }

    /// Puts the pair that starts at `left` on the heap, if a rule joins it.
    fn consider(&mut self, left: u32, merges: &Merges) {
        let symbol = self.symbols[left as usize];
        if symbol.next == NONE {
            return;
        }
        let ids = (symbol.id, self.symbols[symbol.next as usize].id);
        if let Some(&(rank, merged)) = merges.get(&ids) {
            self.heap.push(Reverse(Candidate { rank, left, ids, merged }));
        }
    }

    fn apply(&mut self, best: Candidate, merges: &Merges) {
        let left = self.symbols[best.left as usize];
        if left.id != best.ids.0 || left.next == NONE {
            return;
        }
        let right = self.symbols[left.next as usize];
        if right.id != best.ids.1 {
            return;
        }
        // A symbol merged away keeps no id, so that stale pairs starting at it never apply.
        self.symbols[left.next as usize].id = NONE;
        self.symbols[best.left as usize] = Symbol { id: best.merged, prev: left.prev, next: right.next };
        if right.next != NONE {
            self.symbols[right.next as usize].prev = best.left;
            self.consider(best.left, merges);
        }
        if left.prev != NONE {
            self.consider(left.prev, merges);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Merges the best pair again and again by scanning all pairs.
    fn naive(mut ids: Vec<TokenId>, merges: &Merges) -> Vec<TokenId> {
        loop {
            let best = (0..ids.len().saturating_sub(1))
                .filter_map(|i| merges.get(&(ids[i], ids[i + 1])).map(|&(rank, merged)| (rank, i, merged)))
                .min();
            let Some((_, i, merged)) = best else { return ids };
            ids.splice(i..i + 2, [merged]);
        }
    }

    proptest! {
        #[test]
        fn equals_the_naive_merge(
            ids in prop::collection::vec(0u32..3, 0..60),
            rules in prop::collection::vec((0usize..100, 0usize..100), 0..40),
        ) {
            // every rule makes a new token out of two that exist by then
            let mut merges = Merges::default();
            for (rank, (a, b)) in rules.into_iter().enumerate() {
                let known = 3 + rank;
                merges.entry(((a % known) as u32, (b % known) as u32)).or_insert((rank as u32, known as u32));
            }
            let (mut scratch, mut out) = (Scratch::default(), Vec::new());
            scratch.load(ids.iter().copied());
            scratch.merge(&merges, &mut out);
            prop_assert_eq!(out, naive(ids, &merges));
        }
    }
}
