//! One description of a quantised block that all formats share, and the formats of 32 values.

use half::f16;

use super::{BlockFormat, k_quants, tables};
use crate::BLOCK;

/// 32 consecutive values taken apart: value i is
/// `(scale * sub_scales[i / 16]) * quants[i] + min * sub_mins[i / 16]`, without the second term for
/// formats that have no minimum.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Split {
    /// As multiplied: signed, or unsigned for formats with a minimum; the table's value for formats with a table.
    pub(crate) quants: [i8; BLOCK],
    /// The f16 `d` of the block, or half of MXFP4's power of two, whose table is doubled.
    pub(crate) scale: f32,
    /// The f16 `m` of Q4_1 and Q5_1, `-dmin` of the K formats with minima, 0 otherwise.
    pub(crate) min: f32,
    /// One per 16 values; 1 for formats without them.
    pub(crate) sub_scales: [i8; 2],
    /// One per 16 values; 1 for Q4_1 and Q5_1, 0 where there is no minimum.
    pub(crate) sub_mins: [u8; 2],
}

impl Split {
    /// A block with one scale for all its values.
    pub(super) fn scaled(scale: f32, quants: [i8; BLOCK]) -> Self {
        Self { quants, scale, min: 0.0, sub_scales: [1; 2], sub_mins: [0; 2] }
    }

    /// The values, rounded at the same places as ggml's `to_float`.
    pub(crate) fn values(&self, format: BlockFormat, out: &mut [f32; BLOCK]) {
        let has_min = format.has_min();
        let halves = out.as_chunks_mut::<{ BLOCK / 2 }>().0.iter_mut().zip(self.quants.as_chunks().0);
        for (half, (values, quants)) in halves.enumerate() {
            let quants: &[i8; BLOCK / 2] = quants;
            let scale = self.scale * f32::from(self.sub_scales[half]);
            let min = self.min * f32::from(self.sub_mins[half]);
            for (value, &quant) in values.iter_mut().zip(quants) {
                let product = scale * f32::from(quant);
                // Adding a minimum of 0 turns -0 into +0.
                *value = if has_min { product + min } else { product };
            }
        }
    }
}

impl BlockFormat {
    /// Whether values are a product plus a minimum.
    pub(crate) fn has_min(self) -> bool {
        matches!(self, Self::Q4_1 | Self::Q5_1 | Self::Q2_K | Self::Q4_K | Self::Q5_K)
    }

    /// Whether a block's scale is multiplied with a small integer for each part of the block.
    pub(crate) fn has_sub_scales(self) -> bool {
        matches!(self, Self::Q2_K | Self::Q3_K | Self::Q4_K | Self::Q5_K | Self::Q6_K | Self::IQ4_XS)
    }

    /// Values that share one sub-scale (and minimum): 16 or 32.
    pub(crate) fn sub_len(self) -> usize {
        if matches!(self, Self::Q2_K | Self::Q3_K | Self::Q6_K) { BLOCK / 2 } else { BLOCK }
    }

    /// The 16 values that the format's codes stand for, ascending or by magnitude, where codes are no numbers.
    pub(crate) fn table(self) -> Option<&'static [i8; 16]> {
        match self {
            Self::IQ4_NL | Self::IQ4_XS => Some(&tables::IQ4),
            Self::MXFP4 => Some(&tables::MXFP4),
            _ => None,
        }
    }

    /// The smallest and largest value [`Split::quants`] can take; 0 and 0 for float formats.
    pub(crate) fn quant_range(self) -> (i8, i8) {
        match self {
            Self::F32 | Self::F16 | Self::BF16 => (0, 0),
            Self::Q4_0 => (-8, 7),
            Self::Q4_1 | Self::Q4_K => (0, 15),
            Self::Q5_0 => (-16, 15),
            Self::Q5_1 | Self::Q5_K => (0, 31),
            Self::Q8_0 => (-128, 127),
            Self::Q2_K => (0, 3),
            Self::Q3_K => (-4, 3),
            Self::Q6_K => (-32, 31),
            Self::IQ4_NL | Self::IQ4_XS => (-127, 113),
            Self::MXFP4 => (-12, 12),
        }
    }

    /// Takes apart the `index`-th 32 values of one block of a quantised format.
    ///
    /// # Panics
    /// Where `raw_block` is shorter than a block, `index` is past its end, or the format is a float format.
    pub(crate) fn split(self, raw_block: &[u8], index: usize) -> Split {
        let raw = &raw_block[..self.block_bytes()];
        assert!(index < self.block_len() / BLOCK, "part {index} of a {} block", self.name());
        match self {
            Self::Q4_0 => Split::scaled(half_at(raw, 0), nibbles(part(raw, 2)).map(|q| q - 8)),
            Self::Q4_1 => with_min(raw, nibbles(part(raw, 4))),
            Self::Q5_0 => {
                let quants = with_fifth_bits(nibbles(part(raw, 6)), *part(raw, 2));
                Split::scaled(half_at(raw, 0), quants.map(|q| q - 16))
            }
            Self::Q5_1 => with_min(raw, with_fifth_bits(nibbles(part(raw, 8)), *part(raw, 4))),
            Self::Q2_K => k_quants::q2_k(raw, index),
            Self::Q3_K => k_quants::q3_k(raw, index),
            Self::Q4_K => k_quants::q4_k(raw, index),
            Self::Q5_K => k_quants::q5_k(raw, index),
            Self::Q6_K => k_quants::q6_k(raw, index),
            Self::IQ4_NL => tables::iq4_nl(raw),
            Self::IQ4_XS => tables::iq4_xs(raw, index),
            Self::MXFP4 => tables::mxfp4(raw),
            // Float formats have blocks of one value, so the assertion above leaves Q8_0.
            Self::Q8_0 | Self::F32 | Self::F16 | Self::BF16 => {
                Split::scaled(half_at(raw, 0), part::<BLOCK>(raw, 2).map(|byte| byte as i8))
            }
        }
    }
}

fn with_min(raw: &[u8], quants: [i8; BLOCK]) -> Split {
    Split { min: half_at(raw, 2), sub_mins: [1; 2], ..Split::scaled(half_at(raw, 0), quants) }
}

/// The f16 at byte `at`.
pub(super) fn half_at(raw: &[u8], at: usize) -> f32 {
    f16::from_le_bytes(*part(raw, at)).to_f32()
}

/// The `N` bytes from `at` on.
pub(super) fn part<const N: usize>(raw: &[u8], at: usize) -> &[u8; N] {
    &raw[at..].as_chunks::<N>().0[0]
}

/// The first half of the values is in the low nibbles, the second in the high ones.
pub(super) fn nibbles(raw: &[u8; BLOCK / 2]) -> [i8; BLOCK] {
    let mut quants = [0; BLOCK];
    let (low, high) = quants.split_at_mut(BLOCK / 2);
    for ((low, high), byte) in low.iter_mut().zip(high).zip(raw) {
        (*low, *high) = ((byte & 0x0f) as i8, (byte >> 4) as i8);
    }
    quants
}

fn with_fifth_bits(mut quants: [i8; BLOCK], bits: [u8; 4]) -> [i8; BLOCK] {
    let bits = u32::from_le_bytes(bits);
    for (i, quant) in quants.iter_mut().enumerate() {
        *quant |= (((bits >> i) & 1) << 4) as i8;
    }
    quants
}
