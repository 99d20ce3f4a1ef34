//! AVX-512 with VNNI: a panel's 16 output rows are the lanes of one vector, and the sums of a tile's 16 input
//! rows stay in registers.

use std::arch::x86_64::*;

use super::{AHEAD, FloatTile, QuantPanel, Results, unroll};
use crate::activations::{Factors, TILE_ROWS, Tile};
use crate::blocks::BlockFormat;
use crate::panels::{Quants, Scales};
use crate::simd::prefetch;
use crate::{BLOCK, PANEL_ROWS};

/// Dwords of four weights that a block has per output row.
pub(super) const DWORDS: usize = BLOCK / 4;

/// # Safety
/// The CPU has AVX-512 F, BW, DQ, VL and VNNI.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) unsafe fn quantized(tile: Tile<'_>, panel: &QuantPanel<'_>, results: &mut Results) {
    // SAFETY: forwarded from the caller.
    unsafe {
        match (panel.layout.quants, panel.layout.scales) {
            (Quants::Nibble8, Scales::Half) => rows::<Nibbles, MINUS_8, Half>(tile, panel, results),
            (Quants::Nibble8, _) => rows::<Nibbles, MINUS_8, Super<true, false>>(tile, panel, results),
            (Quants::Nibble, Scales::HalfMin) => rows::<Nibbles, 0, HalfMin>(tile, panel, results),
            (Quants::Nibble, Scales::SuperMin { halves: false }) => {
                rows::<Nibbles, 0, Super<false, true>>(tile, panel, results);
            }
            (Quants::Nibble, _) => rows::<Nibbles, 0, Super<true, true>>(tile, panel, results),
            (Quants::Table(_), Scales::Half) => rows::<TableOf, MINUS_128, Half>(tile, panel, results),
            (Quants::Table(_), Scales::Float) => rows::<TableOf, MINUS_128, Float>(tile, panel, results),
            (Quants::Table(_), _) => rows::<TableOf, MINUS_128, Super<false, false>>(tile, panel, results),
            (Quants::Byte128, Scales::Half) => rows::<Bytes, MINUS_128, Half>(tile, panel, results),
            (Quants::Byte128, _) => rows::<Bytes, MINUS_128, Super<true, false>>(tile, panel, results),
            (Quants::Byte, Scales::HalfMin) => rows::<Bytes, 0, HalfMin>(tile, panel, results),
            (Quants::Byte, _) => rows::<Bytes, 0, Super<false, true>>(tile, panel, results),
        }
    }
}

/// Writes a panel's weights to `target` as signed bytes, block after block, dwords as in the panel.
///
/// # Safety
/// The CPU has the features, and the target has room for 512 bytes a block, on a cache line.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) unsafe fn unpack_signed(panel: &QuantPanel<'_>, target: *mut u8) {
    // SAFETY: forwarded from the caller.
    unsafe {
        match panel.layout.quants {
            Quants::Nibble8 => unpack_blocks::<Nibbles>(panel, target, _mm512_set1_epi8(8)),
            Quants::Nibble => unpack_blocks::<Nibbles>(panel, target, _mm512_setzero_si512()),
            Quants::Table(_) => unpack_blocks::<TableOf>(panel, target, _mm512_set1_epi8(-128)),
            Quants::Byte128 => unpack_blocks::<Bytes>(panel, target, _mm512_set1_epi8(-128)),
            Quants::Byte => unpack_blocks::<Bytes>(panel, target, _mm512_setzero_si512()),
        }
    }
}

#[inline(always)]
unsafe fn unpack_blocks<U: Unpack>(panel: &QuantPanel<'_>, target: *mut u8, offset: __m512i) {
    // SAFETY: forwarded from the caller.
    unsafe {
        let unpack = U::new(panel);
        for block in 0..panel.layout.blocks {
            if panel.is_first {
                panel.look_ahead(block);
            }
            let weights = unpack.block(panel.bytes.as_ptr().add(block * panel.layout.quants.bytes()));
            for (dword, weight) in weights.into_iter().enumerate() {
                let signed = _mm512_sub_epi8(weight, offset);
                _mm512_store_si512(target.add((block * DWORDS + dword) * 64).cast(), signed);
            }
        }
    }
}

/// What a dot product starts from: 0, or one of the records' corrections for weights stored with an offset.
const MINUS_8: u8 = 8;
const MINUS_128: u8 = 128;

/// A block's weights as unsigned bytes, a dword per output row and four k.
pub(super) trait Unpack: Copy {
    /// # Safety
    /// The CPU has the features of [`quantized`].
    unsafe fn new(panel: &QuantPanel<'_>) -> Self;
    /// # Safety
    /// The same, and `at` points to a block's quants.
    unsafe fn block(self, at: *const u8) -> [__m512i; DWORDS];
}

#[derive(Clone, Copy)]
struct Nibbles;

impl Unpack for Nibbles {
    #[inline(always)]
    unsafe fn new(_: &QuantPanel<'_>) -> Self {
        Self
    }

