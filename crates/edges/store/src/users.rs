//! Organisations and their users.

use crate::{
    OrgId, Secret, SessionId, Store, UserId,
    db::{Row, Tx, args},
    error::{Result, StoreError},
    password::Verdict,
};

/// The most rows one page of a list has.
pub const MAX_PAGE: u32 = 200;
/// Longest login, display name, tier or key's name in characters.
pub const MAX_FIELD_CHARS: usize = 254;

/// An organisation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Org {
    /// Its id: the tenant of every other part.
    pub id: OrgId,
    /// Its name for people.
    pub name: String,
    /// When it was made.
    pub created_at: i64,
}

/// What a user may do in the organisation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Uses it.
    Member,
    /// Manages users, keys and limits.
    Admin,
    /// Manages admins too. An organisation always has one.
    Owner,
}

impl Role {
    /// Every role.
    pub const ALL: [Self; 3] = [Self::Member, Self::Admin, Self::Owner];

    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Member => "member",
            Self::Admin => "admin",
            Self::Owner => "owner",
        }
    }

    /// The role of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == name)
    }

    pub(crate) fn of(row: &Row) -> Result<Self> {
        let name: String = row.get("role")?;
        Self::from_name(&name).ok_or_else(|| StoreError::corrupt("role", &name))
    }
}

/// A user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// The user's id.
    pub id: UserId,
    /// The organisation the user belongs to.
    pub org: OrgId,
    /// What the user signs in with: a name or an email address, in lower case.
    pub login: String,
    /// The name for people.
    pub display_name: String,
    /// What the user may do.
    pub role: Role,
    /// The name of the user's tier.
    pub tier: String,
    /// Whether the user is kept out.
    pub is_disabled: bool,
    /// When the user was made.
    pub created_at: i64,
}

/// A user to make.
#[derive(Debug, Clone)]
pub struct NewUser<'a> {
    /// The organisation.
    pub org: &'a OrgId,
    /// A name or an email address; case does not matter.
    pub login: &'a str,
    /// The name for people.
    pub display_name: &'a str,
    /// What the user may do.
    pub role: Role,
    /// The name of the tier.
    pub tier: &'a str,
    /// Absent for a user who signs in elsewhere or only has keys.
    pub password: Option<&'a Secret>,
}

/// The account that a new installation starts with.
#[derive(Debug, Clone)]
pub struct FirstOwner<'a> {
    /// The organisation's name.
    pub org_name: &'a str,
    /// A name or an email address; case does not matter.
    pub login: &'a str,
    /// The name for people.
    pub display_name: &'a str,
    /// The name of the tier.
    pub tier: &'a str,
    /// The password.
    pub password: &'a Secret,
}

/// What to change about a user; `None` leaves it.
#[derive(Debug, Clone, Default)]
pub struct UserChange<'a> {
    /// The name for people.
    pub display_name: Option<&'a str>,
    /// What the user may do.
    pub role: Option<Role>,
    /// The name of the tier.
    pub tier: Option<&'a str>,
    /// Whether the user is kept out. It ends the user's sessions.
    pub is_disabled: Option<bool>,
}

/// Users by a condition. Columns are named: an old program keeps running when a later step adds one.
macro_rules! users {
    ($rest:literal) => {
        concat!(
            "SELECT id, org_id, login, display_name, role, tier, disabled, password, created_at FROM users ",
            $rest
        )
    };
}

impl Store {
    /// Whether there is no user yet, so that the first account may be made.
    ///
    /// # Errors
    /// The database's.
    pub async fn is_empty(&self) -> Result<bool> {
        Ok(self.db.first("SELECT 1 AS one FROM users LIMIT 1", &[]).await?.is_none())
    }

    /// Makes the first organisation and its owner; an organisation that an attempt left without users becomes it. Of
    /// callers who race exactly one gets the user; `None` means that there is one already.
    ///
    /// # Errors
    /// A field breaks a rule, or the database's.
    pub async fn create_first_owner(&self, owner: &FirstOwner<'_>, now: i64) -> Result<Option<User>> {
        let org = new_org(owner.org_name, now)?;
        let mut user = new_user(
            &NewUser {
                org: &org.id,
                login: owner.login,
                display_name: owner.display_name,
                role: Role::Owner,
                tier: owner.tier,
                password: Some(owner.password),
            },
            now,
        )?;
        let hash = self.inner.passwords.hash(owner.password).await?;
        let mut tx = self.db.begin().await?;
        if !claim_first(&mut tx, now).await? {
            return Ok(None);
        }
        match tx.first("SELECT id FROM orgs ORDER BY id LIMIT 1", &[]).await? {
            Some(left) => user.org = OrgId::new(left.get::<String>("id")?),
            None => insert_org(&mut tx, &org).await?,
        }
        insert_user(&mut tx, &user, Some(&hash)).await?;
        tx.commit().await?;
        Ok(Some(user))
    }

