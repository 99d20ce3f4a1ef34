//! Weights in the layout the kernels read: 16 output rows interleaved, so that a lane is a row.
//!
//! A float panel is, for each k, 16 values. A quantised panel is, for each block of 32 k:
//! quants as dwords of four consecutive k per row (a nibble dword holds k…k+3 low and k+4…k+7
//! high), then 16 f16 scales, then 16 f16 minima where the format has them. Rows past the end of
//! the matrix are zero.

use half::f16;

use crate::blocks::{BlockFormat, QuantBlock};
use crate::lines::Lines;
use crate::pool::{SendPtr, ThreadPool};
use crate::{BLOCK, PANEL_ROWS};

/// Which arithmetic a model runs with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    /// Weights dequantised to f32, f32 activations: the reference that tests compare with.
    Exact,
    /// Weights as stored; activations quantised to 8 bits against quantised weights.
    Fast,
}

/// A weight matrix ready for [`matmul`](crate::matmul): `rows` outputs, `cols` inputs.
pub struct PackedMatrix {
    rows: usize,
    cols: usize,
    format: BlockFormat,
    data: Lines,
}

impl PackedMatrix {
    /// Packs `rows × cols` values stored row by row as `format`.
    ///
    /// # Panics
    /// Unless `raw` holds exactly the bytes of `rows × cols` values and `cols` is a multiple of the block length.
    pub fn pack(pool: &ThreadPool, source: Source<'_>, precision: Precision) -> Self {
        let Source { format, raw, rows, cols } = source;
        assert_eq!(cols % format.block_len(), 0, "{cols} columns in blocks of {}", format.block_len());
        let expected = rows.checked_mul(cols).map(|values| format.bytes(values));
        assert_eq!(Some(raw.len()), expected, "bytes of a {rows} × {cols} {} matrix", format.name());
        let packed_format = if precision == Precision::Exact { BlockFormat::F32 } else { format };
        let mut matrix = Self { rows, cols, format: packed_format, data: Lines::zeroed(0) };
        // `raw` exists, and panels take at most 4 × 32 times its bytes: no product here overflows.
        let panel_bytes = matrix.panel_bytes();
        matrix.data = Lines::zeroed(panel_bytes * rows.div_ceil(PANEL_ROWS));
        let target = SendPtr(matrix.data.as_mut_slice().as_mut_ptr());
        pool.run(rows.div_ceil(PANEL_ROWS), &|index| {
            // SAFETY: panels are disjoint ranges of `data`, each written by the one task that has its index.
            let panel =
                unsafe { std::slice::from_raw_parts_mut(target.get().add(index * panel_bytes), panel_bytes) };
            let first = index * PANEL_ROWS;
            for lane in 0..PANEL_ROWS.min(rows - first) {
                let bytes = format.bytes(cols);
                let row = &raw[(first + lane) * bytes..][..bytes];
                matrix.write_row(panel, lane, format, row);
            }
        });
        matrix
    }

    /// Output rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Input columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// How the values are kept.
    pub fn format(&self) -> BlockFormat {
        self.format
    }

    /// Number of panels.
    pub(crate) fn panels(&self) -> usize {
        self.rows.div_ceil(PANEL_ROWS)
    }

    pub(crate) fn panel(&self, index: usize) -> &[u8] {
        &self.data.as_slice()[index * self.panel_bytes()..][..self.panel_bytes()]
    }

    /// Bytes from one block of a panel to the next.
    pub(crate) fn block_stride(&self) -> usize {
        debug_assert!(!self.format.is_float());
        let scales = if self.format.has_min() { 4 } else { 2 };
        quant_bytes(self.format) + PANEL_ROWS * scales
    }

    fn panel_bytes(&self) -> usize {
        if self.format.is_float() {
            self.cols * PANEL_ROWS * self.format.block_bytes()
        } else {
            self.cols / BLOCK * self.block_stride()
        }
    }

