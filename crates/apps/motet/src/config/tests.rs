use std::{collections::BTreeMap, fs, path::PathBuf};

use super::*;

/// Resolves a file's text with variables and flags; settings as `key = value (source)`.
fn resolve(file: &str, variables: &[(&str, &str)], flags: &[(&'static str, &str)]) -> Result<String, String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config.toml");
    fs::write(&path, file).unwrap();
    let sources = Sources {
        file: Some(path),
        variables: variables.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect(),
        flags: flags.iter().map(|(name, value)| (*name, (*value).to_owned())).collect(),
    };
    let shorten = |text: String| text.replace(&format!("{}/", dir.path().display()), "");
    let raw = RawConfig::read(sources).map_err(|e| shorten(e.to_string()))?;
    let config = Config::resolve(&raw).map_err(|e| shorten(e.to_string()))?;
    let lines = config.settings.iter().filter(|s| s.source.to_string() != "default");
    let mut lines: Vec<String> =
        lines.map(|s| shorten(format!("{} = {} ({})", s.key.name, s.shown, s.source))).collect();
    lines.extend(raw.warnings);
    Ok(lines.join("\n"))
}

#[test]
fn later_sources_override_earlier_ones() {
    let file = "model = \"a.gguf\"\n[server]\nport = 1\nhost = \"localhost\"\n[engine]\nthreads = 3\n";
    let variables = [("MOTET_SERVER_PORT", "2"), ("MOTET_ENGINE_THREADS", "4"), ("RUST_LOG", "debug")];
    let got = resolve(file, &variables, &[("server.port", "3")]).unwrap();
    let expected = "model = a.gguf (config.toml:1)\n\
                    server.host = localhost (config.toml:4)\n\
                    server.port = 3 (--port)\n\
                    engine.threads = 4 (MOTET_ENGINE_THREADS)\n\
                    log.filter = debug (RUST_LOG)";
    assert_eq!(got, expected);
    assert_eq!(
        resolve("", &[("RUST_LOG", "a"), ("MOTET_LOG_FILTER", "b")], &[]).unwrap(),
        "log.filter = b (MOTET_LOG_FILTER)"
    );
}

#[test]
fn tables_may_be_dotted_or_inline() {
    for file in ["server.port = 9", "server = { port = 9 }", "[server]\nport = \"9\""] {
        assert!(resolve(file, &[], &[]).unwrap().starts_with("server.port = 9"), "{file}");
    }
}

#[test]
fn mistakes_say_where_and_what_is_right() {
    let check = |file: &str, variables: &[(&str, &str)], expected: &str| {
        assert_eq!(resolve(file, variables, &[]).unwrap_err(), expected);
    };
    check("\n[server]\nprot = 1", &[], "config.toml:3: unknown key server.prot; did you mean server.port?");
    check("port = 1", &[], "config.toml:1: unknown key port; did you mean server.port?");
    check("[zoo]\nx = 1", &[], "config.toml:1: unknown key zoo; `motet config check` lists all");
    check("server = 3", &[], "config.toml:1: unknown key server; did you mean server.port?");
    check("[server]\nport = [1]", &[], "config.toml:2: server.port takes one value, not a list or a table");
    check(
        "[server]\nport = 99999",
        &[],
        "server.port = \"99999\" (from config.toml:2): not a port; write a number from 0 to 65535",
    );
    check(
        "",
        &[("MOTET_ENGINE_KV_MEMORY", "1XB")],
        "engine.kv_memory = \"1XB\" (from MOTET_ENGINE_KV_MEMORY): \
         not an amount of memory; write such as 1GiB, 512MiB, or auto",
    );
    let error = resolve("[server\nport", &[], &[]).unwrap_err();
    assert!(error.starts_with("config.toml:1: not TOML: "), "{error}");
}

#[test]
fn unknown_variables_are_warned_about() {
    let check = |name: &str, expected: &str| assert_eq!(resolve("", &[(name, "1")], &[]).unwrap(), expected);
    check(
        "MOTET_SERVER_PROT",
        "the variable MOTET_SERVER_PROT is no setting and is ignored; did you mean MOTET_SERVER_PORT?",
    );
    check("MOTET_ZZZ", "the variable MOTET_ZZZ is no setting and is ignored");
    check("MOTET_SHARED", "");
}

#[test]
fn a_named_file_must_exist_and_the_usual_one_need_not() {
    let read = |file: Option<&str>, home: &str| {
        let variables = BTreeMap::from([("HOME".to_owned(), home.to_owned())]);
        RawConfig::read(Sources { file: file.map(PathBuf::from), variables, flags: vec![] })
    };
    assert!(read(Some("/no/such.toml"), "/").unwrap_err().to_string().contains("/no/such.toml"));
    let home = tempfile::tempdir().unwrap();
    assert_eq!(read(None, home.path().to_str().unwrap()).unwrap().file, None);
    let folder = home.path().join(".config/motet");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("config.toml"), "model = \"x\"").unwrap();
    assert!(read(None, home.path().to_str().unwrap()).unwrap().file.is_some());
}

#[test]
fn values_parse() {
    let bytes = |text: &str| values::memory(text).ok().flatten();
    assert_eq!(bytes("1GiB"), Some(1 << 30));
    assert_eq!(bytes("1.5 gib"), Some(3 << 29));
    assert_eq!(bytes("512MB"), Some(512_000_000));
    assert_eq!(bytes("2g"), Some(2 << 30));
    assert_eq!(bytes("1048576"), Some(1 << 20));
    for wrong in ["", "-1", "0", "GiB", "1e99", "1 parsec", "nan"] {
        assert!(values::memory(wrong).is_err(), "{wrong}");
    }
    assert_eq!(values::memory("auto"), Ok(None));
    assert_eq!(human_bytes(3 << 29), "1.5 GiB");
    assert!(values::host("example.org").is_err());
    assert!(values::host("[::1]").unwrap().is_loopback());
    assert!(values::number("nan", 0.0, 2.0).is_err());
    assert!(values::threads("0").is_err());
}

#[test]
fn every_default_is_valid() {
    let config = Config::resolve(&RawConfig::default()).unwrap();
    assert_eq!(config.settings.len(), KEYS.len());
}
