use std::io::Write;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::support::{Response, Server, World, parts};

const TIERS: &str = "
[[tiers]]
name = 'free'
requests_per_minute = 2
max_output = 8
input_price = 1.0
output_price = 2.5

[[tiers]]
name = 'pro'
";

impl World {
    fn with_tiers() -> (Self, String) {
        let world = Self::new();
        let config = world.home.path().join("motet.toml");
        std::fs::write(&config, TIERS).unwrap();
        (world, config.to_str().unwrap().to_owned())
    }

    /// Standard output of a command that succeeds.
    fn said(&self, args: &[&str]) -> String {
        let (code, out, err) = self.run(args);
        assert_eq!(code, 0, "{args:?}: {err}");
        out
    }

    /// Standard output of a command that reads this and succeeds.
    fn told(&self, args: &[&str], input: &str) -> String {
        let mut child = self.motet(args).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let (code, out, err) = parts(child.wait_with_output().unwrap());
        assert_eq!(code, 0, "{args:?}: {err}");
        out
    }

    /// Standard error of a command that fails.
    fn refused(&self, args: &[&str]) -> String {
        let (code, out, err) = self.run(args);
        assert_eq!((code, out.as_str()), (2, ""), "{args:?}: {err}");
        err
    }
}

#[test]
fn keys_are_made_used_and_revoked() {
    let (world, config) = World::with_tiers();
    let with = |args: &[&str]| -> String { world.said(&[&["--config", &config], args].concat()) };
    let owners = with(&["keys", "create"]).trim().to_owned();
    assert!(owners.starts_with("mk-") && owners.len() > 30);
    with(&["users", "create", "ann", "--tier", "pro"]);
    let anns = with(&["keys", "create", "--user", "ann", "--name", "laptop"]).trim().to_owned();
    let listed = with(&["keys", "list"]);
    assert!(listed.contains("laptop") && !listed.contains(&anns), "{listed}");

    let server = Server::start(&world, &world.model.path(), &["--config", &config, "--auth", "on"]);
    server.line("Ready: ");
    let body = json!({"model": "tiny", "prompt": "hello", "max_tokens": 4, "ignore_eos": true});
    let post = |key: &str| server.post_as(key, "/v1/completions", &body).read();
    assert_eq!(server.post("/v1/completions", &body).read().status, 401);
    assert_eq!(post("mk-nothing").status, 401);
    // Two requests a minute of the one tier, and no limit on the other.
    assert_eq!([post(&owners).status, post(&owners).status, post(&owners).status], [200, 200, 429]);
    assert!((0..4).all(|_| post(&anns).status == 200));
    let long = json!({"model": "tiny", "prompt": "hello", "max_tokens": 9});
    let refused = server.post_as(&owners, "/v1/completions", &long).read();
    assert!(refused.status == 400 && refused.body.contains("at most 8 tokens"), "{}", refused.body);
    // A page and its health need no key.
    assert_eq!(server.get("/healthz").status, 200);

    server.signal("-TERM");
    server.line("Motet stopped");
    let usage = with(&["usage", "--export", "csv"]);
    assert_eq!(usage.lines().count(), 1 + 6, "{usage}");
    let owner = with(&["usage", "--user", "owner", "--json"]);
    let owner: serde_json::Value = serde_json::from_str(&owner).unwrap();
    assert_eq!((&owner[0]["requests"], &owner[0]["output_tokens"]), (&json!(2), &json!(8)));
    let prompt = owner[0]["prompt_tokens"].as_i64().unwrap();
    assert_eq!(owner[0]["cost_micros"].as_i64().unwrap(), prompt + 20);

    let id = listed.lines().find(|line| line.contains("laptop")).unwrap().split(' ').next().unwrap();
    with(&["keys", "revoke", id]);
    assert!(with(&["keys", "list"]).contains("revoked"));
    let server = Server::start(&world, &world.model.path(), &["--config", &config, "--auth", "on"]);
    server.line("Ready: ");
    assert_eq!(server.post_as(&anns, "/v1/completions", &body).read().status, 401);
    assert_eq!(server.post_as(&owners, "/v1/completions", &body).read().status, 200);
}

