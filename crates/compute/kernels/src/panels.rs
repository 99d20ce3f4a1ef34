//! Weights in the layout the kernels read: 16 output rows interleaved, so that a lane is a row.
//!
//! A float panel is, for each k, 16 values. A quantised panel is three sections, each for all blocks of 32 k:
//! - quants, as dwords of four consecutive k per row: 8 dwords a row where a quant is a byte, 4 where it is a
//!   nibble, whose dword holds k…k+3 in its low and k+4…k+7 in its high halves;
//! - scales, 16 of each kind, see [`Scales`];
//! - f16 factors of the 256-value blocks the sub-scales belong to, where the format has them.
//!
//! Quants are stored unsigned, signed values with [`Quants::offset`] added. Rows past the end of the matrix
//! are zero.

use half::f16;

use crate::blocks::{BlockFormat, Split};
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

/// How a panel stores quants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quants {
    /// Four bits: the value plus 8.
    Nibble8,
    /// Four bits, unsigned.
    Nibble,
    /// Four bits that stand for one of 16 signed values.
    Table(&'static [i8; 16]),
    /// Eight bits: the value plus 128.
    Byte128,
    /// Eight bits, unsigned and less than 64.
    Byte,
}

impl Quants {
    fn of(format: BlockFormat) -> Self {
        if let Some(table) = format.table() {
            return Self::Table(table);
        }
        match format.quant_range() {
            (0, ..=15) => Self::Nibble,
            (-8.., ..=7) => Self::Nibble8,
            (0, _) => Self::Byte,
            _ => Self::Byte128,
        }
    }

    /// What is added to a value when it is stored; the kernels take it out of the dot product.
    fn offset(self) -> i32 {
        match self {
            Self::Nibble8 => 8,
            Self::Byte128 => 128,
            Self::Nibble | Self::Byte | Self::Table(_) => 0,
        }
    }

    /// Bytes of one panel block.
    pub(crate) fn bytes(self) -> usize {
        PANEL_ROWS * if self.is_nibble() { BLOCK / 2 } else { BLOCK }
    }

    fn is_nibble(self) -> bool {
        !matches!(self, Self::Byte | Self::Byte128)
    }
}

/// How a panel stores the scales of a block, for each of 16 rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scales {
    /// f16.
    Half,
    /// f32.
    Float,
    /// f16, then f16 minima.
    HalfMin,
    /// An i8 factor, or two with `halves`: one per 16 values; the f16 scale once per 256 values.
    Super { halves: bool },
    /// The same, then u8 factors of the minima; the f16 minimum once per 256 values.
    SuperMin { halves: bool },
}

impl Scales {
    fn of(format: BlockFormat) -> Self {
        let halves = format.sub_len() < BLOCK;
        match (format.has_sub_scales(), format.has_min()) {
            (true, true) => Self::SuperMin { halves },
            (true, false) => Self::Super { halves },
            (false, true) => Self::HalfMin,
            (false, false) if format == BlockFormat::MXFP4 => Self::Float,
            (false, false) => Self::Half,
        }
    }

    /// Bytes for one panel block.
    pub(crate) fn bytes(self) -> usize {
        let row = match self {
            Self::Half => 2,
            Self::Float | Self::HalfMin => 4,
            Self::Super { halves } => 1 + usize::from(halves),
            Self::SuperMin { halves } => 2 * (1 + usize::from(halves)),
        };
        PANEL_ROWS * row
    }

    /// Bytes for the eight blocks of 256 values.
    pub(crate) fn super_bytes(self) -> usize {
        match self {
            Self::Half | Self::Float | Self::HalfMin => 0,
            Self::Super { .. } => PANEL_ROWS * 2,
            Self::SuperMin { .. } => PANEL_ROWS * 4,
        }
    }

    pub(crate) fn has_min(self) -> bool {
        matches!(self, Self::HalfMin | Self::SuperMin { .. })
    }

