//! Paged causal attention over a KV arena.
//!
//! # Same bits
//! A query walks the tiles of its sequence from position 0; a tile is one block, so tiles lie at
//! absolute positions. What it computes depends on its own position and the keys and values before
//! it only: not on which queries share the call, nor on how the prompt was cut.

use motet_math::exp;

use crate::isa::{Kernel, on_isa};
use crate::kv::{BLOCK_TOKENS, KvArena};
use crate::pool::SendPtr;
use crate::{Isa, ThreadPool};

/// Queries of one sequence that share the reading of a tile.
const QUERIES: usize = 8;
/// States (a query and a head) whose scores are computed together.
const TOGETHER: usize = 4;

/// Sizes of an attention layer.
#[derive(Debug, Clone, Copy)]
pub struct HeadShape {
    /// Query heads, a multiple of `kv_heads`.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
}

/// Consecutive tokens of one sequence: rows `first_row…` of the step, positions `start…`.
#[derive(Debug, Clone, Copy)]
pub struct Span<'a> {
    /// Row of the first token in the step's flat list.
    pub first_row: usize,
    /// Number of tokens.
    pub len: usize,
    /// Absolute position of the first token.
    pub start: usize,
    /// The sequence's blocks, from position 0.
    pub blocks: &'a [u32],
}

/// One layer's attention for the tokens of a step.
pub struct Attention<'a> {
    /// The layer's keys and values, this step's included.
    pub arena: &'a KvArena,
    /// Factor on the scores, 1/√head_dim as a rule.
    pub scale: f32,
    /// The step's rows of `heads · head_dim`, rotated.
    pub queries: &'a [f32],
    /// Which rows belong to which sequence.
    pub spans: &'a [Span<'a>],
}

impl Attention<'_> {
    /// Computes `softmax(q · Kᵀ · scale) · V` into rows of `heads · head_dim`.
    ///
    /// # Panics
    /// Unless the spans cover the rows of `queries` and `out` one after the other and their blocks
    /// reach their last token.
    pub fn run(&self, pool: &ThreadPool, isa: Isa, out: &mut [f32]) {
        self.check(out.len());
        let mut tasks = Vec::new();
        for span in self.spans {
            for first in (0..span.len).step_by(QUERIES) {
                let len = QUERIES.min(span.len - first);
                let part =
                    Span { first_row: span.first_row + first, len, start: span.start + first, ..*span };
                tasks.extend((0..self.arena.shape().kv_heads).map(|kv_head| (part, kv_head)));
            }
        }
        let out = SendPtr(out.as_mut_ptr());
        pool.run(tasks.len(), &|index| {
            let (span, kv_head) = tasks[index];
            on_isa(isa, Attend { layer: self, span, kv_head, isa, out: out.get() });
        });
    }
}

impl Attention<'_> {
    /// What the unsafe writes of [`Attend`] rely on: each row has one span, and each span is computed.
    fn check(&self, out: usize) {
        let HeadShape { heads, kv_heads, head_dim } = self.arena.shape();
        assert!(kv_heads > 0 && head_dim > 0 && heads.is_multiple_of(kv_heads), "query heads in groups");
        let mut row = 0;
        for span in self.spans {
            assert_eq!(span.first_row, row, "spans one after the other");
            let end = span.start.checked_add(span.len);
            assert!(
                end.is_some_and(|end| end.div_ceil(BLOCK_TOKENS) <= span.blocks.len()),
                "blocks of a span"
            );
            row += span.len;
        }
        assert!(
            out == self.queries.len() && Some(out) == row.checked_mul(heads * head_dim),
            "rows of the output"
        );
    }
}

/// The queries of one KV head's group, for up to [`QUERIES`] tokens.
struct Attend<'a> {
    layer: &'a Attention<'a>,
    span: Span<'a>,
    kv_head: usize,
    isa: Isa,
    out: *mut f32,
}

