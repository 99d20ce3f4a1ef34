use motet_math::ROUND_TO_INT;

use crate::isa::{Kernel, on_isa};
use crate::pool::{SendPtr, ThreadPool};
use crate::{BLOCK, Isa};

/// Rows of activations that are stored together and multiplied together.
pub(crate) const TILE_ROWS: usize = 16;

/// Input rows of a matmul: f32, and quantised to 8 bits in blocks of 32 where weights are quantised.
///
/// A block's scale is its largest magnitude ÷ 127, its quants are rounded to nearest, ties to even.
///
/// The quantised form is kept as the kernels walk it: tiles of 16 rows, and in a tile one [`BlockTile`] for
/// each block of the rows.
#[derive(Default)]
pub struct Activations {
    rows: usize,
    cols: usize,
    /// The first `rows × cols` are the rows; buffers only grow, so that a steady step allocates nothing.
    values: Vec<f32>,
    has_values: bool,
    /// The first `tiles × cols / 32` are the rows', tile by tile. Of the last tile's rows, those past the end
    /// hold anything.
    blocks: Vec<BlockTile>,
    /// Whether `blocks` are those of the rows.
    is_quantized: bool,
}

/// A block of 16 rows: what one product of a block reads lies side by side.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct BlockTile {
    pub(crate) quants: [[i8; BLOCK]; TILE_ROWS],
    pub(crate) factors: [Factors; TILE_ROWS],
}

/// What the quants of a row's block are worth, written and read as one.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C, align(32))]
pub(crate) struct Factors {
    pub(crate) scale: f32,
    /// Scale × sum of the quants: what a weight's minimum is multiplied with.
    pub(crate) scaled_sum: f32,
    /// −8 × sum of the quants: where the dot product with weights stored as w + 8 starts.
    pub(crate) minus_8: i32,
    /// −128 × sum: likewise for weights stored as w + 128.
    pub(crate) minus_128: i32,
    /// The same two sums over each half of the block, for formats with a scale per 16 weights.
    pub(crate) half_scaled_sums: [f32; 2],
    pub(crate) half_minus_128: [i32; 2],
}

impl BlockTile {
    const ZERO: Self =
        Self { quants: [[0; BLOCK]; TILE_ROWS], factors: [Factors::new(0.0, [0; 2]); TILE_ROWS] };
}

impl Factors {
    /// Of the quants' scale and the sums of each half of them.
    #[inline(always)]
    const fn new(scale: f32, [low, high]: [i32; 2]) -> Self {
        Self {
            scale,
            scaled_sum: scale * (low + high) as f32,
            minus_8: -8 * (low + high),
            minus_128: -128 * (low + high),
            half_scaled_sums: [scale * low as f32, scale * high as f32],
            half_minus_128: [-128 * low, -128 * high],
        }
    }
}

/// 32 quantised activations and what the kernels need to know of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct QuantizedBlock {
    quants: [i8; BLOCK],
    factors: Factors,
}

/// Up to 16 rows.
#[derive(Clone, Copy)]
pub(crate) struct Tile<'a> {
    pub(crate) rows: usize,
    /// One per block of the rows.
    pub(crate) blocks: &'a [BlockTile],
}

impl Activations {
    /// Resizes for `rows × cols` and lends the f32 rows to be filled; then call [`quantize`](Self::quantize).
    ///
    /// # Panics
    /// Where `rows × cols` overflows.
    pub fn fill(&mut self, rows: usize, cols: usize) -> &mut [f32] {
        let len = rows.checked_mul(cols);
        assert!(len.is_some(), "{rows} × {cols} activations");
        (self.rows, self.cols, self.has_values, self.is_quantized) = (rows, cols, true, false);
        let len = len.unwrap_or(0);
        if self.values.len() < len {
            self.values.resize(len, 0.0);
        }
        &mut self.values[..len]
    }

    /// Computes the 8-bit form of every row, where rows are whole blocks: others meet float weights only.
    pub fn quantize(&mut self, pool: &ThreadPool, isa: Isa) {
        let (rows, cols) = (self.rows, self.cols);
        self.fill_with(pool, isa, (rows, cols), &|_, _| {});
    }

    /// Resizes for `(rows, cols)`, has `write(row, values)` fill every row, and quantises each in the same
    /// task, while it is in the nearest cache. The values are what an earlier call left.
    ///
    /// # Panics
    /// Where `rows × cols` overflows.
    pub fn fill_with(
        &mut self,
        pool: &ThreadPool,
        isa: Isa,
        (rows, cols): (usize, usize),
        write: &(dyn Fn(usize, &mut [f32]) + Sync),
    ) {
        self.fill(rows, cols);
        let blocks = self.block_rows();
        let values = SendPtr(self.values.as_mut_ptr());
        let task = |row: usize| {
            // SAFETY: rows are disjoint ranges of the `rows × cols` values, each lent to its own task.
            let source = unsafe { std::slice::from_raw_parts_mut(values.get().add(row * cols), cols) };
            write(row, source);
            if let Some(blocks) = &blocks {
                on_isa(isa, QuantizeRow { source, row, blocks });
            }
        };
        pool.run(rows, &task);
        self.is_quantized = cols.is_multiple_of(BLOCK);
    }

