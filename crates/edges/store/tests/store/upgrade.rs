//! Databases of earlier versions.
//!
//! `fixtures/v1.*.sql` are databases of the program that had the first step only, `v2` those of the one that had two, as
//! SQL. They were made by these, with `cargo test -p motet-store --test store make_fixtures -- --ignored`. Before a step is
//! added, the same command keeps what this program makes, and `VERSION` goes on. A fixture that is there never changes.

use std::process::Command;

use motet_store::{NewKey, NewSession, Owner, Role, Scope, Secret, Store, StoreError};

use crate::{
    Database,
    identity::{PASSWORD, member, owner},
    postgres::Server,
};

/// The version this program makes.
const VERSION: &str = "v4";
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/store/fixtures");

const V1_SQLITE: &str = include_str!("fixtures/v1.sqlite.sql");
const V1_POSTGRES: &str = include_str!("fixtures/v1.postgres.sql");
const V2_SQLITE: &str = include_str!("fixtures/v2.sqlite.sql");
const V2_POSTGRES: &str = include_str!("fixtures/v2.postgres.sql");

pub(crate) async fn a_database_of_the_first_version_opens_and_works(database: Database) {
    let fixture = if database.is_postgres() { V1_POSTGRES } else { V1_SQLITE };
    opens_and_works(database, fixture, 0).await;
}

pub(crate) async fn a_database_of_the_second_version_opens_and_works(database: Database) {
    let fixture = if database.is_postgres() { V2_POSTGRES } else { V2_SQLITE };
    opens_and_works(database, fixture, 250).await;
}

/// `spent`: what is on record in the fixture.
async fn opens_and_works(database: Database, fixture: &str, spent: i64) {
    // Lines that begin with a backslash are for PostgreSQL's own client.
    let sql: Vec<&str> = fixture.lines().filter(|line| !line.starts_with('\\')).collect();
    database.raw(&sql.join("\n")).await;
    let store = database.open().await;
    assert!(!store.is_empty().await.unwrap());
    let ada = store.check_password("ada", &Secret::new(PASSWORD)).await.unwrap().unwrap();
    assert_eq!((ada.role, ada.display_name.as_str()), (Role::Owner, "Ada L."));
    let key = store.authenticate_key(secret_of(fixture, "key"), 9_000).await.unwrap().unwrap();
    assert!(key.scopes.has(Scope::Chat) && key.user == ada.id);
    let session = store.authenticate_session(secret_of(fixture, "token"), 9_000).await.unwrap().unwrap();
    assert!(session.is_csrf_valid(secret_of(fixture, "csrf")));
    // What later steps brought works with what was there.
    let mut event = crate::usage::event("e", 0);
    (event.org, event.user) = (ada.org.clone(), ada.id.clone());
    store.insert_usage(&[event]).await.unwrap();
    assert_eq!(store.month_spend(Owner::User(&ada.org, &ada.id), 0).await.unwrap(), spent + 250);
    let sign_in = crate::external::sign_in("1");
    store.link_identity(&ada.id, sign_in.id, 9_000).await.unwrap();
    assert_eq!(store.user_by_identity(sign_in.id).await.unwrap().unwrap().id, ada.id);
}

/// A secret from the fixture's first lines.
fn secret_of<'a>(fixture: &'a str, name: &str) -> &'a str {
    let start = format!("-- {name}: ");
    fixture.lines().find_map(|line| line.strip_prefix(&start)).unwrap()
}

pub(crate) async fn a_newer_or_changed_database_is_refused(database: Database) {
    let store = database.open().await;
    store.close().await;
    let later = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)";
    let checksum = if database.is_postgres() { "'\\x00'" } else { "X'00'" };
    database.raw(&format!("{later} VALUES (99, 'later', true, {checksum}, 0)")).await;
    let refused = Store::open(&database.url).await.unwrap_err();
    assert!(matches!(refused, StoreError::Newer { found: 99, .. }), "{refused}");
    assert!(refused.to_string().contains("start the newer program"));
    database.raw("DELETE FROM _sqlx_migrations WHERE version = 99").await;
    Store::open(&database.url).await.unwrap().close().await;
    database.raw(&format!("UPDATE _sqlx_migrations SET checksum = {checksum} WHERE version = 1")).await;
    let refused = Store::open(&database.url).await.unwrap_err();
    assert!(matches!(refused, StoreError::Changed { version: 1 }), "{refused}");
}

