//! The K formats and IQ4_XS: 256 values with a small integer scale for each 16 or 32 of them.
//!
//! ggml's own quantisers search for scales that lose less; files of theirs decode the same way.

use half::f16;

use super::{SUPER_BLOCK, WeightType, tables};

type Codes = [u8; SUPER_BLOCK];

pub(super) fn encode(ty: WeightType, block: &[f32; SUPER_BLOCK]) -> Vec<u8> {
    match ty {
        WeightType::Q2_K => q2_k(block),
        WeightType::Q3_K => q3_k(block),
        WeightType::Q4_K => q4_k(block),
        WeightType::Q5_K => q5_k(block),
        WeightType::Q6_K => q6_k(block),
        _ => iq4_xs(block),
    }
}

fn q2_k(block: &[f32; SUPER_BLOCK]) -> Vec<u8> {
    let parts = WithMinima::new(block, 16, Tops { code: 3, scale: 15 });
    let subs = parts.scales.iter().zip(&parts.mins).map(|(scale, min)| scale | min << 4);
    [subs.collect(), two_bits(&parts.codes), parts.both_scales()].concat()
}

fn q3_k(block: &[f32; SUPER_BLOCK]) -> Vec<u8> {
    let parts = Symmetric::new(block, 16, Ranges { quant: 4.0, scale: 31.0 });
    let codes = parts.codes(block, |q| (q.round().clamp(-4.0, 3.0) + 4.0) as u8);
    let mut scales = vec![0_u8; 12];
    for (s, scale) in parts.scales.iter().map(|scale| (scale + 32) as u8).enumerate() {
        scales[s % 8] |= (scale & 15) << (4 * (s / 8));
        scales[8 + s % 4] |= (scale >> 4) << (2 * (s / 4));
    }
    let high = placed(32, |i| (i % 32, (codes[i] >> 2) << (i / 32)));
    [high, two_bits(&codes.map(|code| code & 3)), scales, parts.d.to_le_bytes().to_vec()].concat()
}

fn q4_k(block: &[f32; SUPER_BLOCK]) -> Vec<u8> {
    let parts = WithMinima::new(block, 32, Tops { code: 15, scale: 63 });
    [parts.both_scales(), parts.six_bit_scales(), nibbles(&parts.codes)].concat()
}

fn q5_k(block: &[f32; SUPER_BLOCK]) -> Vec<u8> {
    let parts = WithMinima::new(block, 32, Tops { code: 31, scale: 63 });
    let high = placed(32, |i| (i % 32, (parts.codes[i] >> 4) << (i / 32)));
    let low = nibbles(&parts.codes.map(|code| code & 15));
    [parts.both_scales(), parts.six_bit_scales(), high, low].concat()
}

fn q6_k(block: &[f32; SUPER_BLOCK]) -> Vec<u8> {
    let parts = Symmetric::new(block, 16, Ranges { quant: 32.0, scale: 127.0 });
    let codes = parts.codes(block, |q| (q.round().clamp(-32.0, 31.0) + 32.0) as u8);
    let low = placed(128, |i| (i / 128 * 64 + i % 64, (codes[i] & 15) << (i / 64 % 2 * 4)));
    let high = two_bits(&codes.map(|code| code >> 4));
    let scales = parts.scales.iter().map(|&scale| scale as i8 as u8).collect();
    [low, high, scales, parts.d.to_le_bytes().to_vec()].concat()
}

fn iq4_xs(block: &[f32; SUPER_BLOCK]) -> Vec<u8> {
    let parts = Symmetric::new(block, 32, Ranges { quant: 127.0, scale: 31.0 });
    let codes = parts.codes(block, |q| tables::nearest(&tables::IQ4, q));
    let scales: Vec<u8> = parts.scales.iter().map(|scale| (scale + 32) as u8).collect();
    let high =
        scales.iter().enumerate().fold(0_u16, |bits, (s, &scale)| bits | u16::from(scale >> 4) << (2 * s));
    let low = scales.as_chunks::<2>().0.iter().map(|[even, odd]| (even & 15) | (odd & 15) << 4).collect();
    let nibbles = placed(128, |i| (i / 32 * 16 + i % 16, codes[i] << (i / 16 % 2 * 4)));
    [parts.d.to_le_bytes().to_vec(), high.to_le_bytes().to_vec(), low, nibbles].concat()
}

/// `len` bytes, made of the bits that each of the 256 values puts into one of them.
fn placed(len: usize, bits_of: impl Fn(usize) -> (usize, u8)) -> Vec<u8> {
    let mut out = vec![0; len];
    for (at, bits) in (0..SUPER_BLOCK).map(bits_of) {
        out[at] |= bits;
    }
    out
}

