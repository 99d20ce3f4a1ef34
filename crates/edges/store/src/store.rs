use std::sync::Arc;

use crate::{
    KeyCacheLimits, PasswordCost, SessionPolicy, db::Db, error::Result, key_cache::KeyCache, open,
    password::Passwords,
};

/// What can be set about a store; the defaults suit a server.
#[derive(Debug, Clone, Copy, Default)]
pub struct StoreOptions {
    /// How keys are remembered between requests.
    pub key_cache: KeyCacheLimits,
    /// How long sessions live and how often their tokens change.
    pub sessions: SessionPolicy,
    /// What hashing a password costs.
    pub passwords: PasswordCost,
}

/// The database. Clones share it.
#[derive(Debug, Clone)]
pub struct Store {
    pub(crate) db: Db,
    pub(crate) inner: Arc<Inner>,
}

/// What clones share beside the connections.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) keys: KeyCache,
    pub(crate) sessions: SessionPolicy,
    pub(crate) passwords: Passwords,
}

impl Store {
    /// Opens `sqlite:PATH` (made when it is not there), `sqlite::memory:` or `postgres://…` and brings it to the newest
    /// version.
    ///
    /// # Errors
    /// The address is not valid, the database does not answer, or a newer or a changed program made it.
    pub async fn open(url: &str) -> Result<Self> {
        Self::open_with(url, StoreOptions::default()).await
    }

    /// Like [`Store::open`], with options.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub async fn open_with(url: &str, options: StoreOptions) -> Result<Self> {
        let inner = Inner {
            keys: KeyCache::new(options.key_cache),
            sessions: options.sessions,
            passwords: Passwords::new(options.passwords)?,
        };
        Ok(Self { db: open::open(url).await?, inner: Arc::new(inner) })
    }

    /// Whether the database answers, for health checks.
    ///
    /// # Errors
    /// What it said, or that it does not answer.
    pub async fn ping(&self) -> Result<()> {
        self.db.first("SELECT 1 AS one", &[]).await.map(drop)
    }

    /// Whether all that was committed is on the disk, after an effort to get it there. `false`: a reader holds it up.
    pub(crate) async fn is_on_disk(&self) -> Result<bool> {
        let Db::Sqlite(_) = &self.db else {
            // PostgreSQL answers a commit when it is.
            return Ok(true);
        };
        let row = self.db.first("PRAGMA wal_checkpoint(FULL)", &[]).await?;
        row.map_or(Ok(true), |row| Ok(row.get::<i64>("busy")? == 0))
    }

    /// Waits for running statements and closes the connections; later calls fail.
    pub async fn close(&self) {
        self.db.close().await;
    }
}
