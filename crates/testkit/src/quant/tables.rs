//! IQ4_NL and MXFP4: codes stand for the entries of a table.

use half::f16;

use super::BLOCK;

/// IQ4_NL's and IQ4_XS's values.
pub(super) const IQ4: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];
/// MXFP4's values, doubled.
const MXFP4: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// The first code whose value is nearest.
pub(super) fn nearest(table: &[i8; 16], value: f32) -> u8 {
    let distance = |code: u8| (f32::from(table[usize::from(code)]) - value).abs();
    (1..16).fold(0, |best, code| if distance(code) < distance(best) { code } else { best })
}

pub(super) fn iq4_nl(block: &[f32; BLOCK]) -> Vec<u8> {
    let d = f16::from_f32(super::largest(block) / -127.0);
    let inverse = super::inverse(d.to_f32()) as f32;
    let mut out = d.to_le_bytes().to_vec();
    super::pack(&mut out, &block.map(|v| nearest(&IQ4, v * inverse)), 4);
    out
}

/// A power of two that puts the largest magnitude between 4 and 8 of the format's units (6 is its largest
/// value), as in OCP Microscaling Formats 1.0, section 6.3.
pub(super) fn mxfp4(block: &[f32; BLOCK]) -> Vec<u8> {
    let largest = super::largest(block).abs();
    // The exponent bits of an f32 are floor(log2) + 127, which is how E8M0 counts too.
    let exponent = (largest.to_bits() >> 23).saturating_sub(2);
    let half = f32::from_bits(if exponent < 2 { 0x0020_0000 << exponent } else { (exponent - 1) << 23 });
    let mut out = vec![exponent as u8];
    super::pack(&mut out, &block.map(|v| nearest(&MXFP4, v / half)), 4);
    out
}
