//! NEON, with dot products of bytes or without: four output rows in a vector, up to eight input rows at a time.
//!
//! A panel's 16 output rows are four such quarters. What has many input rows takes one quarter after the other, so
//! that unpacking and scales serve eight rows each; what has few takes all quarters at once, so that there are
//! enough independent chains.

mod dot;
mod float;
mod scaling;

use std::arch::aarch64::*;

pub(super) use float::float;

use self::dot::{Dot, Multiply, Sdot};
use self::scaling::{BlockScales, Float, Half, HalfMin, Scaling, Super};
use super::{QuantPanel, Results, unroll};
use crate::activations::{Factors, Tile};
use crate::panels::{Quants, Scales};
use crate::{BLOCK, PANEL_ROWS};

/// Output rows in one vector.
const LANES: usize = 4;
/// Vectors of a panel's output rows.
const QUARTERS: usize = PANEL_ROWS / LANES;
/// Dwords of four weights that a block has per output row.
const DWORDS: usize = BLOCK / 4;
/// Bytes from one dword of a row to its next one: 16 rows' dwords.
const STRIDE: usize = PANEL_ROWS * 4;

/// # Safety
/// The CPU has NEON.
pub(super) unsafe fn quantized(tile: Tile<'_>, panel: &QuantPanel<'_>, results: &mut Results) {
    // SAFETY: forwarded from the caller.
    unsafe { formats::<Multiply>(tile, panel, results) };
}

/// # Safety
/// The CPU has NEON with dotprod.
pub(super) unsafe fn quantized_dot(tile: Tile<'_>, panel: &QuantPanel<'_>, results: &mut Results) {
    // SAFETY: forwarded from the caller.
    unsafe { formats::<Sdot>(tile, panel, results) };
}

unsafe fn formats<D: Dot>(tile: Tile<'_>, panel: &QuantPanel<'_>, results: &mut Results) {
    // SAFETY: forwarded from the caller.
    unsafe {
        match (panel.layout.quants, panel.layout.scales) {
            (Quants::Nibble8, Scales::Half) => rows::<D, Nibbles<true>, Half>(tile, panel, results),
            (Quants::Nibble8, _) => rows::<D, Nibbles<true>, Super<true, false>>(tile, panel, results),
            (Quants::Nibble, Scales::HalfMin) => rows::<D, Nibbles<false>, HalfMin>(tile, panel, results),
            (Quants::Nibble, Scales::SuperMin { halves: false }) => {
                rows::<D, Nibbles<false>, Super<false, true>>(tile, panel, results);
            }
            (Quants::Nibble, _) => rows::<D, Nibbles<false>, Super<true, true>>(tile, panel, results),
            (Quants::Table(_), Scales::Half) => rows::<D, TableOf, Half>(tile, panel, results),
            (Quants::Table(_), Scales::Float) => rows::<D, TableOf, Float>(tile, panel, results),
            (Quants::Table(_), _) => rows::<D, TableOf, Super<false, false>>(tile, panel, results),
            (Quants::Byte128, Scales::Half) => rows::<D, Bytes128, Half>(tile, panel, results),
            (Quants::Byte128, _) => rows::<D, Bytes128, Super<true, false>>(tile, panel, results),
            (Quants::Byte, Scales::HalfMin) => rows::<D, Bytes, HalfMin>(tile, panel, results),
            (Quants::Byte, _) => rows::<D, Bytes, Super<false, true>>(tile, panel, results),
        }
    }
}

/// All rows of a tile, as many at a time as there are.
unsafe fn rows<D: Dot, U: Unpack, S: Scaling>(tile: Tile<'_>, panel: &QuantPanel<'_>, results: &mut Results) {
    let mut row = 0;
    while row < tile.rows {
        let chain = Chain { tile, row, panel };
        // SAFETY: forwarded from the caller; `row + M <= tile.rows`, and `Q` divides the quarters.
        row += unsafe {
            match tile.rows - row {
                8.. => D::run::<U, S, 8, 1>(chain, results),
                4.. => D::run::<U, S, 4, 2>(chain, results),
                2.. => D::run::<U, S, 2, 4>(chain, results),
                _ => D::run::<U, S, 1, 4>(chain, results),
            }
        };
    }
}

/// A panel against the rows of a tile from `row` on.
struct Chain<'a> {
    tile: Tile<'a>,
    row: usize,
    panel: &'a QuantPanel<'a>,
}

