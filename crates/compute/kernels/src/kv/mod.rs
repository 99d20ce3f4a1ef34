//! The bytes of keys and values: one arena per layer, cut into blocks of 16 tokens.
//!
//! A block holds a section per KV head: the keys transposed (`head_dim × 16`, a lane is a token), then
//! the values (`16 × head_dim`), then, for [`KvFormat::Int8`], 16 key scales and 16 value scales.
//! Elements have the machine's byte order. What a token's keys and values become depends on that token
//! alone (contract 1).

mod write;

use crate::attention::{HeadShape, Span};
use crate::lines::Lines;

/// Tokens in a KV block, and in an attention tile.
pub const BLOCK_TOKENS: usize = 16;

/// How keys and values are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KvFormat {
    /// As computed: the reference.
    F32,
    /// Half precision, rounded to nearest, ties to even.
    F16,
    /// 8-bit integers with one f32 scale per token, head, and key or value.
    Int8,
}

impl KvFormat {
    /// Bytes of one block of one layer.
    pub fn block_bytes(self, shape: HeadShape) -> usize {
        shape.kv_heads * self.section_bytes(shape.head_dim)
    }

    fn section_bytes(self, head_dim: usize) -> usize {
        let elements = 2 * head_dim * BLOCK_TOKENS;
        match self {
            Self::F32 => elements * 4,
            Self::F16 => elements * 2,
            Self::Int8 => elements + 2 * BLOCK_TOKENS * 4,
        }
    }
}

/// One layer's blocks.
pub struct KvArena {
    format: KvFormat,
    shape: HeadShape,
    bytes: Lines,
}

/// The keys and values a step computed for one layer: rows of `kv_heads · head_dim`, one per token of the
/// spans.
#[derive(Debug, Clone, Copy)]
pub struct KvRows<'a> {
    /// Rotated keys.
    pub keys: &'a [f32],
    /// Values.
    pub values: &'a [f32],
    /// Which rows belong to which sequence.
    pub spans: &'a [Span<'a>],
    /// Below which position each span's sequence has its keys and values already; empty for nowhere.
    pub stored: &'a [usize],
}

impl KvArena {
    /// `blocks` zeroed blocks. Pages are taken from the system when first written. `None` when it refuses.
    pub fn new(format: KvFormat, shape: HeadShape, blocks: usize) -> Option<Self> {
        let bytes = blocks.checked_mul(format.block_bytes(shape))?;
        Some(Self { format, shape, bytes: Lines::try_zeroed(bytes)? })
    }

    /// How keys and values are kept.
    pub(crate) fn format(&self) -> KvFormat {
        self.format
    }

    /// Heads and their size.
    pub fn shape(&self) -> HeadShape {
        self.shape
    }

    /// The bytes of a block, which mean something only to an arena of the same format and shape.
    ///
    /// # Panics
    /// Where there is no such block; so do all that name one.
    pub fn block(&self, block: u32) -> &[u8] {
        let size = self.format.block_bytes(self.shape);
        &self.bytes.as_slice()[block as usize * size..][..size]
    }

    /// The same, to be overwritten.
    pub fn block_mut(&mut self, block: u32) -> &mut [u8] {
        let size = self.format.block_bytes(self.shape);
        &mut self.bytes.as_mut_slice()[block as usize * size..][..size]
    }

    /// Copies one block over another.
    pub fn copy(&mut self, from: u32, to: u32) {
        let size = self.format.block_bytes(self.shape);
        let from = from as usize * size;
        self.bytes.as_mut_slice().copy_within(from..from + size, to as usize * size);
    }

    /// Where a section would start, for a prefetch; the block need not be there.
    #[inline(always)]
    pub(crate) fn hint(&self, block: u32, kv_head: usize) -> *const u8 {
        let section = self.format.section_bytes(self.shape.head_dim);
        let start = (block as usize).wrapping_mul(self.shape.kv_heads).wrapping_add(kv_head);
        self.bytes.as_slice().as_ptr().wrapping_add(start.wrapping_mul(section))
    }

    /// One head's part of a block: keys, values, and the scales of [`KvFormat::Int8`].
    #[inline(always)]
    pub(crate) fn section(&self, block: u32, kv_head: usize) -> &[u8] {
        let size = self.format.section_bytes(self.shape.head_dim);
        &self.block(block)[kv_head * size..][..size]
    }
}

#[cfg(test)]
mod tests;
