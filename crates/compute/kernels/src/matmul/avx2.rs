//! AVX2 and AVX-VNNI: eight output rows in a vector, up to four input rows at a time.

use std::arch::x86_64::*;

use super::{AHEAD, FloatTile, QuantPanel, Results};
use crate::activations::{BlockTile, Tile};
use crate::blocks::BlockFormat;
use crate::panels::{Quants, Scales};
use crate::simd::prefetch;
use crate::{BLOCK, PANEL_ROWS};

/// Output rows in one vector: half a panel.
const LANES: usize = 8;
/// Dwords of four weights that a block has per output row.
const DWORDS: usize = BLOCK / 4;

/// # Safety
/// The CPU has AVX2, FMA and F16C.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn quantized(tile: Tile<'_>, panel: &QuantPanel<'_>, results: &mut Results) {
    // SAFETY: forwarded from the caller.
    unsafe { all_rows::<Multiply>(tile, panel, results) };
}

/// # Safety
/// The CPU has AVX2, FMA, F16C and AVX-VNNI.
#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
pub(super) unsafe fn quantized_vnni(tile: Tile<'_>, panel: &QuantPanel<'_>, results: &mut Results) {
    // SAFETY: forwarded from the caller.
    unsafe { all_rows::<Vnni>(tile, panel, results) };
}

/// Dot products of four bytes, exact whatever the bytes are.
trait Dot {
    /// `sum + Σ w · x` of four unsigned bytes that are at most 63 and four signed ones.
    unsafe fn small(sum: __m256i, weights: __m256i, x: __m256i) -> __m256i;
    /// The same for bytes that stand for w − 128: with `start`, what is to be added to the result.
    unsafe fn offset(sum: __m256i, weights: __m256i, x: __m256i) -> __m256i;
    /// Where a sum of `offset` products starts, given −128 × the sum of x.
    unsafe fn start(minus_128: i32) -> __m256i;
}

struct Multiply;

impl Dot for Multiply {
    #[inline(always)]
    unsafe fn small(sum: __m256i, weights: __m256i, x: __m256i) -> __m256i {
        // SAFETY: the CPU has AVX2. 2 × 63 × 127 fits the 16 bits of a pair.
        unsafe {
            let pairs = _mm256_maddubs_epi16(weights, x);
            _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
        }
    }

    #[inline(always)]
    unsafe fn offset(sum: __m256i, weights: __m256i, x: __m256i) -> __m256i {
        // |w| × (x with w's sign): pair sums fit 16 bits since 2 × 128 × 127 does.
        // SAFETY: the CPU has AVX2.
        unsafe {
            let signed = _mm256_xor_si256(weights, _mm256_set1_epi8(-128));
            let pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(signed), _mm256_sign_epi8(x, signed));
            _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
        }
    }

    #[inline(always)]
    unsafe fn start(_: i32) -> __m256i {
        // SAFETY: the CPU has AVX2.
        unsafe { _mm256_setzero_si256() }
    }
}

struct Vnni;

impl Dot for Vnni {
    #[inline(always)]
    unsafe fn small(sum: __m256i, weights: __m256i, x: __m256i) -> __m256i {
        // SAFETY: the CPU has AVX-VNNI.
        unsafe { _mm256_dpbusd_avx_epi32(sum, weights, x) }
    }

    #[inline(always)]
    unsafe fn offset(sum: __m256i, weights: __m256i, x: __m256i) -> __m256i {
        // SAFETY: the CPU has AVX-VNNI.
        unsafe { _mm256_dpbusd_avx_epi32(sum, weights, x) }
    }

    #[inline(always)]
    unsafe fn start(minus_128: i32) -> __m256i {
        // SAFETY: the CPU has AVX2.
        unsafe { _mm256_set1_epi32(minus_128) }
    }
}

#[inline(always)]
unsafe fn all_rows<D: Dot>(tile: Tile<'_>, panel: &QuantPanel<'_>, results: &mut Results) {
    let mut row = 0;
    while row < tile.rows {
        // SAFETY: forwarded from the caller; `row + M <= tile.rows`.
        row += unsafe {
            match tile.rows - row {
                4.. => rows::<D, 4>(tile, row, panel, results),
                2.. => rows::<D, 2>(tile, row, panel, results),
                _ => rows::<D, 1>(tile, row, panel, results),
            }
        };
    }
}

#[inline(always)]
unsafe fn rows<D: Dot, const M: usize>(
    tile: Tile<'_>,
    row: usize,
    panel: &QuantPanel<'_>,
    results: &mut Results,
) -> usize {
    for half in 0..2 {
        let mut chain = Chain::<M> { tile, row, panel, half };
        // SAFETY: forwarded from the caller.
        unsafe {
            let sums = match panel.layout.quants {
                Quants::Nibble | Quants::Nibble8 => chain.run::<D, NIBBLE>(),
                Quants::Byte => chain.run::<D, BYTE>(),
                Quants::Byte128 => chain.run::<D, BYTE_128>(),
                Quants::Table(_) => chain.run::<D, TABLE>(),
            };
            for (m, sum) in sums.into_iter().enumerate() {
                _mm256_storeu_ps(results.0[row + m].as_mut_ptr().add(half * LANES), sum);
            }
        }
    }
    M
}

