//! Block formats against blocks dequantised by two independent implementations.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

use motet_kernels::BlockFormat;
use serde_json::Value;

#[test]
fn values_equal_the_reference_bit_by_bit() {
    let Some(dir) = motet_testkit::shared("reference/quants") else { return };
    for format in BlockFormat::ALL.into_iter().filter(|f| *f != BlockFormat::F32) {
        let text = std::fs::read_to_string(dir.join(format!("{}.json", format.name()))).unwrap();
        let file: Value = serde_json::from_str(&text).unwrap();
        for group in file["groups"].as_array().unwrap() {
            let raw = hex(group["raw_hex"].as_str().unwrap());
            let expected = hex(group["values_f32le_hex"].as_str().unwrap());
            let mut values = vec![0f32; expected.len() / 4];
            format.dequantize(&raw, &mut values);
            let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
            assert_eq!(bytes, expected, "{} {}", format.name(), group["source"]);
        }
    }
}

fn hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}
