//! Random blocks for tests, in every format.

use half::{bf16, f16};

use super::BlockFormat;

/// SplitMix64 (Steele, Lea, Flood 2014).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| (self.next() >> 56) as u8).collect()
    }

    /// Between -1 and 1, in steps of a thousandth.
    fn scale(&mut self) -> f32 {
        (self.next() % 2001) as f32 / 1000.0 - 1.0
    }
}

/// Bytes of `values` values, whole blocks: random codes with finite scales, so that values stay below a few thousand.
pub(crate) fn random_blocks(format: BlockFormat, values: usize, seed: u64) -> Vec<u8> {
    let mut random = Random(seed);
    let mut raw = Vec::with_capacity(format.bytes(values));
    for _ in 0..values / format.block_len() {
        let mut block = random.bytes(format.block_bytes());
        let (first, second) = (random.scale(), random.scale());
        match format {
            BlockFormat::F32 => block = (2.0 * first).to_le_bytes().to_vec(),
            BlockFormat::F16 => block = f16::from_f32(2.0 * first).to_le_bytes().to_vec(),
            BlockFormat::BF16 => block = bf16::from_f32(2.0 * first).to_le_bytes().to_vec(),
            BlockFormat::MXFP4 => block[0] = 124 + block[0] % 4,
            _ => {
                for (at, scale) in scales_at(format).iter().zip([first, second]) {
                    block[*at..][..2].copy_from_slice(&f16::from_f32(scale).to_le_bytes());
                }
            }
        }
        raw.extend(block);
    }
    raw
}

/// Where a block's f16 scales are.
fn scales_at(format: BlockFormat) -> &'static [usize] {
    match format {
        BlockFormat::Q4_1 | BlockFormat::Q5_1 | BlockFormat::Q4_K | BlockFormat::Q5_K => &[0, 2],
        BlockFormat::Q2_K => &[80, 82],
        BlockFormat::Q3_K => &[108],
        BlockFormat::Q6_K => &[208],
        _ => &[0],
    }
}