const NIBBLE: u8 = 0;
const BYTE: u8 = 1;
const BYTE_128: u8 = 2;
const TABLE: u8 = 3;

/// Half a panel against `M` rows of a tile.
struct Chain<'a, const M: usize> {
    tile: Tile<'a>,
    row: usize,
    panel: &'a QuantPanel<'a>,
    half: usize,
}

impl<const M: usize> Chain<'_, M> {
    /// The rows' sums over all blocks, in the order of the scalar twin.
    #[inline(always)]
    unsafe fn run<D: Dot, const KIND: u8>(&mut self) -> [__m256; M] {
        let layout = self.panel.layout;
        let parts = 1 + usize::from(layout.scales.halves());
        // SAFETY: `block` counts the blocks of the panel and of the tile's records, of which rows
        // row…row + M exist; every read stays inside one of them.
        unsafe {
            let mut sums = [_mm256_setzero_ps(); M];
            for block in 0..layout.blocks {
                if self.panel.is_first && self.row == 0 && self.half == 0 {
                    self.panel.look_ahead(block);
                }
                let weights =
                    self.panel.bytes.as_ptr().add(block * layout.quants.bytes() + self.half * LANES * 4);
                let x = self.tile.blocks.get_unchecked(block);
                for part in 0..parts {
                    let dots = self.dots::<D, KIND>(weights, x, (part, parts));
                    self.add(&mut sums, dots, x, (block, part));
                }
            }
            sums
        }
    }

    /// Dot products of one part of a block.
    #[inline(always)]
    unsafe fn dots<D: Dot, const KIND: u8>(
        &self,
        weights: *const u8,
        x: &BlockTile,
        (part, parts): (usize, usize),
    ) -> [__m256i; M] {
        // SAFETY: forwarded from the caller.
        unsafe {
            let mut dots: [__m256i; M] = std::array::from_fn(|m| self.start::<D, KIND>(x, m, (part, parts)));
            for dword in part * DWORDS / parts..(part + 1) * DWORDS / parts {
                let weight = self.weights::<KIND>(weights, dword);
                for (m, dot) in dots.iter_mut().enumerate() {
                    let input = x.quants.get_unchecked(self.row + m).as_ptr().add(dword * 4).cast::<i32>();
                    let input = _mm256_set1_epi32(input.read_unaligned());
                    *dot = if KIND == NIBBLE || KIND == BYTE {
                        D::small(*dot, weight, input)
                    } else {
                        D::offset(*dot, weight, input)
                    };
                }
            }
            dots
        }
    }

    #[inline(always)]
    unsafe fn start<D: Dot, const KIND: u8>(
        &self,
        x: &BlockTile,
        m: usize,
        (part, parts): (usize, usize),
    ) -> __m256i {
        let factors = &x.factors[self.row + m];
        let minus_128 = if parts == 2 { factors.half_minus_128[part] } else { factors.minus_128 };
        // SAFETY: the CPU has AVX2.
        unsafe {
            match (KIND, self.panel.layout.quants) {
                (NIBBLE, Quants::Nibble8) => _mm256_set1_epi32(minus_128 >> 4),
                (BYTE_128 | TABLE, _) => D::start(minus_128),
                _ => _mm256_setzero_si256(),
            }
        }
    }

    /// Dword `dword` of every row of the half panel, as unsigned bytes.
    #[inline(always)]
    unsafe fn weights<const KIND: u8>(&self, at: *const u8, dword: usize) -> __m256i {
        // SAFETY: forwarded from the caller: a block has 8 dwords of bytes or 4 of nibbles per row.
        unsafe {
            if KIND == BYTE || KIND == BYTE_128 {
                return _mm256_loadu_si256(at.add(dword * PANEL_ROWS * 4).cast());
            }
            let both = _mm256_loadu_si256(at.add(dword / 2 * PANEL_ROWS * 4).cast());
            let shifted = if dword.is_multiple_of(2) { both } else { _mm256_srli_epi16::<4>(both) };
            let quants = _mm256_and_si256(shifted, _mm256_set1_epi8(0x0f));
            match self.panel.layout.quants {
                Quants::Table(table) if KIND == TABLE => {
                    let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
                    let offset = _mm256_xor_si256(table, _mm256_set1_epi8(-128));
                    _mm256_shuffle_epi8(offset, quants)
                }
                _ => quants,
            }
        }
    }

    /// The chains' next links: integer dot products meet the floats.
    #[inline(always)]
    unsafe fn add(
        &self,
        sums: &mut [__m256; M],
        dots: [__m256i; M],
        x: &BlockTile,
        (block, part): (usize, usize),
    ) {
        // SAFETY: forwarded from the caller.
        unsafe {
            let (scale, min) = self.scales(block, part);
            let halves = self.panel.layout.scales.halves();
            for (m, sum) in sums.iter_mut().enumerate() {
                let factors = &x.factors[self.row + m];
                let scale = _mm256_mul_ps(scale, _mm256_set1_ps(factors.scale));
                *sum = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots[m]), scale, *sum);
                if self.panel.layout.scales.has_min() {
                    let x_sum = if halves { factors.half_scaled_sums[part] } else { factors.scaled_sum };
                    *sum = _mm256_fmadd_ps(min, _mm256_set1_ps(x_sum), *sum);
                }
            }
        }
    }

    /// Scales and minima of the half panel's rows.
    #[inline(always)]
    unsafe fn scales(&self, block: usize, part: usize) -> (__m256, __m256) {
        let layout = self.panel.layout;
        let first = self.half * LANES;
        // SAFETY: the layout says where the block's scales and factors are.
        unsafe {
            let at = self.panel.bytes.as_ptr().add(layout.scales_at(block));
            let half = |at: *const u8| _mm256_cvtph_ps(_mm_loadu_si128(at.add(first * 2).cast()));
            let zero = _mm256_setzero_ps();
            match layout.scales {
                Scales::Half => (half(at), zero),
                Scales::Float => (_mm256_loadu_ps(at.add(first * 4).cast()), zero),
                Scales::HalfMin => (half(at), half(at.add(PANEL_ROWS * 2))),
                Scales::Super { halves } | Scales::SuperMin { halves } => {
                    let factors = self.panel.bytes.as_ptr().add(layout.super_at(block));
                    let bytes = |part: usize| _mm_loadl_epi64(at.add(part * PANEL_ROWS + first).cast());
                    let sub = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes(part)));
                    let scale = _mm256_mul_ps(half(factors), sub);
                    if !layout.scales.has_min() {
                        return (scale, zero);
                    }
                    let sub = bytes(1 + usize::from(halves) + part);
                    let sub = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(sub));
                    (scale, _mm256_mul_ps(half(factors.add(PANEL_ROWS * 2)), sub))
                }
            }
        }
    }
}