#[test]
fn mistakes_say_what_to_do() {
    let (world, config) = World::with_tiers();
    let check = |args: &[&str], part: &str| {
        let said = world.refused(&[&["--config", &config], args].concat());
        assert!(said.contains(part) && said.lines().count() <= 2, "{args:?}: {said}");
    };
    check(&["keys", "list"], "motet keys create");
    check(&["usage"], "there are no accounts yet");
    check(&["keys", "create", "--scopes", "everything"], "chat, embeddings, batches, usage, admin");
    check(&["keys", "create", "--user", "ann"], "motet users create ann");
    check(&["users", "create", "ann", "--tier", "gold"], "free, pro");
    // What fails leaves nothing behind that the first user would not be the owner of.
    check(&["users", "create", "ann smith"], "spaces");
    assert!(world.said(&["--config", &config, "users", "create", "ann"]).contains("owner"));
    check(&["users", "create", "ann"], "choose another");
    world.said(&["--config", &config, "users", "create", "bob"]);
    check(&["keys", "create", "--user", "bob", "--scopes", "admin"], "--role admin");
    check(&["serve", "--host", "0.0.0.0", "--no-auth"], "0.0.0.0 can be reached from other machines");
    check(&["serve", "--store", "mysql://x"], "sqlite:FILE");
    check(&["serve", "--quota-redis", "localhost"], "redis://HOST:PORT");
    check(&["serve", "--public-url", "chat.example"], "https://HOST");
    check(&["serve", "--public-url", "https://chat.example/motet"], "https://HOST");
    check(&["users", "set-password", "carl"], "motet users create carl");
    check(&["users", "set-password", "bob"], "standard input has no password");
}

#[test]
fn addresses_hide_their_passwords() {
    let world = World::new();
    let shown = world.said(&["config", "check", "--store", "postgres://motet:hunter2@db/motet"]);
    assert!(shown.contains("postgres://motet:…@db/motet") && !shown.contains("hunter2"), "{shown}");
    let shown = world.said(&["config", "check", "--store", "postgres:///motet?password=hunter2"]);
    assert!(!shown.contains("hunter2"), "{shown}");
    let (_, _, told) = world.run(&["config", "check", "--quota-redis", "rediss://:hunter2@db"]);
    assert!(told.contains("accounts.redis") && !told.contains("hunter2"), "{told}");
}

/// The header lines of a page that is signed in.
fn page(signed_in: &Response) -> String {
    let cookie = signed_in.head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    let body: Value = serde_json::from_str(&signed_in.body).unwrap();
    let (cookie, csrf) = (cookie.split(';').next().unwrap(), body["csrf_token"].as_str().unwrap());
    format!("Cookie: {cookie}\r\nX-CSRF-Token: {csrf}\r\n")
}

#[test]
fn a_page_signs_in_and_chats() {
    let (world, config) = World::with_tiers();
    let server = Server::start(&world, &world.model.path(), &["--config", &config, "--auth", "on"]);
    assert!(server.line("no accounts yet").contains(&format!("http://{}/", server.address)));
    let token = server.line("One-time token").rsplit(' ').next().unwrap().to_owned();
    server.line("Ready: ");
    // From a proxy the token is needed, and ends with its use.
    let account = |token: &str| json!({"login": "ann", "password": "correct horse", "token": token});
    let proxy = "X-Forwarded-For: 127.0.0.1\r\n";
    assert_eq!(server.post_with(proxy, "/api/setup", &account("x")).read().status, 403);
    let made = server.post_with(proxy, "/api/setup", &account(&token)).read();
    assert_eq!(made.status, 200, "{}", made.body);
    assert_eq!(server.post("/api/setup", &account(&token)).read().status, 403);

    let chat = json!({"model": "tiny", "max_tokens": 4, "messages": [{"role": "user", "content": "hello"}]});
    let ask = |headers: &str| server.post_with(headers, "/v1/chat/completions", &chat).read();
    let lines = page(&made);
    assert_eq!(ask(&lines).status, 200);
    let (cookie, _) = lines.split_once("\r\n").unwrap();
    let forged = ask(&format!("{cookie}\r\n"));
    assert!(forged.status == 403 && forged.body.contains("invalid_csrf_token"), "{}", forged.body);
    assert_eq!(ask(&format!("{lines}Origin: http://evil.example\r\n")).status, 403);
    assert_eq!(ask("").status, 401);

    // The command works beside the server, and ends the session.
    let with = |args: &[&str], input: &str| world.told(&[&["--config", &config], args].concat(), input);
    assert!(with(&["users", "set-password", "ann"], "battery staple\n").contains("ann"));
    assert_eq!(ask(&lines).status, 401);
    let sign_in = |login: &str, password: &str| {
        server.post("/api/session", &json!({"login": login, "password": password})).read()
    };
    assert_eq!(sign_in("ann", "correct horse").status, 401);
    let lines = page(&sign_in("ann", "battery staple"));
    assert_eq!(ask(&lines).status, 200);
    with(&["users", "create", "ben", "--password-stdin"], "correct horse\n");
    assert_eq!(sign_in("ben", "correct horse").status, 200);

    server.signal("-TERM");
    server.line("Motet stopped");
    let usage = with(&["usage", "--user", "ann", "--json"], "");
    let usage: Value = serde_json::from_str(&usage).unwrap();
    assert_eq!(usage[0]["requests"], 2);
}
