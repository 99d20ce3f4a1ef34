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
    check("files.max_bytes", "x", "--files-max", "not a size; write such as 8GiB");
    check("files.batch_lines", "0", "--batch-lines", "not in range; write a whole number from 1 to 256");
    check(
        "files.keep_output",
        "1min",
        "--keep-output",
        "not a time from 1h to 8760h; write a number and ms, s, min or h",
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

const CORP: &str = "[[oidc]]\nname = \"corp\"\nissuer = \"https://login.example.org\"\nclient_id = \"motet\"\n\
                    redirect_url = \"https://chat.example.org/api/oidc/corp/callback\"\n";

#[test]
fn providers_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let secret = dir.path().join("secret");
    fs::write(&secret, "s3cret\n").unwrap();
    let file = format!(
        "[[tiers]]\nname = \"free\"\n[[tiers]]\nname = \"pro\"\n{CORP}client_secret_file = {secret:?}\n\
         tiers = \"cn=a,ou=b=pro; staff = free\"\nallowed_domains = \"example.org, example.com\"\n\
         required_group = \"chat\"\nfirst_owner_email = \"ann@example.org\"\nscopes = \"openid groups\"\n"
    );
    let (config, ..) = resolved(&file, &[], &[]).unwrap();
    let [provider] = &config.oidc[..] else { panic!() };
    let shown = format!(
        "https://login.example.org, client motet, secret in {}, cn=a,ou=b has pro, staff has free, others have free, \
         only @example.org @example.com, only the group chat, ann@example.org may be the first owner",
        secret.display()
    );
    assert_eq!(provider.shown(), shown);
    let read = provider.provider_config().unwrap();
    assert_eq!((read.title.as_str(), read.scopes), ("corp", vec!["openid".to_owned(), "groups".to_owned()]));
    assert_eq!(read.client_secret.unwrap().expose(), "s3cret");
    fs::write(&secret, " \n").unwrap();
    assert!(provider.provider_config().unwrap_err().to_string().contains("its secret is empty"));
    fs::write(&secret, "x".repeat(5000)).unwrap();
    assert!(provider.provider_config().unwrap_err().to_string().contains("are no secret"));
    let (config, ..) = resolved(&format!("{CORP}title = \"Corp Ltd\""), &[], &[]).unwrap();
    let read = config.oidc[0].provider_config().unwrap();
    assert_eq!((read.title.as_str(), read.default_tier.as_str()), ("Corp Ltd", "default"));
    assert!(read.client_secret.is_none() && read.tiers.is_empty());
}

