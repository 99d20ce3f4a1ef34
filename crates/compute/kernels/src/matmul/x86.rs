//! AVX2: eight output rows in a vector, up to four input rows at a time.

use std::arch::x86_64::*;

use super::Panel;
use crate::blocks::BlockFormat;
use crate::panels::quant_bytes;
use crate::{Activations, BLOCK, PANEL_ROWS};

/// Output rows in one vector: half a panel.
const LANES: usize = 8;

/// # Safety
/// The CPU has AVX2, FMA and F16C, and `panel.out` holds `x.rows × weights.rows()` values.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn panel_product(x: &Activations, panel: &Panel<'_>) {
    let mut row = 0;
    // SAFETY: forwarded from the caller.
    unsafe {
        while row + 4 <= x.rows {
            rows_product::<4>(x, row, panel);
            row += 4;
        }
        match x.rows - row {
            1 => rows_product::<1>(x, row, panel),
            2 => rows_product::<2>(x, row, panel),
            3 => rows_product::<3>(x, row, panel),
            _ => {}
        }
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn rows_product<const M: usize>(x: &Activations, row: usize, panel: &Panel<'_>) {
    for half in 0..2 {
        // SAFETY: forwarded from the caller.
        let sums = unsafe {
            match panel.weights.format() {
                BlockFormat::F32 => float_half::<M, 4>(x, row, panel, half),
                BlockFormat::F16 => float_half::<M, 2>(x, row, panel, half),
                BlockFormat::BF16 => float_half::<M, 1>(x, row, panel, half),
                BlockFormat::Q4_0 => nibble_half::<M, false>(x, row, panel, half),
                BlockFormat::Q4_1 => nibble_half::<M, true>(x, row, panel, half),
                BlockFormat::Q5_0 | BlockFormat::Q8_0 => byte_half::<M, false>(x, row, panel, half),
                BlockFormat::Q5_1 => byte_half::<M, true>(x, row, panel, half),
            }
        };
        for (m, sum) in sums.into_iter().enumerate() {
            let mut values = [0f32; LANES];
            // SAFETY: `values` holds eight floats.
            unsafe { _mm256_storeu_ps(values.as_mut_ptr(), sum) };
            panel.store(row + m, half * LANES, &values);
        }
    }
}

/// `KIND` is 4 for f32, 2 for f16, 1 for bf16 weights.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn float_half<const M: usize, const KIND: usize>(
    x: &Activations,
    row: usize,
    panel: &Panel<'_>,
    half: usize,
) -> [__m256; M] {
    let size = if KIND == 4 { 4 } else { 2 };
    let weights = panel.weights.panel(panel.index);
    let mut sums = [_mm256_setzero_ps(); M];
    let inputs = &x.values[row * x.cols..][..M * x.cols];
    for k in 0..x.cols {
        // SAFETY: a float panel holds cols × 16 values, and half × 8 + 8 ≤ 16.
        let weight = unsafe {
            let at = weights.as_ptr().add((k * PANEL_ROWS + half * LANES) * size);
            match KIND {
                4 => _mm256_loadu_ps(at.cast()),
                2 => _mm256_cvtph_ps(_mm_loadu_si128(at.cast())),
                _ => {
                    let high = _mm256_cvtepu16_epi32(_mm_loadu_si128(at.cast()));
                    _mm256_castsi256_ps(_mm256_slli_epi32::<16>(high))
                }
            }
        };
        for (m, sum) in sums.iter_mut().enumerate() {
            // SAFETY: m < M and k < cols index the slice taken above.
            let input = unsafe { *inputs.get_unchecked(m * x.cols + k) };
            *sum = _mm256_fmadd_ps(weight, _mm256_set1_ps(input), *sum);
        }
    }
    sums
}

/// Adds one block's integer dot products to the float sums, in the order of the scalar twin.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn add_block<const M: usize, const MIN: bool>(
    sums: &mut [__m256; M],
    dots: [__m256i; M],
    scales: *const u8,
    terms: [BlockTerms; M],
) {
    // SAFETY: the caller points at this half's eight f16 scales; the minima follow 16 scales later.
    unsafe {
        let scale = _mm256_cvtph_ps(_mm_loadu_si128(scales.cast()));
        for m in 0..M {
            let dot = _mm256_cvtepi32_ps(dots[m]);
            sums[m] = _mm256_fmadd_ps(dot, _mm256_mul_ps(scale, _mm256_set1_ps(terms[m].scale)), sums[m]);
        }
        if MIN {
            let min = _mm256_cvtph_ps(_mm_loadu_si128(scales.add(PANEL_ROWS * 2).cast()));
            for m in 0..M {
                sums[m] = _mm256_fmadd_ps(min, _mm256_set1_ps(terms[m].scaled_sum), sums[m]);
            }
        }
    }
}

