//! One way to speak to two databases.
//!
//! Every statement of this crate is written once, in the SQL that SQLite and PostgreSQL share: `$1` placeholders,
//! `ON CONFLICT`, `BIGINT` and `TEXT` columns, casts around sums. So the two pools differ in their types alone, and
//! this module is where the types end: [`Db`] and [`Tx`] take a statement with [`Arg`]s and give [`Row`]s. sqlx has an
//! `Any` driver for this, but it types a null by guessing and can't set up each backend in its own way.

use sqlx::{
    Decode, PgPool, Postgres, Row as _, Sqlite, SqlitePool, Transaction, Type, postgres::PgRow,
    sqlite::SqliteRow,
};

use crate::error::{Result, StoreError};

/// A value for a placeholder. An absent one has a type, which PostgreSQL wants to know.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Arg<'a> {
    Int(i64),
    Text(&'a str),
    MaybeInt(Option<i64>),
    MaybeText(Option<&'a str>),
}

impl From<i64> for Arg<'_> {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<u32> for Arg<'_> {
    fn from(value: u32) -> Self {
        Self::Int(i64::from(value))
    }
}

impl From<bool> for Arg<'_> {
    fn from(value: bool) -> Self {
        Self::Int(i64::from(value))
    }
}

impl<'a> From<&'a str> for Arg<'a> {
    fn from(value: &'a str) -> Self {
        Self::Text(value)
    }
}

impl<'a> From<&'a String> for Arg<'a> {
    fn from(value: &'a String) -> Self {
        Self::Text(value)
    }
}

impl From<Option<i64>> for Arg<'_> {
    fn from(value: Option<i64>) -> Self {
        Self::MaybeInt(value)
    }
}

impl<'a> From<Option<&'a str>> for Arg<'a> {
    fn from(value: Option<&'a str>) -> Self {
        Self::MaybeText(value)
    }
}

/// The arguments of a statement, each converted.
macro_rules! args {
    ($($value:expr),* $(,)?) => { &[$($crate::db::Arg::from($value)),*] };
}
pub(crate) use args;

/// A query of either database with its arguments bound.
macro_rules! bound {
    ($sql:expr, $args:expr) => {{
        let mut query = sqlx::query($sql);
        for arg in $args {
            query = match *arg {
                Arg::Int(value) => query.bind(value),
                Arg::Text(value) => query.bind(value),
                Arg::MaybeInt(value) => query.bind(value),
                Arg::MaybeText(value) => query.bind(value),
            };
        }
        query
    }};
}

/// A pool of connections.
#[derive(Debug, Clone)]
pub(crate) enum Db {
    Sqlite(SqlitePool),
    Postgres(PgPool),
}

/// A transaction; dropped without [`Tx::commit`] it is rolled back.
#[derive(Debug)]
pub(crate) enum Tx {
    Sqlite(Transaction<'static, Sqlite>),
    Postgres(Transaction<'static, Postgres>),
}

/// A row of an answer.
pub(crate) enum Row {
    Sqlite(SqliteRow),
    Postgres(PgRow),
}

impl Row {
    /// The value of a column.
    pub(crate) fn get<T>(&self, column: &str) -> Result<T>
    where
        T: for<'r> Decode<'r, Sqlite> + Type<Sqlite> + for<'r> Decode<'r, Postgres> + Type<Postgres>,
    {
        match self {
            Self::Sqlite(row) => row.try_get(column).map_err(StoreError::Database),
            Self::Postgres(row) => row.try_get(column).map_err(StoreError::Database),
        }
    }
}

impl Db {
    /// The rows a statement gives.
    pub(crate) async fn all(&self, sql: &'static str, args: &[Arg<'_>]) -> Result<Vec<Row>> {
        Ok(match self {
            Self::Sqlite(pool) => rows(bound!(sql, args).fetch_all(pool).await?, Row::Sqlite),
            Self::Postgres(pool) => rows(bound!(sql, args).fetch_all(pool).await?, Row::Postgres),
        })
    }

    /// The first row, if there is one.
    pub(crate) async fn first(&self, sql: &'static str, args: &[Arg<'_>]) -> Result<Option<Row>> {
        Ok(match self {
            Self::Sqlite(pool) => bound!(sql, args).fetch_optional(pool).await?.map(Row::Sqlite),
            Self::Postgres(pool) => bound!(sql, args).fetch_optional(pool).await?.map(Row::Postgres),
        })
    }

    /// How many rows a statement changed.
    pub(crate) async fn execute(&self, sql: &'static str, args: &[Arg<'_>]) -> Result<u64> {
        Ok(match self {
            Self::Sqlite(pool) => bound!(sql, args).execute(pool).await?.rows_affected(),
            Self::Postgres(pool) => bound!(sql, args).execute(pool).await?.rows_affected(),
        })
    }

    /// A transaction that may write. SQLite takes its write lock at once: one that reads first and then finds another
    /// writer before it could only fail, however long it is ready to wait.
    pub(crate) async fn begin(&self) -> Result<Tx> {
        Ok(match self {
            Self::Sqlite(pool) => Tx::Sqlite(pool.begin_with("BEGIN IMMEDIATE").await?),
            Self::Postgres(pool) => Tx::Postgres(pool.begin().await?),
        })
    }

    /// Waits for what is running and closes the connections.
    pub(crate) async fn close(&self) {
        match self {
            Self::Sqlite(pool) => pool.close().await,
            Self::Postgres(pool) => pool.close().await,
        }
    }
}

impl Tx {
    /// The first row, if there is one.
    pub(crate) async fn first(&mut self, sql: &'static str, args: &[Arg<'_>]) -> Result<Option<Row>> {
        Ok(match self {
            Self::Sqlite(tx) => bound!(sql, args).fetch_optional(&mut **tx).await?.map(Row::Sqlite),
            Self::Postgres(tx) => bound!(sql, args).fetch_optional(&mut **tx).await?.map(Row::Postgres),
        })
    }

    /// How many rows a statement changed.
    pub(crate) async fn execute(&mut self, sql: &'static str, args: &[Arg<'_>]) -> Result<u64> {
        Ok(match self {
            Self::Sqlite(tx) => bound!(sql, args).execute(&mut **tx).await?.rows_affected(),
            Self::Postgres(tx) => bound!(sql, args).execute(&mut **tx).await?.rows_affected(),
        })
    }

    /// Makes what was done last.
    pub(crate) async fn commit(self) -> Result<()> {
        match self {
            Self::Sqlite(tx) => tx.commit().await?,
            Self::Postgres(tx) => tx.commit().await?,
        }
        Ok(())
    }
}

fn rows<R>(rows: Vec<R>, wrap: fn(R) -> Row) -> Vec<Row> {
    rows.into_iter().map(wrap).collect()
}