impl Chain<'_> {
    /// The sums of `M` rows over all blocks, in the order of the scalar twin, of `Q` quarters at a time.
    #[inline(always)]
    unsafe fn run<D: Dot, U: Unpack, S: Scaling, const M: usize, const Q: usize>(
        &self,
        results: &mut Results,
    ) -> usize {
        // SAFETY: `block` counts the blocks of the panel and of the tile's records, of which rows row…row + M
        // exist, and `first + q` the panel's quarters; every read stays inside one of them.
        unsafe {
            let unpack = U::new(self.panel);
            let mut first = 0;
            while first < QUARTERS {
                let mut sums = [[vdupq_n_f32(0.0); M]; Q];
                for block in 0..self.panel.layout.blocks {
                    if self.row == 0 && first == 0 && self.panel.is_first {
                        self.panel.look_ahead(block);
                    }
                    unroll!(q < Q, {
                        self.block::<D, U, S, M>(unpack, (block, first + q), &mut sums[q]);
                    });
                }
                let target = results.0.as_mut_ptr().add(self.row).cast::<f32>();
                for (q, sums) in sums.iter().enumerate() {
                    for (m, sum) in sums.iter().enumerate() {
                        vst1q_f32(target.add(m * PANEL_ROWS + (first + q) * LANES), *sum);
                    }
                }
                first += Q;
            }
        }
        M
    }

    /// The chains' next links: one block of one quarter.
    #[inline(always)]
    unsafe fn block<D: Dot, U: Unpack, S: Scaling, const M: usize>(
        &self,
        unpack: U,
        (block, quarter): (usize, usize),
        sums: &mut [float32x4_t; M],
    ) {
        // SAFETY: as above.
        unsafe {
            let at = self.panel.bytes.as_ptr().add(block * U::BYTES);
            let weights = unpack.quarter(at.add(quarter * LANES * 4));
            let scales = S::read(self.panel, block, quarter);
            let x = self.tile.blocks.get_unchecked(block);
            let (quants, factors) = (x.quants.as_ptr().add(self.row), x.factors.as_ptr().add(self.row));
            unroll!(m < M, {
                let (quants, factors) = (quants.add(m).cast::<i8>(), factors.add(m));
                if D::ROWS == 4 && M.is_multiple_of(4) {
                    if m.is_multiple_of(4) {
                        add::<D, U, S, 4>((&weights, &scales), quants, factors, &mut sums[m..]);
                    }
                } else if M.is_multiple_of(2) {
                    if m.is_multiple_of(2) {
                        add::<D, U, S, 2>((&weights, &scales), quants, factors, &mut sums[m..]);
                    }
                } else {
                    add::<D, U, S, 1>((&weights, &scales), quants, factors, &mut sums[m..]);
                }
            });
        }
    }
}

/// Adds a block's product with `R` rows, whose dot products advance side by side, to the first `R` of `sums`.
#[inline(always)]
unsafe fn add<D: Dot, U: Unpack, S: Scaling, const R: usize>(
    (weights, scales): (&[int8x16_t; DWORDS], &BlockScales),
    quants: *const i8,
    factors: *const Factors,
    sums: &mut [float32x4_t],
) {
    // SAFETY: forwarded from the caller: `R` rows of quants, 32 bytes each, and of factors.
    unsafe {
        let factors: [&Factors; R] = std::array::from_fn(|r| &*factors.add(r));
        if S::HALVES {
            let (first, second) = weights.split_at(DWORDS / 2);
            add_part::<D, U, S, R>((first, scales, 0), quants, factors, sums);
            add_part::<D, U, S, R>((second, scales, 1), quants.add(BLOCK / 2), factors, sums);
        } else {
            add_part::<D, U, S, R>((weights, scales, 0), quants, factors, sums);
        }
    }
}

/// The same of what has one scale: a block, or half `part` of one.
#[inline(always)]
unsafe fn add_part<D: Dot, U: Unpack, S: Scaling, const R: usize>(
    (weights, scales, part): (&[int8x16_t], &BlockScales, usize),
    quants: *const i8,
    factors: [&Factors; R],
    sums: &mut [float32x4_t],
) {
    // SAFETY: forwarded from the caller.
    unsafe {
        let minus_8 = |x: &Factors| if S::HALVES { x.half_minus_128[part] >> 4 } else { x.minus_8 };
        let dots = D::dots::<U, R>(factors.map(|x| U::start(minus_8(x))), weights, quants);
        for r in 0..R {
            sums[r] = scales.add::<S>(part, dots[r], factors[r], sums[r]);
        }
    }
}

