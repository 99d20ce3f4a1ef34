//! Which files there are. What they hold is not in the database.

use crate::{
    FileId, OrgId, Store, UserId,
    db::{Row, Tx, args},
    error::{Result, StoreError},
};

/// The most rows of one call that looks for what can go.
const MAX_SWEPT: u32 = 500;

/// Whose data something is: one user's of one organisation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DataOwner {
    /// The organisation; empty where there are no accounts.
    pub org: OrgId,
    /// The user; empty where there are no accounts.
    pub user: UserId,
}

/// What is known of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileInfo {
    /// Its id.
    pub id: FileId,
    /// Whose it is.
    pub owner: DataOwner,
    /// Its name, in the user's words.
    pub name: String,
    /// What it is for.
    pub purpose: String,
    /// How long it is.
    pub bytes: u64,
    /// When it was made.
    pub created_at: i64,
    /// When it goes by itself.
    pub expires_at: Option<i64>,
}

/// Most that an organisation may keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileBounds {
    /// Files.
    pub files: u32,
    /// Bytes of all of them.
    pub bytes: u64,
}

/// The order of a list by time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Oldest first.
    Ascending,
    /// Newest first.
    Descending,
}

/// A part of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page<'a> {
    /// What comes before it: when that was made, and its id.
    pub after: Option<(i64, &'a str)>,
    /// Most rows.
    pub limit: u32,
    /// The order.
    pub order: Order,
}

/// What became of a file that was to be deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deleted {
    /// It is gone.
    Gone,
    /// There is no such file of this owner's.
    Missing,
    /// A batch that has not ended reads it.
    InUse,
}

impl DataOwner {
    /// Who has everything where there are no accounts.
    #[must_use]
    pub fn nobody() -> Self {
        Self { org: OrgId::new(""), user: UserId::new("") }
    }

    /// Whether it is an account's.
    #[must_use]
    pub fn is_account(&self) -> bool {
        !self.org.as_str().is_empty()
    }
}

impl FileId {
    /// A new id.
    ///
    /// # Errors
    /// The system has no randomness.
    pub fn fresh() -> Result<Self> {
        Self::random()
    }
}

macro_rules! file_columns {
    ($rest:literal) => {
        concat!("SELECT id, org_id, user_id, name, purpose, bytes, created_at, expires_at FROM files ", $rest)
    };
}

impl Store {
    /// Whether an organisation may have one more file of `bytes`. Files that are added at the same time may each pass,
    /// so the bounds hold up to what is in flight.
    ///
    /// # Errors
    /// [`StoreError::TooMany`] if not, or the database's.
    pub async fn check_room_for_file(&self, org: &OrgId, bytes: u64, bounds: FileBounds) -> Result<()> {
        let sums = self.db.first(SUMS, args![org.as_str()]).await?;
        check_room(sums.as_ref(), bytes, bounds)
    }

    /// Writes down a file, when there is room for it.
    ///
    /// # Errors
    /// As [`Store::check_room_for_file`].
    pub async fn add_file(&self, file: &FileInfo, bounds: FileBounds) -> Result<()> {
        let mut tx = self.db.begin().await?;
        let sums = tx.first(SUMS, args![file.owner.org.as_str()]).await?;
        check_room(sums.as_ref(), file.bytes, bounds)?;
        insert(&mut tx, file).await?;
        tx.commit().await
    }

    /// A file of an owner's.
    ///
    /// # Errors
    /// The database's.
    pub async fn file(&self, owner: &DataOwner, id: &FileId) -> Result<Option<FileInfo>> {
        let sql = file_columns!("WHERE id = $1 AND org_id = $2 AND user_id = $3");
        let row = self.db.first(sql, args![id.as_str(), owner.org.as_str(), owner.user.as_str()]).await?;
        row.as_ref().map(file_of).transpose()
    }

    /// A part of an owner's files, all or those of a purpose.
    ///
    /// # Errors
    /// The database's.
    pub async fn files(
        &self,
        owner: &DataOwner,
        purpose: Option<&str>,
        page: Page<'_>,
    ) -> Result<Vec<FileInfo>> {
        let sql = match page.order {
            Order::Ascending => file_columns!(
                "WHERE org_id = $1 AND user_id = $2 AND (CAST($3 AS TEXT) IS NULL OR purpose = $3) \
                 AND (CAST($4 AS BIGINT) IS NULL OR created_at > $4 OR (created_at = $4 AND id > $5)) \
                 ORDER BY created_at, id LIMIT $6"
            ),
            Order::Descending => file_columns!(
                "WHERE org_id = $1 AND user_id = $2 AND (CAST($3 AS TEXT) IS NULL OR purpose = $3) \
                 AND (CAST($4 AS BIGINT) IS NULL OR created_at < $4 OR (created_at = $4 AND id < $5)) \
                 ORDER BY created_at DESC, id DESC LIMIT $6"
            ),
        };
        let (at, id) = page.after.unzip();
        let (org, user) = (owner.org.as_str(), owner.user.as_str());
        let rows = self.db.all(sql, args![org, user, purpose, at, id, page.limit]).await?;
        rows.iter().map(file_of).collect()
    }

