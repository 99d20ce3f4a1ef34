//! Empty databases for tests.

use motet_store::{PasswordCost, Store, StoreOptions};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, SqliteConnection};
use tempfile::TempDir;

use crate::postgres::Server;

/// An empty database; its files go when it is dropped.
pub(crate) struct Database {
    pub(crate) url: String,
    pub(crate) folder: TempDir,
}

impl Database {
    pub(crate) fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("data/motet.db").display());
        Self { url, folder }
    }

    pub(crate) async fn postgres(server: &Server, name: &str) -> Self {
        let name: String = name.chars().take(60).collect();
        let mut admin = PgConnection::connect(&server.url("postgres")).await.unwrap();
        sqlx::raw_sql(AssertSqlSafe(format!("CREATE DATABASE {name}"))).execute(&mut admin).await.unwrap();
        Self { url: server.url(&name), folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn is_postgres(&self) -> bool {
        self.url.starts_with("postgres")
    }

    pub(crate) async fn open(&self) -> Store {
        self.open_with(StoreOptions::default()).await
    }

    /// Passwords are hashed cheaply: these tests are not about the cost.
    pub(crate) async fn open_with(&self, options: StoreOptions) -> Store {
        let passwords = PasswordCost { memory_kib: 64, passes: 1 };
        Store::open_with(&self.url, StoreOptions { passwords, ..options }).await.unwrap()
    }

    /// Runs statements behind the store's back.
    pub(crate) async fn raw(&self, sql: &str) {
        let sql = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()));
        if self.is_postgres() {
            sql.execute(&mut PgConnection::connect(&self.url).await.unwrap()).await.unwrap();
        } else {
            let path = self.url.trim_start_matches("sqlite:");
            std::fs::create_dir_all(std::path::Path::new(path).parent().unwrap()).unwrap();
            let url = format!("sqlite:{path}?mode=rwc");
            sql.execute(&mut SqliteConnection::connect(&url).await.unwrap()).await.unwrap();
        }
    }
}
