//! Four-bit formats whose codes stand for the entries of a table.

use super::split::{Split, half_at, nibbles, part};
use crate::BLOCK;

/// Code to value, IQ4_NL and IQ4_XS (ggml's `kvalues_iq4nl`).
pub(super) const IQ4: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// Code to twice its value as an E2M1 float (OCP Microscaling Formats 1.0); the sign of code 8, a negative
/// zero, is dropped as in ggml.
pub(super) const MXFP4: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// `d`, 16 bytes of nibbles.
pub(super) fn iq4_nl(raw: &[u8]) -> Split {
    Split::scaled(half_at(raw, 0), looked_up(part(raw, 2), &IQ4))
}

/// `d`, 16 bits with the two high bits of eight scales, four bytes with their low nibbles, 128 bytes of
/// nibbles; scales are offset by 32.
pub(super) fn iq4_xs(raw: &[u8], index: usize) -> Split {
    let low = raw[4 + index / 2] >> (index % 2 * 4) & 0x0f;
    let high = u16::from_le_bytes(*part(raw, 2)) >> (2 * index) & 3;
    let sub_scale = (low | (high as u8) << 4) as i8 - 32;
    let quants = looked_up(part(raw, 8 + index * BLOCK / 2), &IQ4);
    Split { sub_scales: [sub_scale; 2], ..Split::scaled(half_at(raw, 0), quants) }
}

/// An exponent byte, 16 bytes of nibbles.
pub(super) fn mxfp4(raw: &[u8]) -> Split {
    Split::scaled(half_power_of_two(raw[0]), looked_up(part(raw, 1), &MXFP4))
}

/// 2^(exponent − 128): half of what the byte means in E8M0, since the table is doubled. Bytes 0 and 1
/// give subnormal numbers.
fn half_power_of_two(exponent: u8) -> f32 {
    let exponent = u32::from(exponent);
    f32::from_bits(if exponent < 2 { 0x0020_0000 << exponent } else { (exponent - 1) << 23 })
}

fn looked_up(raw: &[u8; BLOCK / 2], table: &[i8; 16]) -> [i8; BLOCK] {
    nibbles(raw).map(|code| table[(code & 0x0f) as usize])
}
