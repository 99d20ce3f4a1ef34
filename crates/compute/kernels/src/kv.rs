//! The bytes of keys and values: one arena per layer, cut into blocks of 16 tokens.
//!
//! A block holds a section per KV head: the keys transposed (`head_dim × 16`, a lane is a token), then
//! the values (`16 × head_dim`), then, for [`KvFormat::Int8`], 16 key scales and 16 value scales.
//! What a token's keys and values become depends on that token alone (contract 1).

use half::f16;

use crate::Isa;
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

/// The rows a step computed for one layer: `kv_heads · head_dim` per token.
#[derive(Debug, Clone, Copy)]
pub struct KvRows<'a> {
    /// Rotated keys.
    pub keys: &'a [f32],
    /// Values.
    pub values: &'a [f32],
}

impl KvArena {
    /// `blocks` zeroed blocks. Pages are taken from the system when first written. `None` when it refuses.
    pub fn new(format: KvFormat, shape: HeadShape, blocks: usize) -> Option<Self> {
        let bytes = blocks.checked_mul(format.block_bytes(shape))?;
        Some(Self { format, shape, bytes: Lines::try_zeroed(bytes)? })
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

    /// Writes the keys and values of a span's tokens from position `stored` on.
    pub fn write(&mut self, span: &Span<'_>, stored: usize, rows: KvRows<'_>) {
        let HeadShape { kv_heads, head_dim, .. } = self.shape;
        let (format, section) = (self.format, self.format.section_bytes(head_dim));
        for position in span.start.max(stored)..span.start + span.len {
            let row = (span.first_row + position - span.start) * kv_heads * head_dim;
            let block = self.block_mut(span.blocks[position / BLOCK_TOKENS]);
            for (head, section) in block.chunks_exact_mut(section).enumerate() {
                let at = row + head * head_dim;
                let token = Token { slot: position % BLOCK_TOKENS, head_dim };
                token.write(format, section, &rows.keys[at..][..head_dim], &rows.values[at..][..head_dim]);
            }
        }
    }

    /// A head's keys (`head_dim × 16`) and values (`16 × head_dim`) as f32.
    #[inline(always)]
    pub(crate) fn load(&self, block: u32, kv_head: usize, isa: Isa, out: &mut [f32]) {
        let size = self.format.section_bytes(self.shape.head_dim);
        let section = &self.block(block)[kv_head * size..][..size];
        match self.format {
            KvFormat::F32 => load_f32(section, out),
            KvFormat::F16 => load_f16(section, out, isa),
            KvFormat::Int8 => load_int8(section, out),
        }
    }
}

/// Where one token is in a section.
struct Token {
    slot: usize,
    head_dim: usize,
}

impl Token {
    fn write(&self, format: KvFormat, section: &mut [u8], key: &[f32], value: &[f32]) {
        match format {
            KvFormat::F32 => self.store(section, key, value, f32::to_le_bytes),
            // The constant-time software form; F16C rounds alike.
            KvFormat::F16 => self.store(section, key, value, |v| f16::from_f32_const(v).to_le_bytes()),
            KvFormat::Int8 => {
                let scales = 2 * self.head_dim * BLOCK_TOKENS;
                let (key_scale, value_scale) = (int8_scale(key), int8_scale(value));
                section[scales + self.slot * 4..][..4].copy_from_slice(&key_scale.to_le_bytes());
                section[scales + (BLOCK_TOKENS + self.slot) * 4..][..4]
                    .copy_from_slice(&value_scale.to_le_bytes());
                let keys = key.iter().map(|v| v / key_scale);
                let values = value.iter().map(|v| v / value_scale);
                let (key, value): (Vec<f32>, Vec<f32>) = (keys.collect(), values.collect());
                // A zero or NaN scale gives NaN quotients, which the cast turns to 0.
                self.store(section, &key, &value, |v| [v.round_ties_even() as i8 as u8]);
            }
        }
    }

