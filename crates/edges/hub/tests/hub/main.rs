//! The hub client against a local server that speaks the hub's API.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub)]

mod server;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Mutex,
    time::Duration,
};

use motet_hub::{Hub, HubConfig, HubError, ModelRef, Progress, RetryPolicy, installed};
use server::{COMMIT, Fault, REPO, Server, sha256};
use tempfile::TempDir;

/// Hears everything.
#[derive(Default)]
struct Notes(Mutex<Vec<String>>);

impl Progress for Notes {
    fn start(&self, file: &str, done: u64, total: u64) {
        self.0.lock().unwrap().push(format!("start {file} {done}/{total}"));
    }
    fn advance(&self, _done: u64) {}
    fn note(&self, message: &str) {
        self.0.lock().unwrap().push(message.to_owned());
    }
    fn finish(&self) {
        self.0.lock().unwrap().push("finish".to_owned());
    }
}

/// A server with a client configuration whose cache is its own temporary folder.
struct World {
    server: Server,
    home: TempDir,
    config: HubConfig,
    notes: Notes,
}

impl World {
    async fn new(files: &[(&str, &[u8])]) -> Self {
        let server = Server::start(files).await;
        let home = tempfile::tempdir().unwrap();
        let root = home.path().to_str().unwrap().to_owned();
        let endpoint = server.endpoint.clone();
        let mut config = HubConfig::from_vars(&|name| match name {
            "HF_ENDPOINT" => Some(endpoint.clone().into()),
            "HF_HOME" | "XDG_CACHE_HOME" => Some(root.clone().into()),
            _ => None,
        });
        config.retry = RetryPolicy { first_wait: Duration::from_millis(1), ..RetryPolicy::default() };
        Self { server, home, config, notes: Notes::default() }
    }

    async fn resolve(&self, model: &str) -> Result<PathBuf, HubError> {
        let model: ModelRef = model.parse()?;
        Hub::new(self.config.clone()).resolve(&model, &self.notes).await
    }

    async fn error(&self, model: &str) -> String {
        let error = self.resolve(model).await.expect_err(model).to_string();
        assert!(!error.contains('\n') && !error.contains("secret"), "{error}");
        error
    }

    fn repo(&self) -> PathBuf {
        self.home.path().join("hub/models--acme--tiny-GGUF")
    }

    fn partial(&self, bytes: &[u8]) -> PathBuf {
        self.repo().join("blobs").join(format!("{}.incomplete", sha256(bytes)))
    }

