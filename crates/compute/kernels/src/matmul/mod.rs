//! `out = x · Wᵀ` for one or thousands of rows of x.
//!
//! One family for all: a panel of 16 output columns meets a tile of up to 16 input rows, and each of the
//! results is one ascending chain over K. A task computes its panels for all tiles, so weights are read once.

#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod gated;
#[cfg(target_arch = "aarch64")]
mod neon;
mod scalar;
#[cfg(test)]
mod tests;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod unroll;

pub use gated::{Gate, gated};
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use unroll::unroll;

use crate::activations::TILE_ROWS;
use crate::isa::{Kernel, on_isa};
use crate::pool::SendPtr;
use crate::simd::prefetch;
use crate::{Activations, Isa, PANEL_ROWS, PackedMatrix, ThreadPool};

/// One product: `out[row][i] = Σₖ x[row][k] · weights[i][k]`.
pub struct Product<'a> {
    /// The weights, `x.cols` columns.
    pub weights: &'a PackedMatrix,
    /// `x.rows × weights.rows()` results, row by row.
    pub out: &'a mut [f32],
    /// What happens to what `out` holds.
    pub sum: Sum,
}

/// Whether a product replaces or is added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sum {
    /// `out = product`.
    Replace,
    /// `out += product`, one addition an element: a residual connection.
    Add,
}

/// Bytes of a cache line.
const LINE: usize = 64;

/// Most products of the same rows in one call: query, key and value.
const MOST_PRODUCTS: usize = 4;

/// Computes several products of the same rows in one parallel loop.
///
/// Quantised weights read the 8-bit form of `x`, float weights the f32 form.
///
/// # Panics
/// Where the sizes do not fit together, `x` was filled and not quantised, or there are more than four products.
pub fn matmul(pool: &ThreadPool, isa: Isa, x: &Activations, products: &mut [Product<'_>]) {
    assert!(products.len() <= MOST_PRODUCTS, "{} products in one loop", products.len());
    let mut tasks = [const { None::<PanelTask<'_>> }; MOST_PRODUCTS];
    let mut total = 0;
    for (task, product) in tasks.iter_mut().zip(products.iter_mut()) {
        let weights = product.weights;
        check(x, weights);
        assert_eq!(Some(product.out.len()), x.rows().checked_mul(weights.rows()), "size of the output");
        *task = Some(PanelTask {
            weights,
            out: SendPtr(product.out.as_mut_ptr()),
            sum: product.sum,
            first: total,
        });
        total += weights.panels();
    }
    pool.run(total, &|index| {
        let Some(task) = tasks.iter().flatten().rfind(|task| task.first <= index) else { return };
        let panel = index - task.first;
        let run = PanelRun::new(isa, x, (task.weights, panel), 0);
        let mut results = Results::ZERO;
        for tile in 0..x.tiles() {
            run.tile(tile, &mut results);
            on_isa(isa, Store { task, rows: x.tile_rows(tile), panel, results: &results });
        }
    });
}

fn check(x: &Activations, weights: &PackedMatrix) {
    assert_eq!(weights.cols(), x.cols(), "columns of weights and activations");
    assert!(weights.format().is_float() || x.is_quantized(), "activations not quantised");
    assert!(
        !weights.format().is_float() || !x.values().is_empty() || x.rows() == 0,
        "activations without f32 rows"
    );
}

/// What a panel and a tile give: one row of 16 columns per row of the tile.
#[repr(C, align(64))]
struct Results([[f32; PANEL_ROWS]; TILE_ROWS]);

impl Results {
    const ZERO: Self = Self([[0.0; PANEL_ROWS]; TILE_ROWS]);
}

/// One panel of weights, made ready to meet all tiles of `x`.
struct PanelRun<'a> {
    isa: Isa,
    x: &'a Activations,
    weights: &'a PackedMatrix,
    panel: &'a [u8],
    /// Place of its unpacked weights among the thread's.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    slot: usize,
}

impl<'a> PanelRun<'a> {
    fn new(isa: Isa, x: &'a Activations, (weights, panel): (&'a PackedMatrix, usize), slot: usize) -> Self {
        let panel = weights.panel(panel);
        #[cfg(target_arch = "x86_64")]
        let isa = match isa {
            Isa::Amx if weights.format().is_float() || x.rows() < amx::LEAST_ROWS => Isa::Avx512,
            _ => isa,
        };
        let run = Self { isa, x, weights, panel, slot };
        #[cfg(target_arch = "x86_64")]
        if isa == Isa::Amx {
            // SAFETY: only a CPU that reported the features makes one of these.
            unsafe { amx::unpack(&run.quantized(true), slot) };
        }
        run
    }

    fn quantized(&self, is_first: bool) -> QuantPanel<'a> {
        QuantPanel { bytes: self.panel, layout: self.weights.layout(), is_first }
    }

    /// Computes the rows of `results` that the tile has; others are not to be looked at.
    fn tile(&self, tile: usize, results: &mut Results) {
        if self.weights.format().is_float() {
            return self.float_tile(tile, results);
        }
        let (tile, panel) = (self.x.tile(tile), self.quantized(tile == 0));
        match self.isa {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: only a CPU that reported the features makes one of these; `new` unpacked the panel.
            Isa::Amx if tile.rows >= amx::LEAST_TILE_ROWS => unsafe {
                amx::quantized(tile, (&panel, self.slot), results);
            },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Isa::Avx512 | Isa::Amx => unsafe { avx512::quantized(tile, &panel, results) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Isa::AvxVnni => unsafe { avx2::quantized_vnni(tile, &panel, results) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Isa::Avx2 => unsafe { avx2::quantized(tile, &panel, results) },
            #[cfg(target_arch = "aarch64")]
            // SAFETY: as above.
            Isa::NeonDot => unsafe { neon::quantized_dot(tile, &panel, results) },
            #[cfg(target_arch = "aarch64")]
            // SAFETY: as above.
            Isa::Neon => unsafe { neon::quantized(tile, &panel, results) },
            _ => scalar::quantized(tile, &panel, results),
        }
    }

    fn float_tile(&self, tile: usize, results: &mut Results) {
        let cols = self.x.cols();
        let tile = FloatTile {
            values: &self.x.values()[tile * TILE_ROWS * cols..],
            rows: self.x.tile_rows(tile).len(),
            cols,
            weights: self.panel,
            format: self.weights.format(),
            is_first: tile == 0,
        };
        match self.isa {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: only a CPU that reported the features makes one of these.
            Isa::Avx512 | Isa::Amx => unsafe { avx512::float(&tile, results) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Isa::Avx2 | Isa::AvxVnni => unsafe { avx2::float(&tile, results) },
            #[cfg(target_arch = "aarch64")]
            // SAFETY: as above.
            Isa::Neon | Isa::NeonDot => unsafe { neon::float(&tile, results) },
            _ => scalar::float(&tile, results),
        }
    }
}

/// Float weights of a panel and the rows of a tile.
struct FloatTile<'a> {
    /// From the tile's first row on, `cols` apart.
    values: &'a [f32],
    rows: usize,
    cols: usize,
    weights: &'a [u8],
    format: crate::BlockFormat,
    /// Whether the panel was not read before.
    is_first: bool,
}

/// Quantised weights of a panel.
struct QuantPanel<'a> {
    bytes: &'a [u8],
    layout: &'a crate::panels::Layout,
    /// Whether it was not read before.
    is_first: bool,
}

/// How far ahead of their use weights are asked for: some panels, of which most threads have several in a row. The
/// processor itself looks ahead less, and anew for each of a panel's sections.
const AHEAD: usize = 16 << 10;

impl QuantPanel<'_> {
    /// While a panel is read for the first time, asks for as many bytes as each of its blocks has.
    #[inline(always)]
    fn look_ahead(&self, block: usize) {
        let layout = self.layout;
        let bytes = layout.quants.bytes() + layout.scales.bytes();
        let at = self.bytes.as_ptr().wrapping_add(block * bytes + AHEAD);
        for line in 0..bytes.div_ceil(LINE) {
            prefetch(at.wrapping_add(line * LINE));
        }
    }
}

