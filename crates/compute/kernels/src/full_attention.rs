//! Attention of an encoder: every token of a sequence sees every other one, and nothing is kept for later.
//!
//! # Same bits
//! A task is one head of one sequence. Scores and outputs are ascending chains of a multiplication and an addition,
//! one an element, whatever stands beside them; exponentials are summed in 16 stripes.

use std::cell::RefCell;
use std::ops::Range;

use crate::elementwise::striped_sum;
use crate::isa::{Kernel, on_isa};
use crate::pool::SendPtr;
use crate::simd::{LANES, fold_halves};
use crate::{Isa, ThreadPool};

/// Queries that share what is read of keys and values.
const QUERIES: usize = 4;

/// Queries, keys and values of several sequences, `heads × head_dim` values a row.
#[derive(Clone, Copy)]
pub struct FullAttention<'a> {
    /// The rows that ask.
    pub query: &'a [f32],
    /// The rows that are compared with them.
    pub key: &'a [f32],
    /// The rows that are mixed.
    pub value: &'a [f32],
    /// Heads of a row.
    pub heads: usize,
    /// Values of a head.
    pub head_dim: usize,
    /// What scores are multiplied with: 1/√head_dim as a rule.
    pub scale: f32,
}

/// What a thread computes a head in. It only grows: with the longest sequence and the widest head so far.
#[derive(Default)]
struct Scratch {
    /// For every 16 keys, `head_dim` rows of them.
    keys: Vec<[f32; LANES]>,
    /// For every 16 of a head's values, a row for each token.
    values: Vec<[f32; LANES]>,
    /// Scores of each of the queries at hand.
    scores: [Vec<f32>; QUERIES],
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

impl FullAttention<'_> {
    /// Attends within each of `sequences`, which are ranges of rows, and writes to the same rows of `out`.
    ///
    /// # Panics
    /// Where the sizes do not fit together, or sequences are not in ascending order without overlap.
    pub fn run(self, pool: &ThreadPool, isa: Isa, sequences: &[Range<usize>], out: &mut [f32]) {
        let width = self.heads * self.head_dim;
        let is_fit = [self.query, self.key, self.value].iter().all(|rows| rows.len() == out.len());
        assert!(is_fit && out.len().is_multiple_of(width.max(1)), "rows of attention");
        let mut is_next = sequences.iter().scan(0, |end, range| {
            let is_next = *end <= range.start && range.start <= range.end;
            *end = range.end;
            Some(is_next)
        });
        assert!(is_next.all(|is_next| is_next), "sequences in order");
        assert!(sequences.last().is_none_or(|range| range.end * width <= out.len()), "rows of sequences");
        let out = SendPtr(out.as_mut_ptr());
        pool.run(sequences.len() * self.heads, &|task| {
            let (rows, head) = (sequences[task / self.heads].clone(), task % self.heads);
            SCRATCH.with_borrow_mut(|scratch| {
                on_isa(isa, Head { input: &self, rows, head, scratch, out: &out });
            });
        });
    }
}

/// One head of one sequence.
struct Head<'a> {
    input: &'a FullAttention<'a>,
    rows: Range<usize>,
    head: usize,
    scratch: &'a mut Scratch,
    out: &'a SendPtr<f32>,
}

impl Kernel for Head<'_> {
    #[inline(always)]
    fn run(self) {
        let Self { input, ref rows, head, scratch, out } = self;
        let (count, dim) = (rows.len(), input.head_dim);
        let at = |row: usize| (rows.start + row) * input.heads * dim + head * dim;
        pack(input, (count, &at), scratch);
        for first in (0..count).step_by(QUERIES) {
            // Past the end the last query is computed again.
            let row = |i: usize| (first + i).min(count - 1);
            let queries: [&[f32]; QUERIES] = std::array::from_fn(|i| &input.query[at(row(i))..][..dim]);
            score(scratch, queries, count, input.scale);
            let mut sums = [0f32; QUERIES];
            for (sum, scores) in sums.iter_mut().zip(&mut scratch.scores) {
                *sum = softmax(&mut scores[..count]);
            }
            let weights: [&[f32]; QUERIES] = std::array::from_fn(|i| &scratch.scores[i][..count]);
            for (lane, panel) in scratch.values.chunks_exact(count).enumerate().take(dim.div_ceil(LANES)) {
                let mixed = products(weights, panel);
                let len = LANES.min(dim - lane * LANES);
                for i in 0..QUERIES.min(count - first) {
                    // SAFETY: `run` asserted that the output has these rows; this task alone writes this head of them.
                    let target = unsafe {
                        std::slice::from_raw_parts_mut(out.get().add(at(row(i)) + lane * LANES), len)
                    };
                    for (target, value) in target.iter_mut().zip(&mixed[i]) {
                        *target = value / sums[i];
                    }
                }
            }
        }
    }
}

/// Brings keys and values into panels of 16.
#[inline(always)]
fn pack(input: &FullAttention<'_>, (count, at): (usize, &impl Fn(usize) -> usize), scratch: &mut Scratch) {
    let dim = input.head_dim;
    let Scratch { keys, values, scores } = scratch;
    let padded = count.next_multiple_of(LANES);
    scores.iter_mut().for_each(|scores| scores.resize(scores.len().max(padded), 0.0));
    let (key_rows, value_rows) = (count.div_ceil(LANES) * dim, dim.div_ceil(LANES) * count);
    keys.resize(keys.len().max(key_rows), [0.0; LANES]);
    values.resize(values.len().max(value_rows), [0.0; LANES]);
    for row in 0..count {
        let key = &input.key[at(row)..][..dim];
        for (panel, value) in keys[row / LANES * dim..][..dim].iter_mut().zip(key) {
            panel[row % LANES] = *value;
        }
        let value = &input.value[at(row)..][..dim];
        for (panel, part) in value.chunks(LANES).enumerate() {
            values[panel * count + row][..part.len()].copy_from_slice(part);
        }
    }
}

