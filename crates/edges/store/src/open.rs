use std::{fs, path::Path, str::FromStr, time::Duration};

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
    let pool = if path == ":memory:" {
        // Each connection to memory is a database of its own, and it ends with the connection.
        let one = SqlitePoolOptions::new().max_connections(1).idle_timeout(None).max_lifetime(None);
        one.acquire_timeout(PATIENCE).connect_with(options.in_memory(true)).await?
    } else {
        private_file(Path::new(path))?;
        // WAL with NORMAL may lose the last commits in a power cut, never the database's consistency; usage is
        // in the journal by then.
        let options = options
            .filename(path)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Normal);
        // A connection to a file does not break as one to a server does: nothing to test before each use.
        let few = SqlitePoolOptions::new().max_connections(SQLITE_CONNECTIONS).test_before_acquire(false);
        few.acquire_timeout(PATIENCE).connect_with(options).await?
    };
    migrate_sqlite(&pool).await?;
    Ok(pool)
}

/// SQLite has no lock around a whole migration. Of two programs that start at once the later one fails on a table that
/// is there now; its next try finds the step taken.
async fn migrate_sqlite(pool: &SqlitePool) -> Result<()> {
    for _ in 0..3 {
        match migrate::run(pool).await {
            Err(StoreError::Database(_) | StoreError::Unavailable(_)) => {}
            done => return done,
        }
    }
    migrate::run(pool).await
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
/// files beside it the same mode.
fn private_file(path: &Path) -> Result<()> {
    let failed = |source| StoreError::File { path: path.to_owned(), source };
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    let mut options = fs::OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map(drop).map_err(failed)
}
