//! The steps from an empty database to today's. They are compiled in and go forward only.
//!
//! A step that was released never changes: databases remember the checksum of each they took, and one that differs
//! is refused. A change to the tables is a new file.

use std::ops::Deref;

use sqlx::{
    Acquire,
    migrate::{Migrate, MigrateError, Migration, MigrationType, Migrator},
};

use crate::error::{Result, StoreError};

/// Number, what it brings, statements.
const STEPS: &[(i64, &str, &str)] = &[
    (1, "identity", include_str!("../migrations/0001_identity.sql")),
    (2, "usage", include_str!("../migrations/0002_usage.sql")),
    (3, "identities", include_str!("../migrations/0003_identities.sql")),
    (4, "files and batches", include_str!("../migrations/0004_files_batches.sql")),
];

/// The newest version.
const LATEST: i64 = STEPS[STEPS.len() - 1].0;

/// Takes a database to the newest version; nothing happens when it is there.
pub(crate) async fn run<'a, A>(connection: A) -> Result<()>
where
    A: Acquire<'a>,
    <A::Connection as Deref>::Target: Migrate,
{
    migrator().run(connection).await.map_err(explain)
}

fn migrator() -> Migrator {
    let steps = STEPS.iter().map(|&(version, what, sql)| {
        Migration::new(
            version,
            what.into(),
            MigrationType::Simple,
            sqlx::SqlSafeStr::into_sql_str(sql),
            false,
        )
    });
    Migrator::with_migrations(steps.collect())
}

fn explain(error: MigrateError) -> StoreError {
    match error {
        MigrateError::VersionMissing(found) if found > LATEST => StoreError::Newer { found, known: LATEST },
        MigrateError::VersionMissing(version) | MigrateError::VersionMismatch(version) => {
            StoreError::Changed { version }
        }
        MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => error.into(),
        other => StoreError::Database(sqlx::Error::Migrate(Box::new(other))),
    }
}
