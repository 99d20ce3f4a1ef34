//! The K formats: 256 values, a small integer scale for each 16 or 32 of them, f16 scales for all.
//!
//! A 32-value part's low bits stand in the same bits of 32 consecutive bytes, and so do its high bits.

use std::array::from_fn;

use super::split::{Split, half_at, part};
use crate::BLOCK;

/// 16 scale bytes (low nibble: scale, high: minimum), 64 bytes of two-bit codes, `d`, `dmin`.
pub(super) fn q2_k(raw: &[u8], index: usize) -> Split {
    let codes: &[u8; BLOCK] = part(raw, 16 + index / 4 * BLOCK);
    let shift = 2 * (index % 4);
    let subs: &[u8; 2] = part(raw, 2 * index);
    Split {
        quants: codes.map(|byte| ((byte >> shift) & 3) as i8),
        scale: half_at(raw, 80),
        min: -half_at(raw, 82),
        sub_scales: subs.map(|byte| (byte & 0x0f) as i8),
        sub_mins: subs.map(|byte| byte >> 4),
    }
}

/// 32 bytes of third bits (0 means minus 4), 64 bytes of two-bit codes, 12 of six-bit scales, `d`.
pub(super) fn q3_k(raw: &[u8], index: usize) -> Split {
    let high: &[u8; BLOCK] = part(raw, 0);
    let codes: &[u8; BLOCK] = part(raw, 32 + index / 4 * BLOCK);
    let shift = 2 * (index % 4);
    let scales: &[u8; 12] = part(raw, 96);
    // Scale s: four low bits in byte s % 8, two high bits in byte 8 + s % 4, both by ascending bits; offset 32.
    let sub_scale = |s: usize| {
        let low = (scales[s % 8] >> (4 * (s / 8))) & 0x0f;
        let high = (scales[8 + s % 4] >> (2 * (s / 4))) & 3;
        (low | high << 4) as i8 - 32
    };
    Split {
        quants: from_fn(|k| ((codes[k] >> shift) & 3 | ((high[k] >> index) & 1) << 2) as i8 - 4),
        sub_scales: [sub_scale(2 * index), sub_scale(2 * index + 1)],
        ..Split::scaled(half_at(raw, 108), [0; BLOCK])
    }
}

/// `d`, `dmin`, 12 bytes of six-bit scales and minima, 128 bytes of nibbles.
pub(super) fn q4_k(raw: &[u8], index: usize) -> Split {
    with_min(raw, index, k_nibbles(raw, 16, index).map(|q| q as i8))
}

/// As Q4_K, with 32 bytes of fifth bits before the nibbles.
pub(super) fn q5_k(raw: &[u8], index: usize) -> Split {
    let high: &[u8; BLOCK] = part(raw, 16);
    let low = k_nibbles(raw, 48, index);
    with_min(raw, index, from_fn(|k| (low[k] | ((high[k] >> index) & 1) << 4) as i8))
}

/// 128 bytes of nibbles, 64 of two high bits each, 16 signed scales, `d`; values are offset by 32.
pub(super) fn q6_k(raw: &[u8], index: usize) -> Split {
    let (half, quarter) = (index / 4, index % 4);
    let low: &[u8; BLOCK] = part(raw, half * 64 + quarter % 2 * BLOCK);
    let high: &[u8; BLOCK] = part(raw, 128 + half * BLOCK);
    let (low_shift, high_shift) = (quarter / 2 * 4, quarter * 2);
    let quant = |k: usize| (low[k] >> low_shift) & 0x0f | ((high[k] >> high_shift) & 3) << 4;
    Split {
        quants: from_fn(|k| quant(k) as i8 - 32),
        sub_scales: part::<2>(raw, 192 + 2 * index).map(|byte| byte as i8),
        ..Split::scaled(half_at(raw, 208), [0; BLOCK])
    }
}

/// Two parts share 32 bytes: the even one has the low nibbles.
fn k_nibbles(raw: &[u8], at: usize, index: usize) -> [u8; BLOCK] {
    let shift = index % 2 * 4;
    part::<BLOCK>(raw, at + index / 2 * BLOCK).map(|byte| (byte >> shift) & 0x0f)
}

/// Adds Q4_K's and Q5_K's scales. Those of parts 0 to 3 are the low six bits of bytes 0 to 3 (scale)
/// and 4 to 7 (minimum); those of parts 4 to 7 have their low bits in the nibbles of bytes 8 to 11 and
/// their two high bits above the six bits of the part four before.
fn with_min(raw: &[u8], index: usize, quants: [i8; BLOCK]) -> Split {
    let bytes: &[u8; 12] = part(raw, 4);
    let (scale, min) = if index < 4 {
        (bytes[index] & 63, bytes[index + 4] & 63)
    } else {
        let low = bytes[index + 4];
        (low & 0x0f | (bytes[index - 4] >> 6) << 4, low >> 4 | (bytes[index] >> 6) << 4)
    };
    Split {
        quants,
        scale: half_at(raw, 0),
        min: -half_at(raw, 2),
        sub_scales: [scale as i8; 2],
        sub_mins: [min; 2],
    }
}
