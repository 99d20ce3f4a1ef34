//! The arithmetic: a chunk of tokens taken into a few states, in registers.

#![expect(clippy::needless_range_loop, reason = "arrays of registers, indexed alike")]

use super::{CHUNK_TILES, CHUNK_TOKENS};
use crate::kv::BLOCK_TOKENS;
use crate::simd::{F32x16, LANES, SimdKernel, exp, fold_halves, prefetch, tanh_of_doubled};

/// Most states whose accumulators are in registers together.
pub(super) const MOST_TOGETHER: usize = 6;

/// An element of keys or values that becomes a float when it is loaded.
pub(super) trait Element: Copy + Default {
    /// Whether it comes from the arena, so that the next chunk is worth asking for in advance.
    const IS_FAR: bool;

    /// # Safety
    /// `at` is valid for reads of 16 elements.
    unsafe fn load<F: F32x16>(at: *const Self) -> F;
}

impl Element for f32 {
    const IS_FAR: bool = false;

    #[inline(always)]
    unsafe fn load<F: F32x16>(at: *const Self) -> F {
        // SAFETY: as the caller says.
        unsafe { F::load(at) }
    }
}

/// Half precision, as its bits.
impl Element for u16 {
    const IS_FAR: bool = true;

    #[inline(always)]
    unsafe fn load<F: F32x16>(at: *const Self) -> F {
        // SAFETY: as the caller says.
        unsafe { F::load_f16(at) }
    }
}

impl Element for i8 {
    const IS_FAR: bool = true;

    #[inline(always)]
    unsafe fn load<F: F32x16>(at: *const Self) -> F {
        // SAFETY: as the caller says.
        unsafe { F::load_i8(at) }
    }
}

/// One head's keys and values of the tiles of a chunk. Only tiles that a state sees are read.
pub(super) struct Tiles<E> {
    /// `head_dim × 16` each.
    pub(super) keys: [*const E; CHUNK_TILES],
    /// 16 rows of `value_stride` each.
    pub(super) values: [*const E; CHUNK_TILES],
    pub(super) value_stride: usize,
    /// Where the keys of the next chunk's tiles may be.
    pub(super) next: [*const E; CHUNK_TILES],
    /// Scales of 16 keys, then of 16 values; null for unscaled formats.
    pub(super) scales: [*const f32; CHUNK_TILES],
}

/// What is the same for all scores of a layer.
#[derive(Clone, Copy)]
pub(super) struct Scoring {
    pub(super) scale: f32,
    pub(super) softcap: Option<f32>,
    pub(super) head_dim: usize,
}

/// A query and a head: softmax taken chunk by chunk (Milakov & Gimelshein 2018).
///
/// A row of floats: the maximum so far (with 15 unused), the sums of the weights of tokens ≡ lane modulo
/// 16, and the weighted sum of values, padded to whole vectors.
#[derive(Clone, Copy)]
pub(super) struct State(pub(super) *mut f32);

impl State {
    /// Floats of a row.
    pub(super) fn floats(head_dim: usize) -> usize {
        2 * LANES + head_dim.next_multiple_of(LANES)
    }

    /// # Safety
    /// Of all methods: the row is valid for reads and writes, and no other thread uses it.
    pub(super) unsafe fn start(self, head_dim: usize) {
        // SAFETY: the row has as many floats.
        unsafe {
            std::slice::from_raw_parts_mut(self.0, Self::floats(head_dim)).fill(0.0);
            *self.0 = f32::NEG_INFINITY;
        }
    }

    #[inline(always)]
    unsafe fn total(self) -> *mut f32 {
        // SAFETY: inside the row.
        unsafe { self.0.add(LANES) }
    }

    pub(super) unsafe fn sum(self) -> *mut f32 {
        // SAFETY: inside the row.
        unsafe { self.0.add(2 * LANES) }
    }

    /// Moves to another maximum.
    #[inline(always)]
    unsafe fn rescale(self, max: f32, head_dim: usize) {
        // SAFETY: all vectors are inside the row.
        unsafe {
            let correction = motet_math::exp(*self.0 - max);
            *self.0 = max;
            let row = std::slice::from_raw_parts_mut(self.total(), Self::floats(head_dim) - LANES);
            row.iter_mut().for_each(|v| *v *= correction);
        }
    }

