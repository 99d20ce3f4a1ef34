//! Paged causal attention over a KV arena.
//!
//! # Layout
//! A layer's arena is a row of blocks of 16 tokens. A block holds, per KV head, the keys
//! transposed (`head_dim × 16`, a lane is a token) and then the values (`16 × head_dim`).
//!
//! # Same bits
//! A query walks the tiles of its sequence from position 0; a tile is one block, so tiles lie at
//! absolute positions. What it computes depends on its own position and the keys and values before
//! it only: not on which queries share the call, nor on how the prompt was cut.

use half::f16;
use motet_math::exp;

use crate::isa::{Kernel, on_isa};
use crate::pool::SendPtr;
use crate::{Isa, ThreadPool};

/// Tokens in a KV block, and in an attention tile.
pub const BLOCK_TOKENS: usize = 16;
/// Queries of one sequence that share the reading of a tile.
const QUERIES: usize = 8;

/// How keys and values are kept.
///
/// # Safety
/// All-zero bytes are a valid value: zero.
pub unsafe trait KvElement: Copy + Send + Sync + 'static {
    /// Rounds to nearest, ties to even.
    fn from_f32(value: f32) -> Self;
    /// Exact; both slices have the same length.
    fn load(source: &[Self], out: &mut [f32], isa: Isa);
}

// SAFETY: zero bytes are 0.0.
unsafe impl KvElement for f32 {
    #[inline(always)]
    fn from_f32(value: f32) -> Self {
        value
    }

    #[inline(always)]
    fn load(source: &[Self], out: &mut [f32], _: Isa) {
        out.copy_from_slice(source);
    }
}

// SAFETY: zero bytes are 0.0.
unsafe impl KvElement for f16 {
    #[inline(always)]
    fn from_f32(value: f32) -> Self {
        // The constant-time software form; F16C rounds alike.
        f16::from_f32_const(value)
    }

    #[inline(always)]
    fn load(source: &[Self], out: &mut [f32], isa: Isa) {
        match isa {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `Isa::Avx2` exists only after the CPU reported F16C.
            Isa::Avx2 => unsafe { load_f16c(source, out) },
            _ => source.iter().zip(out).for_each(|(v, out)| *out = f16::to_f32_const(*v)),
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
fn load_f16c(source: &[f16], out: &mut [f32]) {
    use std::arch::x86_64::{_mm_loadu_si128, _mm256_cvtph_ps, _mm256_storeu_ps};
    let (source, rest) = source.as_chunks::<8>();
    let (out, out_rest) = out.as_chunks_mut::<8>();
    for (source, out) in source.iter().zip(out) {
        // SAFETY: both hold eight values.
        unsafe {
            _mm256_storeu_ps(out.as_mut_ptr(), _mm256_cvtph_ps(_mm_loadu_si128(source.as_ptr().cast())))
        };
    }
    rest.iter().zip(out_rest).for_each(|(v, out)| *out = f16::to_f32_const(*v));
}

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

impl HeadShape {
    /// Elements that one block takes in one layer's arena.
    pub fn block_elements(&self) -> usize {
        self.kv_heads * 2 * self.head_dim * BLOCK_TOKENS
    }
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

/// Writes the keys and values of a span's tokens into its blocks.
///
/// `keys` and `values` are the step's rows of `kv_heads · head_dim`.
///
/// # Panics
/// Where rows, positions or blocks reach past what is given.
pub fn write_kv<E: KvElement>(
    arena: &mut [E],
    shape: HeadShape,
    span: &Span<'_>,
    (keys, values): (&[f32], &[f32]),
) {
    let (head_dim, width) = (shape.head_dim, shape.kv_heads * shape.head_dim);
    for i in 0..span.len {
        let (position, row) = (span.start + i, span.first_row + i);
        let block = span.blocks[position / BLOCK_TOKENS] as usize;
        let slot = position % BLOCK_TOKENS;
        let target = &mut arena[block * shape.block_elements()..][..shape.block_elements()];
        for (head, target) in target.chunks_exact_mut(2 * head_dim * BLOCK_TOKENS).enumerate() {
            let (key_tile, value_tile) = target.split_at_mut(head_dim * BLOCK_TOKENS);
            let at = row * width + head * head_dim;
            for (d, key) in keys[at..][..head_dim].iter().enumerate() {
                key_tile[d * BLOCK_TOKENS + slot] = E::from_f32(*key);
            }
            let value_row = &mut value_tile[slot * head_dim..][..head_dim];
            value_row.iter_mut().zip(&values[at..][..head_dim]).for_each(|(to, v)| *to = E::from_f32(*v));
        }
    }
}

/// One layer's attention for the tokens of a step.
pub struct Attention<'a, E> {
    /// The layer's arena.
    pub arena: &'a [E],
    /// Its heads.
    pub shape: HeadShape,
    /// Factor on the scores, 1/√head_dim as a rule.
    pub scale: f32,
    /// The step's rows of `heads · head_dim`, rotated.
    pub queries: &'a [f32],
    /// Which rows belong to which sequence.
    pub spans: &'a [Span<'a>],
}

impl<E: KvElement> Attention<'_, E> {
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
                tasks.extend((0..self.shape.kv_heads).map(|kv_head| (part, kv_head)));
            }
        }
        let out = SendPtr(out.as_mut_ptr());
        pool.run(tasks.len(), &|index| {
            let (span, kv_head) = tasks[index];
            on_isa(isa, Attend { layer: self, span, kv_head, isa, out: out.get() });
        });
    }
}

