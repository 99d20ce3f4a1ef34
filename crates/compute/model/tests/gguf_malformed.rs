//! Every way a header can lie is refused in one line that names file, field and offset.

// Helpers of tests fail as tests do.
#![allow(clippy::expect_used)]

use motet_model::gguf::{Gguf, GgufError};
use motet_testkit::{GgufBuilder, Layout, Meta, TinyModel, WeightType, tiny_model};

const FILE: &str = "m.gguf";

/// Two tensors: `a` takes 36 bytes and 28 of padding, `b` 32.
fn small() -> GgufBuilder {
    GgufBuilder::new()
        .meta("general.architecture", "llama")
        .alignment(32)
        .meta("flag", true)
        .meta("numbers", vec![1_i32, 2, 3])
        .meta("words", Meta::Array(vec!["one".into(), "two".into()]))
        .tensor("a", &[32, 2], WeightType::Q4_0.id(), vec![1; 36])
        .tensor("b", &[8], WeightType::F32.id(), vec![2; 32])
}

fn refusal(bytes: Vec<u8>) -> GgufError {
    let error = Gguf::from_bytes(FILE, bytes).expect_err("a refusal");
    assert!(!error.to_string().contains('\n'), "more than one line: {error}");
    error
}

/// Damages the small file and compares the whole message.
fn check(message: &str, damage: impl Fn(&mut Vec<u8>, &Layout)) {
    let (mut bytes, layout) = small().build_with_layout();
    damage(&mut bytes, &layout);
    assert_eq!(refusal(bytes).to_string(), format!("{FILE}: {message}"));
}

fn put32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

