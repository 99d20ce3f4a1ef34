//! Block formats against blocks dequantised by two independent implementations.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

use motet_kernels::BlockFormat;
use motet_testkit::WeightType;
use proptest::prelude::*;
use serde_json::Value;

/// F32 has no values that could differ from its bytes.
fn formats() -> impl Iterator<Item = BlockFormat> {
    BlockFormat::ALL.into_iter().filter(|format| *format != BlockFormat::F32)
}

fn check(format: BlockFormat, raw: &Value, expected: &Value) {
    let raw = hex(raw.as_str().unwrap());
    let expected = hex(expected.as_str().unwrap());
    assert!(!expected.is_empty());
    let mut values = vec![0f32; expected.len() / 4];
    format.dequantize(&raw, &mut values);
    for (i, (value, expected)) in values.iter().zip(expected.as_chunks::<4>().0).enumerate() {
        let expected = f32::from_le_bytes(*expected);
        assert_eq!(value.to_bits(), expected.to_bits(), "{} value {i}: {value}, {expected}", format.name());
    }
}

/// The subset that `data/blocks.py` takes from the reference data.
#[test]
fn values_equal_the_committed_ones() {
    let file: Value = serde_json::from_str(include_str!("data/blocks.json")).unwrap();
    for format in formats() {
        let blocks = &file[format.name()];
        check(format, &blocks["raw"], &blocks["values"]);
    }
}

#[test]
fn values_equal_the_reference() {
    let Some(dir) = motet_testkit::shared("reference/quants") else { return };
    for format in formats() {
        let text = std::fs::read_to_string(dir.join(format!("{}.json", format.name()))).unwrap();
        let file: Value = serde_json::from_str(&text).unwrap();
        for group in file["groups"].as_array().unwrap() {
            check(format, &group["raw_hex"], &group["values_f32le_hex"]);
        }
    }
}

/// What a block of a smooth wave loses at most, as a share of the wave's amplitude: half a step of the codes,
/// and what the rounding of sub-scales adds.
fn largest_loss(format: BlockFormat) -> f32 {
    match format {
        BlockFormat::F32 => 0.0,
        BlockFormat::F16 | BlockFormat::BF16 => 1.0 / 256.0,
        BlockFormat::Q8_0 => 1.0 / 127.0,
        BlockFormat::Q6_K => 1.0 / 24.0,
        BlockFormat::Q5_0 | BlockFormat::Q5_1 | BlockFormat::Q5_K => 1.0 / 12.0,
        BlockFormat::Q4_0 | BlockFormat::Q4_1 | BlockFormat::Q4_K | BlockFormat::MXFP4 => 1.0 / 4.0,
        BlockFormat::IQ4_NL | BlockFormat::IQ4_XS => 1.0 / 6.0,
        BlockFormat::Q3_K | BlockFormat::Q2_K => 1.0 / 2.0,
    }
}

proptest! {
    /// The testkit's quantisers and the decoders agree on where everything in a block is.
    #[test]
    fn encoded_values_come_back(amplitude in 1e-3f32..1e3, pace in 0.05f32..3.0, shift in -1f32..1.0) {
        let wave = |i: u16| amplitude * ((f32::from(i) * pace).sin() * 0.5 + 0.5 * shift);
        let values: Vec<f32> = (0..512).map(wave).collect();
        for (ty, format) in WeightType::ALL.into_iter().zip(BlockFormat::ALL) {
            prop_assert_eq!(format!("{ty:?}"), format.name());
            prop_assert_eq!(ty.block_len(), format.block_len());
            let mut decoded = vec![f32::NAN; values.len()];
            format.dequantize(&ty.encode(&values), &mut decoded);
            let loss = values.iter().zip(&decoded).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            prop_assert!(loss <= amplitude * largest_loss(format), "{} loses {}", format.name(), loss / amplitude);
        }
    }
}

fn hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}
