//! AMX: the integer dot products of 16 output rows and 16 input rows in one instruction per block.
//!
//! Rust has no stable intrinsics for tiles, so the five instructions are written out. Weights are unpacked
//! to signed bytes once per panel and met by all tiles of input rows; the integers then join the float chains
//! as in [`avx512`](super::avx512), whose unpacking and scales are used.

use std::arch::asm;
use std::arch::x86_64::*;
use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::mem::MaybeUninit;

use super::avx512::{Float, Half, HalfMin, Scaling, Super, unroll};
use super::{QuantPanel, Results};
use crate::activations::{BlockTile, TILE_ROWS, Tile};
use crate::panels::Scales;
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

/// Asks the system for the use of tiles, for all threads of this process. False where there are none.
#[cfg(target_os = "linux")]
pub(crate) fn request() -> bool {
    const LEAF_FEATURES: u32 = 7;
    const TILE_AND_INT8: u32 = 0b11 << 24;
    const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
    const XFEATURE_XTILEDATA: libc::c_long = 18;
    // SAFETY: the call changes what the process may use and nothing else.
    __cpuid_count(LEAF_FEATURES, 0).edx & TILE_AND_INT8 == TILE_AND_INT8
        && unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) } == 0
}

/// Not known how to ask other systems.
#[cfg(not(target_os = "linux"))]
pub(crate) fn request() -> bool {
    false
}

/// What `ldtilecfg` reads.
#[repr(C, align(64))]
struct TileConfig {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    bytes_per_row: [u16; 16],
    rows: [u8; 16],
}

impl TileConfig {
    /// Tiles 0 and 1 hold integers of 16 × 16; 4 and 5 the activations of a block, 6 and 7 its weights; 2 and 3
    /// both for half a block.
    const fn all() -> Self {
        let mut config =
            Self { palette: 1, start_row: 0, reserved: [0; 14], bytes_per_row: [0; 16], rows: [0; 16] };
        let shapes = [
            (0, 16, 64),
            (1, 16, 64),
            (2, 16, 16),
            (3, 4, 64),
            (4, 16, 32),
            (5, 16, 32),
            (6, 8, 64),
            (7, 8, 64),
        ];
        let mut i = 0;
        while i < shapes.len() {
            let (tile, rows, bytes) = shapes[i];
            (config.rows[tile], config.bytes_per_row[tile]) = (rows, bytes);
            i += 1;
        }
        config
    }
}

static TILE_CONFIG: TileConfig = TileConfig::all();

thread_local! {
    /// Whether this thread's tiles have their shapes: setting them takes as long as eight products.
    static IS_CONFIGURED: Cell<bool> = const { Cell::new(false) };
}

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
/// The CPU has AVX-512 with VNNI and AMX with int8, [`request`] succeeded, and the panel was unpacked to `slot`.
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
        if !IS_CONFIGURED.replace(true) {
            asm!("ldtilecfg [{}]", in(reg) &raw const TILE_CONFIG, options(nostack, readonly));
        }
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
                sums[m] = scales.add::<S>(half, dot, (x, m), sums[m]);
            });
        }
    }
}

/// `out = x · w` of 16 rows each, by the first set of tiles; [`product_1`] by the other, so that two overlap.
#[inline(always)]
unsafe fn product_0(x: *const u8, w: *const u8, out: *mut u8) {
    // SAFETY: the caller has tiles configured, and 16 rows of each in memory, at their strides.
    unsafe {
        asm!(
            "tileloadd tmm4, [{x} + {x_stride}*1]",
            "tileloadd tmm6, [{w} + {stride}*1]",
            "tilezero tmm0",
            "tdpbssd tmm0, tmm4, tmm6",
            "tilestored [{out} + {stride}*1], tmm0",
            x = in(reg) x, w = in(reg) w, out = in(reg) out, stride = in(reg) STRIDE, x_stride = in(reg) X_STRIDE,
            out("tmm0") _, out("tmm4") _, out("tmm6") _,
            options(nostack),
        );
    }
}

#[inline(always)]
unsafe fn product_1(x: *const u8, w: *const u8, out: *mut u8) {
    // SAFETY: as for `product_0`.
    unsafe {
        asm!(
            "tileloadd tmm5, [{x} + {x_stride}*1]",
            "tileloadd tmm7, [{w} + {stride}*1]",
            "tilezero tmm1",
            "tdpbssd tmm1, tmm5, tmm7",
            "tilestored [{out} + {stride}*1], tmm1",
            x = in(reg) x, w = in(reg) w, out = in(reg) out, stride = in(reg) STRIDE, x_stride = in(reg) X_STRIDE,
            out("tmm1") _, out("tmm5") _, out("tmm7") _,
            options(nostack),
        );
    }
}

/// `out = x · w` over half a block.
#[inline(always)]
unsafe fn half_product(x: *const u8, w: *const u8, out: *mut u8) {
    // SAFETY: as for `product_0`.
    unsafe {
        asm!(
            "tileloadd tmm2, [{x} + {x_stride}*1]",
            "tileloadd tmm3, [{w} + {stride}*1]",
            "tilezero tmm0",
            "tdpbssd tmm0, tmm2, tmm3",
            "tilestored [{out} + {stride}*1], tmm0",
            x = in(reg) x, w = in(reg) w, out = in(reg) out, stride = in(reg) STRIDE, x_stride = in(reg) X_STRIDE,
            out("tmm0") _, out("tmm2") _, out("tmm3") _,
            options(nostack),
        );
    }
}
