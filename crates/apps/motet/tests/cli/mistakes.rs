use std::{fs, net::TcpListener};

use motet_testkit::{TinyModel, tiny_model};

use crate::support::{World, parts};

/// One line on standard error with `part` in it, nothing on standard output, exit code 2.
fn check(world: &World, args: &[&str], part: &str) {
    let (code, out, err) = world.run(args);
    assert_eq!(code, 2, "{args:?}: {err}");
    assert_eq!(out, "", "{args:?}");
    assert!(err.starts_with("error: ") && err.lines().count() == 1, "{args:?}: {err}");
    assert!(err.contains(part), "{args:?}: {err}");
}

#[test]
fn flags() {
    let world = World::new();
    check(&world, &["serve", "--port", "99999"], "server.port = \"99999\" (from --port): not a port");
    check(&world, &["serve", "--host", "example.org"], "write an IP address");
    check(&world, &["chat", "--threads", "0"], "1 to 1024");
    check(&world, &["chat", "--kv-memory", "much"], "such as 1GiB, 25%, 60000tok");
    check(&world, &["chat", "--kv-format", "q4"], "write one of f16, int8");
    check(&world, &["serve", "--cache-spill", "on"], "such as 8GiB");
    check(&world, &["serve", "--prefix-cache", "off", "--cache-spill", "1GiB"], "engine.prefix_cache = off");
    check(&world, &["serve", "--itl-target", "200"], "ms, s, min or h");
    check(&world, &["serve", "--max-running", "0"], "engine.max_running");
    check(&world, &["run", "--temperature", "-1", "x"], "from 0 to 2");
    check(&world, &["run", "--max-tokens", "0", "x"], "from 1");
    check(&world, &["run", "--log", "a=b=c", "x"], "log.filter");
    check(&world, &["run"], "no prompt");
    check(&world, &["--config", "/no/such.toml", "run", "x"], "/no/such.toml");
}

#[test]
fn flags_that_do_not_exist() {
    let world = World::new();
    check(&world, &["serve", "--prot", "1"], "a similar argument exists: '--port'");
    check(&world, &["sreve"], "'serve'");
    check(&world, &["run", "--raw", "--system", "x", "y"], "cannot be used with");
    check(&world, &["run", "--seed"], "a value is required");
    check(&world, &["model", "pull"], "<MODEL>");
    check(&world, &["model", "pull"], "motet --help");
}

#[test]
fn strangers_are_refused() {
    let world = World::new();
    for host in ["0.0.0.0", "192.0.2.7", "::"] {
        check(&world, &["serve", "--no-auth", "--host", host], "can be reached from other machines");
        check(&world, &["serve", "--host", host, "--no-auth"], "127.0.0.1");
    }
}

#[test]
fn embedding_models_that_are_none() {
    let world = World::new();
    let model = world.model();
    let serve = |folder: &str, part: &str| {
        let args = ["serve", "--port", "0", "--model", &model, "--embedding-model", folder];
        let (code, _, err) = world.run(&args);
        assert_eq!(code, 2, "{folder}: {err}");
        let last = err.lines().last().unwrap_or_default();
        assert!(last.starts_with("error: embedding_model: ") && last.contains(part), "{err}");
    };
    serve("/no/such/folder", "there is neither this file nor vocab.txt; name the folder");
    serve("/", "does not end in a folder's name");
    let folder = world.home.path().join("tiny");
    motet_testkit::TinyBert::default().write(&folder);
    serve(folder.to_str().unwrap(), "it has the same name as another model, tiny");
    fs::write(folder.join("model.safetensors"), [0; 4]).unwrap();
    serve(folder.to_str().unwrap(), "the header's length is not there");
}

#[test]
fn a_busy_port() {
    let world = World::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    check(&world, &["serve", "--port", &port], &format!("port {port} on 127.0.0.1 is in use"));
    check(&world, &["serve", "--port", &port], "--port");
}

