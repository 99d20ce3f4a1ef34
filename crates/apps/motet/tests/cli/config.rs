use std::fs;

use crate::support::{World, parts};

const CONFIG: &str = "\
model = \"tiny\"
[server]
port = 9001
[[lanes]]
name = \"paid\"
weight = 8
ttft_promise = \"2s\"
[[lanes]]
name = \"batch\"
kind = \"background\"
";

#[test]
fn check_shows_values_and_origins() {
    let world = World::new();
    let file = world.home.path().join(".config/motet/config.toml");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, CONFIG).unwrap();
    let mut command = world.motet(&["config", "check", "--threads", "3", "--kv-memory", "1GiB"]);
    command.env("MOTET_SAMPLING_TOP_P", "0.5").env("MOTET_SERVER_PROT", "1");
    let (code, out, err) = parts(command.output().unwrap());
    assert_eq!(code, 0, "{err}");
    assert_eq!(
        err,
        "warning: the variable MOTET_SERVER_PROT is no setting and is ignored; did you mean MOTET_SERVER_PORT?\n"
    );
    let home = world.home.path().to_str().unwrap();
    insta::with_settings!({ omit_expression => true, prepend_module_to_snapshot => false }, {
        insta::assert_snapshot!("config_check", out.replace(home, "~").lines().map(squeeze).collect::<String>());
    });
}

/// Column widths depend on the length of the home folder's path.
fn squeeze(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ") + "\n"
}

#[test]
fn check_finds_mistakes() {
    let world = World::new();
    let file = world.home.path().join("c.toml");
    let check = |text: &str, part: &str| {
        fs::write(&file, text).unwrap();
        let (code, out, err) = world.run(&["config", "check", "--config", file.to_str().unwrap()]);
        assert_eq!((code, out.as_str()), (2, ""), "{text}: {err}");
        assert!(err.starts_with("error: ") && err.lines().count() == 1, "{text}: {err}");
        assert!(err.contains(part), "{text}: {err}");
    };
    check("[server]\nprot = 1", "c.toml:2: unknown key server.prot; did you mean server.port?");
    check("[engine]\nkv_memory = \"1 XB\"", "such as 1GiB");
    check("[server", "not TOML");
    check("[[lanes]]\nname = \"a\"\nweight = 0", "lanes.weight = \"0\" (from ");
}

#[test]
fn check_speaks_json() {
    let (code, out, _) = World::new().run(&["config", "check", "--json", "--port", "9"]);
    let all: Vec<serde_json::Value> = serde_json::from_str(&out).unwrap();
    let port = all.iter().find(|setting| setting["key"] == "server.port").unwrap();
    assert_eq!(code, 0);
    assert_eq!((port["value"].as_str(), port["source"].as_str()), (Some("9"), Some("--port")));
    assert_eq!(port["variable"], "MOTET_SERVER_PORT");
    let lane = all.iter().find(|setting| setting["key"] == "lanes.background").unwrap();
    assert_eq!(
        (lane["value"].as_str(), lane["flag"].as_str()),
        (Some("background, weight 1, 256 may wait"), None)
    );
}