    /// Resizes for `rows × cols` without f32 values, to be filled block by block.
    ///
    /// # Panics
    /// Where rows aren't whole blocks.
    pub(crate) fn blocks_only(&mut self, rows: usize, cols: usize) -> BlockRows {
        (self.rows, self.cols, self.has_values) = (rows, cols, false);
        let blocks = self.block_rows();
        self.is_quantized = blocks.is_some();
        assert!(blocks.is_some(), "{cols} columns in blocks of {BLOCK}");
        blocks.unwrap_or(BlockRows { blocks: SendPtr(std::ptr::null_mut()), rows: 0, per_row: 0 })
    }

    /// Room for the blocks of all rows; `None` where rows aren't whole blocks.
    fn block_rows(&mut self) -> Option<BlockRows> {
        if !self.cols.is_multiple_of(BLOCK) {
            return None;
        }
        let per_row = self.cols / BLOCK;
        let len = self.tiles() * per_row;
        if self.blocks.len() < len {
            self.blocks.resize(len, BlockTile::ZERO);
        }
        Some(BlockRows { blocks: SendPtr(self.blocks.as_mut_ptr()), rows: self.rows, per_row })
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Values in a row.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Whether there are blocks of all rows.
    pub(crate) fn is_quantized(&self) -> bool {
        self.is_quantized
    }

    /// The f32 rows; empty where only blocks were written.
    pub(crate) fn values(&self) -> &[f32] {
        if self.has_values { &self.values[..self.rows * self.cols] } else { &[] }
    }

    /// Number of tiles.
    pub(crate) fn tiles(&self) -> usize {
        self.rows.div_ceil(TILE_ROWS)
    }

    /// The rows of one tile.
    pub(crate) fn tile_rows(&self, index: usize) -> std::ops::Range<usize> {
        index * TILE_ROWS..self.rows.min((index + 1) * TILE_ROWS)
    }

    /// The blocks of one tile.
    pub(crate) fn tile(&self, index: usize) -> Tile<'_> {
        let per_row = self.cols / BLOCK;
        Tile { rows: self.tile_rows(index).len(), blocks: &self.blocks[index * per_row..][..per_row] }
    }
}

/// Where tasks write the blocks of their own rows or columns.
pub(crate) struct BlockRows {
    blocks: SendPtr<BlockTile>,
    rows: usize,
    per_row: usize,
}

impl BlockRows {
    /// Writes one block of `row`.
    ///
    /// # Safety
    /// The activations this came from are alive, and no other task writes or reads this block of the row.
    #[inline(always)]
    pub(crate) unsafe fn write(&self, row: usize, block: usize, from: &QuantizedBlock) {
        debug_assert!(row < self.rows && block < self.per_row);
        let (tile, row) = (row / TILE_ROWS, row % TILE_ROWS);
        // SAFETY: row and block are inside the tiles' blocks; that no reference covers what other tasks write
        // meanwhile is why fields are written through the pointer. The rest is the caller's promise.
        unsafe {
            let to = self.blocks.get().add(tile * self.per_row + block);
            (&raw mut (*to).quants[row]).write(from.quants);
            (&raw mut (*to).factors[row]).write(from.factors);
        }
    }
}

struct QuantizeRow<'a> {
    source: &'a [f32],
    row: usize,
    blocks: &'a BlockRows,
}

impl Kernel for QuantizeRow<'_> {
    #[inline(always)]
    fn run(self) {
        let (blocks, _) = self.source.as_chunks::<BLOCK>();
        for (index, block) in blocks.iter().enumerate() {
            // SAFETY: this task alone writes this row; `fill_with` holds the activations.
            unsafe { self.blocks.write(self.row, index, &quantize_block(block)) };
        }
    }
}

