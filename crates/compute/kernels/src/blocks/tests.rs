use half::{bf16, f16};
use proptest::prelude::*;

use super::samples::{Random, random_blocks};
use super::*;

/// Value `i` of a block, from the positions of its bits.
fn value(format: BlockFormat, raw: &[u8], i: usize) -> f32 {
    let half = |at: usize| f16::from_le_bytes([raw[at], raw[at + 1]]).to_f32();
    // `count` bits from bit `bit` of byte `at` on
    let bits =
        |at: usize, bit: usize, count: usize| i32::from((raw[at] >> bit) & ((1u16 << count) - 1) as u8);
    // the 32-value formats: nibbles from `at` on, fifth bits from `at - 4` on
    let nibble = |at: usize| bits(at + i % 16, i / 16 * 4, 4);
    let fifth = |at: usize| nibble(at) + 16 * bits(at - 4 + i / 8, i % 8, 1);
    // the 256-value formats: place in 128, in 64, in 32 and number of the group of 128, 64, 32, 16
    let (i64, i32, n128, n64, n32, n16) = (i % 64, i % 32, i / 128, i / 64, i / 32, i / 16);
    let six_bits = |first: usize, part: usize| match (n32, part) {
        (0..4, _) => bits(first + n32 + 4 * part, 0, 6),
        _ => bits(first + n32 + 4, 4 * part, 4) + 16 * bits(first + n32 - 4 + 4 * part, 6, 2),
    };
    let with_min = |q: i32| (half(0) * six_bits(4, 0) as f32) * q as f32 - half(2) * six_bits(4, 1) as f32;
    match format {
        BlockFormat::F32 => f32::from_le_bytes([raw[0], raw[1], raw[2], raw[3]]),
        BlockFormat::F16 => half(0),
        BlockFormat::BF16 => bf16::from_le_bytes([raw[0], raw[1]]).to_f32(),
        BlockFormat::Q4_0 => half(0) * (nibble(2) - 8) as f32,
        BlockFormat::Q4_1 => half(0) * nibble(4) as f32 + half(2),
        BlockFormat::Q5_0 => half(0) * (fifth(6) - 16) as f32,
        BlockFormat::Q5_1 => half(0) * fifth(8) as f32 + half(2),
        BlockFormat::Q8_0 => half(0) * f32::from(raw[2 + i] as i8),
        BlockFormat::Q2_K => {
            let q = bits(16 + n128 * 32 + i32, n32 % 4 * 2, 2);
            (half(80) * bits(n16, 0, 4) as f32) * q as f32 - half(82) * bits(n16, 4, 4) as f32
        }
        BlockFormat::Q3_K => {
            let q = bits(32 + n128 * 32 + i32, n32 % 4 * 2, 2) + 4 * bits(i32, n32, 1) - 4;
            let scale = bits(96 + n16 % 8, n16 / 8 * 4, 4) + 16 * bits(104 + n16 % 4, n16 / 4 * 2, 2) - 32;
            (half(108) * scale as f32) * q as f32
        }
        BlockFormat::Q4_K => with_min(bits(16 + n64 * 32 + i32, i64 / 32 * 4, 4)),
        BlockFormat::Q5_K => {
            with_min(bits(48 + n64 * 32 + i32, i64 / 32 * 4, 4) + 16 * bits(16 + i32, n32, 1))
        }
        BlockFormat::Q6_K => {
            let low = bits(n128 * 64 + i64, n64 % 2 * 4, 4);
            let q = low + 16 * bits(128 + n128 * 32 + i32, n32 % 4 * 2, 2) - 32;
            (half(208) * f32::from(raw[192 + n16] as i8)) * q as f32
        }
        BlockFormat::IQ4_NL => half(0) * f32::from(tables::IQ4[nibble(2) as usize]),
        BlockFormat::IQ4_XS => {
            let scale = bits(4 + n64, n32 % 2 * 4, 4) + 16 * bits(2 + n32 / 4, n32 % 4 * 2, 2) - 32;
            let code = bits(8 + n32 * 16 + i % 16, i32 / 16 * 4, 4);
            (half(0) * scale as f32) * f32::from(tables::IQ4[code as usize])
        }
        BlockFormat::MXFP4 => {
            (f64::from(raw[0]) - 128.0).exp2() as f32 * f32::from(tables::MXFP4[nibble(1) as usize])
        }
    }
}

fn check(format: BlockFormat, raw: &[u8]) -> Result<(), TestCaseError> {
    let len = raw.len() / format.block_bytes() * format.block_len();
    let mut values = vec![f32::NAN; len];
    format.dequantize(raw, &mut values);
    for (i, &got) in values.iter().enumerate() {
        let block = &raw[i / format.block_len() * format.block_bytes()..][..format.block_bytes()];
        let expected = value(format, block, i % format.block_len());
        let is_equal = got.to_bits() == expected.to_bits() || got.is_nan() && expected.is_nan();
        prop_assert!(is_equal, "{} value {i}: {got} instead of {expected}", format.name());
    }
    Ok(())
}

proptest! {
    /// Any bytes have values, and they are those that a look at single bits gives.
    #[test]
    fn any_bytes(seed in any::<u64>(), blocks in 1usize..4) {
        for format in BlockFormat::ALL {
            check(format, &Random(seed).bytes(blocks * format.block_bytes()))?;
            check(format, &random_blocks(format, blocks * format.block_len(), seed))?;
        }
    }

    /// What kernels derive from a format holds for every block of it.
    #[test]
    fn splits_are_what_the_format_says(seed in any::<u64>()) {
        for format in BlockFormat::ALL.into_iter().filter(|f| !f.is_float()) {
            let raw = Random(seed).bytes(format.block_bytes());
            for index in 0..format.block_len() / BLOCK {
                let split = format.split(&raw, index);
                let (low, high) = format.quant_range();
                prop_assert!(split.quants.iter().all(|q| (low..=high).contains(q)), "{}", format.name());
                if let Some(table) = format.table() {
                    prop_assert!(split.quants.iter().all(|q| table.contains(q)), "{}", format.name());
                }
                if !format.has_sub_scales() {
                    prop_assert_eq!((split.sub_scales, split.sub_mins), ([1; 2], [u8::from(format.has_min()); 2]));
                }
                if format.sub_len() == BLOCK {
                    prop_assert_eq!(split.sub_scales[0], split.sub_scales[1]);
                    prop_assert_eq!(split.sub_mins[0], split.sub_mins[1]);
                }
                if !format.has_min() {
                    prop_assert_eq!((split.min, split.sub_mins), (0.0, [0; 2]));
                }
            }
        }
    }
}

#[test]
fn the_range_of_quants_is_reached() {
    for format in BlockFormat::ALL.into_iter().filter(|f| !f.is_float()) {
        let raw = Random(1).bytes(400 * format.block_bytes());
        let blocks = raw.chunks_exact(format.block_bytes());
        let quants: Vec<i8> = blocks.flat_map(|block| format.split(block, 0).quants).collect();
        let range = (*quants.iter().min().unwrap(), *quants.iter().max().unwrap());
        assert_eq!(range, format.quant_range(), "{}", format.name());
    }
}

#[test]
#[should_panic(expected = "part 1 of a Q4_0 block")]
fn parts_past_the_block_are_refused() {
    BlockFormat::Q4_0.split(&[0; 18], 1);
}

#[test]
#[should_panic(expected = "84 bytes of Q2_K for 300 values")]
fn values_are_whole_blocks() {
    BlockFormat::Q2_K.dequantize(&[0; 84], &mut [0.0; 300]);
}