struct PanelTask<'a> {
    weights: &'a PackedMatrix,
    out: SendPtr<f32>,
    sum: Sum,
    first: usize,
}

/// Stores or adds the results of `panel` for a tile's `rows`, less columns past the last weight row.
///
/// `matmul` asserts that the output holds these rows, and makes one such for each panel and tile.
struct Store<'a> {
    task: &'a PanelTask<'a>,
    rows: std::ops::Range<usize>,
    panel: usize,
    results: &'a Results,
}

impl Kernel for Store<'_> {
    #[inline(always)]
    fn run(self) {
        let (width, first) = (self.task.weights.rows(), self.panel * PANEL_ROWS);
        let count = PANEL_ROWS.min(width - first);
        for (row, values) in self.rows.zip(&self.results.0) {
            // SAFETY: the output has this row, and `first + count <= width`; this task alone writes these columns.
            let target = unsafe {
                std::slice::from_raw_parts_mut(self.task.out.get().add(row * width + first), count)
            };
            // Whole rows have a length that the compiler knows.
            match (target.as_mut_array::<PANEL_ROWS>(), self.task.sum) {
                (Some(target), Sum::Replace) => *target = *values,
                // All sums before the first store: nothing tells the compiler that results are not the target.
                (Some(target), Sum::Add) => *target = std::array::from_fn(|i| target[i] + values[i]),
                (None, Sum::Replace) => target.copy_from_slice(&values[..count]),
                (None, Sum::Add) => {
                    target.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
                }
            }
        }
    }
}