pub(crate) async fn programs_that_start_together_all_open_it(database: Database) {
    let opens = (0..20).map(|_| {
        let url = database.url.clone();
        tokio::spawn(async move { Store::open(&url).await })
    });
    for open in opens.collect::<Vec<_>>() {
        open.await.unwrap().unwrap().ping().await.unwrap();
    }
}

#[tokio::test]
async fn addresses_that_are_none_are_refused_without_showing_passwords() {
    for url in ["", "mysql://x", "sqlite:", "postgres://user:hunter2@:bad:port/x"] {
        let error = Store::open(url).await.unwrap_err();
        assert!(matches!(error, StoreError::Url(_)), "{url}: {error}");
        assert!(!format!("{error} {error:?}").contains("hunter2"));
    }
    let nobody = Store::open("postgres://user:hunter2@127.0.0.1:1/x").await.unwrap_err();
    assert!(nobody.is_temporary() && !format!("{nobody} {nobody:?}").contains("hunter2"), "{nobody:?}");
    let memory = Store::open("sqlite::memory:").await.unwrap();
    assert!(memory.is_empty().await.unwrap());
}

#[cfg(unix)]
#[tokio::test]
async fn the_file_is_its_owners_only() {
    use std::os::unix::fs::PermissionsExt as _;
    let database = Database::sqlite();
    let store = database.open().await;
    owner(&store).await;
    for entry in std::fs::read_dir(database.folder.path().join("data")).unwrap() {
        let mode = entry.unwrap().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}

/// Writes this version's fixtures.
#[tokio::test]
#[ignore = "writes into the source"]
async fn make_fixtures() {
    let sqlite = Database::sqlite();
    let secrets = fill(&sqlite).await;
    let path = sqlite.url.trim_start_matches("sqlite:");
    // Tables come in the order of their names, not of their references: as SQLite's own `.dump` does it.
    let dump = "import sqlite3, sys\nprint('PRAGMA foreign_keys=OFF;')\nfor line in sqlite3.connect(sys.argv[1]).iterdump(): print(line)";
    let output = Command::new("python3").args(["-c", dump, path]).output().unwrap();
    assert!(output.status.success());
    write("sqlite", &secrets, &String::from_utf8(output.stdout).unwrap());
    let server = Server::start().unwrap();
    let postgres = Database::postgres(&server, "fixture").await;
    let secrets = fill(&postgres).await;
    write("postgres", &secrets, &server.dump("fixture"));
}

/// Some of everything, and the secrets that open it.
async fn fill(database: &Database) -> String {
    let store = database.open().await;
    let ada = owner(&store).await;
    member(&store, &ada.org, "bob@example.org").await;
    let scopes = [Scope::Chat].into_iter().collect();
    let key = NewKey { user: &ada.id, name: "laptop", scopes, expires_at: None };
    let key = store.create_key(&key, 3_000).await.unwrap();
    let session = NewSession { user: &ada.id, user_agent: "Browser/1.0", address: "192.0.2.1" };
    let session = store.create_session(&session, 4_000).await.unwrap();
    let mut event = crate::usage::event("before", 0);
    (event.org, event.user) = (ada.org.clone(), ada.id.clone());
    store.insert_usage(&[event]).await.unwrap();
    store.close().await;
    let (key, token, csrf) = (key.secret.expose(), session.token.expose(), session.csrf.expose());
    format!("-- key: {key}\n-- token: {token}\n-- csrf: {csrf}\n")
}

fn write(backend: &str, secrets: &str, dump: &str) {
    let dump: Vec<&str> = dump.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    std::fs::write(format!("{FOLDER}/{VERSION}.{backend}.sql"), format!("{secrets}{}\n", dump.join("\n")))
        .unwrap();
}
