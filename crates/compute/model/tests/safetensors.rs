//! Sound and damaged safetensors files: what is wrong is told in one line, and nothing makes the reader panic, read out
//! of bounds or allocate beyond a small multiple of the file.

// Helpers of tests fail as tests do.
#![allow(clippy::unwrap_used, clippy::panic)]

mod peak;

use std::sync::LazyLock;

use motet_model::safetensors::{Dtype, Safetensors};
use motet_testkit::{TinyBert, safetensors};
use peak::peak;
use proptest::prelude::*;
use serde_json::{Value, json};

/// How many times the size of the file opening it may allocate: entries are larger than their shortest encoding.
const FACTOR: usize = 16;
/// Messages and small buffers, whatever the file.
const ALLOWANCE: usize = 16 * 1024;

/// A file with this header and as many bytes of data.
fn file(header: &[u8], data: usize) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes()[..], header, &vec![7; data]].concat()
}

/// Opens a file of any bytes; every tensor of one that opens has its bytes.
fn open(bytes: Vec<u8>, what: &str) -> Result<Safetensors, String> {
    let size = bytes.len();
    let (opened, held) = peak(|| Safetensors::from_bytes("m", bytes));
    assert!(held <= FACTOR * size + ALLOWANCE, "{what}: {held} bytes held for a file of {size}");
    match opened {
        Ok(file) => {
            for info in file.tensors() {
                let tensor =
                    file.tensor(&info.name).unwrap_or_else(|| panic!("{what}: {} is lost", info.name));
                assert_eq!(tensor.info, info);
                let elements: usize = info.shape.iter().product();
                assert!(tensor.data.len() <= size && tensor.data.len() >= elements, "{what}");
            }
            Ok(file)
        }
        Err(error) => {
            let line = error.to_string();
            assert!(!line.contains('\n') && line.len() < 700 && line.starts_with("m: "), "{what}: {line}");
            Err(line)
        }
    }
}

#[test]
fn a_sound_file() {
    let tensors = [
        ("b".to_owned(), vec![2, 3], vec![1.0, 2.0, 3.0, 4.0, 5.0, -6.5]),
        ("a".to_owned(), vec![], vec![7.0]),
        ("empty".to_owned(), vec![0, 4], vec![]),
    ];
    let opened = open(safetensors(&tensors), "sound").unwrap();
    let names: Vec<&str> = opened.tensors().map(|info| info.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "empty"]);
    for (name, shape, values) in &tensors {
        let tensor = opened.tensor(name).unwrap();
        assert_eq!((&tensor.info.shape, tensor.info.dtype), (shape, Dtype::F32));
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        assert_eq!(tensor.data, bytes);
    }
    assert!(opened.tensor("c").is_none());
    assert!(opened.require("c").unwrap_err().to_string().contains("\"c\" is missing: not among the 3"));
    // Headers may be padded with spaces.
    assert!(
        open(file(b"{\"a\":{\"dtype\":\"I8\",\"shape\":[2],\"data_offsets\":[0,2]}}   ", 2), "padded")
            .is_ok()
    );
    assert!(open(file(b"{}", 0), "no tensors").is_ok());
}