    fn leave_partial(&self, bytes: &[u8], content: &[u8]) {
        let path = self.partial(bytes);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn script<T>(&self, change: impl FnOnce(&mut server::Script) -> T) -> T {
        change(&mut self.server.script.lock().unwrap())
    }

    fn notes(&self) -> String {
        self.notes.0.lock().unwrap().join("\n")
    }
}

fn model(len: usize) -> Vec<u8> {
    let mut bytes = b"GGUF".to_vec();
    bytes.extend((0..len.saturating_sub(4)).map(|i| (i * 31 % 251) as u8));
    bytes
}

fn named() -> String {
    format!("hf:{REPO}:a.gguf")
}

/// The layout that other hub clients share, byte for byte.
fn check_layout(world: &World, path: &Path, file: &str, bytes: &[u8]) {
    let snapshot = world.repo().join("snapshots").join(COMMIT);
    assert_eq!(path, snapshot.join(file));
    assert_eq!(fs::read(path).unwrap(), bytes);
    let target = fs::read_link(path).unwrap();
    let up = "../".repeat(file.split('/').count() + 1);
    assert_eq!(target, PathBuf::from(format!("{up}blobs/{}", sha256(bytes))));
    assert_eq!(fs::read_to_string(world.repo().join("refs/main")).unwrap(), COMMIT);
    assert!(!world.partial(bytes).exists());
}

#[tokio::test]
async fn fetches_once_into_the_shared_layout() {
    let bytes = model(300_000);
    let world = World::new(&[("README.md", b"x"), ("sub/a.gguf", &bytes)]).await;
    let path = world.resolve(&format!("hf:{REPO}")).await.unwrap();
    check_layout(&world, &path, "sub/a.gguf", &bytes);
    assert_eq!(world.notes(), "start sub/a.gguf 0/300000\nfinish");

    for model in [format!("hf:{REPO}"), format!("hf:{REPO}:sub/a.gguf"), format!("hf:{REPO}:a.gguf")] {
        assert_eq!(world.resolve(&model).await.unwrap(), path, "{model}");
    }
    assert_eq!(world.server.byte_requests(), 1, "{:?}", world.server.log());

    let all = installed(&world.config);
    assert_eq!(all.len(), 1);
    assert_eq!((all[0].name.as_str(), all[0].size), ("hf:acme/tiny-GGUF:sub/a.gguf", 300_000));
}

#[tokio::test]
async fn chooses_or_lists_the_choices() {
    let world = World::new(&[("a.IQ2_XXS.gguf", b"GGUF1"), ("a.IQ1_S.gguf", b"GGUF22")]).await;
    let error = world.error(&format!("hf:{REPO}")).await;
    assert!(
        error.contains("hf:acme/tiny-GGUF:a.IQ1_S.gguf") && error.contains("a.IQ2_XXS.gguf (5 B)"),
        "{error}"
    );
    let path = world.resolve(&format!("hf:{REPO}:iq1_s")).await.unwrap();
    assert_eq!(fs::read(path).unwrap(), b"GGUF22");
    let error = world.error(&format!("hf:{REPO}:b.gguf")).await;
    assert!(error.contains("no file \"b.gguf\"") && error.contains("a.IQ1_S.gguf"), "{error}");
}

#[tokio::test]
async fn a_model_in_parts_is_fetched_whole() {
    let parts = ["a-Q8_0-00001-of-00002.gguf", "a-Q8_0-00002-of-00002.gguf"];
    let world = World::new(&[(parts[1], b"GGUF-two"), (parts[0], b"GGUF-one")]).await;
    for model in [format!("hf:{REPO}"), format!("hf:{REPO}:{}", parts[1]), format!("hf:{REPO}:q8_0")] {
        let first = world.resolve(&model).await.unwrap();
        check_layout(&world, &first, parts[0], b"GGUF-one");
        check_layout(&world, &first.with_file_name(parts[1]), parts[1], b"GGUF-two");
    }
    assert_eq!(world.server.byte_requests(), 2);

    let world = World::new(&[(parts[0], b"GGUF-one")]).await;
    let error = world.error(&format!("hf:{REPO}")).await;
    assert!(error.contains(parts[1]) && error.contains("404"), "{error}");
    world.script(|s| s.files.insert(parts[1].to_owned(), b"GGUF-two".to_vec()));
    world.resolve(&format!("hf:{REPO}")).await.unwrap();
}

#[tokio::test]
async fn resumes_what_an_earlier_run_left() {
    let bytes = model(300_000);
    let world = World::new(&[("a.gguf", &bytes)]).await;
    world.leave_partial(&bytes, &bytes[..100_000]);
    let path = world.resolve(&named()).await.unwrap();
    check_layout(&world, &path, "a.gguf", &bytes);
    assert_eq!(world.notes(), "start a.gguf 100000/300000\nfinish");
    let last = world.server.log().pop().unwrap();
    assert_eq!(last, "GET /lfs/ bytes=100000-");
}

#[tokio::test]
async fn takes_a_whole_partial_file_without_fetching() {
    let bytes = model(1_000);
    let world = World::new(&[("a.gguf", &bytes)]).await;
    world.leave_partial(&bytes, &bytes);
    let path = world.resolve(&named()).await.unwrap();
    check_layout(&world, &path, "a.gguf", &bytes);
    assert_eq!(world.server.byte_requests(), 0);
}

#[tokio::test]
async fn broken_connections_and_busy_servers_are_tried_again() {
    let bytes = model(300_000);
    let world = World::new(&[("a.gguf", &bytes)]).await;
    world.script(|s| {
        s.metadata_faults = [Fault::Status(503), Fault::Status(429)].into();
        s.byte_faults = [Fault::Cut(70_000), Fault::Status(500), Fault::Cut(50_000)].into();
    });
    let path = world.resolve(&named()).await.unwrap();
    check_layout(&world, &path, "a.gguf", &bytes);
    let ranges: Vec<String> = world.server.log().into_iter().filter(|l| l.starts_with("GET /lfs/")).collect();
    let expected =
        ["GET /lfs/ ", "GET /lfs/ bytes=70000-", "GET /lfs/ bytes=70000-", "GET /lfs/ bytes=120000-"];
    assert_eq!(ranges, expected);
    assert!(world.notes().contains("HTTP 429"), "{}", world.notes());
}

#[tokio::test]
async fn retries_are_bounded() {
    let bytes = model(300_000);
    let world = World::new(&[("a.gguf", &bytes)]).await;
    world.script(|s| s.metadata_faults = [Fault::Status(429); 20].into());
    let error = world.error(&named()).await;
    assert!(error.contains("HTTP 429 5 times"), "{error}");
    assert_eq!(world.server.log().len(), 5);

    world.script(|s| {
        s.metadata_faults.clear();
        s.byte_faults = [Fault::Cut(10); 20].into();
    });
    let error = world.error(&named()).await;
    assert!(error.contains("failed 5 times") && error.contains("50 bytes are kept"), "{error}");
    world.script(|s| s.byte_faults.clear());
    check_layout(&world, &world.resolve(&named()).await.unwrap(), "a.gguf", &bytes);
}

#[tokio::test]
async fn a_server_without_ranges_restarts_cleanly() {
    let bytes = model(300_000);
    let world = World::new(&[("a.gguf", &bytes)]).await;
    world.leave_partial(&bytes, &model(120_000));
    world.script(|s| s.byte_faults = [Fault::IgnoreRange].into());
    check_layout(&world, &world.resolve(&named()).await.unwrap(), "a.gguf", &bytes);
    assert_eq!(world.server.byte_requests(), 1);
}

#[tokio::test]
async fn a_bad_partial_file_is_fetched_again_from_the_start() {
    let bytes = model(300_000);
    let world = World::new(&[("a.gguf", &bytes)]).await;
    world.leave_partial(&bytes, &[7; 5_000]);
    check_layout(&world, &world.resolve(&named()).await.unwrap(), "a.gguf", &bytes);
    assert_eq!(world.server.byte_requests(), 2);

    let world = World::new(&[("a.gguf", &bytes)]).await;
    world.leave_partial(&bytes, &[7; 300_001]);
    check_layout(&world, &world.resolve(&named()).await.unwrap(), "a.gguf", &bytes);
    assert_eq!(world.server.byte_requests(), 1);
}

#[tokio::test]
async fn wrong_bytes_are_never_kept() {
    let bytes = model(1_000);
    let world = World::new(&[("a.gguf", &bytes)]).await;
    world.script(|s| s.forged = Some(vec![1; 1_000]));
    let error = world.error(&named()).await;
    assert!(error.contains("sha256") && error.contains(&sha256(&bytes)), "{error}");
    world.script(|s| s.forged = Some(vec![1; 2_000]));
    assert!(world.error(&named()).await.contains("2000 bytes were announced"));
    let blobs = fs::read_dir(world.repo().join("blobs")).unwrap().count();
    assert_eq!(blobs, 0);
}

#[tokio::test]
async fn the_token_goes_to_the_hub_alone() {
    let bytes = model(1_000);
    let mut world = World::new(&[("a.gguf", &bytes)]).await;
    world.script(|s| s.token = Some("t0ken".to_owned()));
    let error = world.error(&named()).await;
    assert!(error.contains("401") && error.contains("HF_TOKEN") && error.contains("licence"), "{error}");
    assert!(world.error(&format!("hf:{REPO}")).await.contains("no token was sent"));

    world.config.token = Some("wrong".to_owned());
    assert!(world.error(&named()).await.contains("a token was sent"));
    world.config.token = Some("t0ken".to_owned());
    world.resolve(&named()).await.unwrap();
    let log = world.server.log();
    assert!(log.iter().any(|line| line.starts_with("GET /acme") && line.ends_with("+auth")), "{log:?}");
    assert!(log.iter().filter(|l| l.contains("/lfs/")).all(|l| !l.contains("+auth")), "{log:?}");
    world.config.token = Some("two words".to_owned());
    let error = world.error(&named()).await;
    assert!(error.contains("HF_TOKEN has a space") && !error.contains("two words"), "{error}");
    assert!(!world.notes().contains("t0ken"));
}

#[tokio::test]
async fn missing_things_are_named() {
    let world = World::new(&[("a.gguf", b"GGUF")]).await;
    let error = world.error("hf:acme/nosuch").await;
    assert!(error.contains("repository acme/nosuch is not on the hub"), "{error}");
    assert!(world.error("acme/tiny-GGUF").await.contains("hf:acme/tiny-GGUF"));
}

#[tokio::test]
async fn names_that_lead_out_are_refused() {
    for name in ["../../evil.gguf", "/etc/evil.gguf", "a/../../evil.gguf", "c:\\evil.gguf"] {
        let world = World::new(&[(name, b"GGUF")]).await;
        let error = world.error(&format!("hf:{REPO}")).await;
        assert!(error.contains("can't be used as a file name"), "{name}: {error}");
        assert!(!world.repo().exists());
    }
}

#[tokio::test]
async fn the_cache_serves_when_the_hub_does_not() {
    let bytes = model(1_000);
    let mut world = World::new(&[("a.gguf", &bytes)]).await;
    let online = world.config.clone();
    world.config.is_offline = true;
    assert!(world.error(&named()).await.contains("HF_HUB_OFFLINE"));
    assert!(world.server.log().is_empty());

    world.config = online;
    let path = world.resolve(&named()).await.unwrap();
    world.config.is_offline = true;
    let asked = world.server.log().len();
    assert_eq!(world.resolve(&named()).await.unwrap(), path);
    assert_eq!(world.resolve(&format!("hf:{REPO}")).await.unwrap(), path);
    assert_eq!(world.server.log().len(), asked);

    world.config.is_offline = false;
    world.script(|s| s.metadata_faults = [Fault::Status(503)].into());
    assert_eq!(world.resolve(&named()).await.unwrap(), path);
    // A closed port: nobody listens on port 1.
    world.config.endpoint = "http://127.0.0.1:1".to_owned();
    assert_eq!(world.resolve(&named()).await.unwrap(), path);
    assert!(world.notes().contains("using the copy in the cache"));
    assert!(world.error(&format!("hf:{REPO}:b.gguf")).await.contains("HF_ENDPOINT"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn processes_that_want_the_same_file_fetch_it_once() {
    let bytes = model(2_000_000);
    let world = World::new(&[("a.gguf", &bytes)]).await;
    world.script(|s| s.byte_faults = [Fault::Cut(500_000)].into());
    let named = named();
    let (a, b, c) = tokio::join!(world.resolve(&named), world.resolve(&named), world.resolve(&named));
    let path = a.unwrap();
    assert_eq!((&b.unwrap(), &c.unwrap()), (&path, &path));
    check_layout(&world, &path, "a.gguf", &bytes);
    assert_eq!(world.server.byte_requests(), 2, "{:?}", world.server.log());
    assert!(world.notes().contains("another process"), "{}", world.notes());
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_full_disk_is_explained() {
    let bytes = model(300_000);
    let world = World::new(&[("a.gguf", &bytes)]).await;
    let partial = world.partial(&bytes);
    fs::create_dir_all(partial.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink("/dev/full", &partial).unwrap();
    let error = world.error(&named()).await;
    assert!(error.contains("disk is full") && error.contains("HF_HOME"), "{error}");
}