    /// Adds what a later segment found.
    pub(super) unsafe fn fold(self, later: State, head_dim: usize) {
        // SAFETY: both rows are valid, and they are different ones.
        unsafe {
            let max = if *self.0 > *later.0 { *self.0 } else { *later.0 };
            self.rescale(max, head_dim);
            later.rescale(max, head_dim);
            let floats = Self::floats(head_dim) - LANES;
            let row = std::slice::from_raw_parts_mut(self.total(), floats);
            let later = std::slice::from_raw_parts(later.total(), floats);
            row.iter_mut().zip(later).for_each(|(a, b)| *a += b);
        }
    }

    /// Copies the row to another.
    pub(super) unsafe fn copy_to(self, to: State, head_dim: usize) {
        // SAFETY: both rows are valid, and they are different ones.
        unsafe { to.0.copy_from_nonoverlapping(self.0, Self::floats(head_dim)) };
    }

    /// Lets a sink take its share and gives what the sum is multiplied with in the end.
    pub(super) unsafe fn finish(self, sink: Option<f32>, head_dim: usize) -> f32 {
        // SAFETY: all vectors are inside the row.
        unsafe {
            let mut extra = 0.0;
            if let Some(sink) = sink {
                let max = if *self.0 > sink { *self.0 } else { sink };
                self.rescale(max, head_dim);
                extra = motet_math::exp(sink - max);
            }
            let mut lanes = *self.total().cast::<[f32; LANES]>();
            1.0 / (fold_halves(&mut lanes, |a, b| a + b) + extra)
        }
    }
}

/// The tokens of a chunk that a state sees, `first..end`, not empty.
#[derive(Clone, Copy, Default, PartialEq)]
pub(super) struct Seen {
    pub(super) first: usize,
    pub(super) end: usize,
}

/// States that take in a chunk together. Each state's arithmetic is the same for every `N`.
///
/// Rows, queries and the tiles that are seen are valid; no other thread uses the rows.
pub(super) struct Together<'a, E, const N: usize> {
    pub(super) tiles: &'a Tiles<E>,
    pub(super) scoring: Scoring,
    pub(super) states: [State; N],
    pub(super) queries: [*const f32; N],
    pub(super) seen: [Seen; N],
}

/// Scores, then weights, of each state.
#[repr(align(64))]
struct Scores<const N: usize>([[f32; CHUNK_TOKENS]; N]);

impl<E: Element, const N: usize> SimdKernel for Together<'_, E, N> {
    #[inline(always)]
    fn run<F: F32x16>(self) {
        let mut scores = Scores([[0f32; CHUNK_TOKENS]; N]);
        // SAFETY: as the type says.
        unsafe {
            self.score::<F>(&mut scores);
            for n in 0..N {
                let tiles = (self.tiles, self.scoring);
                weigh::<F, E>(self.states[n], self.seen[n], tiles, &mut scores.0[n]);
            }
            self.accumulate_all::<F>(&scores);
        }
    }
}

