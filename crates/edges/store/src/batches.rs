//! Which batches there are, and how far each came.
//!
//! ```text
//! validating ─► in_progress ─► finalizing ─► completed
//!     │ │            │ │            └──────► expired
//!     │ └─► failed ◄─┘ └─► expired
//!     └────────┴─► cancelling ─► cancelled
//! ```
//!
//! A step is one statement that names the states it may be taken from, so that of two steps at the same time (a batch
//! that ends and a client that cancels it) one is taken and the other one is told.

use crate::{
    BatchId, FileId, KeyId, Store,
    db::{Row, args},
    error::{Result, StoreError},
    files::{self, DataOwner, FileInfo, Order, Page},
    ids::RANDOM_CHARS,
};

/// How many batches of one user are remembered; the oldest that ended make room. A batch is a row of about 1 KB.
const MAX_KEPT_PER_USER: u32 = 10_000;

/// A state of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BatchStatus {
    /// Its input is to be read, or is being read.
    Validating,
    /// The input can't be run.
    Failed,
    /// Its lines are sent.
    InProgress,
    /// All lines are answered; the output is made a file.
    Finalizing,
    /// The output is there.
    Completed,
    /// The time was over before all lines were answered.
    Expired,
    /// It is to end.
    Cancelling,
    /// It was ended by its owner.
    Cancelled,
}

/// How many lines a batch has and what became of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BatchCounts {
    /// Lines of the input.
    pub total: u64,
    /// Answered with success.
    pub completed: u64,
    /// Answered with an error.
    pub failed: u64,
}

/// When a batch came to its states, in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct BatchTimes {
    pub created: i64,
    pub expires: i64,
    pub in_progress: Option<i64>,
    pub finalizing: Option<i64>,
    pub completed: Option<i64>,
    pub failed: Option<i64>,
    pub expired: Option<i64>,
    pub cancelling: Option<i64>,
    pub cancelled: Option<i64>,
}

/// What is known of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// Its id.
    pub id: BatchId,
    /// Whose it is.
    pub owner: DataOwner,
    /// The key it was asked for with.
    pub key: Option<KeyId>,
    /// The path its lines are sent to.
    pub endpoint: String,
    /// Its lines.
    pub input: FileId,
    /// The answers, once it has ended and there is one.
    pub output: Option<FileId>,
    /// The lines that failed, once it has ended and there is one.
    pub errors: Option<FileId>,
    /// Its state.
    pub status: BatchStatus,
    /// JSON of the client's.
    pub metadata: Option<String>,
    /// JSON: what is wrong with the input.
    pub problems: Option<String>,
    /// Its lines.
    pub counts: BatchCounts,
    /// Its times.
    pub times: BatchTimes,
}

/// A batch to add.
#[derive(Debug, Clone)]
pub struct NewBatch<'a> {
    /// Whose it is.
    pub owner: &'a DataOwner,
    /// The key it is asked for with.
    pub key: Option<&'a KeyId>,
    /// The data folder that has its files.
    pub home: &'a str,
    /// The path its lines are sent to.
    pub endpoint: &'a str,
    /// Its lines.
    pub input: &'a FileId,
    /// JSON of the client's.
    pub metadata: Option<&'a str>,
    /// When it expires.
    pub expires_at: i64,
}

/// Most batches that have not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchBounds {
    /// Of one user.
    pub of_user: u32,
    /// Of all.
    pub of_all: u32,
}

/// Whose batches to look for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// Accounts'.
    Accounts,
    /// Nobody's: those of a server without accounts.
    Nobody,
}

/// How a batch ended, and the files it left.
#[derive(Debug, Clone)]
pub struct BatchEnd<'a> {
    /// A final state.
    pub status: BatchStatus,
    /// Its lines.
    pub counts: BatchCounts,
    /// The answers.
    pub output: Option<&'a FileInfo>,
    /// The lines that failed.
    pub errors: Option<&'a FileInfo>,
}

impl BatchStatus {
    /// Every state.
    pub const ALL: [Self; 8] = [
        Self::Validating,
        Self::Failed,
        Self::InProgress,
        Self::Finalizing,
        Self::Completed,
        Self::Expired,
        Self::Cancelling,
        Self::Cancelled,
    ];

    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Validating => "validating",
            Self::Failed => "failed",
            Self::InProgress => "in_progress",
            Self::Finalizing => "finalizing",
            Self::Completed => "completed",
            Self::Expired => "expired",
            Self::Cancelling => "cancelling",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether nothing comes after it.
    #[must_use]
    pub fn has_ended(self) -> bool {
        matches!(self, Self::Failed | Self::Completed | Self::Expired | Self::Cancelled)
    }
}

