//! AMX: the integer dot products of 16 output rows and 16 input rows in one instruction per block.
//!
//! Rust has no stable intrinsics for tiles, so the five instructions are written out. Weights are unpacked
//! to signed bytes once per panel and met by all tiles of input rows; the integers then join the float chains
//! as in [`avx512`](super::avx512), whose unpacking and scales are used.

use std::arch::asm;
use std::arch::x86_64::*;
use std::cell::RefCell;
use std::marker::PhantomData;
use std::mem::MaybeUninit;

use super::avx512::{Float, Half, HalfMin, Scaling, Super};
use super::{QuantPanel, Results, unroll};
use crate::activations::{BlockTile, TILE_ROWS, Tile};
use crate::panels::Scales;
use crate::tiles::TileShapes;
use crate::{BLOCK, PANEL_ROWS};

/// Bytes of a block's unpacked weights, and of a tile of integers.
const UNPACKED: usize = PANEL_ROWS * BLOCK;
/// Bytes from one row of a tile to the next, in memory: of unpacked weights, and of integers.
const STRIDE: usize = 64;
/// The same of activations.
const X_STRIDE: usize = BLOCK;
/// Results that wait to be added to the sums.
const SLOTS: usize = 4;
/// How many products later a result is added, so that the vector units need not wait for the tiles.
const DELAY: usize = 2;

/// Input rows from which unpacking a panel for tiles pays, and of one tile.
pub(super) const LEAST_ROWS: usize = 12;
pub(super) const LEAST_TILE_ROWS: usize = 7;

/// Tiles 0 and 1 hold integers of 16 × 16; 4 and 5 the activations of a block, 6 and 7 its weights; 2 and 3
/// both for half a block.
static SHAPES: TileShapes =
    TileShapes::new([(16, 64), (16, 64), (16, 16), (4, 64), (16, 32), (16, 32), (8, 64), (8, 64)]);

/// Unpacked weights, `UNPACKED` bytes a block.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct Unpacked([u8; UNPACKED]);

thread_local! {
    /// One panel's weights for each product that a task works on at a time.
    static PANELS: [RefCell<Vec<Unpacked>>; 2] = const { [const { RefCell::new(Vec::new()) }; 2] };
}

/// Unpacks a panel into the thread's place `slot`, for [`quantized`].
///
/// # Safety
/// The CPU has AVX-512 with VNNI.
pub(super) unsafe fn unpack(panel: &QuantPanel<'_>, slot: usize) {
    PANELS.with(|panels| {
        let mut target = panels[slot].borrow_mut();
        if target.len() < panel.layout.blocks {
            target.resize(panel.layout.blocks, Unpacked([0; UNPACKED]));
        }
        // SAFETY: forwarded from the caller; the target holds the panel's blocks.
        unsafe { super::avx512::unpack_signed(panel, target.as_mut_ptr().cast()) };
    });
}

/// The same results as [`super::avx512::quantized`].
///
/// # Safety
/// The CPU has AVX-512 with VNNI and AMX with int8, [`tiles::request`](crate::tiles::request) succeeded, and the panel was unpacked to `slot`.
pub(super) unsafe fn quantized(
    tile: Tile<'_>,
    (panel, slot): (&QuantPanel<'_>, usize),
    results: &mut Results,
) {
    PANELS.with(|panels| {
        let unpacked = panels[slot].borrow();
        let weights = unpacked.as_ptr().cast();
        // SAFETY: forwarded from the caller.
        unsafe {
            match panel.layout.scales {
                Scales::Half => chain::<Half>(tile, panel, weights, results),
                Scales::HalfMin => chain::<HalfMin>(tile, panel, weights, results),
                Scales::Float => chain::<Float>(tile, panel, weights, results),
                Scales::Super { halves: false } => {
                    chain::<Super<false, false>>(tile, panel, weights, results)
                }
                Scales::Super { halves: true } => chain::<Super<true, false>>(tile, panel, weights, results),
                Scales::SuperMin { halves: false } => {
                    chain::<Super<false, true>>(tile, panel, weights, results)
                }
                Scales::SuperMin { halves: true } => {
                    chain::<Super<true, true>>(tile, panel, weights, results)
                }
            }
        }
    });
}

/// Integers of one product: `[input row][output row]`.
#[repr(C, align(64))]
struct Integers([[i32; PANEL_ROWS]; TILE_ROWS]);

/// All 16 rows of a tile's sums over all blocks; those of rows that the tile doesn't have are no numbers of anything.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn chain<S: Scaling>(
    tile: Tile<'_>,
    panel: &QuantPanel<'_>,
    weights: *const u8,
    results: &mut Results,
) {
    let mut slots = [const { MaybeUninit::<Integers>::uninit() }; SLOTS];
    let mut pipe = Pipe::<S> {
        blocks: tile.blocks,
        panel,
        weights,
        slots: slots.as_mut_ptr().cast(),
        parts: panel.layout.blocks * Pipe::<S>::PARTS,
        scaling: PhantomData,
    };
    // SAFETY: parts are issued before they are added, at most `DELAY` earlier, so that no slot is written
    // before it was read; the rest is the caller's promise.
    unsafe {
        SHAPES.apply();
        let mut sums = [_mm512_setzero_ps(); TILE_ROWS];
        for part in 0..DELAY {
            pipe.issue(part);
        }
        let mut part = 0;
        while part < pipe.parts {
            pipe.issue(part + DELAY);
            pipe.add(part, &mut sums);
            part += 1;
        }
        for (sum, row) in sums.iter().zip(&mut results.0) {
            _mm512_store_ps(row.as_mut_ptr(), *sum);
        }
    }
}