#[test]
fn models_that_are_not_there() {
    let world = World::new();
    check(&world, &["run", "x"], "cargo xtask model");
    check(&world, &["run", "-m", "owner/name", "x"], "hf:owner/name");
    check(&world, &["run", "-m", "nosuch", "x"], "motet model list");
    check(&world, &["run", "-m", "hf:name", "x"], "hf:owner/name");
    check(&world, &["run", "-m", "https://example.org/a.gguf", "x"], "is an address");
    check(&world, &["model", "inspect", "/no/such.gguf"], "/no/such.gguf");
    let home = world.home.path().to_str().unwrap().to_owned();
    check(&world, &["run", "-m", &home, "x"], "no GGUF file");
    let offline = world.motet(&["model", "pull", "hf:a/b"]).env("HF_HUB_OFFLINE", "1").output().unwrap();
    let (code, _, err) = parts(offline);
    assert_eq!(code, 2);
    assert!(err.contains("HF_HUB_OFFLINE"), "{err}");
}

#[test]
fn damaged_models() {
    let world = World::new();
    let whole = tiny_model(&TinyModel::default());
    let path = world.home.path().join("bad.gguf");
    let model = path.to_str().unwrap();
    let damages: [(&str, Vec<u8>); 5] = [
        ("empty", Vec::new()),
        ("magic only", whole[..4].to_vec()),
        ("header cut", whole[..whole.len() / 100].to_vec()),
        ("weights cut", whole[..whole.len() - 100].to_vec()),
        ("no GGUF", b"<html>not found</html>".to_vec()),
    ];
    for (what, bytes) in damages {
        fs::write(&path, bytes).unwrap();
        for args in [&["run", "-m", model, "x"][..], &["model", "inspect", model], &["chat", "-m", model]] {
            check(&world, args, "bad.gguf");
        }
        let (code, _, err) = world.run(&["serve", "--port", "0", "-m", model]);
        assert_eq!(code, 2, "{what}: {err}");
        assert!(
            err.contains("error: ") && err.contains("bad.gguf") && !err.contains("panicked"),
            "{what}: {err}"
        );
    }
}

#[test]
fn memory_that_holds_nothing() {
    let world = World::new();
    let model = world.model();
    check(
        &world,
        &["run", "-m", &model, "--kv-memory", "100B", "x"],
        "engine.kv_memory: 100 bytes of KV memory",
    );
}

#[test]
fn spills_that_go_nowhere() {
    let world = World::new();
    let (model, port) = (world.model(), ["--port", "0", "--kv-memory", "1MiB"]);
    let serve = |args: &[&str], part: &str| {
        let mut all = vec!["serve", "-m", &model];
        all.extend(port);
        all.extend(args);
        let (code, _, err) = world.run(&all);
        assert!(code == 2 && err.contains(part), "{args:?}: {code} {err}");
    };
    serve(&["--cache-spill", "100B"], "engine.cache_spill: ");
    let file = world.home.path().join("file");
    fs::write(&file, "").unwrap();
    let inside = file.join("spill");
    serve(
        &["--cache-spill", "1MiB", "--cache-spill-folder", inside.to_str().unwrap()],
        "engine.cache_spill_folder: ",
    );
}

#[test]
fn prompts_that_do_not_fit() {
    let world = World::new();
    let (code, out, err) = parts(world.with_model(&["run"], &"word ".repeat(500)));
    assert_eq!((code, out.as_str()), (2, ""), "{err}");
    assert!(err.contains("the model holds 256"), "{err}");
    let model = world.model();
    let binary = world.home.path().join("bytes");
    fs::write(&binary, b"abc\xff").unwrap();
    let mut command = world.motet(&["run", "-m", &model]);
    let (code, _, err) = parts(command.stdin(fs::File::open(&binary).unwrap()).output().unwrap());
    assert_eq!(code, 2);
    assert!(err.contains("not UTF-8 text (byte 3)"), "{err}");
}