#[test]
fn mistakes_in_providers_say_where_and_what_is_right() {
    let check = |file: &str, expected: &str| assert_eq!(resolve(file, &[], &[]).unwrap_err(), expected);
    check("[[oidc]]\nname = \"a\"", "config.toml:1: the provider \"a\" has no issuer; add oidc.issuer");
    check("[[oidc]]\nissuer = \"a\"", "config.toml:1: a provider without a name; add oidc.name");
    check(
        &format!("{CORP}{CORP}"),
        "config.toml:6: there are two providers of the name \"corp\"; give each its own oidc.name",
    );
    check(
        &CORP.replace("https://login", "http://login"),
        "oidc.issuer = \"http://login.example.org\" (from config.toml:3): is not https; plain http is for providers on \
         this machine only",
    );
    let value = |line: &str, expected: &str| check(&format!("{CORP}{line}"), expected);
    value("tier = \"x\"", "config.toml:6: unknown key oidc.tier; did you mean oidc.tiers?");
    value(
        "client_secret = \"x\"",
        "config.toml:6: unknown key oidc.client_secret; did you mean oidc.client_secret_env?",
    );
    value(
        "tiers = \"staff=gold\"",
        "oidc.tiers = \"staff=gold\" (from config.toml:6): no such tier \"gold\"; there are default",
    );
    value(
        "tiers = \"staff\"",
        "oidc.tiers = \"staff\" (from config.toml:6): not a list of groups and tiers; write such as admins=pro; staff=free",
    );
    value(
        "default_tier = \"x\"",
        "oidc.default_tier = \"x\" (from config.toml:6): no such tier \"x\"; there are default",
    );
    value(
        "client_secret_file = \"secret\"",
        "oidc.client_secret_file = \"secret\" (from config.toml:6): not a file; write an absolute path, such as \
         /run/secrets/oidc",
    );
    value(
        "client_secret_file = \"/s\"\nclient_secret_env = \"S\"",
        "config.toml:1: the secret can't be in both oidc.client_secret_env and oidc.client_secret_file; leave one of them \
         out",
    );
    value(
        "allowed_domains = \"@example.org\"",
        "oidc.allowed_domains = \"@example.org\" (from config.toml:6): has a domain that is none; write such as \
         example.org, without @ and *",
    );
    let variable = format!("{CORP}client_secret_env = \"MOTET_TEST_NO_SUCH_SECRET\"");
    let variables = [("MOTET_TEST_NO_SUCH_SECRET", "s3cret")];
    assert_eq!(resolve(&variable, &variables, &[]).unwrap(), "", "it is no mistaken setting");
    let (config, ..) = resolved(&variable, &[], &[]).unwrap();
    let error = config.oidc[0].provider_config().unwrap_err().to_string();
    assert!(error.ends_with("the variable MOTET_TEST_NO_SUCH_SECRET for its secret is not set"), "{error}");
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

/// The names and settings of the models that are served, or what is wrong.
fn served(file: &str, flags: &[(&'static str, &str)]) -> Result<String, String> {
    let (config, _, shorten) = resolved(file, &[], flags)?;
    let line =
        |model: &ModelSettings| shorten(format!("{}: {} ({})", model.label(), model.shown(), model.source));
    Ok(config.models.iter().map(line).collect::<Vec<_>>().join("\n"))
}

const THREE: &str = "engine.kv_memory = \"1GiB\"\n\
    [[models]]\nname = \"base\"\nmodel = \"/m/base.Q8_0.gguf\"\nroles = [\"fast\"]\n\
    [[models]]\nmodel = \"/m/small.gguf\"\nroles = \"mini\"\nkv_memory = \"25%\"\n\
    [[models]]\nmodel = \"hf:lab/big\"\nroles = [\"reasoning\"]\naliases = [\"gpt-4o\", \"o3\"]\nsmaller = \"fast\"\ncontext = 9000\n";

#[test]
fn models_are_read_in_order() {
    let expected = "base: /m/base.Q8_0.gguf, 512 MiB for conversations, roles fast (config.toml:2)\n\
                    small: /m/small.gguf, 25% for conversations, roles mini (config.toml:6)\n\
                    lab/big: hf:lab/big, 512 MiB for conversations, roles reasoning, also gpt-4o o3, \
                    at most 9000 tokens a request, under load base (config.toml:10)";
    assert_eq!(served(THREE, &[]).unwrap(), expected);
    assert!(resolve(THREE, &[], &[]).unwrap().starts_with("model = /m/base.Q8_0.gguf (config.toml:2)"));
    // A flag takes one of them by any of its names, with all the memory, or another alone.
    let check = |flag: &str, expected: &str| assert_eq!(served(THREE, &[("model", flag)]).unwrap(), expected);
    let base = "base: /m/base.Q8_0.gguf, 1 GiB for conversations, roles fast (config.toml:2)";
    check("base", base);
    check("fast", base);
    check("small", "small: /m/small.gguf, 25% for conversations, roles mini (config.toml:6)");
    check("x.gguf", "x: x.gguf, 1 GiB for conversations (--model)");
    assert_eq!(
        served("model = \"a.gguf\"\nengine.kv_memory = \"1GiB\"", &[]).unwrap(),
        "a: a.gguf, 1 GiB for conversations (config.toml:1)"
    );
    let tiers = format!("{THREE}[[tiers]]\nname = \"free\"\nmodels = [\"gpt-4o\", \"fast\", \"other\"]\n");
    let (config, ..) = resolved(&tiers, &[], &[]).unwrap();
    assert_eq!(config.tiers[0].models.as_deref().unwrap(), ["lab/big", "base", "other"]);
}

#[test]
fn mistakes_in_models_say_where_and_what_is_right() {
    let check = |file: &str, expected: &str| assert_eq!(served(file, &[]).unwrap_err(), expected);
    let model = |line: &str, expected: &str| {
        check(&format!("[[models]]\nmodel = \"a.gguf\"\n{line}"), expected);
    };
    check(
        "[[models]]\nname = \"a\"",
        "config.toml:1: a model without a file; add models.model, as --model takes it",
    );
    model("modle = 1", "config.toml:3: unknown key models.modle; did you mean models.model?");
    model("name = [1]", "config.toml:3: models.name takes one value, not a list or a table");
    model("roles = [[1]]", "config.toml:3: models.roles takes a list of texts");
    model(
        "roles = [\"big\"]",
        "models.roles = \"big\" (from config.toml:3): not roles; write some of mini, fast, reasoning",
    );
    model(
        "name = \"auto\"",
        "models.name = \"auto\" (from config.toml:3): a word that requests choose by; write another name",
    );
    model(
        "aliases = [\"x\", \"fast\"]",
        "models.aliases = \"x,fast\" (from config.toml:3): a word that requests choose by; write another name",
    );
    model(
        "name = \"a b\"",
        "models.name = \"a b\" (from config.toml:3): not a name; write 1 to 128 of a-z, A-Z, 0-9, -, _, ., / and :",
    );
    model(
        "context = 0",
        "models.context = \"0\" (from config.toml:3): not in range; write a whole number from 1",
    );
    model(
        "description = \"a\\nb\"",
        "models.description = \"a\\nb\" (from config.toml:3): not a description; write one line of at most 500 bytes",
    );
    model(
        "[[models]]\nmodel = \"/other/a.gguf\"",
        "config.toml:3: \"a\" names two models; give each its own models.name and models.aliases",
    );
    model(
        "aliases = [\"a\"]",
        "config.toml:1: \"a\" names two models; give each its own models.name and models.aliases",
    );
    model(
        "roles = [\"fast\"]\n[[models]]\nmodel = \"b.gguf\"\nroles = [\"fast\"]",
        "config.toml:4: two models have the role \"fast\"; leave it in the models.roles of one",
    );
    model(
        "smaller = \"c\"\n[[models]]\nmodel = \"b.gguf\"",
        "config.toml:1: models.smaller = \"c\" names none of the other models; there are a, b",
    );
    let endless = "following models.smaller from here never ends; the smallest model has none";
    model("smaller = \"a\"", &format!("config.toml:1: {endless}"));
    model(
        "smaller = \"b\"\n[[models]]\nmodel = \"b.gguf\"\nsmaller = \"a\"",
        &format!("config.toml:1: {endless}"),
    );
    check(
        "model = \"x.gguf\"\n[[models]]\nmodel = \"a.gguf\"",
        "config.toml:1: model and [[models]] both say what to serve; write this model as another [[models]], or leave one \
         of them out",
    );
    let many: String = (0..65).map(|i| format!("[[models]]\nmodel = \"m{i}.gguf\"\n")).collect();
    check(&many, "config.toml:129: there are 65 models; at most 64 can be, so leave some [[models]] out");
}
