//! The block formats of GGUF files: bytes to values.
//!
//! Layouts as in ggml's `ggml-common.h`; values bit-equal to its `to_float`. Every quantised format
//! goes through one intermediate form, [`Split`]: 32 values taken apart into small integers and their scales.

mod k_quants;
#[cfg(test)]
pub(crate) mod samples;
mod split;
mod tables;
#[cfg(test)]
mod tests;

use half::{bf16, f16};

pub(crate) use split::Split;

use crate::BLOCK;

/// How a row of weights is stored in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(non_camel_case_types, missing_docs)] // the names are the format's own
pub enum BlockFormat {
    F32,
    F16,
    BF16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q2_K,
    Q3_K,
    Q4_K,
    Q5_K,
    Q6_K,
    IQ4_NL,
    IQ4_XS,
    MXFP4,
}

/// Values in a block of the formats that group several scales under a common one.
const SUPER_BLOCK: usize = 256;

impl BlockFormat {
    /// All formats.
    pub const ALL: [Self; 16] = [
        Self::F32,
        Self::F16,
        Self::BF16,
        Self::Q4_0,
        Self::Q4_1,
        Self::Q5_0,
        Self::Q5_1,
        Self::Q8_0,
        Self::Q2_K,
        Self::Q3_K,
        Self::Q4_K,
        Self::Q5_K,
        Self::Q6_K,
        Self::IQ4_NL,
        Self::IQ4_XS,
        Self::MXFP4,
    ];

    /// Name, values in a block, bytes of a block.
    const fn layout(self) -> (&'static str, usize, usize) {
        match self {
            Self::F32 => ("F32", 1, 4),
            Self::F16 => ("F16", 1, 2),
            Self::BF16 => ("BF16", 1, 2),
            Self::Q4_0 => ("Q4_0", BLOCK, 18),
            Self::Q4_1 => ("Q4_1", BLOCK, 20),
            Self::Q5_0 => ("Q5_0", BLOCK, 22),
            Self::Q5_1 => ("Q5_1", BLOCK, 24),
            Self::Q8_0 => ("Q8_0", BLOCK, 34),
            Self::Q2_K => ("Q2_K", SUPER_BLOCK, 84),
            Self::Q3_K => ("Q3_K", SUPER_BLOCK, 110),
            Self::Q4_K => ("Q4_K", SUPER_BLOCK, 144),
            Self::Q5_K => ("Q5_K", SUPER_BLOCK, 176),
            Self::Q6_K => ("Q6_K", SUPER_BLOCK, 210),
            Self::IQ4_NL => ("IQ4_NL", BLOCK, 18),
            Self::IQ4_XS => ("IQ4_XS", SUPER_BLOCK, 136),
            Self::MXFP4 => ("MXFP4", BLOCK, 17),
        }
    }

    /// The format's name in GGUF tools.
    pub const fn name(self) -> &'static str {
        self.layout().0
    }

    /// Values in one block.
    pub const fn block_len(self) -> usize {
        self.layout().1
    }

    /// Bytes of one block.
    pub const fn block_bytes(self) -> usize {
        self.layout().2
    }

    /// Bytes of `values` values, a multiple of [`block_len`](Self::block_len).
    pub fn bytes(self, values: usize) -> usize {
        values / self.block_len() * self.block_bytes()
    }

    pub(crate) fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F16 | Self::BF16)
    }

    /// Values of whole blocks.
    ///
    /// # Panics
    /// Unless `raw` holds the bytes of `out.len()` values, whole blocks of them.
    pub fn dequantize(self, raw: &[u8], out: &mut [f32]) {
        let is_whole = out.len().is_multiple_of(self.block_len()) && raw.len() == self.bytes(out.len());
        assert!(is_whole, "{} bytes of {} for {} values", raw.len(), self.name(), out.len());
        match self {
            Self::F32 => each::<4>(raw, out, f32::from_le_bytes),
            Self::F16 => each::<2>(raw, out, |b| f16::from_le_bytes(b).to_f32()),
            Self::BF16 => each::<2>(raw, out, |b| bf16::from_le_bytes(b).to_f32()),
            _ => {
                let blocks = raw.chunks_exact(self.block_bytes());
                for (block, values) in blocks.zip(out.chunks_exact_mut(self.block_len())) {
                    for (index, part) in values.as_chunks_mut::<BLOCK>().0.iter_mut().enumerate() {
                        self.split(block, index).values(self, part);
                    }
                }
            }
        }
    }
}

fn each<const N: usize>(raw: &[u8], out: &mut [f32], read: impl Fn([u8; N]) -> f32) {
    let (words, _) = raw.as_chunks::<N>();
    for (value, &word) in out.iter_mut().zip(words) {
        *value = read(word);
    }
}