fn two_bits(codes: &Codes) -> Vec<u8> {
    placed(64, |i| (i / 128 * 32 + i % 32, codes[i] << (i / 32 % 4 * 2)))
}

fn nibbles(codes: &Codes) -> Vec<u8> {
    placed(128, |i| (i / 64 * 32 + i % 32, codes[i] << (i / 32 % 2 * 4)))
}

fn ratio(value: f32, unit: f32) -> f32 {
    if unit == 0.0 { 0.0 } else { value / unit }
}

/// The largest code and the largest sub-scale.
struct Tops {
    code: u8,
    scale: u8,
}

/// x ≈ d · scale · code − dmin · min.
struct WithMinima {
    d: f16,
    dmin: f16,
    scales: Vec<u8>,
    mins: Vec<u8>,
    codes: Codes,
}

impl WithMinima {
    fn new(block: &[f32; SUPER_BLOCK], sub_len: usize, tops: Tops) -> Self {
        let subs: Vec<(f32, f32)> = block.chunks(sub_len).map(|sub| spread(sub, tops.code)).collect();
        let top = f32::from(tops.scale);
        let d = f16::from_f32(subs.iter().fold(0.0, |most: f32, sub| most.max(sub.0)) / top);
        let dmin = f16::from_f32(subs.iter().fold(0.0, |most: f32, sub| most.max(sub.1)) / top);
        let rounded = |value: f32, unit: f16| ratio(value, unit.to_f32()).round().min(top) as u8;
        let scales: Vec<u8> = subs.iter().map(|sub| rounded(sub.0, d)).collect();
        let mins: Vec<u8> = subs.iter().map(|sub| rounded(sub.1, dmin)).collect();
        let codes = std::array::from_fn(|i| {
            let (scale, min) = (f32::from(scales[i / sub_len]), f32::from(mins[i / sub_len]));
            let code = ratio(block[i] + dmin.to_f32() * min, d.to_f32() * scale).round();
            code.clamp(0.0, f32::from(tops.code)) as u8
        });
        Self { d, dmin, scales, mins, codes }
    }

    fn both_scales(&self) -> Vec<u8> {
        [self.d.to_le_bytes(), self.dmin.to_le_bytes()].concat()
    }

    /// Eight scales and eight minima of six bits in 12 bytes.
    fn six_bit_scales(&self) -> Vec<u8> {
        let mut out = vec![0; 12];
        for (s, (&scale, &min)) in self.scales.iter().zip(&self.mins).enumerate() {
            if s < 4 {
                out[s] |= scale;
                out[s + 4] |= min;
            } else {
                out[s + 4] |= (scale & 15) | (min & 15) << 4;
                out[s - 4] |= (scale >> 4) << 6;
                out[s] |= (min >> 4) << 6;
            }
        }
        out
    }
}

/// The scale that `top` steps from the minimum up need, and the minimum's magnitude.
fn spread(sub: &[f32], top: u8) -> (f32, f32) {
    let low = sub.iter().copied().fold(0.0, f32::min);
    let high = sub.iter().copied().fold(low, f32::max);
    ((high - low) / f32::from(top), -low)
}

/// The largest magnitude of a quant, which only negative ones reach, and of a sub-scale.
struct Ranges {
    quant: f32,
    scale: f32,
}

/// x ≈ d · scale · quant.
struct Symmetric {
    d: f16,
    scales: Vec<i32>,
    sub_len: usize,
}

impl Symmetric {
    fn new(block: &[f32; SUPER_BLOCK], sub_len: usize, ranges: Ranges) -> Self {
        let exact = |sub: &[f32]| super::largest(sub) / -ranges.quant;
        let wanted: Vec<f32> = block.chunks(sub_len).map(exact).collect();
        let d = f16::from_f32(super::largest(&wanted).abs() / ranges.scale);
        let rounded =
            |scale: &f32| ratio(*scale, d.to_f32()).round().clamp(-ranges.scale, ranges.scale) as i32;
        Self { d, scales: wanted.iter().map(rounded).collect(), sub_len }
    }

    fn codes(&self, block: &[f32; SUPER_BLOCK], code: impl Fn(f32) -> u8) -> Codes {
        let unit = |i: usize| self.d.to_f32() * self.scales[i / self.sub_len] as f32;
        std::array::from_fn(|i| code(ratio(block[i], unit(i))))
    }
}