    #[inline(always)]
    unsafe fn block(self, at: *const u8) -> [__m512i; DWORDS] {
        // SAFETY: a block of nibbles is four vectors long.
        unsafe {
            let mut out = [_mm512_setzero_si512(); DWORDS];
            let low = _mm512_set1_epi8(0x0f);
            for pair in 0..DWORDS / 2 {
                let both = _mm512_loadu_si512(at.add(pair * 64).cast());
                out[pair * 2] = _mm512_and_si512(both, low);
                out[pair * 2 + 1] = _mm512_and_si512(_mm512_srli_epi16::<4>(both), low);
            }
            out
        }
    }
}

/// Nibbles that stand for a table's values, offset by 128.
#[derive(Clone, Copy)]
struct TableOf(__m512i);

impl Unpack for TableOf {
    #[inline(always)]
    unsafe fn new(panel: &QuantPanel<'_>) -> Self {
        let mut bytes = [0u8; 16];
        if let Quants::Table(table) = panel.layout.quants {
            bytes = table.map(|value| value as u8 ^ 0x80);
        }
        // SAFETY: the array is one vector of 16 bytes.
        Self(unsafe { _mm512_broadcast_i32x4(_mm_loadu_si128(bytes.as_ptr().cast())) })
    }

    #[inline(always)]
    unsafe fn block(self, at: *const u8) -> [__m512i; DWORDS] {
        // SAFETY: forwarded from the caller.
        unsafe { Nibbles.block(at).map(|quants| _mm512_shuffle_epi8(self.0, quants)) }
    }
}

#[derive(Clone, Copy)]
struct Bytes;

impl Unpack for Bytes {
    #[inline(always)]
    unsafe fn new(_: &QuantPanel<'_>) -> Self {
        Self
    }

    #[inline(always)]
    unsafe fn block(self, at: *const u8) -> [__m512i; DWORDS] {
        // SAFETY: a block of bytes is eight vectors long.
        std::array::from_fn(|i| unsafe { _mm512_loadu_si512(at.add(i * 64).cast()) })
    }
}

/// All rows of a tile, as many at a time as there are.
#[inline(always)]
unsafe fn rows<U: Unpack, const START: u8, S: Scaling>(
    tile: Tile<'_>,
    panel: &QuantPanel<'_>,
    results: &mut Results,
) {
    let mut row = 0;
    while row < tile.rows {
        // SAFETY: forwarded from the caller; `row + M <= tile.rows`.
        row += unsafe {
            match tile.rows - row {
                TILE_ROWS.. => block_chain::<U, START, S, TILE_ROWS>(tile, row, panel, results),
                8.. => block_chain::<U, START, S, 8>(tile, row, panel, results),
                4.. => block_chain::<U, START, S, 4>(tile, row, panel, results),
                2.. => block_chain::<U, START, S, 2>(tile, row, panel, results),
                _ => block_chain::<U, START, S, 1>(tile, row, panel, results),
            }
        };
    }
}

/// `M` rows from `row` on: their sums over all blocks, in the order of the scalar twin.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn block_chain<U: Unpack, const START: u8, S: Scaling, const M: usize>(
    tile: Tile<'_>,
    row: usize,
    panel: &QuantPanel<'_>,
    results: &mut Results,
) -> usize {
    let mut sums = [_mm512_setzero_ps(); M];
    // SAFETY: `block` counts the blocks of the panel and of the tile's records, of which rows row…row + M
    // exist; every read stays inside one of them.
    unsafe {
        let unpack = U::new(panel);
        for block in 0..panel.layout.blocks {
            if row == 0 && panel.is_first {
                panel.look_ahead(block);
            }
            let weights = unpack.block(panel.bytes.as_ptr().add(block * panel.layout.quants.bytes()));
            let x = tile.blocks.get_unchecked(block);
            let (quants, factors) = (x.quants.as_ptr().add(row), x.factors.as_ptr().add(row));
            let scales = S::read(panel, block);
            unroll!(m < M, {
                let (quants, factors) = (&*quants.add(m), &*factors.add(m));
                if S::HALVES {
                    for half in 0..2 {
                        let (weights, quants) = (&weights[half * DWORDS / 2..], &quants[half * 16..]);
                        let dot = dot::<{ DWORDS / 2 }>(half_start::<START>(factors, half), weights, quants);
                        sums[m] = scales.add::<S>(half, dot, factors, sums[m]);
                    }
                } else {
                    let dot = dot::<DWORDS>(block_start::<START>(factors), &weights, quants);
                    sums[m] = scales.add::<S>(0, dot, factors, sums[m]);
                }
            });
        }
        for (m, sum) in sums.iter().enumerate() {
            _mm512_storeu_ps(results.0[row + m].as_mut_ptr(), *sum);
        }
    }
    M
}

