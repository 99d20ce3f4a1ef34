use std::fs;

use crate::support::World;

#[test]
fn engine_prints_one_object() {
    let world = World::new();
    let model = world.model();
    let args =
        ["bench", "engine", "--model", &model, "--threads", "2", "--runs", "1", "--ctx", "40", "--json"];
    let (code, out, err) = world.run(&args);
    assert_eq!(code, 0, "{err}");
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    for name in ["decode_1_tok_s", "decode_8_tok_s_best", "decode_32_tok_s", "decode_8_at_40_tok_s"] {
        assert!(json[name].as_f64().is_some_and(|speed| speed > 0.0), "{name}: {out}");
    }
    // The tiny model's context is 256 tokens.
    for name in ["prefill_512_tok_s", "prefill_at_4096_tok_s", "decode_32_at_2000_tok_s"] {
        assert!(json.get(name).is_some_and(serde_json::Value::is_null), "{name}: {out}");
    }
    assert_eq!((json["threads"].as_u64(), json["kv_format"].as_str()), (Some(2), Some("f16")));
    assert!(json["load_seconds"].is_number() && json["isa"].is_string(), "{out}");

    let (code, out, _) = world.run(&args[..args.len() - 1]);
    assert_eq!(code, 0);
    assert!(out.contains("decode 8 at 40") && out.contains("no room"), "{out}");
}

#[test]
fn mistakes_are_told() {
    let world = World::new();
    let check = |args: &[&str], part: &str| {
        let (code, out, err) = world.run(args);
        assert_eq!((code, out.as_str()), (2, ""), "{args:?}");
        assert!(err.contains(part), "{args:?}: {err}");
    };
    check(&["bench", "kernels", "--formats", "Q9"], "there are F32");
    check(&["bench", "kernels", "--isa", "mmx"], "scalar");
    check(&["bench", "kernels", "--batch", "0"], "at least 1");
    let model = world.model();
    check(&["bench", "engine", "--model", &model, "--batch", "0"], "--batch takes 1");
    check(&["bench", "engine", "--model", &model, "--runs", "0"], "--runs");
}

#[test]
fn mistakes_say_what_is_allowed() {
    let world = World::new();
    let check = |args: &[&str], part: &str| {
        let (code, out, err) = world.run(&[&["bench", "serve"], args].concat());
        assert_eq!((code, out.as_str()), (2, ""), "{args:?}: {err}");
        assert!(err.starts_with("error: ") && err.lines().count() == 1, "{args:?}: {err}");
        assert!(err.contains(part), "{args:?}: {err}");
    };
    let target = "--target=http://127.0.0.1:9";
    check(&[], "no --target");
    check(&["--target", "127.0.0.1:8080"], "name=http://127.0.0.1:8080");
    check(&[target, target], "two targets");
    check(&[target, "--baseline", "x"], "write one of 127.0.0.1:9");
    check(&[target, "--concurrency", "many"], "invalid digit");
    check(&[target, "--concurrency", "9999"], "1 to 4096 clients");
    check(&[target, "--find-rate"], "--goodput");
    check(&[target, "--goodput", "fast"], "ttft<1s,itl<50ms");
    check(&[target, "--speed", "2"], "--trace");
    check(&[target, "--trace", "/no/such.csv"], "/no/such.csv");
    check(&[target, "--timeout", "soon"], "such as 500ms, 30s or 10min");
    check(&[target, "--range-ratio", "1"], "from 0 to below 1");
    check(&["--from", "/no/such.json"], "/no/such.json");
}

#[test]
fn nobody_there_is_told() {
    let world = World::new();
    let (code, out, err) = world.run(&["bench", "serve", "--target", "x=http://127.0.0.1:9"]);
    assert_eq!((code, out.as_str()), (1, ""), "{err}");
    assert!(
        err.starts_with("error: target x (http://127.0.0.1:9)") && err.contains("start the server"),
        "{err}"
    );
}

#[test]
fn saved_results_are_shown() {
    let world = World::new();
    let folder = tempfile::tempdir().unwrap();
    let saved = folder.path().join("saved.json");
    let settings = r#"{"workload": "w", "endpoint": "chat", "slo": null, "repeats": 1, "warmup": 0, "seed": 0, "stall_ms": 500}"#;
    let report = format!(
        r#"{{"format": 1, "began_unix_s": 0, "is_partial": false, "settings": {settings}, "baseline": "a",
            "targets": [], "rows": [], "searches": [{{"target": "a", "options": {{"start": 1, "share": 0.9, "precision": 1.1}},
            "best_rate": 2, "tried": []}}], "notes": ["a note"]}}"#
    );
    fs::write(&saved, report).unwrap();
    let page = folder.path().join("page.html");
    let args = ["bench", "serve", "--from", saved.to_str().unwrap(), "--report", page.to_str().unwrap()];
    let (code, out, err) = world.run(&args);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.contains("a: highest rate") && out.contains("note: a note"), "{out}");
    assert!(fs::read_to_string(&page).unwrap().starts_with("<!doctype html>"));
}