impl Kernel for Attend<'_> {
    #[inline(always)]
    fn run(self) {
        let Self { layer, span, kv_head, isa, out } = self;
        let HeadShape { heads, kv_heads, head_dim } = layer.arena.shape();
        let (group, tile) = (heads / kv_heads, head_dim * BLOCK_TOKENS);
        let mut loaded = vec![0f32; 2 * tile];
        let mut states = vec![Softmax::START; span.len * group];
        let mut sums = vec![0f32; span.len * group * head_dim];
        let last = span.start + span.len - 1;
        for (index, &block) in span.blocks.iter().enumerate().take(last / BLOCK_TOKENS + 1) {
            let first = index * BLOCK_TOKENS;
            layer.arena.load(block, kv_head, isa, &mut loaded);
            // Queries before this tile see nothing of it.
            let unseen = first.saturating_sub(span.start).min(span.len) * group;
            let tile = Tile { keys: &loaded[..tile], values: &loaded[tile..], first };
            let mut state = unseen;
            while state + TOGETHER <= states.len() {
                self.absorb::<TOGETHER>(&tile, state, &mut states, &mut sums);
                state += TOGETHER;
            }
            while state < states.len() {
                self.absorb::<1>(&tile, state, &mut states, &mut sums);
                state += 1;
            }
        }
        for (state, (softmax, sum)) in states.iter().zip(sums.chunks_exact_mut(head_dim)).enumerate() {
            let head = self.head(state);
            let inverse = 1.0 / softmax.total;
            sum.iter_mut().for_each(|v| *v *= inverse);
            // SAFETY: `head` indexes a row of the output, whose size was asserted; only this task writes it.
            unsafe { std::ptr::copy_nonoverlapping(sum.as_ptr(), out.add(head * head_dim), head_dim) };
        }
    }
}

impl Attend<'_> {
    /// Row and head of a state, as an index of heads in the step's queries and output.
    #[inline(always)]
    fn head(&self, state: usize) -> usize {
        let HeadShape { heads, kv_heads, .. } = self.layer.arena.shape();
        let group = heads / kv_heads;
        (self.span.first_row + state / group) * heads + self.kv_head * group + state % group
    }

    /// Takes a tile into `N` neighbouring states. Each state's arithmetic is the same for every `N`; several
    /// at a time keep the multipliers busy while a chain of additions waits for its last one.
    #[inline(always)]
    fn absorb<const N: usize>(
        &self,
        tile: &Tile<'_>,
        first: usize,
        states: &mut [Softmax],
        sums: &mut [f32],
    ) {
        let HeadShape { heads, kv_heads, head_dim } = self.layer.arena.shape();
        let queries =
            std::array::from_fn(|n| &self.layer.queries[self.head(first + n) * head_dim..][..head_dim]);
        let scores: [[f32; BLOCK_TOKENS]; N] = tile_scores(queries, tile.keys, self.layer.scale);
        for (n, scores) in scores.iter().enumerate() {
            let state = first + n;
            // Tokens of this tile at or before the query's own position.
            let position = self.span.start + state / (heads / kv_heads);
            let visible = (position + 1 - tile.first).min(BLOCK_TOKENS);
            let sum = &mut sums[state * head_dim..][..head_dim];
            states[state].absorb(&scores[..visible], tile.values, sum);
        }
    }
}

/// A block's keys and values for one head, as f32.
struct Tile<'a> {
    keys: &'a [f32],
    values: &'a [f32],
    /// Absolute position of its first token.
    first: usize,
}

/// Scores of `N` queries against the 16 keys of a tile, a lane per token.
#[inline(always)]
fn tile_scores<const N: usize>(queries: [&[f32]; N], keys: &[f32], scale: f32) -> [[f32; BLOCK_TOKENS]; N] {
    let mut scores = [[0f32; BLOCK_TOKENS]; N];
    let (keys, _) = keys.as_chunks::<BLOCK_TOKENS>();
    for (d, keys) in keys.iter().enumerate() {
        for (scores, query) in scores.iter_mut().zip(&queries) {
            let q = query[d];
            for (score, key) in scores.iter_mut().zip(keys) {
                *score = key.mul_add(q, *score);
            }
        }
    }
    scores.map(|scores| scores.map(|score| score * scale))
}