    fn write_row(&self, panel: &mut [u8], lane: usize, format: BlockFormat, row: &[u8]) {
        if self.format == BlockFormat::F32 && format != BlockFormat::F32 {
            let mut values = vec![0f32; self.cols];
            format.dequantize(row, &mut values);
            for (k, value) in values.iter().enumerate() {
                panel[(k * PANEL_ROWS + lane) * 4..][..4].copy_from_slice(&value.to_le_bytes());
            }
        } else if format.is_float() {
            let size = format.block_bytes();
            for (k, value) in row.chunks_exact(size).enumerate() {
                panel[(k * PANEL_ROWS + lane) * size..][..size].copy_from_slice(value);
            }
        } else {
            let blocks = row.chunks_exact(format.block_bytes());
            for (block, raw) in panel.chunks_exact_mut(self.block_stride()).zip(blocks) {
                write_block(format, block, lane, &format.split(raw));
            }
        }
    }

    /// The values of one row, as an embedding lookup needs them.
    ///
    /// # Panics
    /// Unless `row` is below the number of rows and `out` holds a row.
    pub fn row(&self, row: usize, out: &mut [f32]) {
        assert!(row < self.rows && out.len() == self.cols);
        let (panel, lane) = (self.panel(row / PANEL_ROWS), row % PANEL_ROWS);
        if self.format.is_float() {
            let size = self.format.block_bytes();
            for (k, value) in out.iter_mut().enumerate() {
                let raw = &panel[(k * PANEL_ROWS + lane) * size..][..size];
                self.format.dequantize(raw, std::slice::from_mut(value));
            }
        } else {
            let blocks = panel.chunks_exact(self.block_stride());
            for (block, values) in blocks.zip(out.chunks_exact_mut(BLOCK)) {
                read_block(self.format, block, lane).values(self.format, values);
            }
        }
    }
}

/// A matrix as a file holds it: `rows × cols` values, row by row.
pub struct Source<'a> {
    /// How the values are stored.
    pub format: BlockFormat,
    /// The bytes.
    pub raw: &'a [u8],
    /// Output rows.
    pub rows: usize,
    /// Input columns.
    pub cols: usize,
}

/// Bytes of one panel block's quants.
pub(crate) fn quant_bytes(format: BlockFormat) -> usize {
    PANEL_ROWS * if format.is_nibble() { BLOCK / 2 } else { BLOCK }
}

/// Where value `k` of `lane` is inside a panel block's quants.
#[inline(always)]
pub(crate) fn quant_index(format: BlockFormat, lane: usize, k: usize) -> usize {
    let dword = if format.is_nibble() { k / 8 } else { k / 4 };
    dword * PANEL_ROWS * 4 + lane * 4 + k % 4
}

fn write_block(format: BlockFormat, block: &mut [u8], lane: usize, source: &QuantBlock) {
    for (k, &quant) in source.quants.iter().enumerate() {
        let byte = &mut block[quant_index(format, lane, k)];
        if format.is_nibble() {
            *byte |= (quant as u8) << (if k % 8 < 4 { 0 } else { 4 });
        } else {
            *byte = quant as u8;
        }
    }
    let scales = quant_bytes(format);
    block[scales + lane * 2..][..2].copy_from_slice(&source.scale.to_le_bytes());
    if format.has_min() {
        block[scales + PANEL_ROWS * 2 + lane * 2..][..2].copy_from_slice(&source.min.to_le_bytes());
    }
}

pub(crate) fn read_block(format: BlockFormat, block: &[u8], lane: usize) -> QuantBlock {
    let mut quants = [0i8; BLOCK];
    for (k, quant) in quants.iter_mut().enumerate() {
        let byte = block[quant_index(format, lane, k)];
        *quant = match (format.is_nibble(), k % 8 < 4) {
            (true, true) => (byte & 0x0f) as i8,
            (true, false) => (byte >> 4) as i8,
            (false, _) => byte as i8,
        };
    }
    let scales = quant_bytes(format);
    let half_at = |at: usize| f16::from_le_bytes([block[at], block[at + 1]]);
    let min = if format.has_min() { half_at(scales + PANEL_ROWS * 2 + lane * 2) } else { f16::ZERO };
    QuantBlock { scale: half_at(scales + lane * 2), min, quants }
}