    /// Makes an organisation.
    ///
    /// # Errors
    /// The name breaks a rule, or the database's.
    pub async fn create_org(&self, name: &str, now: i64) -> Result<Org> {
        let org = new_org(name, now)?;
        let mut tx = self.db.begin().await?;
        insert_org(&mut tx, &org).await?;
        tx.commit().await?;
        Ok(org)
    }

    /// Organisations in the order of their ids, after one of them; at most [`MAX_PAGE`].
    ///
    /// # Errors
    /// The database's.
    pub async fn orgs(&self, after: Option<&OrgId>) -> Result<Vec<Org>> {
        let sql = "SELECT id, name, created_at FROM orgs WHERE id > $1 ORDER BY id LIMIT $2";
        let after = after.map_or("", OrgId::as_str);
        let rows = self.db.all(sql, args![after, MAX_PAGE]).await?;
        let org = |row: &Row| {
            Ok(Org {
                id: OrgId::new(row.get::<String>("id")?),
                name: row.get("name")?,
                created_at: row.get("created_at")?,
            })
        };
        rows.iter().map(org).collect()
    }

    /// Makes a user.
    ///
    /// # Errors
    /// A field breaks a rule, the login is taken, there is no such organisation, or the database's.
    pub async fn create_user(&self, new: &NewUser<'_>, now: i64) -> Result<User> {
        let user = new_user(new, now)?;
        let hash = match new.password {
            Some(password) => Some(self.inner.passwords.hash(password).await?),
            None => None,
        };
        let mut tx = self.db.begin().await?;
        insert_user(&mut tx, &user, hash.as_deref()).await?;
        tx.commit().await?;
        Ok(user)
    }

    /// The user with this id.
    ///
    /// # Errors
    /// The database's.
    pub async fn user(&self, id: &UserId) -> Result<Option<User>> {
        let row = self.db.first(users!("WHERE id = $1"), args![id.as_str()]).await?;
        row.as_ref().map(user_of).transpose()
    }

    /// The user with this login.
    ///
    /// # Errors
    /// The database's.
    pub async fn user_by_login(&self, login: &str) -> Result<Option<User>> {
        let login = fold_login(login);
        let row = self.db.first(users!("WHERE login = $1"), args![&login]).await?;
        row.as_ref().map(user_of).transpose()
    }

    /// An organisation's users in the order of their logins, after one of them; at most [`MAX_PAGE`].
    ///
    /// # Errors
    /// The database's.
    pub async fn users(&self, org: &OrgId, after_login: Option<&str>) -> Result<Vec<User>> {
        let sql = users!("WHERE org_id = $1 AND login > $2 ORDER BY login LIMIT $3");
        let rows = self.db.all(sql, args![org.as_str(), after_login.unwrap_or(""), MAX_PAGE]).await?;
        rows.iter().map(user_of).collect()
    }

    /// Changes a user, and says how the user is then. It counts for this process's next request.
    ///
    /// # Errors
    /// A field breaks a rule, there is no such user, it is the last owner, or the database's.
    pub async fn update_user(&self, org: &OrgId, id: &UserId, change: &UserChange<'_>) -> Result<User> {
        let mut tx = self.db.begin().await?;
        lock_org(&mut tx, org).await?;
        let find = users!("WHERE id = $1 AND org_id = $2");
        let row =
            tx.first(find, args![id.as_str(), org.as_str()]).await?.ok_or(StoreError::Missing("user"))?;
        let mut user = user_of(&row)?;
        let was_leading = user.is_leading();
        if let Some(name) = change.display_name {
            user.display_name = field("the display name", name)?;
        }
        if let Some(tier) = change.tier {
            user.tier = field("the tier", tier)?;
        }
        user.role = change.role.unwrap_or(user.role);
        user.is_disabled = change.is_disabled.unwrap_or(user.is_disabled);
        if was_leading && !user.is_leading() {
            require_other_owner(&mut tx, &user).await?;
        }
        let sql = "UPDATE users SET display_name = $1, role = $2, tier = $3, disabled = $4 WHERE id = $5";
        let role = user.role.as_str();
        tx.execute(sql, args![&user.display_name, role, &user.tier, user.is_disabled, id.as_str()]).await?;
        if user.is_disabled {
            tx.execute("DELETE FROM sessions WHERE user_id = $1", args![id.as_str()]).await?;
        }
        self.commit_about(tx, id).await?;
        Ok(user)
    }

