//! Damaged headers of the tiny model: no panic, no read out of bounds, no allocation beyond a small
//! multiple of the file.

// Helpers of tests fail as tests do.
#![allow(clippy::panic)]

mod peak;

use std::sync::LazyLock;

use motet_model::gguf::Gguf;
use motet_testkit::{TinyModel, WeightType, tiny_model};
use peak::peak;
use proptest::prelude::*;

/// How many times the size of the file opening it may allocate. Parsed entries are larger than their
/// shortest encoding, the more so in lists that have just grown.
const FACTOR: usize = 16;
/// Messages and small buffers, whatever the file.
const ALLOWANCE: usize = 16 * 1024;

/// The largest parse result, against the limit for a file of `size` bytes.
fn check(bytes: Vec<u8>, what: impl Fn() -> String) {
    let size = bytes.len();
    let (opened, held) = peak(|| Gguf::from_bytes("m.gguf", bytes));
    assert!(held <= FACTOR * size + ALLOWANCE, "{}: {held} bytes held for a file of {size}", what());
    match opened {
        Ok(gguf) => touch_all(&gguf, size, &what()),
        Err(error) => {
            let line = error.to_string();
            assert!(!line.contains('\n') && line.starts_with("m.gguf: "), "{}: {line}", what());
        }
    }
}

/// Every tensor lies inside the file, has the size its shape says and is found by name.
fn touch_all(gguf: &Gguf, size: usize, what: &str) {
    for info in gguf.tensors() {
        let tensor =
            gguf.tensor(info.name()).unwrap_or_else(|| panic!("{what}: {} is not found", info.name()));
        let elements: usize = tensor.shape.iter().product();
        assert_eq!(tensor.data.len(), elements / tensor.ty.block_size() * tensor.ty.type_size(), "{what}");
        assert!(tensor.offset as usize + tensor.data.len() <= size, "{what}");
        let sum: u64 =
            [tensor.data.first(), tensor.data.last()].into_iter().flatten().map(|&b| u64::from(b)).sum();
        std::hint::black_box(sum);
    }
    for (key, value) in gguf.metadata() {
        assert!(gguf.get(key).is_some(), "{what}: {key} is not found");
        std::hint::black_box(value.to_string());
    }
}

/// The tiny model cut down so that most bytes are header.
fn small_model() -> (Vec<u8>, usize) {
    static MODEL: LazyLock<(Vec<u8>, usize)> = LazyLock::new(|| {
        let model = TinyModel { layers: 1, weights: WeightType::Q4_0, ..TinyModel::default() };
        let (bytes, layout) = model.builder().build_with_layout();
        (bytes, layout.data)
    });
    MODEL.clone()
}

#[test]
fn every_header_byte_flipped() {
    let (bytes, header) = small_model();
    type Flip = fn(u8) -> u8;
    let flips: [(&str, Flip); 5] = [
        ("^0xff", |b| b ^ 0xff),
        ("^0x01", |b| b ^ 1),
        ("^0x80", |b| b ^ 0x80),
        ("=0", |_| 0),
        ("=0xff", |_| 0xff),
    ];
    for at in 0..header {
        for (name, flip) in flips {
            let mut damaged = bytes.clone();
            damaged[at] = flip(damaged[at]);
            check(damaged, || format!("byte {at} {name}"));
        }
    }
}

#[test]
fn every_number_in_the_header_made_huge() {
    let (bytes, header) = small_model();
    for at in 0..header - 8 {
        for value in [u64::MAX, 1 << 63, 1 << 32, 1 << 20] {
            let mut damaged = bytes.clone();
            damaged[at..at + 8].copy_from_slice(&value.to_le_bytes());
            check(damaged, || format!("{value:#x} at byte {at}"));
        }
    }
}

#[test]
fn every_truncation() {
    let (bytes, header) = small_model();
    let lengths =
        (0..header + 64).chain((header..bytes.len()).step_by(499)).chain(bytes.len() - 64..bytes.len());
    for length in lengths {
        assert!(Gguf::from_bytes("m.gguf", bytes[..length].to_vec()).is_err(), "cut at {length}");
        check(bytes[..length].to_vec(), || format!("cut at {length}"));
    }
}

#[test]
fn many_tiny_entries_cost_little() {
    // The densest lists the format allows: 14 bytes a key, 33 a tensor, 12 a nested array.
    let mut keys = b"GGUF\x03\0\0\0\0\0\0\0\0\0\0\0".to_vec();
    keys.extend(100_000_u64.to_le_bytes());
    (0..100_000).for_each(|_| keys.extend(b"\x01\0\0\0\0\0\0\0k\0\0\0\0\0"));
    check(keys, || "keys".to_owned());

    let mut tensors = b"GGUF\x03\0\0\0".to_vec();
    tensors.extend(100_000_u64.to_le_bytes());
    tensors.extend(0_u64.to_le_bytes());
    for _ in 0..100_000 {
        tensors.extend(b"\x01\0\0\0\0\0\0\0t\x01\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
    }
    check(tensors, || "tensors".to_owned());

    let mut nested =
        b"GGUF\x03\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0k\x09\0\0\0\x09\0\0\0".to_vec();
    nested.extend(100_000_u64.to_le_bytes());
    (0..100_000).for_each(|_| nested.extend([0; 12]));
    check(nested, || "nested arrays".to_owned());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    #[test]
    fn mutated_files_never_panic(
        edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..16),
        cut in proptest::option::weighted(0.1, any::<prop::sample::Index>()),
    ) {
        let (mut bytes, header) = small_model();
        for (at, value) in &edits {
            bytes[at.index(header)] = *value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(header));
        }
        check(bytes, || format!("{edits:?}"));
    }

    #[test]
    fn random_bytes_never_panic(tail in proptest::collection::vec(any::<u8>(), 0..400)) {
        check([b"GGUF\x03\0\0\0".as_slice(), &tail].concat(), || "random".to_owned());
    }
}

#[test]
fn the_undamaged_model_passes_the_same_check() {
    check(tiny_model(&TinyModel::default()), || "undamaged".to_owned());
}