impl BatchId {
    /// The id that the batch's answers have.
    #[must_use]
    pub fn output_file(&self) -> FileId {
        FileId::new(format!("file-{}o", self.as_str().trim_start_matches("batch_")))
    }

    /// The id that the batch's failed lines have.
    #[must_use]
    pub fn error_file(&self) -> FileId {
        FileId::new(format!("file-{}e", self.as_str().trim_start_matches("batch_")))
    }

    /// The batch that a file id was made from by one of the above, if it was.
    #[must_use]
    pub fn of_file(file: &str) -> Option<Self> {
        let random = file.strip_prefix("file-")?.strip_suffix(['o', 'e'])?;
        (random.len() == RANDOM_CHARS).then(|| Self::new(format!("batch_{random}")))
    }
}

macro_rules! batch_columns {
    ($rest:literal) => {
        concat!(
            "SELECT id, org_id, user_id, key_id, endpoint, input_file_id, output_file_id, error_file_id, status, \
             metadata, problems, total, completed, failed, created_at, expires_at, in_progress_at, finalizing_at, \
             completed_at, failed_at, expired_at, cancelling_at, cancelled_at FROM batches ",
            $rest
        )
    };
}

impl Store {
    /// Adds a batch.
    ///
    /// # Errors
    /// [`StoreError::TooMany`], or the database's.
    pub async fn add_batch(&self, new: &NewBatch<'_>, bounds: BatchBounds, now: i64) -> Result<Batch> {
        let id = BatchId::random()?;
        let (org, user) = (new.owner.org.as_str(), new.owner.user.as_str());
        let mut tx = self.db.begin().await?;
        let counts = "SELECT COUNT(*) AS all_of_them, \
                      COUNT(CASE WHEN org_id = $1 AND user_id = $2 THEN 1 END) AS of_user \
                      FROM batches WHERE ended_at IS NULL";
        if let Some(row) = tx.first(counts, args![org, user]).await? {
            if row.get::<i64>("of_user")? >= i64::from(bounds.of_user) {
                let what = "batches of yours that have not ended";
                return Err(StoreError::TooMany { what, limit: bounds.of_user as usize });
            }
            if row.get::<i64>("all_of_them")? >= i64::from(bounds.of_all) {
                let what = "batches that have not ended";
                return Err(StoreError::TooMany { what, limit: bounds.of_all as usize });
            }
        }
        let forget = "DELETE FROM batches WHERE ended_at IS NOT NULL AND id IN (SELECT id FROM batches \
                      WHERE org_id = $1 AND user_id = $2 ORDER BY created_at DESC, id DESC LIMIT 100 OFFSET $3)";
        tx.execute(forget, args![org, user, MAX_KEPT_PER_USER]).await?;
        let sql = "INSERT INTO batches (id, org_id, user_id, key_id, home, endpoint, input_file_id, status, metadata, \
                   total, completed, failed, created_at, expires_at) \
                   VALUES ($1, $2, $3, $4, $5, $6, $7, 'validating', $8, 0, 0, 0, $9, $10)";
        let key = new.key.map(KeyId::as_str);
        let (input, expires) = (new.input.as_str(), new.expires_at);
        let values =
            args![id.as_str(), org, user, key, new.home, new.endpoint, input, new.metadata, now, expires];
        tx.execute(sql, values).await?;
        tx.commit().await?;
        self.batch(new.owner, &id).await?.ok_or(StoreError::Missing("batch"))
    }

    /// A batch of an owner's.
    ///
    /// # Errors
    /// The database's.
    pub async fn batch(&self, owner: &DataOwner, id: &BatchId) -> Result<Option<Batch>> {
        let sql = batch_columns!("WHERE id = $1 AND org_id = $2 AND user_id = $3");
        let row = self.db.first(sql, args![id.as_str(), owner.org.as_str(), owner.user.as_str()]).await?;
        row.as_ref().map(batch_of).transpose()
    }