    /// Removes a user with keys and sessions; what the user used stays on record.
    ///
    /// # Errors
    /// There is no such user, it is the last owner, or the database's.
    pub async fn delete_user(&self, org: &OrgId, id: &UserId) -> Result<()> {
        let mut tx = self.db.begin().await?;
        lock_org(&mut tx, org).await?;
        let find = users!("WHERE id = $1 AND org_id = $2");
        let row =
            tx.first(find, args![id.as_str(), org.as_str()]).await?.ok_or(StoreError::Missing("user"))?;
        let user = user_of(&row)?;
        if user.is_leading() {
            require_other_owner(&mut tx, &user).await?;
        }
        tx.execute("DELETE FROM users WHERE id = $1", args![id.as_str()]).await?;
        self.commit_about(tx, id).await
    }

    /// Commits a change of what a user may do, and forgets what is remembered of the user's keys; also when the answer
    /// got lost, for the change may have been made.
    async fn commit_about(&self, tx: Tx, id: &UserId) -> Result<()> {
        let done = tx.commit().await;
        self.inner.keys.forget_user(id);
        done
    }

    /// The user whose login and password these are. Nobody, a wrong password, a disabled user and one without a
    /// password give the same answer after the same work. [`LoginThrottle`](crate::LoginThrottle) says how often
    /// it may be called.
    ///
    /// # Errors
    /// The database's, or that hashing failed.
    pub async fn check_password(&self, login: &str, password: &Secret) -> Result<Option<User>> {
        let login = fold_login(login);
        let row = self.db.first(users!("WHERE login = $1"), args![&login]).await?;
        let stored = match &row {
            Some(row) => row.get::<Option<String>>("password")?,
            None => None,
        };
        let verdict = self.inner.passwords.verify(password, stored.clone()).await?;
        let (Some(row), true) = (row, verdict != Verdict::Wrong) else { return Ok(None) };
        let user = user_of(&row)?;
        if let (Verdict::RightWith(hash), Some(stored)) = (verdict, stored) {
            // Only if it was not changed meanwhile. Whoever signs in need not wait for a database that can't write.
            let sql = "UPDATE users SET password = $1 WHERE id = $2 AND password = $3";
            if let Err(error) = self.db.execute(sql, args![&hash, user.id.as_str(), &stored]).await {
                tracing::warn!(%error, user = %user.id, "a password could not be hashed at today's cost");
            }
        }
        Ok((!user.is_disabled).then_some(user))
    }

    /// Sets a password and ends the user's sessions, but for one to keep.
    ///
    /// # Errors
    /// The password breaks a rule, there is no such user, or the database's.
    pub async fn set_password(&self, id: &UserId, password: &Secret, keep: Option<&SessionId>) -> Result<()> {
        let hash = self.inner.passwords.hash(password).await?;
        let mut tx = self.db.begin().await?;
        let sql = "UPDATE users SET password = $1 WHERE id = $2";
        if tx.execute(sql, args![&hash, id.as_str()]).await? == 0 {
            return Err(StoreError::Missing("user"));
        }
        let keep = keep.map_or("", SessionId::as_str);
        let end = "DELETE FROM sessions WHERE user_id = $1 AND id <> $2";
        tx.execute(end, args![id.as_str(), keep]).await?;
        tx.commit().await
    }
}

impl User {
    /// Whether this is an owner who can sign in.
    fn is_leading(&self) -> bool {
        self.role == Role::Owner && !self.is_disabled
    }
}

/// A login as it is stored and looked up.
pub(crate) fn fold_login(login: &str) -> String {
    login.trim().to_lowercase()
}