/// One block, the same bits on every instruction set.
#[inline(always)]
pub(crate) fn quantize_block(block: &[f32; BLOCK]) -> QuantizedBlock {
    // The bits of magnitudes are ordered like the magnitudes, with infinity and NaN above all.
    let largest = block.iter().fold(0u32, |m, v| m.max(v.to_bits() & 0x7fff_ffff));
    let is_finite = largest < f32::INFINITY.to_bits();
    let largest = f32::from_bits(largest) / 127.0;
    // A subnormal scale has no finite inverse; such a block counts as zero.
    let scale = if largest >= f32::MIN_POSITIVE { largest } else { 0.0 };
    let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
    let mut rounded = [0i32; BLOCK];
    for (rounded, value) in rounded.iter_mut().zip(block) {
        // The low mantissa bits of the shifted value are the rounded integer.
        let bits = (value * inverse + ROUND_TO_INT).to_bits() as i32 - ROUND_TO_INT.to_bits() as i32;
        *rounded = bits.clamp(-127, 127);
    }
    let mut quants = [0i8; BLOCK];
    quants.iter_mut().zip(&rounded).for_each(|(quant, rounded)| *quant = *rounded as i8);
    // A row with NaN or infinity must not pass for a finite one: its scale says so.
    let scale = if is_finite { scale } else { f32::NAN };
    let (low, high) = quants.split_at(BLOCK / 2);
    QuantizedBlock { quants, factors: Factors::new(scale, [sum(low), sum(high)]) }
}

/// The sum of half a block, as unsigned bytes, for which processors have an instruction.
#[inline(always)]
fn sum(quants: &[i8]) -> i32 {
    let unsigned: u32 = quants.iter().map(|quant| u32::from(*quant as u8 ^ 0x80)).sum();
    unsigned as i32 - 128 * quants.len() as i32
}

/// Whether all rows have the same blocks.
#[cfg(test)]
pub(crate) fn is_same(a: &Activations, b: &Activations) -> bool {
    let rows = |x: &Activations| -> Vec<String> {
        let block = |block: &BlockTile, row: usize| {
            let of = block.factors[row];
            let floats = [of.scale, of.scaled_sum, of.half_scaled_sums[0], of.half_scaled_sums[1]];
            let (bits, quants) = (floats.map(f32::to_bits), block.quants[row]);
            format!("{quants:?} {bits:?} {} {} {:?}", of.minus_8, of.minus_128, of.half_minus_128)
        };
        let tile = |tile: usize| {
            let Tile { rows, blocks } = x.tile(tile);
            (0..rows).map(move |row| blocks.iter().map(|b| block(b, row)).collect())
        };
        (0..x.tiles()).flat_map(tile).collect()
    };
    rows(a) == rows(b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn same_bits_on_every_isa(
            mut values in proptest::collection::vec(-1e3f32..1e3, 64 * 19),
            scale in prop_oneof![Just(1f32), Just(1e-36), Just(1e-40), Just(0.0)],
        ) {
            values.iter_mut().for_each(|v| *v *= scale);
            let pool = ThreadPool::new(2);
            let quantized = |isa| {
                let mut x = Activations::default();
                x.fill(19, 64).copy_from_slice(&values);
                x.quantize(&pool, isa);
                x
            };
            let scalar = quantized(Isa::Scalar);
            for isa in Isa::available() {
                prop_assert!(is_same(&quantized(isa), &scalar));
            }
            for (i, value) in values.iter().enumerate() {
                let (row, at) = (i / 64 % TILE_ROWS, i % BLOCK);
                let block = &scalar.tile(i / 64 / TILE_ROWS).blocks[i % 64 / BLOCK];
                let (quants, factors) = (&block.quants[row], block.factors[row]);
                let scale = factors.scale;
                prop_assert!((f32::from(quants[at]) * scale - value).abs() <= scale * 0.501 + 2e-36);
                let sum = |quants: &[i8]| quants.iter().map(|q| i32::from(*q)).sum::<i32>();
                let halves = [sum(&quants[..16]), sum(&quants[16..])];
                prop_assert_eq!(factors.half_minus_128, halves.map(|sum| -128 * sum));
                prop_assert_eq!(factors.minus_8, -8 * (halves[0] + halves[1]));
                prop_assert_eq!(factors.minus_128, -128 * (halves[0] + halves[1]));
            }
        }
    }

    #[test]
    #[should_panic(expected = "not quantised")]
    fn filled_and_not_quantised_is_not_multiplied() {
        let pool = ThreadPool::new(1);
        let source = crate::Source { format: crate::BlockFormat::Q8_0, raw: &[0; 34], rows: 1, cols: 32 };
        let weights = crate::PackedMatrix::pack(&pool, source, crate::Precision::Fast);
        let mut x = Activations::default();
        x.fill(1, 32);
        x.quantize(&pool, Isa::Scalar);
        x.fill(1, 32);
        let product = crate::Product { weights: &weights, out: &mut [0.0], sum: crate::Sum::Replace };
        crate::matmul(&pool, Isa::Scalar, &x, &mut [product]);
    }

    #[test]
    fn what_is_not_finite_stays_visible() {
        for value in [f32::INFINITY, f32::NAN, f32::NEG_INFINITY] {
            let mut x = Activations::default();
            x.fill(1, 32)[7] = value;
            x.quantize(&ThreadPool::new(1), Isa::detect());
            assert!(x.tile(0).blocks[0].factors[0].scale.is_nan());
        }
    }
}