fn put64(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

#[test]
fn the_undamaged_file_opens() {
    let gguf = Gguf::from_bytes(FILE, small().build()).unwrap();
    let shapes: Vec<_> = gguf.tensors().map(|t| (t.name(), t.shape().to_vec(), t.size())).collect();
    assert_eq!(shapes, [("a", vec![32, 2], 36), ("b", vec![8], 32)]);
    assert_eq!(gguf.tensor("a").unwrap().data, [1; 36]);
    assert_eq!(gguf.tensor("b").unwrap().data, [2; 32]);
}

#[test]
fn magic() {
    check("magic at byte 0: the file is empty", |b, _| b.clear());
    check("version at byte 4: the file ends here: 4 bytes needed, 0 left", |b, _| b.truncate(4));
    check("magic at byte 0: the file ends here: 4 bytes needed, 3 left", |b, _| b.truncate(3));
    check("magic at byte 0: not a GGUF file: it begins with \"\\x00\\nUF\" instead of \"GGUF\"", |b, _| {
        b[..2].copy_from_slice(b"\0\n");
    });
    check(
        "magic at byte 0: this is a big-endian GGUF (byte order reversed); convert it to little-endian",
        |b, _| b[..4].reverse(),
    );
    check(
        "magic at byte 0: this looks like a Git LFS pointer; fetch the real file with `git lfs pull`",
        |b, _| {
            *b = b"version https://git-lfs.example/spec/v1\n".to_vec();
        },
    );
}

#[test]
fn version() {
    let unsupported = |version| format!("version at byte 4: GGUF version {version} is not supported");
    check(&format!("{} (versions 2 and 3 are)", unsupported(0)), |b, _| put32(b, 4, 0));
    check(&format!("{} (versions 2 and 3 are)", unsupported(99)), |b, _| put32(b, 4, 99));
    check(&format!("{} (versions 2 and 3 are); convert the model again", unsupported(1)), |b, _| {
        put32(b, 4, 1)
    });
    check(
        "version at byte 4: this is a big-endian GGUF (byte order reversed, version 3); convert it to little-endian",
        |b, _| b[4..8].reverse(),
    );
}

#[test]
fn both_versions_open() {
    for version in [2, 3] {
        assert_eq!(Gguf::from_bytes(FILE, small().version(version).build()).unwrap().version(), version);
    }
}

#[test]
fn counts() {
    let (bytes, layout) = small().build_with_layout();
    let left = |at: usize| format!("is more than the {} bytes left in the file", bytes.len() - at - 8);
    let numbers = layout.value_type("numbers") + 8;
    let words = layout.value_type("words") + 8;
    check(&format!("n_tensors at byte 8: {} {} can hold", 1_u64 << 61, left(8)), |b, _| put64(b, 8, 1 << 61));
    check(&format!("n_kv at byte 16: {} {} can hold", 1_u64 << 60, left(16)), |b, _| put64(b, 16, 1 << 60));
    check(
        &format!("metadata entry 0, key at byte 24: string length {} {}", 1_u64 << 63, left(24)),
        |b, _| {
            put64(b, 24, 1 << 63);
        },
    );
    check(
        &format!(
            "metadata key numbers, array length at byte {numbers}: {} {} can hold",
            u64::MAX,
            left(numbers)
        ),
        |b, _| put64(b, numbers, u64::MAX),
    );
    check(
        &format!(
            "metadata key words, element 0 at byte {}: string length 100000 {}",
            words + 8,
            left(words + 8)
        ),
        |b, _| put64(b, words + 8, 100_000),
    );
}

#[test]
fn metadata() {
    let (_, layout) = small().build_with_layout();
    let flag = layout.value_type("flag");
    let numbers = layout.value_type("numbers");
    let words = layout.value_type("words") + 16;
    let key = layout.keys[2].1;
    check(
        &format!("metadata key flag, value type at byte {flag}: 13 is not a value type (0 to 12)"),
        |b, _| {
            put32(b, flag, 13);
        },
    );
    check(&format!("metadata key flag, value at byte {}: 2 is not a boolean (0 or 1)", flag + 4), |b, _| {
        b[flag + 4] = 2;
    });
    check(
        &format!(
            "metadata key numbers, array element type at byte {}: 99 is not a value type (0 to 12)",
            numbers + 4
        ),
        |b, _| put32(b, numbers + 4, 99),
    );
    check(
        &format!("metadata entry 2, key at byte {key}: the string is not valid UTF-8 from its byte 1 on"),
        |b, _| b[key + 9] = 0xff,
    );
    // The second byte of a two-byte character right at the seam of two strings, then a lone one.
    check(
        &format!("metadata key words, element 0 at byte {words}: the string is not valid UTF-8"),
        |b, _| {
            b[words + 10] = 0xc3;
            b[words + 19] = 0xa9;
        },
    );
    check(
        &format!("metadata key words, element 1 at byte {}: the string is not valid UTF-8", words + 11),
        |b, _| {
            b[words + 20] = 0xa9;
        },
    );
}

#[test]
fn keys_are_unique_and_have_names() {
    let (bytes, layout) = small().meta("flag", 1_u8).build_with_layout();
    let (first, second) = (layout.keys[2].1, layout.keys[5].1);
    let message =
        format!("metadata entry 5, key at byte {second}: duplicate key flag (first at byte {first})");
    assert_eq!(refusal(bytes).to_string(), format!("{FILE}: {message}"));
    for (key, length) in [(String::new(), 0), ("k".repeat(65536), 65536)] {
        let text = refusal(small().meta(&key, 1_u8).build()).to_string();
        assert!(text.ends_with(&format!("a key of {length} bytes (1 to 65535 are allowed)")), "{text}");
    }
}

#[test]
fn alignment_is_a_power_of_two() {
    let (_, layout) = small().build_with_layout();
    let at = layout.value_type("general.alignment");
    for alignment in [0, 1, 7, 33, u32::MAX] {
        check(
            &format!(
                "metadata key general.alignment, value at byte {at}: {alignment} is not an alignment \
                 (a power of two from 8 on)"
            ),
            |b, _| put32(b, at + 4, alignment),
        );
    }
    let text = refusal(small().set("general.alignment", "32").build()).to_string();
    assert!(text.contains("the string \"32\" is not an alignment"), "{text}");
}

#[test]
fn arrays_do_not_nest_without_end() {
    let nested = |depth| (0..depth).fold(Meta::U8(1), |inner, _| Meta::Array(vec![inner]));
    assert!(Gguf::from_bytes(FILE, small().meta("nested", nested(4)).build()).is_ok());
    for depth in [5, 1000] {
        let text = refusal(small().meta("nested", nested(depth)).build()).to_string();
        assert!(text.contains("metadata key nested, array element type at byte"), "{text}");
        assert!(text.ends_with("arrays are nested deeper than 4 levels"), "{text}");
    }
}

#[test]
fn tensor_shapes() {
    let (_, layout) = small().build_with_layout();
    let a = layout.tensor("a").clone();
    let (dims, second) = (a.dimensions_at, a.dimensions_at + 8);
    check(&format!("tensor a, n_dims at byte {}: 0 dimensions (1 to 4 are allowed)", dims - 4), |b, _| {
        put32(b, dims - 4, 0);
    });
    check(&format!("tensor a, n_dims at byte {}: 5 dimensions (1 to 4 are allowed)", dims - 4), |b, _| {
        put32(b, dims - 4, 5);
    });
    check(&format!("tensor a, dimension 1 at byte {second}: the dimension is 0"), |b, _| put64(b, second, 0));
    check(
        &format!(
            "tensor a, dimension 1 at byte {second}: {}: the number of elements overflows",
            u64::MAX - 31
        ),
        |b, _| put64(b, second, -32_i64 as u64),
    );
    check(
        &format!(
            "tensor a, dimension 1 at byte {second}: {}: the number of elements overflows",
            (1_u64 << 60) + 1
        ),
        |b, _| put64(b, second, (1 << 60) + 1),
    );
    check(
        &format!("tensor a, type at byte {}: rows of 33 elements are not whole Q4_0 blocks of 32", a.type_at),
        |b, _| put64(b, dims, 33),
    );
    let wrapping = small().tensor("w", &[(1 << 42) + 1, 64], 0, vec![]).build();
    let text = refusal(wrapping).to_string();
    assert!(text.contains("tensor w, offset at byte") && text.contains("past the end of the file"), "{text}");
    let overflowing = small().tensor("w", &[1 << 62], 28, vec![]).build();
    assert!(refusal(overflowing).to_string().ends_with("the size in bytes overflows"));
}

#[test]
fn tensor_types() {
    let (_, layout) = small().build_with_layout();
    let at = layout.tensor("a").type_at;
    check(&format!("tensor a, type at byte {at}: unknown tensor type id 255"), |b, _| put32(b, at, 255));
    check(
        &format!(
            "tensor a, type at byte {at}: Q4_0_4_4 (type id 31) was dropped from the format; quantise the model again"
        ),
        |b, _| put32(b, at, 31),
    );
    let (mut bytes, _) = small().build_with_layout();
    put32(&mut bytes, at, 255);
    assert!(refusal(bytes).is_unsupported(), "an unknown type is no damage");
}

#[test]
fn tensor_data() {
    let (bytes, layout) = small().build_with_layout();
    let (size, data) = (bytes.len(), layout.data);
    let b_at = layout.tensor("b").offset_at;
    let past = |end: String| {
        format!(
            "tensor b, offset at byte {b_at}: 32 bytes of F32 data would end {end}, past the end of the file \
             ({size} bytes); the file is cut short or damaged"
        )
    };
    check(&past(format!("at byte {}", size + 4096)), |b, l| put64(b, l.tensor("b").offset_at, 64 + 4096));
    check(&past("past 2^64".to_owned()), |b, l| put64(b, l.tensor("b").offset_at, u64::MAX - 31));
    check(&format!("tensor b, offset at byte {b_at}: 65 is not a multiple of the alignment 32"), |b, l| {
        put64(b, l.tensor("b").offset_at, 65);
    });
    check(
        &format!(
            "tensor b, offset at byte {b_at}: its data, from byte {} on, overlaps tensor a (bytes {data} to {})",
            data + 32,
            data + 36
        ),
        |b, l| put64(b, l.tensor("b").offset_at, 32),
    );
    let one_block_more = small().tensor("c", &[32, 2], 2, vec![0; 18]).build();
    let text = refusal(one_block_more).to_string();
    assert!(text.contains("tensor c, offset") && text.contains("36 bytes of Q4_0 data"), "{text}");
}

#[test]
fn tensor_names() {
    let (bytes, layout) = small().tensor("a", &[1], 0, vec![0; 4]).build_with_layout();
    let (first, second) = (layout.tensors[0].offset_at, layout.tensors[2].offset_at);
    assert_eq!(
        refusal(bytes).to_string(),
        format!("{FILE}: tensor a at byte {second}: duplicate tensor name, first at byte {first}")
    );
    for (name, length) in [(String::new(), 0), ("x".repeat(257), 257)] {
        let text = refusal(small().tensor(&name, &[1], 0, vec![0; 4]).build()).to_string();
        assert!(text.ends_with(&format!("a name of {length} bytes (1 to 256 are allowed)")), "{text}");
    }
}

#[test]
fn hostile_names_stay_on_one_line() {
    let name = "line\nbreak\u{1b}[2J";
    let text = refusal(small().tensor(name, &[1], 255, vec![]).build()).to_string();
    assert!(text.contains("tensor line\\nbreak\\u{1b}[2J, type at byte"), "{text}");
    let long = refusal(small().tensor(&"n".repeat(200), &[1], 255, vec![]).build()).to_string();
    assert!(long.contains(&format!("tensor {}…, type", "n".repeat(80))), "{long}");
    let file = Gguf::from_bytes("a\nb.gguf", vec![]).unwrap_err().to_string();
    assert_eq!(file, "a\\nb.gguf: magic at byte 0: the file is empty");
}

#[test]
fn every_truncation_of_the_tiny_model_is_refused() {
    let bytes = tiny_model(&TinyModel::default());
    let header: Vec<usize> = (0..12_000).collect();
    let spread = (0..bytes.len()).step_by(1009);
    for cut in header.into_iter().chain(spread).filter(|&cut| cut < bytes.len()) {
        let error = refusal(bytes[..cut].to_vec());
        assert!(error.to_string().contains(" at byte "), "cut at {cut}: {error}");
    }
}
