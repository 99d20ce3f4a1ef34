//! Typed metadata getters, unsupported types and missing entries.

// Helpers of tests fail as tests do.
#![allow(clippy::unwrap_used)]

use motet_model::gguf::{Gguf, GgufError, TensorType};
use motet_testkit::{GgufBuilder, Meta, TinyModel};

fn open(builder: &GgufBuilder) -> Gguf {
    Gguf::from_bytes("m.gguf", builder.build()).unwrap()
}

fn message<T: std::fmt::Debug>(result: Result<T, GgufError>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn integers_of_any_width_are_read_where_they_fit() {
    let rows: Vec<(Meta, Option<u32>, Option<i32>)> = vec![
        (7_u8.into(), Some(7), Some(7)),
        ((-7_i8).into(), None, Some(-7)),
        (700_u16.into(), Some(700), Some(700)),
        ((-700_i16).into(), None, Some(-700)),
        (u32::MAX.into(), Some(u32::MAX), None),
        (i32::MIN.into(), None, Some(i32::MIN)),
        (70_000_u64.into(), Some(70_000), Some(70_000)),
        ((1_u64 << 32).into(), None, None),
        ((-1_i64).into(), None, Some(-1)),
        (1.0_f32.into(), None, None),
        (true.into(), None, None),
    ];
    for (value, unsigned, signed) in rows {
        let gguf = open(&GgufBuilder::new().meta("k", value.clone()));
        assert_eq!(gguf.require_u32("k").ok(), unsigned, "{value:?} as u32");
        assert_eq!(gguf.require_i32("k").ok(), signed, "{value:?} as i32");
    }
}

#[test]
fn other_types_are_read_as_they_are() {
    let words = Meta::Array(vec!["a".into(), "".into(), "grüße".into()]);
    let gguf = open(
        &GgufBuilder::new()
            .meta("f32", 0.5_f32)
            .meta("f64", 0.25_f64)
            .meta("flag", true)
            .meta("text", "hello")
            .meta("words", words)
            .meta("small", vec![1_u8, 2])
            .meta("signed", vec![-1_i64, 2])
            .meta("floats", vec![0.5_f64])
            .meta("flags", vec![true, false])
            .meta("empty", Meta::Array(vec![])),
    );
    assert_eq!((gguf.f32("f32").unwrap(), gguf.f32("f64").unwrap()), (Some(0.5), Some(0.25)));
    assert_eq!((gguf.bool("flag").unwrap(), gguf.str("text").unwrap()), (Some(true), Some("hello")));
    let words = gguf.require_str_array("words").unwrap();
    assert_eq!(words.iter().collect::<Vec<_>>(), ["a", "", "grüße"]);
    assert_eq!((words.len(), words.get(2), words.get(3)), (3, Some("grüße"), None));
    assert_eq!(gguf.require_u32_array("small").unwrap(), [1, 2]);
    assert_eq!(gguf.require_i32_array("signed").unwrap(), [-1, 2]);
    assert_eq!(gguf.require_f32_array("floats").unwrap(), [0.5]);
    assert_eq!(gguf.require_bool_array("flags").unwrap(), [true, false]);
    assert_eq!(gguf.require_i32_array("empty").unwrap(), [0_i32; 0]);
    assert_eq!(gguf.u32("absent").unwrap(), None);
    assert_eq!(gguf.get("words").unwrap().to_string(), "array of 3 string values");
    assert_eq!(gguf.metadata().map(|(key, _)| key).take(3).collect::<Vec<_>>(), ["f32", "f64", "flag"]);
}

#[test]
fn a_wrong_type_names_file_key_and_offset() {
    let (bytes, layout) = GgufBuilder::new()
        .meta("text", "a\nb")
        .meta("minus", -1_i32)
        .meta("nan", f32::NAN)
        .meta("words", Meta::Array(vec!["a".into()]))
        .build_with_layout();
    let gguf = Gguf::from_bytes("m.gguf", bytes).unwrap();
    let place = |key: &str| format!("m.gguf: metadata key {key}, value at byte {}", layout.value_type(key));
    let u32_wanted = "expected a whole number from 0 to 4294967295";
    assert_eq!(
        message(gguf.u32("text")),
        format!("{}: {u32_wanted}, found the string \"a\\nb\"", place("text"))
    );
    assert_eq!(message(gguf.require_u32("minus")), format!("{}: {u32_wanted}, found -1", place("minus")));
    assert_eq!(message(gguf.f32("nan")), format!("{}: expected a finite number, found NaN", place("nan")));
    assert_eq!(
        message(gguf.bool("words")),
        format!("{}: expected true or false, found an array of 1 string values", place("words"))
    );
    assert_eq!(
        gguf.invalid_key("minus", "must be positive").to_string(),
        format!("{}: must be positive", place("minus"))
    );
}

#[test]
fn missing_keys_and_tensors_are_named() {
    let (bytes, layout) =
        TinyModel::default().builder().without_tensor("output_norm.weight").build_with_layout();
    let gguf = Gguf::from_bytes("tiny.gguf", bytes).unwrap();
    assert_eq!(
        message(gguf.require_u32("llama.expert_count")),
        "tiny.gguf: metadata key llama.expert_count is missing: not among the 23 listed from byte 24 on"
    );
    assert_eq!(
        message(gguf.require_tensor("output_norm.weight")),
        format!(
            "tiny.gguf: tensor output_norm.weight is missing: not among the 19 listed from byte {} on",
            layout.directory
        )
    );
}

#[test]
fn a_type_the_model_cannot_use_is_unsupported_not_damaged() {
    for ty in TensorType::ALL {
        let (block, size) = (ty.block_size() as u64, ty.type_size());
        let builder = GgufBuilder::new().tensor("w", &[block, 3], ty.id(), vec![0; size * 3]);
        let gguf = open(&builder);
        let tensor = gguf.require_tensor("w").unwrap();
        assert_eq!((tensor.ty, tensor.data.len()), (*ty, size * 3));
    }
    let (bytes, layout) = GgufBuilder::new().tensor("w", &[256], 16, vec![0; 66]).build_with_layout();
    let gguf = Gguf::from_bytes("m.gguf", bytes).unwrap();
    let error = gguf.tensor("w").unwrap().unsupported_type(&[TensorType::F32, TensorType::Q4_1]);
    assert!(error.is_unsupported());
    assert_eq!(
        error.to_string(),
        format!(
            "m.gguf: tensor w at byte {}: quantisation IQ2_XXS is not supported yet (supported: F32, Q4_1)",
            layout.tensor("w").offset_at
        )
    );
}

#[test]
fn type_layouts_equal_the_reference() {
    let Some(folder) = motet_testkit::shared("reference/quants") else { return };
    let text = std::fs::read_to_string(folder.join("index.json")).unwrap();
    let index: serde_json::Value = serde_json::from_str(&text).unwrap();
    for row in index["types"].as_array().unwrap() {
        let id = u32::try_from(row["id"].as_u64().unwrap()).unwrap();
        let ty = TensorType::from_id(id).unwrap();
        assert_eq!((ty.name(), ty.id()), (row["type"].as_str().unwrap(), id));
        // Unquantised types are listed there in groups of 32 elements.
        if let (Some(block), Some(size)) = (row["block_size"].as_u64(), row["type_size"].as_u64()) {
            assert_eq!(ty.type_size() as u64 * block, size * ty.block_size() as u64, "{ty}");
        }
    }
}

#[test]
fn the_default_model_opens() {
    let Some(path) = motet_testkit::default_model() else { return };
    let gguf = Gguf::open(&path).unwrap();
    assert_eq!((gguf.version(), gguf.tensors().len(), gguf.metadata().len()), (3, 272, 33));
    assert_eq!(gguf.require_str_array("tokenizer.ggml.tokens").unwrap().len(), 49152);
    assert_eq!(gguf.require_u32("llama.block_count").unwrap(), 30);
    let embedding = gguf.require_tensor("token_embd.weight").unwrap();
    assert_eq!((embedding.shape, embedding.ty), (&[576, 49152][..], TensorType::Q8_0));
    assert_eq!(embedding.data.len(), 576 / 32 * 34 * 49152);
    gguf.check_unchanged().unwrap();
}