    /// Forgets a file of an owner's.
    ///
    /// # Errors
    /// The database's.
    pub async fn delete_file(&self, owner: &DataOwner, id: &FileId) -> Result<Deleted> {
        let mut tx = self.db.begin().await?;
        let (org, user) = (owner.org.as_str(), owner.user.as_str());
        let used = "SELECT id FROM batches WHERE input_file_id = $1 AND org_id = $2 AND user_id = $3 \
                    AND ended_at IS NULL LIMIT 1";
        if tx.first(used, args![id.as_str(), org, user]).await?.is_some() {
            return Ok(Deleted::InUse);
        }
        let sql = "DELETE FROM files WHERE id = $1 AND org_id = $2 AND user_id = $3";
        let changed = tx.execute(sql, args![id.as_str(), org, user]).await?;
        tx.commit().await?;
        Ok(if changed == 1 { Deleted::Gone } else { Deleted::Missing })
    }

    /// Files whose time has come, and those of users who are gone; a bounded number, none that a batch still reads.
    ///
    /// # Errors
    /// The database's.
    pub async fn files_to_drop(&self, now: i64) -> Result<Vec<FileInfo>> {
        let sql = file_columns!(
            "WHERE (expires_at <= $1 OR \
             (user_id <> '' AND NOT EXISTS (SELECT 1 FROM users WHERE users.id = files.user_id))) \
             AND NOT EXISTS (SELECT 1 FROM batches \
             WHERE batches.input_file_id = files.id AND batches.ended_at IS NULL) \
             LIMIT $2"
        );
        self.db.all(sql, args![now, MAX_SWEPT]).await?.iter().map(file_of).collect()
    }

    /// Whether there is a file with this id, whoever's.
    ///
    /// # Errors
    /// The database's.
    pub async fn has_file(&self, id: &FileId) -> Result<bool> {
        let found = self.db.first("SELECT id FROM files WHERE id = $1", args![id.as_str()]).await?;
        Ok(found.is_some())
    }
}

const SUMS: &str =
    "SELECT COUNT(*) AS files, CAST(COALESCE(SUM(bytes), 0) AS BIGINT) AS bytes FROM files WHERE org_id = $1";

fn check_room(sums: Option<&Row>, bytes: u64, bounds: FileBounds) -> Result<()> {
    let sum = |column| sums.map_or(Ok(0), |row| row.get::<i64>(column));
    let (files, kept) = (sum("files")?, sum("bytes")?);
    if files >= i64::from(bounds.files) {
        return Err(StoreError::TooMany { what: "files", limit: bounds.files as usize });
    }
    if u64::try_from(kept).unwrap_or(0).saturating_add(bytes) > bounds.bytes {
        let limit = usize::try_from(bounds.bytes).unwrap_or(usize::MAX);
        return Err(StoreError::TooMany { what: "bytes of files, or with this one,", limit });
    }
    Ok(())
}

/// Inserts a file that may be there already.
pub(crate) async fn insert(tx: &mut Tx, file: &FileInfo) -> Result<()> {
    let sql = "INSERT INTO files (id, org_id, user_id, name, purpose, bytes, created_at, expires_at) \
               VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (id) DO NOTHING";
    let bytes = i64::try_from(file.bytes).unwrap_or(i64::MAX);
    let (org, user) = (file.owner.org.as_str(), file.owner.user.as_str());
    let values = args![
        file.id.as_str(),
        org,
        user,
        &file.name,
        &file.purpose,
        bytes,
        file.created_at,
        file.expires_at
    ];
    tx.execute(sql, values).await.map(drop)
}

pub(crate) fn owner_of(row: &Row) -> Result<DataOwner> {
    Ok(DataOwner {
        org: OrgId::new(row.get::<String>("org_id")?),
        user: UserId::new(row.get::<String>("user_id")?),
    })
}

fn file_of(row: &Row) -> Result<FileInfo> {
    Ok(FileInfo {
        id: FileId::new(row.get::<String>("id")?),
        owner: owner_of(row)?,
        name: row.get("name")?,
        purpose: row.get("purpose")?,
        bytes: u64::try_from(row.get::<i64>("bytes")?).unwrap_or(0),
        created_at: row.get("created_at")?,
        expires_at: row.get("expires_at")?,
    })
}
