//! The block formats of GGUF files: bytes to values.
//!
//! Layouts as in ggml's `ggml-common.h`; values bit-equal to its `to_float`.

use half::{bf16, f16};

use crate::BLOCK;

/// How a row of weights is stored in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the names are the format's own
pub enum BlockFormat {
    F32,
    F16,
    BF16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
}

/// One quantised block taken apart: value i is `scale * quants[i] (+ min)`.
pub(crate) struct QuantBlock {
    pub(crate) scale: f16,
    pub(crate) min: f16,
    /// Signed for formats without a minimum, unsigned for those with one; Q4_0 is kept at 0…15.
    pub(crate) quants: [i8; BLOCK],
}

impl BlockFormat {
    /// All formats.
    pub const ALL: [Self; 8] =
        [Self::F32, Self::F16, Self::BF16, Self::Q4_0, Self::Q4_1, Self::Q5_0, Self::Q5_1, Self::Q8_0];

    /// The format's name in GGUF tools.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "F32",
            Self::F16 => "F16",
            Self::BF16 => "BF16",
            Self::Q4_0 => "Q4_0",
            Self::Q4_1 => "Q4_1",
            Self::Q5_0 => "Q5_0",
            Self::Q5_1 => "Q5_1",
            Self::Q8_0 => "Q8_0",
        }
    }

    /// Values in one block.
    pub fn block_len(self) -> usize {
        if self.is_float() { 1 } else { BLOCK }
    }

    /// Bytes of one block.
    pub fn block_bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::BF16 => 2,
            Self::Q4_0 => 18,
            Self::Q4_1 => 20,
            Self::Q5_0 => 22,
            Self::Q5_1 => 24,
            Self::Q8_0 => 34,
        }
    }

    /// Bytes of `values` values, a multiple of [`block_len`](Self::block_len).
    pub fn bytes(self, values: usize) -> usize {
        values / self.block_len() * self.block_bytes()
    }

    pub(crate) fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F16 | Self::BF16)
    }

    pub(crate) fn has_min(self) -> bool {
        matches!(self, Self::Q4_1 | Self::Q5_1)
    }

    pub(crate) fn is_nibble(self) -> bool {
        matches!(self, Self::Q4_0 | Self::Q4_1)
    }

    /// Values of whole blocks.
    ///
    /// # Panics
    /// Unless `raw` holds `bytes(out.len())` bytes.
    pub fn dequantize(self, raw: &[u8], out: &mut [f32]) {
        assert_eq!(raw.len(), self.bytes(out.len()), "{} bytes for {} values", self.name(), out.len());
        match self {
            Self::F32 => each::<4>(raw, out, f32::from_le_bytes),
            Self::F16 => each::<2>(raw, out, |b| f16::from_le_bytes(b).to_f32()),
            Self::BF16 => each::<2>(raw, out, |b| bf16::from_le_bytes(b).to_f32()),
            _ => {
                let blocks = raw.chunks_exact(self.block_bytes());
                for (block, values) in blocks.zip(out.chunks_exact_mut(BLOCK)) {
                    self.split(block).values(self, values);
                }
            }
        }
    }

    /// Takes one quantised block apart.
    pub(crate) fn split(self, raw: &[u8]) -> QuantBlock {
        let half_at = |at: usize| f16::from_le_bytes([raw[at], raw[at + 1]]);
        let mut quants = [0i8; BLOCK];
        let min = if self.has_min() { half_at(2) } else { f16::ZERO };
        match self {
            Self::Q4_0 => nibbles(&raw[2..18], &mut quants),
            Self::Q4_1 => nibbles(&raw[4..20], &mut quants),
            Self::Q5_0 => {
                nibbles(&raw[6..22], &mut quants);
                fifth_bits(&raw[2..6], &mut quants);
                quants.iter_mut().for_each(|q| *q -= 16);
            }
            Self::Q5_1 => {
                nibbles(&raw[8..24], &mut quants);
                fifth_bits(&raw[4..8], &mut quants);
            }
            _ => quants.iter_mut().zip(&raw[2..34]).for_each(|(q, &byte)| *q = byte as i8),
        }
        QuantBlock { scale: half_at(0), min, quants }
    }

    /// What is subtracted from a stored quant to get the signed value.
    pub(crate) fn offset(self) -> i32 {
        if self == Self::Q4_0 { 8 } else { 0 }
    }
}

impl QuantBlock {
    pub(crate) fn values(&self, format: BlockFormat, out: &mut [f32]) {
        let (scale, min, offset) = (self.scale.to_f32(), self.min.to_f32(), format.offset());
        for (value, &quant) in out.iter_mut().zip(&self.quants) {
            let product = scale * (i32::from(quant) - offset) as f32;
            *value = if format.has_min() { product + min } else { product };
        }
    }
}

fn each<const N: usize>(raw: &[u8], out: &mut [f32], read: impl Fn([u8; N]) -> f32) {
    let (words, _) = raw.as_chunks::<N>();
    for (value, &word) in out.iter_mut().zip(words) {
        *value = read(word);
    }
}

/// The first half of a block is in the low nibbles, the second in the high ones.
fn nibbles(raw: &[u8], quants: &mut [i8; BLOCK]) {
    for (i, &byte) in raw.iter().enumerate() {
        quants[i] = (byte & 0x0f) as i8;
        quants[i + BLOCK / 2] = (byte >> 4) as i8;
    }
}

fn fifth_bits(raw: &[u8], quants: &mut [i8; BLOCK]) {
    let bits = u32::from_le_bytes([raw[0], raw[1], raw[2], raw[3]]);
    for (i, quant) in quants.iter_mut().enumerate() {
        *quant |= (((bits >> i) & 1) << 4) as i8;
    }
}