    /// A part of an owner's batches.
    ///
    /// # Errors
    /// The database's.
    pub async fn batches(&self, owner: &DataOwner, page: Page<'_>) -> Result<Vec<Batch>> {
        let sql = match page.order {
            Order::Ascending => batch_columns!(
                "WHERE org_id = $1 AND user_id = $2 \
                 AND (CAST($3 AS BIGINT) IS NULL OR created_at > $3 OR (created_at = $3 AND id > $4)) \
                 ORDER BY created_at, id LIMIT $5"
            ),
            Order::Descending => batch_columns!(
                "WHERE org_id = $1 AND user_id = $2 \
                 AND (CAST($3 AS BIGINT) IS NULL OR created_at < $3 OR (created_at = $3 AND id < $4)) \
                 ORDER BY created_at DESC, id DESC LIMIT $5"
            ),
        };
        let (at, id) = page.after.unzip();
        let (org, user) = (owner.org.as_str(), owner.user.as_str());
        let rows = self.db.all(sql, args![org, user, at, id, page.limit]).await?;
        rows.iter().map(batch_of).collect()
    }

    /// Batches of a data folder that have not ended, oldest first; at most as many as may wait.
    ///
    /// # Errors
    /// The database's.
    pub async fn unfinished_batches(&self, home: &str, whose: Whose, limit: u32) -> Result<Vec<Batch>> {
        let sql = match whose {
            Whose::Accounts => batch_columns!(
                "WHERE ended_at IS NULL AND home = $1 AND org_id <> '' ORDER BY created_at, id LIMIT $2"
            ),
            Whose::Nobody => batch_columns!(
                "WHERE ended_at IS NULL AND home = $1 AND org_id = '' ORDER BY created_at, id LIMIT $2"
            ),
        };
        self.db.all(sql, args![home, limit]).await?.iter().map(batch_of).collect()
    }

    /// The state of a batch, whoever's; `None` when there is none.
    ///
    /// # Errors
    /// The database's.
    pub async fn batch_status(&self, id: &BatchId) -> Result<Option<BatchStatus>> {
        let row = self.db.first("SELECT status FROM batches WHERE id = $1", args![id.as_str()]).await?;
        row.as_ref().map(status_of).transpose()
    }

    /// Its input is right: its lines may be sent. `false`: it is not waiting for that any more.
    ///
    /// # Errors
    /// The database's.
    pub async fn begin_batch(&self, id: &BatchId, total: u64, now: i64) -> Result<bool> {
        let sql = "UPDATE batches SET status = 'in_progress', in_progress_at = $2, total = $3 \
                   WHERE id = $1 AND status = 'validating'";
        Ok(self.db.execute(sql, args![id.as_str(), now, int(total)]).await? == 1)
    }

    /// How far it has come; the state says whether to go on.
    ///
    /// # Errors
    /// The database's.
    pub async fn note_progress(&self, id: &BatchId, counts: BatchCounts) -> Result<Option<BatchStatus>> {
        let sql = "UPDATE batches SET completed = $2, failed = $3 WHERE id = $1 AND ended_at IS NULL";
        self.db.execute(sql, args![id.as_str(), int(counts.completed), int(counts.failed)]).await?;
        self.batch_status(id).await
    }

    /// Its input can't be run, and why, as JSON. `false`: it has another state by now.
    ///
    /// # Errors
    /// The database's.
    pub async fn fail_batch(&self, id: &BatchId, problems: &str, now: i64) -> Result<bool> {
        let sql = "UPDATE batches SET status = 'failed', failed_at = $2, ended_at = $2, problems = $3 \
                   WHERE id = $1 AND status IN ('validating', 'in_progress')";
        Ok(self.db.execute(sql, args![id.as_str(), now, problems]).await? == 1)
    }

    /// All its lines are answered. `false`: it has another state by now.
    ///
    /// # Errors
    /// The database's.
    pub async fn finalize_batch(&self, id: &BatchId, now: i64) -> Result<bool> {
        let sql = "UPDATE batches SET status = 'finalizing', finalizing_at = $2 \
                   WHERE id = $1 AND status = 'in_progress'";
        Ok(self.db.execute(sql, args![id.as_str(), now]).await? == 1)
    }

