//! The simplest quantiser for each block format, with ggml's byte layout and rounding.

use half::{bf16, f16};

/// Elements in a quantised block.
const BLOCK: usize = 32;

/// How a generated model's matrices are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(non_camel_case_types, missing_docs)]
pub enum WeightType {
    F32,
    F16,
    BF16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
}

impl WeightType {
    /// Every type.
    pub const ALL: [WeightType; 8] = [
        WeightType::F32,
        WeightType::F16,
        WeightType::BF16,
        WeightType::Q4_0,
        WeightType::Q4_1,
        WeightType::Q5_0,
        WeightType::Q5_1,
        WeightType::Q8_0,
    ];

    /// The ggml type id.
    pub fn id(self) -> u32 {
        match self {
            WeightType::F32 => 0,
            WeightType::F16 => 1,
            WeightType::BF16 => 30,
            WeightType::Q4_0 => 2,
            WeightType::Q4_1 => 3,
            WeightType::Q5_0 => 6,
            WeightType::Q5_1 => 7,
            WeightType::Q8_0 => 8,
        }
    }

    /// The values as this type stores them; their number is a multiple of 32 for the block formats.
    ///
    /// # Panics
    /// It is not.
    pub fn encode(self, values: &[f32]) -> Vec<u8> {
        match self {
            WeightType::F32 => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
            WeightType::F16 => values.iter().flat_map(|&v| f16::from_f32(v).to_le_bytes()).collect(),
            WeightType::BF16 => values.iter().flat_map(|&v| bf16::from_f32(v).to_le_bytes()).collect(),
            _ => {
                let (blocks, rest) = values.as_chunks::<BLOCK>();
                assert!(rest.is_empty(), "{} values are not whole blocks of {BLOCK}", values.len());
                blocks.iter().flat_map(|block| self.encode_block(block)).collect()
            }
        }
    }

    fn encode_block(self, block: &[f32; BLOCK]) -> Vec<u8> {
        match self {
            WeightType::Q4_0 => symmetric(block, 4),
            WeightType::Q5_0 => symmetric(block, 5),
            WeightType::Q4_1 => with_minimum(block, 4),
            WeightType::Q5_1 => with_minimum(block, 5),
            _ => eight_bit(block),
        }
    }
}

/// `d`, then codes around the middle of the range: x ≈ d · (code − 2^(bits−1)).
fn symmetric(block: &[f32; BLOCK], bits: u32) -> Vec<u8> {
    let half_range = (1_u32 << (bits - 1)) as f32;
    let largest = block.iter().fold(0.0_f32, |most, &v| if v.abs() > most.abs() { v } else { most });
    let d = largest / -half_range;
    let codes = codes(block, bits, |v| f64::from(v) * inverse(d) + f64::from(half_range) + 0.5);
    let mut out = f16::from_f32(d).to_le_bytes().to_vec();
    pack(&mut out, &codes, bits);
    out
}

/// `d` and `m`, then codes from the smallest value up: x ≈ d · code + m.
fn with_minimum(block: &[f32; BLOCK], bits: u32) -> Vec<u8> {
    let low = block.iter().copied().fold(f32::INFINITY, f32::min);
    let high = block.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let d = (high - low) / ((1_u32 << bits) - 1) as f32;
    let codes = codes(block, bits, |v| f64::from(v - low) * inverse(d) + 0.5);
    let mut out = [f16::from_f32(d).to_le_bytes(), f16::from_f32(low).to_le_bytes()].concat();
    pack(&mut out, &codes, bits);
    out
}

/// `d`, then signed bytes: x ≈ d · code.
fn eight_bit(block: &[f32; BLOCK]) -> Vec<u8> {
    let largest = block.iter().fold(0.0_f32, |most, v| most.max(v.abs()));
    let d = largest / 127.0;
    let mut out = f16::from_f32(d).to_le_bytes().to_vec();
    out.extend(block.iter().map(|&v| ((f64::from(v) * inverse(d)).round() as i8) as u8));
    out
}

fn inverse(d: f32) -> f64 {
    if d == 0.0 { 0.0 } else { f64::from(1.0 / d) }
}

fn codes(block: &[f32; BLOCK], bits: u32, scaled: impl Fn(f32) -> f64) -> [u8; BLOCK] {
    let highest = f64::from((1_u32 << bits) - 1);
    block.map(|v| scaled(v).trunc().clamp(0.0, highest) as u8)
}

/// Nibbles: element j in the low half of byte j, element j + 16 in the high half. A fifth bit goes to
/// bit j of a 32-bit word that stands before them.
fn pack(out: &mut Vec<u8>, codes: &[u8; BLOCK], bits: u32) {
    if bits == 5 {
        let high =
            codes.iter().enumerate().fold(0_u32, |word, (j, &code)| word | (u32::from(code >> 4) << j));
        out.extend(high.to_le_bytes());
    }
    let (low_half, high_half) = codes.split_at(BLOCK / 2);
    out.extend(low_half.iter().zip(high_half).map(|(low, high)| (low & 15) | ((high & 15) << 4)));
}

#[cfg(test)]
mod tests {
    use super::WeightType;

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect()
    }

    #[test]
    fn encodes_like_the_reference_quantiser() {
        let Some(folder) = crate::shared("reference/quants") else { return };
        for ty in WeightType::ALL.into_iter().filter(|&ty| ty != WeightType::F32) {
            let text = std::fs::read_to_string(folder.join(format!("{ty:?}.json"))).unwrap();
            let file: serde_json::Value = serde_json::from_str(&text).unwrap();
            let groups = file["groups"].as_array().unwrap();
            let group = groups.iter().find(|group| !group["input_f32le_hex"].is_null()).unwrap();
            let input = bytes(group["input_f32le_hex"].as_str().unwrap());
            let values: Vec<f32> = input.as_chunks().0.iter().map(|&four| f32::from_le_bytes(four)).collect();
            assert_eq!(ty.encode(&values), bytes(group["raw_hex"].as_str().unwrap()), "{ty:?}");
        }
    }
}