    fn store<const N: usize>(
        &self,
        section: &mut [u8],
        key: &[f32],
        value: &[f32],
        encode: impl Fn(f32) -> [u8; N],
    ) {
        let (section, _) = section.as_chunks_mut::<N>();
        let (keys, values) = section.split_at_mut(self.head_dim * BLOCK_TOKENS);
        for (lanes, v) in keys.chunks_exact_mut(BLOCK_TOKENS).zip(key) {
            lanes[self.slot] = encode(*v);
        }
        for (to, v) in values[self.slot * self.head_dim..].iter_mut().zip(value) {
            *to = encode(*v);
        }
    }
}

/// Largest magnitude ÷ 127; NaN where a value is not finite, so that it stays visible.
fn int8_scale(values: &[f32]) -> f32 {
    let largest = values.iter().fold(0f32, |m, v| if v.abs() > m { v.abs() } else { m });
    if values.iter().all(|v| v.is_finite()) { largest / 127.0 } else { f32::NAN }
}

#[inline(always)]
fn load_f32(section: &[u8], out: &mut [f32]) {
    let (words, _) = section.as_chunks::<4>();
    words.iter().zip(out).for_each(|(word, out)| *out = f32::from_le_bytes(*word));
}

#[inline(always)]
fn load_f16(section: &[u8], out: &mut [f32], isa: Isa) {
    match isa {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `Isa::Avx2` exists only after the CPU reported F16C.
        Isa::Avx2 => unsafe { load_f16c(section, out) },
        _ => {
            let (words, _) = section.as_chunks::<2>();
            words.iter().zip(out).for_each(|(word, out)| *out = f16::from_le_bytes(*word).to_f32_const());
        }
    }
}

/// Sections hold whole multiples of eight values: 16 tokens times the head size, twice.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
fn load_f16c(section: &[u8], out: &mut [f32]) {
    use std::arch::x86_64::{_mm_loadu_si128, _mm256_cvtph_ps, _mm256_storeu_ps};
    let (source, _) = section.as_chunks::<16>();
    let (out, _) = out.as_chunks_mut::<8>();
    for (source, out) in source.iter().zip(out) {
        // SAFETY: the source holds eight halves, the target eight floats.
        unsafe {
            _mm256_storeu_ps(out.as_mut_ptr(), _mm256_cvtph_ps(_mm_loadu_si128(source.as_ptr().cast())))
        };
    }
}

#[inline(always)]
fn load_int8(section: &[u8], out: &mut [f32]) {
    let (quants, scales) = section.split_at(out.len());
    let (scales, _) = scales.as_chunks::<4>();
    let scale = |i: usize| f32::from_le_bytes(scales[i]);
    let (keys, values) = out.split_at_mut(out.len() / 2);
    let (key_quants, value_quants) = quants.split_at(quants.len() / 2);
    let key_scales: [f32; BLOCK_TOKENS] = std::array::from_fn(scale);
    let (keys, _) = keys.as_chunks_mut::<BLOCK_TOKENS>();
    let (key_quants, _) = key_quants.as_chunks::<BLOCK_TOKENS>();
    for (keys, quants) in keys.iter_mut().zip(key_quants) {
        for (t, key) in keys.iter_mut().enumerate() {
            *key = f32::from(quants[t] as i8) * key_scales[t];
        }
    }
    let head_dim = values.len() / BLOCK_TOKENS;
    for (t, (values, quants)) in
        values.chunks_exact_mut(head_dim).zip(value_quants.chunks_exact(head_dim)).enumerate()
    {
        let scale = scale(BLOCK_TOKENS + t);
        values.iter_mut().zip(quants).for_each(|(value, quant)| *value = f32::from(*quant as i8) * scale);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FORMATS: [KvFormat; 3] = [KvFormat::F32, KvFormat::F16, KvFormat::Int8];

    proptest! {
        /// What was written comes back, to the format's precision, the same on every ISA, for any head size.
        #[test]
        fn tokens_come_back(
            head_dim in prop_oneof![Just(2usize), Just(6), Just(16), Just(64), Just(80)],
            slot in 0usize..BLOCK_TOKENS,
            seed in 1u32..1000,
        ) {
            let shape = HeadShape { heads: 2, kv_heads: 2, head_dim };
            let row = |salt: u32| -> Vec<f32> {
                (0..2 * head_dim as u32).map(|i| ((i + salt) * seed % 997) as f32 / 100.0 - 5.0).collect()
            };
            let (keys, values) = (row(1), row(77));
            for format in FORMATS {
                let mut arena = KvArena::new(format, shape, 3).unwrap();
                let span = Span { first_row: 0, len: 1, start: slot, blocks: &[2] };
                arena.write(&span, 0, KvRows { keys: &keys, values: &values });
                for isa in Isa::available() {
                    let mut out = vec![f32::NAN; 2 * head_dim * BLOCK_TOKENS];
                    arena.load(2, 1, isa, &mut out);
                    let tolerance = if format == KvFormat::F32 { 0.0 } else { 0.025 };
                    for d in 0..head_dim {
                        let key = out[d * BLOCK_TOKENS + slot];
                        let value = out[head_dim * BLOCK_TOKENS + slot * head_dim + d];
                        prop_assert!((key - keys[head_dim + d]).abs() <= tolerance, "{:?} key", format);
                        prop_assert!((value - values[head_dim + d]).abs() <= tolerance, "{:?} value", format);
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_stored_is_not_written_again() {
        let shape = HeadShape { heads: 1, kv_heads: 1, head_dim: 2 };
        let mut arena = KvArena::new(KvFormat::F32, shape, 1).unwrap();
        let span = Span { first_row: 0, len: 2, start: 0, blocks: &[0] };
        arena.write(&span, 0, KvRows { keys: &[1.0; 4], values: &[1.0; 4] });
        arena.write(&span, 1, KvRows { keys: &[2.0; 4], values: &[2.0; 4] });
        let mut out = [0f32; 64];
        arena.load(0, 0, Isa::Scalar, &mut out);
        assert_eq!(out[..2], [1.0, 2.0]);
    }

    #[test]
    fn what_is_not_finite_stays_visible() {
        let shape = HeadShape { heads: 1, kv_heads: 1, head_dim: 2 };
        for format in FORMATS {
            let mut arena = KvArena::new(format, shape, 1).unwrap();
            let span = Span { first_row: 0, len: 1, start: 0, blocks: &[0] };
            arena.write(&span, 0, KvRows { keys: &[f32::INFINITY, 1.0], values: &[f32::NAN, 1.0] });
            let mut out = [0f32; 64];
            arena.load(0, 0, Isa::Scalar, &mut out);
            assert!(!out[0].is_finite() && !out[32].is_finite(), "{format:?}");
        }
    }

    #[test]
    fn blocks_are_copied() {
        let shape = HeadShape { heads: 1, kv_heads: 1, head_dim: 2 };
        let mut arena = KvArena::new(KvFormat::F16, shape, 2).unwrap();
        arena.block_mut(0).fill(7);
        arena.copy(0, 1);
        assert!(arena.block(1).iter().all(|b| *b == 7));
    }
}