    /// Asks a batch of an owner's to end. `false`: there is none that could.
    ///
    /// # Errors
    /// The database's.
    pub async fn cancel_batch(&self, owner: &DataOwner, id: &BatchId, now: i64) -> Result<bool> {
        let sql = "UPDATE batches SET status = 'cancelling', cancelling_at = $4 \
                   WHERE id = $1 AND org_id = $2 AND user_id = $3 AND status IN ('validating', 'in_progress')";
        let (org, user) = (owner.org.as_str(), owner.user.as_str());
        Ok(self.db.execute(sql, args![id.as_str(), org, user, now]).await? == 1)
    }

    /// Ends a batch and adds the files it left, both or neither. `false`: its state allows no such end.
    ///
    /// # Errors
    /// The database's.
    pub async fn end_batch(&self, id: &BatchId, end: &BatchEnd<'_>, now: i64) -> Result<bool> {
        let sql = match end.status {
            BatchStatus::Completed => {
                "UPDATE batches SET status = 'completed', completed_at = $2, ended_at = $2, output_file_id = $3, \
                 error_file_id = $4, completed = $5, failed = $6 WHERE id = $1 AND status = 'finalizing'"
            }
            BatchStatus::Expired => {
                "UPDATE batches SET status = 'expired', expired_at = $2, ended_at = $2, output_file_id = $3, \
                 error_file_id = $4, completed = $5, failed = $6 \
                 WHERE id = $1 AND status IN ('validating', 'in_progress', 'finalizing')"
            }
            BatchStatus::Cancelled => {
                "UPDATE batches SET status = 'cancelled', cancelled_at = $2, ended_at = $2, output_file_id = $3, \
                 error_file_id = $4, completed = $5, failed = $6 WHERE id = $1 AND status = 'cancelling'"
            }
            _ => return Err(StoreError::Invalid { what: "the end of a batch", rule: "is a final state" }),
        };
        let mut tx = self.db.begin().await?;
        let file = |file: Option<&FileInfo>| file.map(|file| file.id.as_str().to_owned());
        let (output, errors) = (file(end.output), file(end.errors));
        let (completed, failed) = (int(end.counts.completed), int(end.counts.failed));
        let values = args![id.as_str(), now, output.as_deref(), errors.as_deref(), completed, failed];
        if tx.execute(sql, values).await? != 1 {
            return Ok(false);
        }
        for file in [end.output, end.errors].into_iter().flatten() {
            files::insert(&mut tx, file).await?;
        }
        tx.commit().await?;
        Ok(true)
    }

    /// Forgets batches that ended before a time.
    ///
    /// # Errors
    /// The database's.
    pub async fn forget_batches(&self, before: i64) -> Result<u64> {
        self.db.execute("DELETE FROM batches WHERE ended_at < $1", args![before]).await
    }
}

fn int(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn status_of(row: &Row) -> Result<BatchStatus> {
    let name: String = row.get("status")?;
    let found = BatchStatus::ALL.into_iter().find(|status| status.as_str() == name);
    found.ok_or_else(|| StoreError::corrupt("state of a batch", &name))
}

fn batch_of(row: &Row) -> Result<Batch> {
    let count = |column| Ok::<_, StoreError>(u64::try_from(row.get::<i64>(column)?).unwrap_or(0));
    let file = |column| Ok::<_, StoreError>(row.get::<Option<String>>(column)?.map(FileId::new));
    Ok(Batch {
        id: BatchId::new(row.get::<String>("id")?),
        owner: files::owner_of(row)?,
        key: row.get::<Option<String>>("key_id")?.map(KeyId::new),
        endpoint: row.get("endpoint")?,
        input: FileId::new(row.get::<String>("input_file_id")?),
        output: file("output_file_id")?,
        errors: file("error_file_id")?,
        status: status_of(row)?,
        metadata: row.get("metadata")?,
        problems: row.get("problems")?,
        counts: BatchCounts {
            total: count("total")?,
            completed: count("completed")?,
            failed: count("failed")?,
        },
        times: BatchTimes {
            created: row.get("created_at")?,
            expires: row.get("expires_at")?,
            in_progress: row.get("in_progress_at")?,
            finalizing: row.get("finalizing_at")?,
            completed: row.get("completed_at")?,
            failed: row.get("failed_at")?,
            expired: row.get("expired_at")?,
            cancelling: row.get("cancelling_at")?,
            cancelled: row.get("cancelled_at")?,
        },
    })
}