    /// Whether each half of a block has its own scale.
    pub(crate) fn halves(self) -> bool {
        matches!(self, Self::Super { halves: true } | Self::SuperMin { halves: true })
    }
}

/// Where things are in a quantised panel.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    pub(crate) quants: Quants,
    pub(crate) scales: Scales,
    pub(crate) blocks: usize,
}

impl Layout {
    fn of(format: BlockFormat, cols: usize) -> Self {
        Self { quants: Quants::of(format), scales: Scales::of(format), blocks: cols / BLOCK }
    }

    /// Offset of a block's scales in the panel.
    pub(crate) fn scales_at(&self, block: usize) -> usize {
        self.blocks * self.quants.bytes() + block * self.scales.bytes()
    }

    /// Offset of the factors of the 256 values that hold a block.
    pub(crate) fn super_at(&self, block: usize) -> usize {
        self.scales_at(self.blocks) + block / 8 * self.scales.super_bytes()
    }

    fn bytes(&self) -> usize {
        self.super_at(self.blocks.next_multiple_of(8)).next_multiple_of(64)
    }

    /// Offset of value `k` of `lane` in a panel block's quants.
    #[inline(always)]
    fn quant_index(&self, lane: usize, k: usize) -> usize {
        let dword = if self.quants.is_nibble() { k / 8 } else { k / 4 };
        dword * PANEL_ROWS * 4 + lane * 4 + k % 4
    }
}

/// A weight matrix ready for [`matmul`](crate::matmul): `rows` outputs, `cols` inputs.
pub struct PackedMatrix {
    rows: usize,
    cols: usize,
    format: BlockFormat,
    layout: Layout,
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
        let layout = Layout::of(packed_format, cols);
        let mut matrix = Self { rows, cols, format: packed_format, layout, data: Lines::zeroed(0) };
        // `raw` exists, and panels take at most 16 × 16 times its bytes: no product here overflows.
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

    /// Bytes a product reads of the weights.
    pub fn bytes(&self) -> usize {
        self.panels() * self.panel_bytes()
    }

    /// Number of panels.
    pub(crate) fn panels(&self) -> usize {
        self.rows.div_ceil(PANEL_ROWS)
    }

    pub(crate) fn panel(&self, index: usize) -> &[u8] {
        &self.data.as_slice()[index * self.panel_bytes()..][..self.panel_bytes()]
    }

    /// Where things are in a panel of quantised weights.
    pub(crate) fn layout(&self) -> &Layout {
        debug_assert!(!self.format.is_float());
        &self.layout
    }

    fn panel_bytes(&self) -> usize {
        if self.format.is_float() {
            self.cols * PANEL_ROWS * self.format.block_bytes()
        } else {
            self.layout.bytes()
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
            let splits = format.block_len() / BLOCK;
            for (index, raw) in row.chunks_exact(format.block_bytes()).enumerate() {
                for part in 0..splits {
                    let place = Place { layout: &self.layout, block: index * splits + part, lane };
                    place.write(panel, &format.split(raw, part));
                }
            }
        }
    }

