use std::{
    fs, io,
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

use sqlx::{
    PgPool, SqlitePool,
    postgres::{PgConnectOptions, PgPoolOptions},
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};

use crate::{
    db::Db,
    error::{Result, StoreError},
    migrate,
};

/// SQLite has one writer at a time, so more connections than a few readers only wait for each other.
const SQLITE_CONNECTIONS: u32 = 4;

/// PostgreSQL allows 100 by default; eight gateways fit with room for an operator.
const POSTGRES_CONNECTIONS: u32 = 10;

/// How long a call waits for a connection or a lock before it says that the database does not answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long a program that starts waits for others that open the same file: longer than a step on a large database.
const OPENING: Duration = Duration::from_secs(60);

/// How often it looks whether they are done.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Opens the database at an address and takes it to the newest version.
pub(crate) async fn open(url: &str) -> Result<Db> {
    if let Some(path) = url.strip_prefix("sqlite:") {
        return Ok(Db::Sqlite(sqlite(path.strip_prefix("//").unwrap_or(path)).await?));
    }
    if url.starts_with("postgres://") || url.starts_with("postgresql://") {
        return Ok(Db::Postgres(postgres(url).await?));
    }
    Err(StoreError::Url("it starts with neither sqlite: nor postgres://".into()))
}

async fn sqlite(path: &str) -> Result<SqlitePool> {
    if path.is_empty() {
        return Err(StoreError::Url("the path is empty".into()));
    }
    let options = SqliteConnectOptions::new().foreign_keys(true).busy_timeout(PATIENCE);
    if path == ":memory:" {
        // Each connection to memory is a database of its own, and it ends with the connection.
        let one = SqlitePoolOptions::new().max_connections(1).idle_timeout(None).max_lifetime(None);
        let pool = one.acquire_timeout(PATIENCE).connect_with(options.in_memory(true)).await?;
        migrate::run(&pool).await?;
        return Ok(pool);
    }
    let path = Path::new(path);
    let _held_until_the_tables_are_there = lock(path).await?;
    private_file(path)?;
    // WAL with NORMAL may lose the last commits in a power cut, never the database's consistency; usage is in the
    // journal by then.
    let options =
        options.filename(path).journal_mode(SqliteJournalMode::Wal).synchronous(SqliteSynchronous::Normal);
    // A connection to a file does not break as one to a server does: nothing to test before each use.
    let few = SqlitePoolOptions::new().max_connections(SQLITE_CONNECTIONS).test_before_acquire(false);
    let pool = few.acquire_timeout(PATIENCE).connect_with(options).await?;
    migrate::run(&pool).await?;
    Ok(pool)
}

/// Of programs that start together, one at a time makes the file, turns it to WAL and takes the steps: SQLite has no
/// lock around all of that, and two that change the journal's mode at once fail without waiting. The lock is on a file
/// beside the database; the system gives it back when the program ends, however it ends.
async fn lock(database: &Path) -> Result<fs::File> {
    let mut path = database.as_os_str().to_owned();
    path.push("-open");
    let path = PathBuf::from(path);
    let failed = |source| StoreError::File { path: path.clone(), source };
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    let file = private().create(true).open(&path).map_err(failed)?;
    let mut patience = OPENING.as_millis() / LOOK_AGAIN.as_millis();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(fs::TryLockError::WouldBlock) if patience > 0 => tokio::time::sleep(LOOK_AGAIN).await,
            Err(error) => return Err(failed(error.into())),
        }
        patience -= 1;
    }
}

async fn postgres(url: &str) -> Result<PgPool> {
    // sqlx's message is about the part that is wrong, but might quote it: a password may be in it.
    let options = PgConnectOptions::from_str(url).map_err(|_| StoreError::Url("it is not a URL".into()))?;
    let pool = PgPoolOptions::new()
        .max_connections(POSTGRES_CONNECTIONS)
        .acquire_timeout(PATIENCE)
        .connect_with(options.application_name("motet"))
        .await?;
    migrate::run(&pool).await?;
    Ok(pool)
}

/// Makes the file before SQLite would, readable for its owner only: it holds hashes of passwords. SQLite gives the
/// files beside it the same mode. A file that exists is not touched: closing a second handle to it would end the locks
/// that SQLite holds on it in this process.
fn private_file(path: &Path) -> Result<()> {
    match private().create_new(true).open(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(StoreError::File { path: path.to_owned(), source: error })
        }
        _ => Ok(()),
    }
}

fn private() -> fs::OpenOptions {
    let mut options = fs::OpenOptions::new();
    options.append(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}
