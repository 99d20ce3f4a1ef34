use std::fs;

use crate::support::World;

#[test]
fn inspect_reads_the_header() {
    let world = World::new();
    let (code, out, err) = world.run(&["model", "inspect", "--json", &world.model()]);
    assert_eq!((code, err.as_str()), (0, ""));
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    let check = |key: &str, expected: serde_json::Value| assert_eq!(json[key], expected, "{key}");
    check("architecture", "llama".into());
    check("context_length", 256.into());
    check("layers", 2.into());
    check("kv_heads", 2.into());
    check("tokenizer", "gpt2".into());
    check("has_chat_template", true.into());
    // 2 layers × keys and values × 2 heads × 16 elements × 2 bytes; or of one byte, and a scale of four
    check("kv_bytes_per_token", serde_json::json!({ "f16": 256, "int8": 160 }));
    check("problem", serde_json::Value::Null);
    check("size_bytes", fs::metadata(world.model.path()).unwrap().len().into());
    assert_eq!(json["tensors"]["F32"]["tensors"], 20, "{out}");

    let folder = world.model.folder().to_str().unwrap().to_owned();
    let (code, out, _) = world.run(&["model", "inspect", &folder]);
    assert_eq!(code, 0);
    assert!(out.contains("architecture   llama") && out.contains("chat template  yes"), "{out}");
    assert!(out.contains("f16: 256 B, a GiB holds 4,194,304 tokens; int8: 160 B"), "{out}");
}

#[test]
fn list_names_what_is_here() {
    let world = World::new();
    let (code, out, _) = world.run(&["model", "list"]);
    assert_eq!(code, 0);
    assert!(out.contains("No models yet") && out.contains("cargo xtask model"), "{out}");

    let models = world.home.path().join(".cache/motet/models");
    fs::create_dir_all(&models).unwrap();
    fs::copy(world.model.path(), models.join("small.gguf")).unwrap();
    let (_, out, _) = world.run(&["model", "list"]);
    assert!(out.starts_with("small ") && out.contains("small.gguf"), "{out}");
    let (_, out, _) = world.run(&["model", "list", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((json[0]["name"].as_str(), json[0]["is_default"].as_bool()), (Some("small"), Some(false)));
    let (code, out, _) = world.run(&["model", "inspect", "small"]);
    assert_eq!(code, 0, "{out}");
}