/// Running maximum and sum of a softmax taken tile by tile (Milakov & Gimelshein 2018).
#[derive(Clone, Copy)]
struct Softmax {
    max: f32,
    total: f32,
}

impl Softmax {
    const START: Self = Self { max: f32::NEG_INFINITY, total: 0.0 };

    /// Takes in the first tokens of a tile, as many as there are scores: their weights, and their
    /// values into `sum`.
    #[inline(always)]
    fn absorb(&mut self, scores: &[f32], values: &[f32], sum: &mut [f32]) {
        // `f32::max` would hide a NaN; this keeps it, so that it surfaces in the logits.
        let max = scores.iter().fold(self.max, |m, &s| if s <= m { m } else { s });
        let mut weights = [0f32; BLOCK_TOKENS];
        for (weight, score) in weights.iter_mut().zip(scores) {
            *weight = exp(score - max);
        }
        if max != self.max {
            let correction = exp(self.max - max);
            self.total *= correction;
            sum.iter_mut().for_each(|v| *v *= correction);
            self.max = max;
        }
        let head_dim = sum.len();
        for (t, weight) in weights[..scores.len()].iter().enumerate() {
            self.total += weight;
            for (sum, value) in sum.iter_mut().zip(&values[t * head_dim..][..head_dim]) {
                *sum = value.mul_add(*weight, *sum);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::{KvFormat, KvRows};

    const SHAPE: HeadShape = HeadShape { heads: 6, kv_heads: 2, head_dim: 32 };

    fn random(len: usize, seed: u32) -> Vec<f32> {
        (0..len as u32)
            .map(|i| ((i + 1).wrapping_mul(seed * 2 + 1).wrapping_mul(2_654_435_761) >> 8) as f32 / 8e6 - 1.0)
            .collect()
    }

    /// Attention over `len` tokens whose blocks are `blocks`, computed in chunks of `chunk`.
    fn attend(
        format: KvFormat,
        len: usize,
        chunk: usize,
        blocks: &[u32],
        (threads, isa): (usize, Isa),
    ) -> Vec<f32> {
        let mut arena = KvArena::new(format, SHAPE, 64).unwrap();
        let width = SHAPE.kv_heads * SHAPE.head_dim;
        let (keys, values) = (random(len * width, 1), random(len * width, 2));
        let queries = random(len * SHAPE.heads * SHAPE.head_dim, 3);
        let pool = ThreadPool::new(threads);
        let mut out = Vec::new();
        for start in (0..len).step_by(chunk) {
            let span = Span { first_row: 0, len: chunk.min(len - start), start, blocks };
            let rows = |all: &[f32], width: usize| all[start * width..][..span.len * width].to_vec();
            arena.write(&span, 0, KvRows { keys: &rows(&keys, width), values: &rows(&values, width) });
            let queries = rows(&queries, SHAPE.heads * SHAPE.head_dim);
            let layer = Attention { arena: &arena, scale: 0.2, queries: &queries, spans: &[span] };
            let mut part = vec![f32::NAN; queries.len()];
            layer.run(&pool, isa, &mut part);
            out.extend(part);
        }
        out
    }

    /// Textbook attention in double precision.
    fn naive(len: usize) -> Vec<f64> {
        let HeadShape { heads, kv_heads, head_dim } = SHAPE;
        let (keys, values) = (random(len * kv_heads * head_dim, 1), random(len * kv_heads * head_dim, 2));
        let queries = random(len * heads * head_dim, 3);
        let mut out = Vec::new();
        for position in 0..len {
            for head in 0..heads {
                let query = &queries[(position * heads + head) * head_dim..][..head_dim];
                let at = |token: usize| (token * kv_heads + head / (heads / kv_heads)) * head_dim;
                let scores: Vec<f64> = (0..=position)
                    .map(|t| {
                        query
                            .iter()
                            .zip(&keys[at(t)..])
                            .map(|(q, k)| f64::from(*q) * f64::from(*k))
                            .sum::<f64>()
                            * 0.2
                    })
                    .map(f64::exp)
                    .collect();
                let total: f64 = scores.iter().sum();
                out.extend((0..head_dim).map(|d| {
                    scores
                        .iter()
                        .enumerate()
                        .map(|(t, s)| s / total * f64::from(values[at(t) + d]))
                        .sum::<f64>()
                }));
            }
        }
        out
    }

    #[test]
    fn equals_the_textbook() {
        let out = attend(KvFormat::F32, 70, 70, &[5, 9, 1, 3, 7], (1, Isa::detect()));
        let worst = out.iter().zip(naive(70)).map(|(a, b)| (f64::from(*a) - b).abs()).fold(0.0, f64::max);
        assert!(worst < 1e-5, "{worst}");
    }

    #[test]
    fn same_bits_however_it_is_cut_placed_or_run() {
        for format in [KvFormat::F32, KvFormat::F16, KvFormat::Int8] {
            let reference = attend(format, 70, 70, &[0, 1, 2, 3, 4], (1, Isa::Scalar));
            for isa in Isa::available() {
                for (chunk, threads) in [(1, 1), (7, 2), (16, 3), (33, 2), (70, 2)] {
                    let out = attend(format, 70, chunk, &[5, 60, 1, 3, 7], (threads, isa));
                    let same = out.iter().zip(&reference).all(|(a, b)| a.to_bits() == b.to_bits());
                    assert!(same, "chunks of {chunk}, {threads} threads, {isa:?}, {format:?}");
                }
            }
        }
    }

    #[test]
    fn spans_that_do_not_fit_are_refused() {
        let check = |spans: &[Span<'_>], why: &str| {
            let queries = vec![0f32; 2 * SHAPE.heads * SHAPE.head_dim];
            let arena = KvArena::new(KvFormat::F32, SHAPE, 1).unwrap();
            let layer = Attention { arena: &arena, scale: 1.0, queries: &queries, spans };
            let run = || layer.run(&ThreadPool::new(1), Isa::detect(), &mut vec![0f32; queries.len()]);
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err(), "{why}");
        };
        fn span(first_row: usize, len: usize, start: usize, blocks: &[u32]) -> Span<'_> {
            Span { first_row, len, start, blocks }
        }
        check(&[span(0, 2, 0, &[])], "no blocks");
        check(&[span(0, 2, usize::MAX, &[0])], "positions that wrap");
        check(&[span(0, 2, 0, &[0]), span(1, 1, 0, &[0])], "shared rows");
        check(&[span(0, 1, 0, &[0])], "rows without a span");
    }

    #[test]
    fn what_lies_beyond_the_query_is_not_read() {
        let mut arena = KvArena::new(KvFormat::F32, SHAPE, 1).unwrap();
        // All bits set is a NaN.
        arena.block_mut(0).fill(0xff);
        let width = SHAPE.kv_heads * SHAPE.head_dim;
        let span = Span { first_row: 0, len: 3, start: 0, blocks: &[0] };
        arena.write(&span, 0, KvRows { keys: &random(3 * width, 1), values: &random(3 * width, 2) });
        let queries = random(3 * SHAPE.heads * SHAPE.head_dim, 3);
        let layer = Attention { arena: &arena, scale: 0.2, queries: &queries, spans: &[span] };
        let mut out = vec![0f32; queries.len()];
        layer.run(&ThreadPool::new(1), Isa::detect(), &mut out);
        assert!(out.iter().all(|v| v.is_finite()));
    }
}