#[inline(always)]
unsafe fn dot<const N: usize>(start: __m512i, weights: &[__m512i], quants: &[i8]) -> __m512i {
    let (quants, _) = quants.as_chunks::<4>();
    let mut dot = start;
    for i in 0..N {
        // SAFETY: the CPU has VNNI.
        dot = unsafe {
            _mm512_dpbusd_epi32(
                dot,
                weights[i],
                _mm512_set1_epi32(i32::from_ne_bytes(quants[i].map(|q| q as u8))),
            )
        };
    }
    dot
}

#[inline(always)]
unsafe fn block_start<const START: u8>(x: &Factors) -> __m512i {
    // SAFETY: the CPU has AVX-512.
    unsafe {
        match START {
            MINUS_8 => _mm512_set1_epi32(x.minus_8),
            MINUS_128 => _mm512_set1_epi32(x.minus_128),
            _ => _mm512_setzero_si512(),
        }
    }
}

#[inline(always)]
unsafe fn half_start<const START: u8>(x: &Factors, half: usize) -> __m512i {
    // SAFETY: the CPU has AVX-512.
    unsafe {
        match START {
            MINUS_8 => _mm512_srai_epi32::<4>(_mm512_set1_epi32(x.half_minus_128[half])),
            MINUS_128 => _mm512_set1_epi32(x.half_minus_128[half]),
            _ => _mm512_setzero_si512(),
        }
    }
}

/// How a panel stores scales, known to the compiler: a choice per block would be an indirect jump.
pub(super) trait Scaling {
    /// Whether each half of a block has its own.
    const HALVES: bool;
    const MIN: bool;

    /// # Safety
    /// The CPU has the features of [`quantized`], and the panel has this block and stores its scales like this.
    unsafe fn read(panel: &QuantPanel<'_>, block: usize) -> BlockScales;
}

/// [`Scales::Half`].
pub(super) struct Half;
/// [`Scales::HalfMin`].
pub(super) struct HalfMin;
/// [`Scales::Float`].
pub(super) struct Float;
/// [`Scales::Super`], or [`Scales::SuperMin`] with `MIN`.
pub(super) struct Super<const HALVES: bool, const MIN: bool>;

impl Scaling for Half {
    const HALVES: bool = false;
    const MIN: bool = false;

    #[inline(always)]
    unsafe fn read(panel: &QuantPanel<'_>, block: usize) -> BlockScales {
        // SAFETY: the caller's promise.
        unsafe { BlockScales::plain(halves(scales_at::<32>(panel, block))) }
    }
}

impl Scaling for HalfMin {
    const HALVES: bool = false;
    const MIN: bool = true;

    #[inline(always)]
    unsafe fn read(panel: &QuantPanel<'_>, block: usize) -> BlockScales {
        // SAFETY: the caller's promise.
        unsafe {
            let at = scales_at::<64>(panel, block);
            BlockScales { mins: [halves(at.add(PANEL_ROWS * 2)); 2], ..BlockScales::plain(halves(at)) }
        }
    }
}

impl Scaling for Float {
    const HALVES: bool = false;
    const MIN: bool = false;

    #[inline(always)]
    unsafe fn read(panel: &QuantPanel<'_>, block: usize) -> BlockScales {
        // SAFETY: the caller's promise.
        unsafe { BlockScales::plain(_mm512_loadu_ps(scales_at::<64>(panel, block).cast())) }
    }
}

impl<const HALVES: bool, const MIN: bool> Scaling for Super<HALVES, MIN> {
    const HALVES: bool = HALVES;
    const MIN: bool = MIN;

    #[inline(always)]
    unsafe fn read(panel: &QuantPanel<'_>, block: usize) -> BlockScales {
        // SAFETY: the caller's promise.
        unsafe {
            let at = panel.bytes.as_ptr().add(panel.layout.scales_at(block));
            let factors = panel.bytes.as_ptr().add(panel.layout.super_at(block));
            let bytes = |part: usize| _mm_loadu_si128(at.add(part * PANEL_ROWS).cast());
            let scale = halves(factors);
            let mut out = BlockScales::plain(_mm512_setzero_ps());
            for part in 0..1 + usize::from(HALVES) {
                let sub = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes(part)));
                out.scales[part] = _mm512_mul_ps(scale, sub);
                if MIN {
                    let sub = bytes(1 + usize::from(HALVES) + part);
                    let min = halves(factors.add(PANEL_ROWS * 2));
                    out.mins[part] = _mm512_mul_ps(min, _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(sub)));
                }
            }
            out
        }
    }
}