/// A quarter of a block's weights as signed bytes, a dword per output row and four k.
trait Unpack: Copy {
    /// The largest magnitude of such a byte.
    const LARGEST: i32;
    /// Bytes of a panel's block.
    const BYTES: usize;

    /// # Safety
    /// The CPU has NEON.
    unsafe fn new(panel: &QuantPanel<'_>) -> Self;

    /// # Safety
    /// The same, and `at` points to the first dwords of a quarter's rows.
    unsafe fn quarter(self, at: *const u8) -> [int8x16_t; DWORDS];

    /// Where a dot product starts, given −8 × the sum of its activations.
    ///
    /// # Safety
    /// The CPU has NEON.
    #[inline(always)]
    unsafe fn start(_minus_8: i32) -> int32x4_t {
        // SAFETY: the caller's promise.
        unsafe { vdupq_n_s32(0) }
    }
}

/// Nibbles, which stand for themselves or, with `MINUS_8`, for a value that is 8 less.
#[derive(Clone, Copy)]
struct Nibbles<const MINUS_8: bool>;

impl<const MINUS_8: bool> Unpack for Nibbles<MINUS_8> {
    const LARGEST: i32 = 15;
    const BYTES: usize = PANEL_ROWS * BLOCK / 2;

    #[inline(always)]
    unsafe fn new(_: &QuantPanel<'_>) -> Self {
        Self
    }

    #[inline(always)]
    unsafe fn quarter(self, at: *const u8) -> [int8x16_t; DWORDS] {
        // SAFETY: a block has four dwords of nibbles per row.
        unsafe {
            let mut out = [vdupq_n_s8(0); DWORDS];
            for pair in 0..DWORDS / 2 {
                let both = vld1q_u8(at.add(pair * STRIDE));
                out[pair * 2] = vreinterpretq_s8_u8(vandq_u8(both, vdupq_n_u8(0x0f)));
                out[pair * 2 + 1] = vreinterpretq_s8_u8(vshrq_n_u8::<4>(both));
            }
            out
        }
    }

    #[inline(always)]
    unsafe fn start(minus_8: i32) -> int32x4_t {
        // SAFETY: the caller's promise.
        unsafe { vdupq_n_s32(if MINUS_8 { minus_8 } else { 0 }) }
    }
}

/// Nibbles that stand for a table's values.
#[derive(Clone, Copy)]
struct TableOf(int8x16_t);

impl Unpack for TableOf {
    const LARGEST: i32 = 128;
    const BYTES: usize = Nibbles::<false>::BYTES;

    #[inline(always)]
    unsafe fn new(panel: &QuantPanel<'_>) -> Self {
        let table = if let Quants::Table(table) = panel.layout.quants { table } else { &[0; 16] };
        // SAFETY: the array is one vector of 16 bytes.
        Self(unsafe { vld1q_s8(table.as_ptr()) })
    }

    #[inline(always)]
    unsafe fn quarter(self, at: *const u8) -> [int8x16_t; DWORDS] {
        // SAFETY: forwarded from the caller.
        unsafe {
            let nibbles = Nibbles::<false>.quarter(at);
            nibbles.map(|quants| vqtbl1q_s8(self.0, vreinterpretq_u8_s8(quants)))
        }
    }
}

/// Bytes that are less than 64.
#[derive(Clone, Copy)]
struct Bytes;

impl Unpack for Bytes {
    const LARGEST: i32 = 63;
    const BYTES: usize = PANEL_ROWS * BLOCK;

    #[inline(always)]
    unsafe fn new(_: &QuantPanel<'_>) -> Self {
        Self
    }

    #[inline(always)]
    unsafe fn quarter(self, at: *const u8) -> [int8x16_t; DWORDS] {
        // SAFETY: a block has eight dwords of bytes per row.
        std::array::from_fn(|dword| unsafe { vreinterpretq_s8_u8(vld1q_u8(at.add(dword * STRIDE))) })
    }
}

/// Bytes that stand for a value that is 128 less: with the uppermost bit flipped, they are that value.
#[derive(Clone, Copy)]
struct Bytes128;

impl Unpack for Bytes128 {
    const LARGEST: i32 = 128;
    const BYTES: usize = Bytes::BYTES;

    #[inline(always)]
    unsafe fn new(_: &QuantPanel<'_>) -> Self {
        Self
    }

    #[inline(always)]
    unsafe fn quarter(self, at: *const u8) -> [int8x16_t; DWORDS] {
        // SAFETY: forwarded from the caller.
        unsafe { Bytes.quarter(at).map(|bytes| veorq_s8(bytes, vdupq_n_s8(i8::MIN))) }
    }
}
