//! The simplest quantiser for each block format, with ggml's byte layout.

mod k_quants;
mod tables;

use half::{bf16, f16};

/// Elements in a quantised block.
const BLOCK: usize = 32;
/// Elements in a block of the formats with scales for its parts.
const SUPER_BLOCK: usize = 256;

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
    Q2_K,
    Q3_K,
    Q4_K,
    Q5_K,
    Q6_K,
    IQ4_NL,
    IQ4_XS,
    MXFP4,
}

impl WeightType {
    /// Every type.
    pub const ALL: [WeightType; 16] = [
        WeightType::F32,
        WeightType::F16,
        WeightType::BF16,
        WeightType::Q4_0,
        WeightType::Q4_1,
        WeightType::Q5_0,
        WeightType::Q5_1,
        WeightType::Q8_0,
        WeightType::Q2_K,
        WeightType::Q3_K,
        WeightType::Q4_K,
        WeightType::Q5_K,
        WeightType::Q6_K,
        WeightType::IQ4_NL,
        WeightType::IQ4_XS,
        WeightType::MXFP4,
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
            WeightType::Q2_K => 10,
            WeightType::Q3_K => 11,
            WeightType::Q4_K => 12,
            WeightType::Q5_K => 13,
            WeightType::Q6_K => 14,
            WeightType::IQ4_NL => 20,
            WeightType::IQ4_XS => 23,
            WeightType::MXFP4 => 39,
        }
    }

    /// Elements in a block; rows are whole blocks.
    pub fn block_len(self) -> usize {
        match self {
            WeightType::F32 | WeightType::F16 | WeightType::BF16 => 1,
            WeightType::Q2_K
            | WeightType::Q3_K
            | WeightType::Q4_K
            | WeightType::Q5_K
            | WeightType::Q6_K
            | WeightType::IQ4_XS => SUPER_BLOCK,
            _ => BLOCK,
        }
    }

    /// The values as this type stores them; their number is a multiple of [`block_len`](Self::block_len).
    ///
    /// # Panics
    /// It is not.
    pub fn encode(self, values: &[f32]) -> Vec<u8> {
        let len = self.block_len();
        assert!(values.len().is_multiple_of(len), "{} values are not whole blocks of {len}", values.len());
        match self {
            WeightType::F32 => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
            WeightType::F16 => values.iter().flat_map(|&v| f16::from_f32(v).to_le_bytes()).collect(),
            WeightType::BF16 => values.iter().flat_map(|&v| bf16::from_f32(v).to_le_bytes()).collect(),
            _ if len == SUPER_BLOCK => {
                values.as_chunks().0.iter().flat_map(|block| k_quants::encode(self, block)).collect()
            }
            _ => values.as_chunks().0.iter().flat_map(|block| self.encode_block(block)).collect(),
        }
    }

    fn encode_block(self, block: &[f32; BLOCK]) -> Vec<u8> {
        match self {
            WeightType::Q4_0 => symmetric(block, 4),
            WeightType::Q5_0 => symmetric(block, 5),
            WeightType::Q4_1 => with_minimum(block, 4),
            WeightType::Q5_1 => with_minimum(block, 5),
            WeightType::IQ4_NL => tables::iq4_nl(block),
            WeightType::MXFP4 => tables::mxfp4(block),
            _ => eight_bit(block),
        }
    }
}

/// `d`, then codes around the middle of the range: x ≈ d · (code − 2^(bits−1)).
fn symmetric(block: &[f32; BLOCK], bits: u32) -> Vec<u8> {
    let half_range = (1_u32 << (bits - 1)) as f32;
    let d = largest(block) / -half_range;
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
    let d = largest(block).abs() / 127.0;
    let mut out = f16::from_f32(d).to_le_bytes().to_vec();
    out.extend(block.iter().map(|&v| ((f64::from(v) * inverse(d)).round() as i8) as u8));
    out
}

/// The value of largest magnitude, with its sign.
fn largest(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |most: f32, &v| if v.abs() > most.abs() { v } else { most })
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

    /// Only where the reference's quantiser rounds and does not search.
    #[test]
    fn encodes_like_the_reference_quantiser() {
        let Some(folder) = crate::shared("reference/quants") else { return };
        let is_simple = |ty: &WeightType| {
            !matches!(ty, WeightType::F32 | WeightType::IQ4_NL) && ty.block_len() < super::SUPER_BLOCK
        };
        for ty in WeightType::ALL.into_iter().filter(is_simple) {
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