/// # Safety
/// The CPU has AVX2, FMA and F16C.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn float(tile: &FloatTile<'_>, results: &mut Results) {
    let mut row = 0;
    while row < tile.rows {
        // SAFETY: forwarded from the caller; `row + M <= tile.rows`.
        row += unsafe {
            match tile.rows - row {
                4.. => float_kind::<4>(tile, row, results),
                2.. => float_kind::<2>(tile, row, results),
                _ => float_kind::<1>(tile, row, results),
            }
        };
    }
}

#[inline(always)]
unsafe fn float_kind<const M: usize>(tile: &FloatTile<'_>, row: usize, results: &mut Results) -> usize {
    for half in 0..2 {
        // SAFETY: forwarded from the caller.
        unsafe {
            let sums = match tile.format {
                BlockFormat::F16 => float_half::<M, 2>(tile, row, half),
                BlockFormat::BF16 => float_half::<M, 1>(tile, row, half),
                _ => float_half::<M, 4>(tile, row, half),
            };
            for (m, sum) in sums.into_iter().enumerate() {
                _mm256_storeu_ps(results.0[row + m].as_mut_ptr().add(half * LANES), sum);
            }
        }
    }
    M
}

/// `KIND` is 4 for f32, 2 for f16, 1 for bf16 weights.
#[inline(always)]
unsafe fn float_half<const M: usize, const KIND: usize>(
    tile: &FloatTile<'_>,
    row: usize,
    half: usize,
) -> [__m256; M] {
    let size = if KIND == 4 { 4 } else { 2 };
    let inputs = &tile.values[row * tile.cols..][..M * tile.cols];
    // SAFETY: a float panel holds cols × 16 values, and half × 8 + 8 ≤ 16; m < M and k < cols index the inputs.
    unsafe {
        let mut sums = [_mm256_setzero_ps(); M];
        for k in 0..tile.cols {
            let at = tile.weights.as_ptr().add((k * PANEL_ROWS + half * LANES) * size);
            if row == 0 && half == 0 && tile.is_first {
                prefetch(at.wrapping_add(AHEAD));
            }
            let weight = match KIND {
                4 => _mm256_loadu_ps(at.cast()),
                2 => _mm256_cvtph_ps(_mm_loadu_si128(at.cast())),
                _ => {
                    let high = _mm256_cvtepu16_epi32(_mm_loadu_si128(at.cast()));
                    _mm256_castsi256_ps(_mm256_slli_epi32::<16>(high))
                }
            };
            for (m, sum) in sums.iter_mut().enumerate() {
                let input = *inputs.get_unchecked(m * tile.cols + k);
                *sum = _mm256_fmadd_ps(weight, _mm256_set1_ps(input), *sum);
            }
        }
        sums
    }
}