#[test]
fn what_is_wrong_is_told() {
    let check = |bytes: Vec<u8>, want: &str| {
        let error = open(bytes, want).err().unwrap_or_default();
        assert!(error.contains(want), "{error:?} lacks {want:?}");
    };
    let entry = |dtype: &str, shape: Value, offsets: [u64; 2]| json!({"dtype": dtype, "shape": shape, "data_offsets": offsets});
    let one = |entry: Value, data| file(json!({"t": entry}).to_string().as_bytes(), data);
    check(vec![], "the header's length is not there: the file has 0 bytes");
    check(vec![1; 7], "the file has 7 bytes");
    check(vec![0xff; 20], "the header's length is 18446744073709551615; at most");
    check([&100u64.to_le_bytes()[..], b"{}"].concat(), "is 100, past the end of the file (10 bytes)");
    check(file(b"", 0), "the header can't be read");
    check(file(b"[]", 0), "the header can't be read");
    check(file(b"{\"t\":", 0), "the header can't be read");
    check(file(b"{\"a\xff\":1}", 0), "the header can't be read");
    check(file(b"{\"__metadata__\": {\"a\": 1}}", 0), "the header can't be read");
    check(file(format!("{}{}", "[".repeat(5000), "]").as_bytes(), 0), "the header can't be read");
    check(
        file(json!({"t": {"shape": "\n".repeat(9000)}}).to_string().as_bytes(), 0),
        "the header can't be read",
    );
    check(one(entry("F33", json!([1]), [0, 4]), 4), "tensor \"t\" has the type \"F33\", which is not known");
    check(one(entry("F32", json!(vec![1; 9]), [0, 4]), 4), "has 9 dimensions");
    check(one(entry("F32", json!([u64::MAX]), [0, 4]), 4), "whose size overflows");
    check(one(entry("F32", json!([1u64 << 40, 1u64 << 40]), [0, 4]), 4), "whose size overflows");
    check(one(entry("F32", json!([-1]), [0, 4]), 4), "the header can't be read");
    check(one(entry("F32", json!([1]), [0, 5]), 4), "has its data at 0..5 of 4 bytes");
    check(one(entry("F32", json!([1]), [4, 0]), 4), "has its data at 4..0 of 4 bytes");
    check(one(entry("F32", json!([1]), [u64::MAX, u64::MAX]), 4), "has its data at");
    check(one(entry("F32", json!([2]), [0, 4]), 4), "has 4 bytes of data where F32 of shape [2] take 8");
    check(one(entry("F32", json!([1]), [0, 4]), 5), "the data has 5 bytes where the tensors take 4");
    check(one(entry("F32", json!([1]), [1, 5]), 5), "tensor \"t\" leaves a gap before it");
    let two = json!({"a": entry("U8", json!([4]), [0, 4]), "b": entry("U8", json!([4]), [2, 6])});
    check(file(two.to_string().as_bytes(), 6), "tensor \"b\" overlaps the one before it");
    let twice = br#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}"#;
    check(file(twice, 2), "tensor \"a\" is there twice");
}

/// The tiny model's file and where its data begins.
fn model() -> (Vec<u8>, usize) {
    static MODEL: LazyLock<(Vec<u8>, usize)> = LazyLock::new(|| {
        let bytes = safetensors(&TinyBert { layers: 1, ..TinyBert::default() }.tensors()[..8]);
        let header = u64::from_le_bytes(*bytes.first_chunk().unwrap()) as usize;
        (bytes, 8 + header)
    });
    MODEL.clone()
}

#[test]
fn every_header_byte_changed() {
    let (bytes, header) = model();
    for at in 0..header {
        for change in [0x01, 0x10, 0x80, 0xff] {
            let mut bytes = bytes.clone();
            bytes[at] ^= change;
            let _ = open(bytes, &format!("byte {at} ^ {change:#x}"));
        }
        let _ = open(bytes[..at].to_vec(), &format!("cut at {at}"));
    }
}

proptest! {
    #[test]
    fn digits_of_the_header_changed(places in proptest::collection::vec((any::<u16>(), b'0'..=b'9'), 1..4)) {
        let (mut bytes, header) = model();
        let digits: Vec<usize> = (8..header).filter(|at| bytes[*at].is_ascii_digit()).collect();
        for (place, digit) in places {
            bytes[digits[place as usize % digits.len()]] = digit;
        }
        let _ = open(bytes, "digits");
    }

    #[test]
    fn anything_at_all(bytes in proptest::collection::vec(any::<u8>(), 0..200), text in "[\\[\\]{}:,\"a-e0-9]{0,80}") {
        let _ = open(bytes, "bytes");
        let _ = open(file(text.as_bytes(), 3), &text);
    }
}