#[derive(Clone, Copy)]
struct BlockTerms {
    scale: f32,
    scaled_sum: f32,
}

impl BlockTerms {
    fn of<const M: usize>(x: &Activations, row: usize, block: usize) -> [Self; M] {
        let blocks = x.cols / BLOCK;
        std::array::from_fn(|m| {
            let at = (row + m) * blocks + block;
            Self { scale: x.scales[at], scaled_sum: x.scaled_sums[at] }
        })
    }
}

/// Four-bit weights. Eight products of a nibble and an i8, pairwise summed, fit 16 bits:
/// 8 × 2 × 15 × 127 = 30,480.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn nibble_half<const M: usize, const MIN: bool>(
    x: &Activations,
    row: usize,
    panel: &Panel<'_>,
    half: usize,
) -> [__m256; M] {
    let (weights, stride) = (panel.weights.panel(panel.index), panel.weights.block_stride());
    let scales_at = quant_bytes(panel.weights.format()) + half * LANES * 2;
    let offset = panel.weights.format().offset();
    let (low, ones) = (_mm256_set1_epi8(0x0f), _mm256_set1_epi16(1));
    let mut sums = [_mm256_setzero_ps(); M];
    for block in 0..x.cols / BLOCK {
        let mut pairs = [_mm256_setzero_si256(); M];
        // SAFETY: block < blocks of the panel and of the activations; every read below stays inside
        // this block's 16 × 16 quant bytes and the M rows' 32 quants.
        unsafe {
            let quants = weights.as_ptr().add(block * stride + half * LANES * 4);
            let inputs = x.quants.as_ptr().add(row * x.cols + block * BLOCK);
            for dword in 0..4 {
                let both = _mm256_loadu_si256(quants.add(dword * PANEL_ROWS * 4).cast());
                let first = _mm256_and_si256(both, low);
                let second = _mm256_and_si256(_mm256_srli_epi16::<4>(both), low);
                for (m, pair) in pairs.iter_mut().enumerate() {
                    let input = inputs.add(m * x.cols + dword * 8).cast::<i32>();
                    let (a, b) = (input.read_unaligned(), input.add(1).read_unaligned());
                    *pair = _mm256_add_epi16(*pair, _mm256_maddubs_epi16(first, _mm256_set1_epi32(a)));
                    *pair = _mm256_add_epi16(*pair, _mm256_maddubs_epi16(second, _mm256_set1_epi32(b)));
                }
            }
            let dots = std::array::from_fn(|m| {
                let dot = _mm256_madd_epi16(pairs[m], ones);
                if MIN {
                    return dot;
                }
                let sum = x.sums[(row + m) * (x.cols / BLOCK) + block];
                _mm256_sub_epi32(dot, _mm256_set1_epi32(offset * sum))
            });
            let scales = weights.as_ptr().add(block * stride + scales_at);
            add_block::<M, MIN>(&mut sums, dots, scales, BlockTerms::of(x, row, block));
        }
    }
    sums
}

/// Eight-bit signed weights: |w| × (x with w's sign), whose pair sums fit 16 bits since 2 × 128 × 127 does.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn byte_half<const M: usize, const MIN: bool>(
    x: &Activations,
    row: usize,
    panel: &Panel<'_>,
    half: usize,
) -> [__m256; M] {
    let (weights, stride) = (panel.weights.panel(panel.index), panel.weights.block_stride());
    let scales_at = quant_bytes(panel.weights.format()) + half * LANES * 2;
    let ones = _mm256_set1_epi16(1);
    let mut sums = [_mm256_setzero_ps(); M];
    for block in 0..x.cols / BLOCK {
        let mut dots = [_mm256_setzero_si256(); M];
        // SAFETY: as in `nibble_half`, with 16 × 32 quant bytes.
        unsafe {
            let quants = weights.as_ptr().add(block * stride + half * LANES * 4);
            let inputs = x.quants.as_ptr().add(row * x.cols + block * BLOCK);
            for dword in 0..8 {
                let weight = _mm256_loadu_si256(quants.add(dword * PANEL_ROWS * 4).cast());
                let magnitude = _mm256_abs_epi8(weight);
                for (m, dot) in dots.iter_mut().enumerate() {
                    let input = inputs.add(m * x.cols + dword * 4).cast::<i32>().read_unaligned();
                    let signed = _mm256_sign_epi8(_mm256_set1_epi32(input), weight);
                    let pairs = _mm256_maddubs_epi16(magnitude, signed);
                    *dot = _mm256_add_epi32(*dot, _mm256_madd_epi16(pairs, ones));
                }
            }
            let scales = weights.as_ptr().add(block * stride + scales_at);
            add_block::<M, MIN>(&mut sums, dots, scales, BlockTerms::of(x, row, block));
        }
    }
    sums
}