/// Scores of the queries with all keys. Lanes past the last key hold what was there before, and are not looked at.
#[inline(always)]
fn score(scratch: &mut Scratch, queries: [&[f32]; QUERIES], count: usize, scale: f32) {
    let dim = queries[0].len();
    for (index, panel) in scratch.keys.chunks_exact(dim).enumerate().take(count.div_ceil(LANES)) {
        let scores = products(queries, panel);
        for (all, scores) in scratch.scores.iter_mut().zip(&scores) {
            for (target, score) in all[index * LANES..][..LANES].iter_mut().zip(scores) {
                *target = score * scale;
            }
        }
    }
}

/// `out[i][lane] = Σₖ rows[i][k] · panel[k][lane]`, k ascending.
#[inline(always)]
fn products(rows: [&[f32]; QUERIES], panel: &[[f32; LANES]]) -> [[f32; LANES]; QUERIES] {
    let mut sums = [[0f32; LANES]; QUERIES];
    for (k, values) in panel.iter().enumerate() {
        for i in 0..QUERIES {
            let factor = rows[i][k];
            for lane in 0..LANES {
                sums[i][lane] += factor * values[lane];
            }
        }
    }
    sums
}

/// Replaces scores by e^(score − the largest); their sum.
#[inline(always)]
fn softmax(scores: &mut [f32]) -> f32 {
    let mut largest = [f32::NEG_INFINITY; LANES];
    for chunk in scores.chunks(LANES) {
        for (largest, score) in largest.iter_mut().zip(chunk) {
            *largest = if *score > *largest { *score } else { *largest };
        }
    }
    let largest = fold_halves(&mut largest, |a, b| if b > a { b } else { a });
    for score in scores.iter_mut() {
        *score = motet_math::exp(*score - largest);
    }
    striped_sum(scores, |value| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers between −1 and 1 that look like chance.
    fn numbers(len: usize, seed: u32) -> Vec<f32> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        };
        (0..len).map(|_| next()).collect()
    }

    fn naive(input: &FullAttention<'_>, sequences: &[Range<usize>], out: &mut [f32]) {
        let (dim, width) = (input.head_dim, input.heads * input.head_dim);
        for (rows, head) in sequences.iter().flat_map(|rows| (0..input.heads).map(move |h| (rows.clone(), h)))
        {
            for row in rows.clone() {
                let at = |row: usize| row * width + head * dim;
                let dot = |other: usize| -> f64 {
                    (0..dim)
                        .map(|t| f64::from(input.query[at(row) + t]) * f64::from(input.key[at(other) + t]))
                        .sum()
                };
                let weights: Vec<f64> =
                    rows.clone().map(|o| (dot(o) * f64::from(input.scale)).exp()).collect();
                for t in 0..dim {
                    let mixed =
                        rows.clone().zip(&weights).map(|(o, w)| w * f64::from(input.value[at(o) + t]));
                    out[at(row) + t] = (mixed.sum::<f64>() / weights.iter().sum::<f64>()) as f32;
                }
            }
        }
    }

    #[test]
    fn equals_the_definition_and_itself() {
        let sequences = [0..1, 1..18, 20..84, 84..84, 84..87];
        for (heads, head_dim) in [(1, 16), (3, 32), (2, 5), (2, 20)] {
            let len = 90 * heads * head_dim;
            let (query, key, value) = (numbers(len, 1), numbers(len, 2), numbers(len, 3));
            let all = FullAttention { query: &query, key: &key, value: &value, heads, head_dim, scale: 0.9 };
            let run = |isa, threads, sequences: &[Range<usize>]| {
                let mut out = vec![0f32; len];
                all.run(&ThreadPool::new(threads), isa, sequences, &mut out);
                out.iter().map(|value| value.to_bits()).collect::<Vec<u32>>()
            };
            let mut want = vec![0f32; len];
            naive(&all, &sequences, &mut want);
            let together = run(Isa::Scalar, 1, &sequences);
            for (bits, want) in together.iter().zip(&want) {
                assert!((f32::from_bits(*bits) - want).abs() < 1e-5, "{} {want}", f32::from_bits(*bits));
            }
            for isa in Isa::available() {
                assert_eq!(run(isa, 3, &sequences), together, "{isa:?}");
                for rows in &sequences {
                    let alone = run(isa, 2, std::slice::from_ref(rows));
                    let part = rows.start * heads * head_dim..rows.end * heads * head_dim;
                    assert_eq!(alone[part.clone()], together[part], "{isa:?}");
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "rows of sequences")]
    fn rows_that_are_not_there() {
        let rows = [0f32; 32];
        let all =
            FullAttention { query: &rows, key: &rows, value: &rows, heads: 1, head_dim: 16, scale: 1.0 };
        all.run(&ThreadPool::new(1), Isa::Scalar, &[0..1, 1..3], &mut [0f32; 32]);
    }
}