    /// The values of one row, as the file has them.
    ///
    /// # Panics
    /// Unless `row < rows` and `out` holds `cols` values.
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
            let (blocks, _) = out.as_chunks_mut::<BLOCK>();
            for (block, values) in blocks.iter_mut().enumerate() {
                Place { layout: &self.layout, block, lane }.read(panel).values(self.format, values);
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

/// One block of one row of a quantised panel.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) layout: &'a Layout,
    pub(crate) block: usize,
    pub(crate) lane: usize,
}

impl Place<'_> {
    fn write(&self, panel: &mut [u8], split: &Split) {
        let (Layout { quants, scales, .. }, Self { block, lane, .. }) = (*self.layout, *self);
        let target = &mut panel[block * quants.bytes()..][..quants.bytes()];
        let stored = split.quants.map(|quant| match quants {
            // A value of the table: the first place that holds it.
            Quants::Table(table) => table.iter().position(|v| *v == quant).unwrap_or(0) as u8,
            _ => (i32::from(quant) + quants.offset()) as u8,
        });
        let (dwords, _) = stored.as_chunks::<4>();
        let mut put = |dword: usize, bytes: &[u8; 4]| {
            target[dword * PANEL_ROWS * 4 + lane * 4..][..4].copy_from_slice(bytes);
        };
        if quants.is_nibble() {
            for (dword, pair) in dwords.as_chunks::<2>().0.iter().enumerate() {
                let [low, high] = pair;
                put(dword, &std::array::from_fn(|i| low[i] | high[i] << 4));
            }
        } else {
            dwords.iter().enumerate().for_each(|(dword, bytes)| put(dword, bytes));
        }
        let at = self.layout.scales_at(block);
        let half_at = |at: usize| at + lane * 2;
        let mut put_half = |at: usize, value: f32| {
            panel[at..][..2].copy_from_slice(&f16::from_f32(value).to_le_bytes());
        };
        match scales {
            Scales::Half => put_half(half_at(at), split.scale),
            Scales::HalfMin => {
                put_half(half_at(at), split.scale);
                put_half(half_at(at + PANEL_ROWS * 2), split.min);
            }
            Scales::Float => panel[at + lane * 4..][..4].copy_from_slice(&split.scale.to_le_bytes()),
            Scales::Super { halves } | Scales::SuperMin { halves } => {
                let factors = self.layout.super_at(block);
                put_half(half_at(factors), split.scale);
                if scales.has_min() {
                    put_half(half_at(factors + PANEL_ROWS * 2), split.min);
                }
                let parts = 1 + usize::from(halves);
                for part in 0..parts {
                    panel[at + part * PANEL_ROWS + lane] = split.sub_scales[part] as u8;
                    if scales.has_min() {
                        panel[at + (parts + part) * PANEL_ROWS + lane] = split.sub_mins[part];
                    }
                }
            }
        }
    }

    /// The block as it was before it was packed.
    pub(crate) fn read(&self, panel: &[u8]) -> Split {
        let (Layout { quants, scales, .. }, Self { block, lane, .. }) = (*self.layout, *self);
        let source = &panel[block * quants.bytes()..][..quants.bytes()];
        let mut values = [0i8; BLOCK];
        for (k, value) in values.iter_mut().enumerate() {
            let byte = source[self.layout.quant_index(lane, k)];
            let stored = match (quants.is_nibble(), k % 8 < 4) {
                (true, true) => byte & 0x0f,
                (true, false) => byte >> 4,
                (false, _) => byte,
            };
            *value = match quants {
                Quants::Table(table) => table[usize::from(stored)],
                _ => (i32::from(stored) - quants.offset()) as i8,
            };
        }
        let at = self.layout.scales_at(block);
        let half = |at: usize| f16::from_le_bytes([panel[at + lane * 2], panel[at + lane * 2 + 1]]).to_f32();
        let mut split = Split { quants: values, scale: 0.0, min: 0.0, sub_scales: [1; 2], sub_mins: [0; 2] };
        match scales {
            Scales::Half => split.scale = half(at),
            Scales::HalfMin => {
                (split.scale, split.min, split.sub_mins) = (half(at), half(at + PANEL_ROWS * 2), [1; 2]);
            }
            Scales::Float => {
                let (words, _) = panel[at + lane * 4..].as_chunks::<4>();
                split.scale = f32::from_le_bytes(words[0]);
            }
            Scales::Super { halves } | Scales::SuperMin { halves } => {
                let factors = self.layout.super_at(block);
                split.scale = half(factors);
                let sub = |part: usize| panel[at + part * PANEL_ROWS + lane];
                let high = usize::from(halves);
                split.sub_scales = [sub(0) as i8, sub(high) as i8];
                if scales.has_min() {
                    split.min = half(factors + PANEL_ROWS * 2);
                    split.sub_mins = [sub(1 + high), sub(1 + 2 * high)];
                }
            }
        }
        split
    }
}
