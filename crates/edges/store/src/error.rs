use std::path::PathBuf;

/// Why the store could not do what was asked. Each message is one line that says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The address of the database can't be read. The address is left out: it may hold a password.
    #[error("the database address is not valid ({0}); write sqlite:PATH or postgres://USER@HOST/NAME")]
    Url(String),
    /// The folder or file of an SQLite database can't be made.
    #[error("{} can't be opened: {source}; check that the folder exists and may be written", path.display())]
    File {
        /// The database file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A newer Motet has changed the database.
    #[error(
        "the database is at version {found}, this program knows up to {known}; start the newer program, or restore a backup"
    )]
    Newer {
        /// The database's version.
        found: i64,
        /// The newest version this program knows.
        known: i64,
    },
    /// The database was made by a program with another history.
    #[error(
        "step {version} of the database is not the one this program has; it was made by a changed program: use that, or restore a backup"
    )]
    Changed {
        /// The migration that differs.
        version: i64,
    },
    /// The database does not answer; it may later.
    #[error("the database does not answer ({0}); what needs it waits or is refused until it does")]
    Unavailable(#[source] sqlx::Error),
    /// The database refused a statement.
    #[error("the database refused: {0}")]
    Database(#[source] sqlx::Error),
    /// A row holds what this program can't read.
    #[error("the database has a {what} this program can't read: {value:?}")]
    Corrupt {
        /// Which kind of value.
        what: &'static str,
        /// The value.
        value: String,
    },
    /// An argument breaks a rule.
    #[error("{what} {rule}")]
    Invalid {
        /// The field.
        what: &'static str,
        /// The rule it breaks.
        rule: &'static str,
    },
    /// Another user has this login.
    #[error("there is a user with this login already; choose another")]
    LoginTaken,
    /// An identity of a provider stands for another user.
    #[error("another user signs in with this account of the provider; unlink it there first")]
    IdentityTaken,
    /// The change would leave the organisation without an owner who can sign in.
    #[error("this is the organisation's last owner; make another user owner first")]
    LastOwner,
    /// What the call is about does not exist, or belongs to somebody else.
    #[error("there is no such {0}")]
    Missing(&'static str),
    /// A bound is reached.
    #[error("there are {limit} {what} already, the most there may be; remove one first")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// The bound.
        limit: usize,
    },
    /// The system's generator failed.
    #[error("the system has no random numbers to give: {0}")]
    Random(String),
    /// Password hashing failed; never because of a wrong password.
    #[error("the password could not be hashed: {0}")]
    Hashing(String),
}

impl StoreError {
    /// Whether the same call may succeed later, without any change.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::Unavailable(_))
    }

    pub(crate) fn corrupt(what: &'static str, value: &str) -> Self {
        Self::Corrupt { what, value: value.chars().take(80).collect() }
    }
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        match &error {
            sqlx::Error::Io(_)
            | sqlx::Error::Tls(_)
            | sqlx::Error::Protocol(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed
            | sqlx::Error::WorkerCrashed
            | sqlx::Error::BeginFailed => Self::Unavailable(error),
            sqlx::Error::Database(database) if is_passing(database.code().as_deref()) => {
                Self::Unavailable(error)
            }
            _ => Self::Database(error),
        }
    }
}

/// Whether a database's own error code stands for a state that passes.
fn is_passing(code: Option<&str>) -> bool {
    let Some(code) = code else { return false };
    // PostgreSQL has five characters: connection (08), resources (53), an operator's action such as a shutdown (57),
    // the system (58), serialisation and deadlock (40), a lock not available (55).
    if code.len() == 5 {
        return ["08", "53", "57", "58", "40", "55"].iter().any(|class| code.starts_with(class));
    }
    // SQLite has numbers whose low byte is the kind: BUSY, LOCKED, IOERR, FULL, CANTOPEN.
    code.parse::<u32>().is_ok_and(|number| matches!(number & 0xff, 5 | 6 | 10 | 13 | 14))
}

/// What most of this crate returns.
pub type Result<T, E = StoreError> = std::result::Result<T, E>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_states_that_pass_are_told_from_the_others() {
        for code in ["5", "261", "13", "08006", "57P01", "40001", "53300"] {
            assert!(is_passing(Some(code)), "{code}");
        }
        for code in ["19", "2067", "1", "23505", "42601"] {
            assert!(!is_passing(Some(code)), "{code}");
        }
        assert!(!is_passing(None));
    }
}