impl<E> Attention<'_, E> {
    /// What the unsafe writes of [`Attend`] rely on: each row has one span, and each span is computed.
    fn check(&self, out: usize) {
        let HeadShape { heads, kv_heads, head_dim } = self.shape;
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
struct Attend<'a, E> {
    layer: &'a Attention<'a, E>,
    span: Span<'a>,
    kv_head: usize,
    isa: Isa,
    out: *mut f32,
}

impl<E: KvElement> Kernel for Attend<'_, E> {
    #[inline(always)]
    fn run(self) {
        let Self { layer, span, kv_head, isa, out } = self;
        let HeadShape { heads, kv_heads, head_dim } = layer.shape;
        let (group, tile) = (heads / kv_heads, head_dim * BLOCK_TOKENS);
        let mut loaded = vec![0f32; 2 * tile];
        let mut states = vec![Softmax::START; span.len * group];
        let mut sums = vec![0f32; span.len * group * head_dim];
        let last = span.start + span.len - 1;
        for (index, &block) in span.blocks.iter().enumerate().take(last / BLOCK_TOKENS + 1) {
            let first = index * BLOCK_TOKENS;
            let at = block as usize * layer.shape.block_elements() + kv_head * 2 * tile;
            E::load(&layer.arena[at..][..2 * tile], &mut loaded, isa);
            let (keys, values) = loaded.split_at(tile);
            for i in 0..span.len {
                // Tokens of this tile at or before the query's own position.
                let visible = (span.start + i + 1).saturating_sub(first).min(BLOCK_TOKENS);
                if visible == 0 {
                    continue;
                }
                for h in 0..group {
                    let head = (span.first_row + i) * heads + kv_head * group + h;
                    let query = &layer.queries[head * head_dim..][..head_dim];
                    let state = i * group + h;
                    let scores = tile_scores(query, keys, layer.scale);
                    let sum = &mut sums[state * head_dim..][..head_dim];
                    states[state].absorb(&scores[..visible], values, sum);
                }
            }
        }
        for (state, (softmax, sum)) in states.iter().zip(sums.chunks_exact_mut(head_dim)).enumerate() {
            let head = (span.first_row + state / group) * heads + kv_head * group + state % group;
            let inverse = 1.0 / softmax.total;
            sum.iter_mut().for_each(|v| *v *= inverse);
            // SAFETY: `head` indexes a row of the output, whose size was asserted; only this task writes it.
            unsafe { std::ptr::copy_nonoverlapping(sum.as_ptr(), out.add(head * head_dim), head_dim) };
        }
    }
}

