use std::{collections::BTreeMap, fs, path::PathBuf, time::Duration};

use motet_engine::{LaneConfig, SchedConfig};
use motet_fleet::{LadderConfig, Standing};
use motet_gateway::OverloadConfig;
use motet_model::KvFormat;

use super::{memory::KvMemory, *};

/// Resolves a file's text with variables and flags; settings as `key = value (source)`.
fn resolve(file: &str, variables: &[(&str, &str)], flags: &[(&'static str, &str)]) -> Result<String, String> {
    let (config, raw, shorten) = resolved(file, variables, flags)?;
    let lines = config.settings.iter().filter(|s| s.source.to_string() != "default");
    let mut lines: Vec<String> =
        lines.map(|s| shorten(format!("{} = {} ({})", s.key.name, s.shown, s.source))).collect();
    let lanes = config.lanes.iter().filter(|lane| lane.source.to_string() != "default");
    lines.extend(
        lanes.map(|lane| shorten(format!("{}: {} ({})", lane.config.name, lane.shown(), lane.source))),
    );
    lines.extend(raw.warnings);
    Ok(lines.join("\n"))
}

type Shorten = Box<dyn Fn(String) -> String>;

/// A checked configuration, what was read, and what takes the folder of the file out of a text.
fn resolved(
    file: &str,
    variables: &[(&str, &str)],
    flags: &[(&'static str, &str)],
) -> Result<(Config, RawConfig, Shorten), String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config.toml");
    fs::write(&path, file).unwrap();
    let sources = Sources {
        file: Some(path),
        variables: variables.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect(),
        flags: flags.iter().map(|(name, value)| (*name, (*value).to_owned())).collect(),
    };
    let prefix = format!("{}/", dir.path().display());
    let shorten = move |text: String| text.replace(&prefix, "");
    let raw = RawConfig::read(sources).map_err(|e| shorten(e.to_string()))?;
    let config = Config::resolve(&raw).map_err(|e| shorten(e.to_string()))?;
    Ok((config, raw, Box::new(shorten)))
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
    check("server = 3", &[], "config.toml:1: unknown key server; did you mean server.auth?");
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
         not an amount of memory; write such as 1GiB, 25%, 60000tok, or auto",
    );
    let error = resolve("[server\nport", &[], &[]).unwrap_err();
    assert!(error.starts_with("config.toml:1: not TOML: "), "{error}");
}

#[test]
fn engine_keys_are_read() {
    let file = "[engine]\nkv_format = \"int8\"\nprefix_cache = true\ncache_spill = \"8GiB\"\n\
                cache_spill_folder = \"/var/spill\"\nmax_running = 8\nitl_target = \"50ms\"\n";
    let variables = [("MOTET_ENGINE_CACHE_SPILL_AGE", "5min"), ("MOTET_ENGINE_KV_MEMORY", "25%")];
    let (config, ..) = resolved(file, &variables, &[("engine.max_step_tokens", "64")]).unwrap();
    let EngineSettings { kv_memory, kv_format, is_caching, spill, sched, .. } = config.engine;
    assert_eq!((kv_memory, kv_format, is_caching), (KvMemory::Share(0.25), KvFormat::Int8, true));
    let expected = SpillSettings {
        folder: Some(PathBuf::from("/var/spill")),
        max_bytes: 8 << 30,
        max_age: Duration::from_secs(300),
    };
    assert_eq!(spill, Some(expected));
    let sizes = (sched.max_running, sched.max_step_tokens, sched.itl_target);
    assert_eq!(sizes, (8, 64, Duration::from_millis(50)));
}

#[test]
fn defaults_of_the_engine() {
    let (config, ..) = resolved("", &[], &[]).unwrap();
    assert!(config.engine.is_caching && config.engine.spill.is_none());
    let usual = SchedConfig::default();
    let lanes = vec![LaneConfig::interactive("default", 1), LaneConfig::background("background")];
    assert_eq!(
        config.engine.sched,
        SchedConfig { lanes, ..usual },
        "the defaults of the keys are the scheduler's"
    );
}

#[test]
fn lanes_are_read_in_order() {
    let file = "[[lanes]]\nname = \"paid\"\nweight = 8\nttft_promise = \"1500ms\"\n\
                [[lanes]]\nname = \"free\"\nwaiting = 20\nkv_tokens_per_request = 2048\n\
                [[lanes]]\nname = \"batch\"\nkind = \"background\"\n";
    let expected = "paid: interactive, weight 8, 256 may wait, first token within 1.5s (config.toml:1)\n\
                    free: interactive, weight 1, 20 may wait, 2048 tokens per request (config.toml:5)\n\
                    batch: background, weight 1, 256 may wait (config.toml:9)";
    assert_eq!(resolve(file, &[], &[]).unwrap(), expected);
    let (config, ..) = resolved(file, &[], &[]).unwrap();
    let paid =
        LaneConfig { ttft_promise: Some(Duration::from_millis(1500)), ..LaneConfig::interactive("paid", 8) };
    assert_eq!(config.engine.sched.lanes[0], paid);
    assert_eq!(config.engine.sched.lanes[2], LaneConfig::background("batch"));
}

#[test]
fn mistakes_in_lanes_say_where_and_what_is_right() {
    let check = |file: &str, expected: &str| assert_eq!(resolve(file, &[], &[]).unwrap_err(), expected);
    let takes_tables = "config.toml:1: lanes takes tables; write [[lanes]] and the keys of a lane below it";
    check("lanes = 3", takes_tables);
    check("lanes = [3]", takes_tables);
    check("[lanes]\nname = \"a\"", takes_tables);
    check(
        "lanes = []",
        "config.toml:1: lanes is empty; write at least one [[lanes]], or leave it out for the default lanes",
    );
    check("\n[[lanes]]\nweight = 2", "config.toml:2: a lane without a name; add lanes.name");
    check(
        "[[lanes]]\nname = \"a\"\nwieght = 2",
        "config.toml:3: unknown key lanes.wieght; did you mean lanes.weight?",
    );
    check(
        "[[lanes]]\nname = \"a\"\nzzz = 2",
        "config.toml:3: unknown key lanes.zzz; a lane has name, weight, kind, waiting, kv_tokens_per_request, \
         ttft_promise, free",
    );
    check("[[lanes]]\nname = [1]", "config.toml:2: lanes.name takes one value, not a list or a table");
    let value = |line: &str, expected: &str| {
        check(&format!("[[lanes]]\nname = \"a\"\n{line}"), expected);
    };
    value(
        "weight = 0",
        "lanes.weight = \"0\" (from config.toml:3): not in range; write a whole number from 1",
    );
    value(
        "kind = \"vip\"",
        "lanes.kind = \"vip\" (from config.toml:3): not a choice; write one of interactive, background",
    );
    value(
        "waiting = 0",
        "lanes.waiting = \"0\" (from config.toml:3): not in range; write a whole number from 1 to 100000",
    );
    value(
        "ttft_promise = 2",
        "lanes.ttft_promise = \"2\" (from config.toml:3): not a time from 1ms to 1h; write a number and ms, s, min or h",
    );
    value(
        "kind = \"background\"\nfree = true",
        "lanes.free = \"true\" (from config.toml:4): a background lane is paused before free ones are degraded; \
         leave this out",
    );
    value(
        "[[lanes]]\nname = \"a\"",
        "config.toml:3: there are two lanes of the name \"a\"; give each its own lanes.name",
    );
    check(
        "[[lanes]]\nname = \"A b\"",
        "lanes.name = \"A b\" (from config.toml:2): not a name; write 1 to 64 of a-z, 0-9, - and _",
    );
    check(
        "[[lanes]]\nname = \"a\"\nkind = \"background\"",
        "config.toml:1: the first lane is for requests that are not for the background, but \"a\" is of that kind; \
         put a lane with lanes.kind = \"interactive\" first",
    );
    let many: String = (0..33).map(|i| format!("[[lanes]]\nname = \"l{i}\"\n")).collect();
    check(&many, "config.toml:65: there are 33 lanes; at most 32 can be, so leave some [[lanes]] out");
}

#[test]
fn mistakes_in_engine_keys_name_the_key() {
    let check = |key: &'static str, text: &str, flag: &str, why: &str| {
        let expected = format!("{key} = {text:?} (from {flag}): {why}");
        assert_eq!(resolve("", &[], &[(key, text)]).unwrap_err(), expected);
    };
    check(
        "engine.kv_memory",
        "0%",
        "--kv-memory",
        "not a share of the memory that is free; write 0.1% to 95%",
    );
    check("engine.kv_memory", "0tok", "--kv-memory", "not a number of tokens; write 1tok to 67108864tok");
    check("engine.kv_format", "int4", "--kv-format", "not a choice; write one of f16, int8");
    check("engine.prefix_cache", "maybe", "--prefix-cache", "not a choice; write on or off");
    check("engine.cache_spill", "on", "--cache-spill", "not a size; write such as 8GiB, or off");
    check(
        "engine.cache_spill_folder",
        "spill",
        "--cache-spill-folder",
        "not a folder; write an absolute path such as /var/cache/motet, or auto",
    );
    check(
        "engine.cache_spill_age",
        "1",
        "--cache-spill-age",
        "not a time from 1s to 8760h; write a number and ms, s, min or h",
    );
    check("engine.max_running", "0", "--max-running", "not in range; write a whole number from 1 to 4096");
    check(
        "engine.max_step_tokens",
        "x",
        "--max-step-tokens",
        "not in range; write a whole number from 1 to 65536",
    );
    check(
        "engine.itl_target",
        "200",
        "--itl-target",
        "not a time from 1ms to 1min; write a number and ms, s, min or h",
    );
    let both = [("engine.prefix_cache", "off"), ("engine.cache_spill", "1GiB")];
    let error = resolve("", &[], &both).unwrap_err();
    assert!(error.contains("engine.prefix_cache = off") && error.contains("engine.cache_spill"), "{error}");
}

#[test]
fn the_ladder_knows_what_lanes_are_worth() {
    let file = "[ladder]\nup = 0.5\nclimb_after = \"1s\"\nshort_output = 100\n\
                [[lanes]]\nname = \"free\"\nfree = true\nweight = 9\n[[lanes]]\nname = \"pro\"\nweight = 8\n\
                [[lanes]]\nname = \"team\"\nweight = 4\n[[lanes]]\nname = \"batch\"\nkind = \"background\"\n";
    let (config, ..) = resolved(file, &[], &[]).unwrap();
    let lanes = vec![Standing::Free, Standing::Paid, Standing::Ordinary, Standing::Background];
    let ladder = LadderConfig { up: 0.5, climb_after: Duration::from_secs(1), lanes, ..usual_ladder() };
    assert_eq!(config.overload.ladder, Some(ladder));
    assert_eq!(config.overload.short_output, 100);
    assert!(
        config.lanes[0].shown().starts_with("interactive, free, weight 9"),
        "{}",
        config.lanes[0].shown()
    );
    let (config, ..) = resolved("", &[], &[]).unwrap();
    let lanes = vec![Standing::Paid, Standing::Background];
    let usual = LadderConfig { lanes, ..usual_ladder() };
    assert_eq!(config.overload.ladder, Some(usual), "the defaults of the keys are the ladder's");
    assert_eq!(config.overload.short_output, OverloadConfig::default().short_output);
    let (config, ..) = resolved("[ladder]\nenabled = false", &[], &[]).unwrap();
    assert_eq!(config.overload.ladder, None);
}

/// The defaults, whose thresholds are written as parts and read as such.
fn usual_ladder() -> LadderConfig {
    let usual = LadderConfig::default();
    LadderConfig { up: f64::from(usual.up as f32), down: f64::from(usual.down as f32), ..usual }
}

#[test]
fn mistakes_in_the_ladder_say_what_is_right() {
    let check = |file: &str, expected: &str| assert_eq!(resolve(file, &[], &[]).unwrap_err(), expected);
    check(
        "[ladder]\ndown = 0.8",
        "ladder.down = \"0.8\" (from config.toml:2): not below ladder.up, which is 0.7; lower this, or raise that",
    );
    check(
        "[ladder]\nclimb_after = \"20s\"",
        "ladder.descend_after = \"10s\" (from default): shorter than ladder.climb_after, which is 20s; what is given \
         up at once must not come back at once",
    );
    check(
        "[ladder]\nup = 9",
        "ladder.up = \"9\" (from config.toml:2): not in range; write a number from 0.05 to 2",
    );
    check("[ladder]\nenabeld = 1", "config.toml:2: unknown key ladder.enabeld; did you mean ladder.enabled?");
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
    let memory = |text: &str, expected: KvMemory| {
        assert_eq!(values::kv_memory(text), Ok(Some(expected)), "{text}");
    };
    memory("1GiB", KvMemory::Bytes(1 << 30));
    memory("1.5 gib", KvMemory::Bytes(3 << 29));
    memory("512MB", KvMemory::Bytes(512_000_000));
    memory("2g", KvMemory::Bytes(2 << 30));
    memory("1048576", KvMemory::Bytes(1 << 20));
    memory("25%", KvMemory::Share(0.25));
    memory("0.5 %", KvMemory::Share(0.005));
    memory("60000tok", KvMemory::Tokens(60_000));
    memory("61,035 tokens", KvMemory::Tokens(61_035));
    for wrong in [
        "",
        "-1",
        "0",
        "GiB",
        "1e99",
        "1 parsec",
        "nan",
        "0%",
        "100%",
        "-5%",
        "%",
        "tok",
        "0tok",
        "1.5tok",
        "99999999tok",
    ] {
        assert!(values::kv_memory(wrong).is_err(), "{wrong}");
    }
    assert_eq!(values::kv_memory("auto"), Ok(None));
    assert_eq!(values::spill("off"), Ok(None));
    assert_eq!(values::spill("8GiB"), Ok(Some(8 << 30)));
    assert!(values::spill("auto").is_err());
    let time = |text: &str| values::duration(text, "1ms", "1h").ok();
    assert_eq!(time("200ms"), Some(Duration::from_millis(200)));
    assert_eq!(time("1.5 s"), Some(Duration::from_millis(1500)));
    assert_eq!(time("5min"), Some(Duration::from_secs(300)));
    assert_eq!(time("1h"), Some(Duration::from_secs(3600)));
    for wrong in ["", "200", "ms", "0s", "61min", "-1s", "1e99h", "1 day"] {
        assert_eq!(time(wrong), None, "{wrong}");
    }
    assert_eq!(
        ["on", "true", "off", "false"].map(|text| values::switch(text).unwrap()),
        [true, true, false, false]
    );
    assert!(values::folder("cache").is_err() && values::folder("~/cache").is_err());
    assert_eq!(human_bytes(3 << 29), "1.5 GiB");
    assert_eq!(
        [0, 999, 1000, 61_035, 1_234_567].map(thousands),
        ["0", "999", "1,000", "61,035", "1,234,567"]
    );
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