impl<E: Element, const N: usize> Together<'_, E, N> {
    /// `q · k` for all tiles that any of the states sees.
    #[inline(always)]
    unsafe fn score<F: F32x16>(&self, scores: &mut Scores<N>) {
        let (mut first, mut end) = (CHUNK_TOKENS, 0);
        for seen in self.seen {
            (first, end) = (first.min(seen.first), end.max(seen.end));
        }
        let (mut tile, end) = (first / BLOCK_TOKENS, end.div_ceil(BLOCK_TOKENS));
        while tile < end {
            // SAFETY: as the caller says.
            unsafe {
                if F::IS_WIDE && tile + 4 <= end {
                    self.score_tiles::<F, 4>(tile, scores);
                    tile += 4;
                } else if (F::IS_WIDE || N <= 2) && tile + 2 <= end {
                    self.score_tiles::<F, 2>(tile, scores);
                    tile += 2;
                } else {
                    self.score_tiles::<F, 1>(tile, scores);
                    tile += 1;
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn score_tiles<F: F32x16, const V: usize>(&self, tile: usize, scores: &mut Scores<N>) {
        let mut sums = [[F::splat(0.0); V]; N];
        let mut keys = [Column { at: self.tiles.keys[tile], next: self.tiles.next[tile] }; V];
        for v in 1..V {
            keys[v] = Column { at: self.tiles.keys[tile + v], next: self.tiles.next[tile + v] };
        }
        // SAFETY: keys and queries have `head_dim` lines; the scores have room for a chunk.
        unsafe {
            multiply(&mut sums, &self.queries, &keys, (BLOCK_TOKENS, self.scoring.head_dim));
            for n in 0..N {
                for v in 0..V {
                    sums[n][v].store(scores.0[n].as_mut_ptr().add((tile + v) * BLOCK_TOKENS));
                }
            }
        }
    }

    /// Adds the weighted values: the tokens that all states see together, those that some see one by one,
    /// in the order of tokens for every state.
    #[inline(always)]
    unsafe fn accumulate_all<F: F32x16>(&self, weights: &Scores<N>) {
        let target = (self.tiles, self.scoring.head_dim);
        let mut common = self.seen[0];
        for seen in self.seen {
            common = Seen { first: common.first.max(seen.first), end: common.end.min(seen.end) };
        }
        // Where no token is common, the other phases take everything.
        common.end = common.end.max(common.first);
        let mut sums = [std::ptr::null_mut(); N];
        let mut rows = [std::ptr::null(); N];
        // SAFETY: as the caller says.
        unsafe {
            for n in 0..N {
                (sums[n], rows[n]) = (self.states[n].sum(), weights.0[n].as_ptr());
            }
            for phase in 0..3 {
                if phase == 1 {
                    accumulate::<F, E, N>(&sums, &rows, target, common);
                    continue;
                }
                for n in 0..N {
                    let Seen { first, end } = self.seen[n];
                    let part = if phase == 0 {
                        Seen { first, end: end.min(common.first) }
                    } else {
                        Seen { first: first.max(common.end), end }
                    };
                    if part.first < part.end {
                        accumulate::<F, E, 1>(&[sums[n]], &[rows[n]], target, part);
                    }
                }
            }
        }
    }
}

/// Turns a state's scores into weights of the values, and takes them into its maximum and totals.
///
/// # Safety
/// As [`Together`] says.
#[inline(always)]
unsafe fn weigh<F: F32x16, E: Element>(
    state: State,
    seen: Seen,
    (tiles, scoring): (&Tiles<E>, Scoring),
    scores: &mut [f32; CHUNK_TOKENS],
) {
    let (first_tile, end_tile) = (seen.first / BLOCK_TOKENS, seen.end.div_ceil(BLOCK_TOKENS));
    let is_whole = seen.first.is_multiple_of(BLOCK_TOKENS) && seen.end.is_multiple_of(BLOCK_TOKENS);
    // SAFETY: the scores hold a chunk, the row its vectors, and tiles that are seen have their scales.
    unsafe {
        let mut max = F::splat(*state.0);
        for tile in first_tile..end_tile {
            let at = scores.as_mut_ptr().add(tile * BLOCK_TOKENS);
            let mut score = F::load(at);
            if !tiles.scales[tile].is_null() {
                score = score.mul(F::load(tiles.scales[tile]));
            }
            score = score.mul(F::splat(scoring.scale));
            if let Some(cap) = scoring.softcap {
                score = F::splat(cap).mul(tanh_of_doubled(score.mul(F::splat(2.0 / cap))));
            }
            if !is_whole {
                score = masked(score, seen, (tile, f32::NEG_INFINITY));
            }
            score.store(at);
            max = max.max(score);
        }
        // A NaN that gets lost on the way to the maximum still makes its own weight one.
        let max = max.reduce_max();
        if max.to_bits() != (*state.0).to_bits() {
            state.rescale(max, scoring.head_dim);
        }
        let mut total = F::load(state.total());
        for tile in first_tile..end_tile {
            let at = scores.as_mut_ptr().add(tile * BLOCK_TOKENS);
            let mut weight = exp(F::load(at).sub(F::splat(max)));
            if !is_whole {
                weight = masked(weight, seen, (tile, 0.0));
            }
            total = total.add(weight);
            if !tiles.scales[tile].is_null() {
                weight = weight.mul(F::load(tiles.scales[tile].add(BLOCK_TOKENS)));
            }
            weight.store(at);
        }
        total.store(state.total());
    }
}

/// Another value in the lanes of a tile whose tokens are not seen.
#[inline(always)]
fn masked<F: F32x16>(lanes: F, seen: Seen, (tile, other): (usize, f32)) -> F {
    let first = seen.first.saturating_sub(tile * BLOCK_TOKENS);
    lanes.select(first, seen.end - tile * BLOCK_TOKENS, F::splat(other))
}

/// Adds `weights · values` of the tokens of a chunk to the sums.
///
/// # Safety
/// Sums, weights and the tiles of those tokens are valid.
#[inline(always)]
unsafe fn accumulate<F: F32x16, E: Element, const N: usize>(
    sums: &[*mut f32; N],
    weights: &[*const f32; N],
    (tiles, head_dim): (&Tiles<E>, usize),
    tokens: Seen,
) {
    let (mut at, end) = (0, head_dim.next_multiple_of(LANES));
    while at < end {
        // SAFETY: as the caller says; all vectors end before the padded `head_dim`.
        unsafe {
            if F::IS_WIDE && at + 4 * LANES <= end {
                accumulate_vectors::<F, E, N, 4>(sums, weights, (tiles, head_dim, at), tokens);
                at += 4 * LANES;
            } else if (F::IS_WIDE || N <= 2) && at + 2 * LANES <= end {
                accumulate_vectors::<F, E, N, 2>(sums, weights, (tiles, head_dim, at), tokens);
                at += 2 * LANES;
            } else {
                accumulate_vectors::<F, E, N, 1>(sums, weights, (tiles, head_dim, at), tokens);
                at += LANES;
            }
        }
    }
}

/// # Safety
/// As above.
#[inline(always)]
unsafe fn accumulate_vectors<F: F32x16, E: Element, const N: usize, const V: usize>(
    sums: &[*mut f32; N],
    weights: &[*const f32; N],
    (tiles, head_dim, at): (&Tiles<E>, usize, usize),
    tokens: Seen,
) {
    let mut accumulators = [[F::splat(0.0); V]; N];
    // SAFETY: as the caller says.
    unsafe {
        for n in 0..N {
            for v in 0..V {
                accumulators[n][v] = F::load(sums[n].add(at + v * LANES));
            }
        }
        let mut token = tokens.first;
        while token < tokens.end {
            let (tile, slot) = (token / BLOCK_TOKENS, token % BLOCK_TOKENS);
            let depth = (BLOCK_TOKENS - slot).min(tokens.end - token);
            let mut rows = *weights;
            for row in &mut rows {
                *row = row.add(token);
            }
            let first = slot * tiles.value_stride + at;
            // Values come right after as many keys.
            let next = tiles.next[tile].wrapping_add(head_dim * BLOCK_TOKENS + first);
            let mut values = [Column { at: tiles.values[tile].add(first), next }; V];
            for v in 1..V {
                let Column { at, next } = values[0];
                values[v] = Column { at: at.add(v * LANES), next: next.wrapping_add(v * LANES) };
            }
            multiply(&mut accumulators, &rows, &values, (tiles.value_stride, depth));
            token += depth;
        }
        for n in 0..N {
            for v in 0..V {
                accumulators[n][v].store(sums[n].add(at + v * LANES));
            }
        }
    }
}

/// Vectors a stride apart, and others that will be wanted next.
#[derive(Clone, Copy)]
struct Column<E> {
    at: *const E,
    next: *const E,
}

/// `sums[n][v] += rows[n][k] · columns[v][k · stride …]`, k ascending: one chain per lane.
///
/// # Safety
/// Rows have `depth` floats, columns `depth` vectors a stride apart.
#[inline(always)]
unsafe fn multiply<F: F32x16, E: Element, const N: usize, const V: usize>(
    sums: &mut [[F; V]; N],
    rows: &[*const f32; N],
    columns: &[Column<E>; V],
    (stride, depth): (usize, usize),
) {
    for k in 0..depth {
        let mut lanes = [F::splat(0.0); V];
        // SAFETY: as the caller says.
        unsafe {
            for v in 0..V {
                lanes[v] = E::load::<F>(columns[v].at.add(k * stride));
                if E::IS_FAR {
                    prefetch(columns[v].next.wrapping_add(k * stride));
                }
            }
            for n in 0..N {
                let factor = F::splat(*rows[n].add(k));
                for v in 0..V {
                    sums[n][v] = lanes[v].fma(factor, sums[n][v]);
                }
            }
        }
    }
}