/// Scores of one query against the 16 keys of a tile, a lane per token.
#[inline(always)]
fn tile_scores(query: &[f32], keys: &[f32], scale: f32) -> [f32; BLOCK_TOKENS] {
    let mut scores = [0f32; BLOCK_TOKENS];
    let (keys, _) = keys.as_chunks::<BLOCK_TOKENS>();
    for (q, keys) in query.iter().zip(keys) {
        for (score, key) in scores.iter_mut().zip(keys) {
            *score = key.mul_add(*q, *score);
        }
    }
    scores.map(|score| score * scale)
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

    const SHAPE: HeadShape = HeadShape { heads: 6, kv_heads: 2, head_dim: 32 };

    fn random(len: usize, seed: u32) -> Vec<f32> {
        (0..len as u32)
            .map(|i| ((i + 1).wrapping_mul(seed * 2 + 1).wrapping_mul(2_654_435_761) >> 8) as f32 / 8e6 - 1.0)
            .collect()
    }

    /// Attention over `len` tokens whose blocks are `blocks`, computed in chunks of `chunk`.
    fn attend<E: KvElement>(
        len: usize,
        chunk: usize,
        blocks: &[u32],
        (threads, isa): (usize, Isa),
    ) -> Vec<f32> {
        let mut arena = vec![E::from_f32(0.0); 64 * SHAPE.block_elements()];
        let width = SHAPE.kv_heads * SHAPE.head_dim;
        let (keys, values) = (random(len * width, 1), random(len * width, 2));
        let queries = random(len * SHAPE.heads * SHAPE.head_dim, 3);
        let pool = ThreadPool::new(threads);
        let mut out = Vec::new();
        for start in (0..len).step_by(chunk) {
            let span = Span { first_row: 0, len: chunk.min(len - start), start, blocks };
            let rows = |all: &[f32], width: usize| all[start * width..][..span.len * width].to_vec();
            write_kv(&mut arena, SHAPE, &span, (&rows(&keys, width), &rows(&values, width)));
            let queries = rows(&queries, SHAPE.heads * SHAPE.head_dim);
            let layer =
                Attention { arena: &arena, shape: SHAPE, scale: 0.2, queries: &queries, spans: &[span] };
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
        let out = attend::<f32>(70, 70, &[5, 9, 1, 3, 7], (1, Isa::detect()));
        let worst = out.iter().zip(naive(70)).map(|(a, b)| (f64::from(*a) - b).abs()).fold(0.0, f64::max);
        assert!(worst < 1e-5, "{worst}");
    }

    #[test]
    fn same_bits_however_it_is_cut_placed_or_run() {
        fn check<E: KvElement>() {
            let reference = attend::<E>(70, 70, &[0, 1, 2, 3, 4], (1, Isa::Scalar));
            for isa in Isa::available() {
                for (chunk, threads) in [(1, 1), (7, 2), (16, 3), (33, 2), (70, 2)] {
                    let out = attend::<E>(70, chunk, &[5, 60, 1, 3, 7], (threads, isa));
                    let same = out.iter().zip(&reference).all(|(a, b)| a.to_bits() == b.to_bits());
                    assert!(same, "chunks of {chunk}, {threads} threads, {isa:?}");
                }
            }
        }
        check::<f32>();
        check::<f16>();
    }

    #[test]
    fn spans_that_do_not_fit_are_refused() {
        let check = |spans: &[Span<'_>], why: &str| {
            let queries = vec![0f32; 2 * SHAPE.heads * SHAPE.head_dim];
            let arena = vec![0f32; SHAPE.block_elements()];
            let layer = Attention { arena: &arena, shape: SHAPE, scale: 1.0, queries: &queries, spans };
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
        let mut arena = vec![f32::NAN; SHAPE.block_elements()];
        let width = SHAPE.kv_heads * SHAPE.head_dim;
        let span = Span { first_row: 0, len: 3, start: 0, blocks: &[0] };
        write_kv(&mut arena, SHAPE, &span, (&random(3 * width, 1), &random(3 * width, 2)));
        let queries = random(3 * SHAPE.heads * SHAPE.head_dim, 3);
        let layer = Attention { arena: &arena, shape: SHAPE, scale: 0.2, queries: &queries, spans: &[span] };
        let mut out = vec![0f32; queries.len()];
        layer.run(&ThreadPool::new(1), Isa::detect(), &mut out);
        assert!(out.iter().all(|v| v.is_finite()));
    }
}