/// Products on their way from the tiles to the sums: part after part, a block or half of one.
struct Pipe<'a, S: Scaling> {
    /// Of the tile.
    blocks: &'a [BlockTile],
    panel: &'a QuantPanel<'a>,
    /// Of the panel, unpacked.
    weights: *const u8,
    slots: *mut Integers,
    parts: usize,
    scaling: PhantomData<S>,
}

impl<S: Scaling> Pipe<'_, S> {
    /// Of a block.
    const PARTS: usize = 1 + S::HALVES as usize;

    /// Multiplies one part into its slot, if there is such a part.
    #[inline(always)]
    unsafe fn issue(&mut self, part: usize) {
        if part >= self.parts {
            return;
        }
        let (block, half) = (part / Self::PARTS, part % Self::PARTS);
        // SAFETY: `block` is one of the panel's and of the tile's; the rest is the caller's promise.
        unsafe {
            let x =
                self.blocks.get_unchecked(block).quants.as_ptr().cast::<u8>().add(half * BLOCK / Self::PARTS);
            let w = self.weights.add(part * UNPACKED / Self::PARTS);
            let out = self.slots.add(part % SLOTS).cast();
            match (S::HALVES, part % 2) {
                (true, _) => half_product(x, w, out),
                (false, 0) => product_0(x, w, out),
                (false, _) => product_1(x, w, out),
            }
        }
    }

    /// Adds one part's integers to the sums.
    #[inline(always)]
    unsafe fn add(&self, part: usize, sums: &mut [__m512; TILE_ROWS]) {
        const M: usize = TILE_ROWS;
        let (block, half) = (part / Self::PARTS, part % Self::PARTS);
        // SAFETY: as above; the part was issued.
        unsafe {
            let scales = S::read(self.panel, block);
            let x = self.blocks.get_unchecked(block);
            let integers = &*self.slots.add(part % SLOTS);
            unroll!(m < M, {
                let dot = _mm512_load_si512(integers.0[m].as_ptr().cast());
                sums[m] = scales.add::<S>(half, dot, &x.factors[m], sums[m]);
            });
        }
    }
}

/// `out = x · w` of 16 rows each, by the named tiles: integers, activations and weights.
macro_rules! product {
    ($name:ident, $out:tt, $x:tt, $w:tt) => {
        /// # Safety
        /// The thread's tiles have their shapes, and there are 16 rows of each in memory, at their strides.
        #[inline(always)]
        unsafe fn $name(x: *const u8, w: *const u8, out: *mut u8) {
            // SAFETY: the caller's promise.
            unsafe {
                asm!(
                    concat!("tileloadd ", $x, ", [{x} + {x_stride}*1]"),
                    concat!("tileloadd ", $w, ", [{w} + {stride}*1]"),
                    concat!("tilezero ", $out),
                    concat!("tdpbssd ", $out, ", ", $x, ", ", $w),
                    concat!("tilestored [{out} + {stride}*1], ", $out),
                    x = in(reg) x, w = in(reg) w, out = in(reg) out,
                    stride = in(reg) STRIDE, x_stride = in(reg) X_STRIDE,
                    out($out) _, out($x) _, out($w) _,
                    options(nostack),
                );
            }
        }
    };
}

// Two sets for whole blocks, so that neighbouring products overlap.
product!(product_0, "tmm0", "tmm4", "tmm6");
product!(product_1, "tmm1", "tmm5", "tmm7");
product!(half_product, "tmm0", "tmm2", "tmm3");