/// A block's scales, `BYTES` a block.
#[inline(always)]
unsafe fn scales_at<const BYTES: usize>(panel: &QuantPanel<'_>, block: usize) -> *const u8 {
    debug_assert_eq!(BYTES, panel.layout.scales.bytes());
    // SAFETY: the layout says where scales begin; the rest is the caller's promise.
    unsafe { panel.bytes.as_ptr().add(panel.layout.scales_at(0) + block * BYTES) }
}

/// 16 values from f16.
#[inline(always)]
unsafe fn halves(at: *const u8) -> __m512 {
    // SAFETY: the caller's promise.
    unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(at.cast())) }
}

/// Scales and minima of a block, or of each half of it, for 16 output rows.
pub(super) struct BlockScales {
    scales: [__m512; 2],
    mins: [__m512; 2],
}

impl BlockScales {
    #[inline(always)]
    unsafe fn plain(scales: __m512) -> Self {
        // SAFETY: the CPU has AVX-512.
        Self { scales: [scales; 2], mins: [unsafe { _mm512_setzero_ps() }; 2] }
    }

    /// The chain's next links.
    ///
    /// # Safety
    /// The CPU has the features of [`quantized`].
    #[inline(always)]
    pub(super) unsafe fn add<S: Scaling>(
        &self,
        half: usize,
        dot: __m512i,
        x: &Factors,
        sum: __m512,
    ) -> __m512 {
        // SAFETY: the CPU has AVX-512.
        unsafe {
            let scale = _mm512_mul_ps(self.scales[half], _mm512_set1_ps(x.scale));
            let sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), scale, sum);
            if !S::MIN {
                return sum;
            }
            let x_sum = if S::HALVES { x.half_scaled_sums[half] } else { x.scaled_sum };
            _mm512_fmadd_ps(self.mins[half], _mm512_set1_ps(x_sum), sum)
        }
    }
}

/// # Safety
/// The CPU has AVX-512 F, BW, DQ, VL and VNNI.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) unsafe fn float(tile: &FloatTile<'_>, results: &mut Results) {
    let mut row = 0;
    while row < tile.rows {
        // SAFETY: forwarded from the caller; `row + M <= tile.rows`.
        row += unsafe {
            match tile.rows - row {
                8.. => float_kind::<8>(tile, row, results),
                4.. => float_kind::<4>(tile, row, results),
                2.. => float_kind::<2>(tile, row, results),
                _ => float_kind::<1>(tile, row, results),
            }
        };
    }
}

#[inline(always)]
unsafe fn float_kind<const M: usize>(tile: &FloatTile<'_>, row: usize, results: &mut Results) -> usize {
    // SAFETY: forwarded from the caller.
    unsafe {
        match tile.format {
            BlockFormat::F16 => float_chain::<M, 2>(tile, row, results),
            BlockFormat::BF16 => float_chain::<M, 1>(tile, row, results),
            _ => float_chain::<M, 4>(tile, row, results),
        }
    }
    M
}

/// `KIND` is 4 for f32, 2 for f16, 1 for bf16 weights.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn float_chain<const M: usize, const KIND: usize>(
    tile: &FloatTile<'_>,
    row: usize,
    results: &mut Results,
) {
    let size = if KIND == 4 { 4 } else { 2 };
    let mut sums = [_mm512_setzero_ps(); M];
    let inputs = &tile.values[row * tile.cols..][..M * tile.cols];
    for k in 0..tile.cols {
        // SAFETY: a float panel holds cols × 16 values; m < M and k < cols index the slice taken above.
        unsafe {
            let at = tile.weights.as_ptr().add(k * PANEL_ROWS * size);
            if row == 0 && tile.is_first {
                prefetch(at.wrapping_add(AHEAD));
            }
            let weight = match KIND {
                4 => _mm512_loadu_ps(at.cast()),
                2 => _mm512_cvtph_ps(_mm256_loadu_si256(at.cast())),
                _ => {
                    let high = _mm512_cvtepu16_epi32(_mm256_loadu_si256(at.cast()));
                    _mm512_castsi512_ps(_mm512_slli_epi32::<16>(high))
                }
            };
            for (m, sum) in sums.iter_mut().enumerate() {
                let input = *inputs.get_unchecked(m * tile.cols + k);
                *sum = _mm512_fmadd_ps(weight, _mm512_set1_ps(input), *sum);
            }
        }
    }
    for (m, sum) in sums.iter().enumerate() {
        // SAFETY: a row of results is one vector.
        unsafe { _mm512_storeu_ps(results.0[row + m].as_mut_ptr(), *sum) };
    }
}