/// Whether this transaction may make the first user. The row of `setup` is the race: the second writer waits for the
/// first one's end and then changes nothing.
pub(crate) async fn claim_first(tx: &mut Tx, now: i64) -> Result<bool> {
    let first = "INSERT INTO setup (singleton, completed_at) VALUES (1, $1) ON CONFLICT DO NOTHING";
    let is_first = tx.execute(first, args![now]).await? == 1;
    Ok(is_first && tx.first("SELECT 1 AS one FROM users LIMIT 1", &[]).await?.is_none())
}

pub(crate) fn new_org(name: &str, now: i64) -> Result<Org> {
    Ok(Org { id: OrgId::random()?, name: field("the organisation's name", name)?, created_at: now })
}

pub(crate) fn new_user(new: &NewUser<'_>, now: i64) -> Result<User> {
    let login = fold_login(&field("the login", new.login)?);
    if login.chars().any(char::is_whitespace) {
        return Err(StoreError::Invalid { what: "the login", rule: "may not have spaces in it" });
    }
    Ok(User {
        id: UserId::random()?,
        org: new.org.clone(),
        login,
        display_name: field("the display name", new.display_name)?,
        role: new.role,
        tier: field("the tier", new.tier)?,
        is_disabled: false,
        created_at: now,
    })
}

/// A short text for people: trimmed, not empty, one line.
pub(crate) fn field(what: &'static str, text: &str) -> Result<String> {
    let text = text.trim();
    let rule = if text.is_empty() {
        "may not be empty"
    } else if text.chars().count() > MAX_FIELD_CHARS {
        "may have at most 254 characters"
    } else if text.chars().any(char::is_control) {
        "may not have control characters in it"
    } else {
        return Ok(text.into());
    };
    Err(StoreError::Invalid { what, rule })
}

pub(crate) fn user_of(row: &Row) -> Result<User> {
    Ok(User {
        id: UserId::new(row.get::<String>("id")?),
        org: OrgId::new(row.get::<String>("org_id")?),
        login: row.get("login")?,
        display_name: row.get("display_name")?,
        role: Role::of(row)?,
        tier: row.get("tier")?,
        is_disabled: row.get::<i64>("disabled")? != 0,
        created_at: row.get("created_at")?,
    })
}

/// Holds an organisation's row to the end of the transaction, so that two owners can't each step down because of the
/// other. `FOR UPDATE` says the same, but not to SQLite.
async fn lock_org(tx: &mut Tx, org: &OrgId) -> Result<()> {
    let found = tx.execute("UPDATE orgs SET name = name WHERE id = $1", args![org.as_str()]).await?;
    if found == 0 { Err(StoreError::Missing("organisation")) } else { Ok(()) }
}

async fn require_other_owner(tx: &mut Tx, user: &User) -> Result<()> {
    let sql = "SELECT 1 AS one FROM users WHERE org_id = $1 AND id <> $2 AND role = 'owner' AND disabled = 0";
    let other = tx.first(sql, args![user.org.as_str(), user.id.as_str()]).await?;
    other.map(drop).ok_or(StoreError::LastOwner)
}

pub(crate) async fn insert_org(tx: &mut Tx, org: &Org) -> Result<()> {
    let sql = "INSERT INTO orgs (id, name, created_at) VALUES ($1, $2, $3)";
    tx.execute(sql, args![org.id.as_str(), &org.name, org.created_at]).await.map(drop)
}

/// A login that is taken leaves the transaction as it was: another may be tried.
pub(crate) async fn insert_user(tx: &mut Tx, user: &User, password: Option<&str>) -> Result<()> {
    let sql = "INSERT INTO users (id, org_id, login, display_name, role, tier, disabled, password, created_at) \
               VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (login) DO NOTHING";
    let values = args![
        user.id.as_str(),
        user.org.as_str(),
        &user.login,
        &user.display_name,
        user.role.as_str(),
        &user.tier,
        user.is_disabled,
        password,
        user.created_at,
    ];
    match tx.execute(sql, values).await {
        Ok(0) => Err(StoreError::LoginTaken),
        Ok(_) => Ok(()),
        Err(StoreError::Database(sqlx::Error::Database(error))) if error.is_foreign_key_violation() => {
            Err(StoreError::Missing("organisation"))
        }
        Err(error) => Err(error),
    }
}
