//! Sessions of the web app.
//!
//! The browser has an opaque token, the database its hash. The token changes while it is used ([`SessionPolicy`]):
//!
//! ```text
//!  current ──rotate──► a new token is sent; the old one is `previous` and stays good
//!                      │ the new one is seen          │ the old one comes again, after the grace time
//!                      ▼                              ▼
//!                `previous` is good for the       the new one got lost on its way: another new one
//!                grace time, for requests that
//!                were under way; after that it is
//!                a copy in other hands, and ends
//!                the session
//! ```
//!
//! So an answer that is lost does not sign anybody out, and a stolen token is noticed when either side goes on.

use std::sync::Arc;

use crate::{
    Credential, OrgId, Principal, Role, Scopes, Secret, SessionId, Store, UserId,
    db::{Row, args},
    error::{Result, StoreError},
    secret::{self, Kind},
};

/// The most sessions of one user; a further one ends the one that was not seen for longest.
pub const MAX_SESSIONS_PER_USER: u32 = 50;

/// 43 base62 characters have 256 bits.
const TOKEN_CHARS: usize = 43;
const CSRF_CHARS: usize = 27;

/// Longer texts for the list of devices are cut.
const MAX_LABEL_CHARS: usize = 200;

/// How long sessions live and how often their tokens change. Milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionPolicy {
    /// A token this old is replaced at the next request.
    pub rotate_ms: i64,
    /// How long the token before stays good once the new one was seen.
    pub grace_ms: i64,
    /// A session not seen for so long is over.
    pub idle_ms: i64,
    /// A session this old is over.
    pub longest_ms: i64,
    /// When it was last seen is stored at most this often, so that requests do not write.
    pub seen_step_ms: i64,
}

impl Default for SessionPolicy {
    /// An hour, a minute, two weeks, ninety days, five minutes.
    fn default() -> Self {
        const DAY: i64 = 24 * 3_600_000;
        Self {
            rotate_ms: 3_600_000,
            grace_ms: 60_000,
            idle_ms: 14 * DAY,
            longest_ms: 90 * DAY,
            seen_step_ms: 300_000,
        }
    }
}

/// A session to begin.
#[derive(Debug, Clone)]
pub struct NewSession<'a> {
    /// Whose it is.
    pub user: &'a UserId,
    /// The browser's own name, for the list of devices.
    pub user_agent: &'a str,
    /// Where it came from, for the list of devices.
    pub address: &'a str,
}

/// A session that was just begun.
#[derive(Debug, Clone)]
pub struct CreatedSession {
    /// Its id.
    pub id: SessionId,
    /// What the browser keeps in its cookie.
    pub token: Secret,
    /// What the page sends along with requests that change something.
    pub csrf: Secret,
}

/// A request's session.
#[derive(Debug, Clone)]
pub struct SessionAuth {
    /// Who it is.
    pub principal: Arc<Principal>,
    /// The session.
    pub session: SessionId,
    /// What the page sends along with requests that change something. It is no use without the cookie.
    pub csrf: Secret,
    /// To be set as the cookie in place of the one that came.
    pub new_token: Option<Secret>,
}

impl SessionAuth {
    /// Whether this is the session's CSRF token; takes the same time whatever it is.
    #[must_use]
    pub fn is_csrf_valid(&self, presented: &str) -> bool {
        secret::is_equal(self.csrf.expose(), presented)
    }
}

/// A line in the list of devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionInfo {
    /// Its id.
    pub id: SessionId,
    /// The browser's own name.
    pub user_agent: String,
    /// Where it came from.
    pub address: String,
    /// When it began.
    pub created_at: i64,
    /// About when it was last seen.
    pub seen_at: i64,
}

/// What of a session decides.
#[derive(Debug, Clone)]
struct Session {
    id: SessionId,
    token_hash: String,
    previous_hash: Option<String>,
    previous_until: Option<i64>,
    created_at: i64,
    rotated_at: i64,
    seen_at: i64,
}

/// What a request with a session's token leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// The session is over.
    End,
    /// It is good.
    Good {
        /// The token is to be replaced.
        must_rotate: bool,
        /// The token is the new one and seen for the first time.
        is_confirmed: bool,
        /// When it was seen is to be stored.
        is_seen_stale: bool,
    },
}

impl Session {
    fn judge(&self, presented: &str, policy: &SessionPolicy, now: i64) -> Verdict {
        if now - self.seen_at >= policy.idle_ms || now - self.created_at >= policy.longest_ms {
            return Verdict::End;
        }
        let is_seen_stale = now - self.seen_at >= policy.seen_step_ms;
        let age = now - self.rotated_at;
        if presented == self.token_hash {
            let is_confirmed = self.previous_hash.is_some() && self.previous_until.is_none();
            return Verdict::Good { must_rotate: age >= policy.rotate_ms, is_confirmed, is_seen_stale };
        }
        match self.previous_until {
            None => Verdict::Good { must_rotate: age >= policy.grace_ms, is_confirmed: false, is_seen_stale },
            Some(until) if now < until => {
                Verdict::Good { must_rotate: false, is_confirmed: false, is_seen_stale }
            }
            Some(_) => Verdict::End,
        }
    }
}

impl Store {
    /// Begins a session.
    ///
    /// # Errors
    /// There is no such user, the user is disabled, or the database's.
    pub async fn create_session(&self, new: &NewSession<'_>, now: i64) -> Result<CreatedSession> {
        let id = SessionId::random()?;
        let token = Secret::new(secret::random_text(TOKEN_CHARS)?);
        let csrf = Secret::new(secret::random_text(CSRF_CHARS)?);
        let hash = secret::hash(Kind::SessionToken, token.expose()).to_hex();
        let mut tx = self.db.begin().await?;
        let find = "SELECT id FROM users WHERE id = $1 AND disabled = 0";
        tx.first(find, args![new.user.as_str()]).await?.ok_or(StoreError::Missing("user"))?;
        let trim = "DELETE FROM sessions WHERE id IN (SELECT id FROM sessions WHERE user_id = $1 \
                    ORDER BY seen_at DESC, id LIMIT 1000 OFFSET $2)";
        tx.execute(trim, args![new.user.as_str(), MAX_SESSIONS_PER_USER - 1]).await?;
        let sql = "INSERT INTO sessions \
                   (id, user_id, token_hash, csrf, user_agent, address, created_at, rotated_at, seen_at) \
                   VALUES ($1, $2, $3, $4, $5, $6, $7, $7, $7)";
        let (agent, address) = (label(new.user_agent), label(new.address));
        let values =
            args![id.as_str(), new.user.as_str(), hash.as_str(), csrf.expose(), &agent, &address, now];
        tx.execute(sql, values).await?;
        tx.commit().await?;
        Ok(CreatedSession { id, token, csrf })
    }

    /// Whose session a token is of. `None`: of no session, or of one that is over, or of a disabled user.
    ///
    /// # Errors
    /// The database's.
    pub async fn authenticate_session(&self, token: &str, now: i64) -> Result<Option<SessionAuth>> {
        if token.len() != TOKEN_CHARS {
            return Ok(None);
        }
        let hash = secret::hash(Kind::SessionToken, token).to_hex();
        // Looking a hash up by an index is safe: what its time tells is about the hash, not the token.
        let sql = "SELECT s.id, s.user_id, s.token_hash, s.previous_hash, s.previous_until, s.csrf, s.created_at, \
                   s.rotated_at, s.seen_at, u.org_id, u.role, u.tier \
                   FROM sessions s JOIN users u ON u.id = s.user_id \
                   WHERE (s.token_hash = $1 OR s.previous_hash = $1) AND u.disabled = 0";
        let Some(row) = self.db.first(sql, args![hash.as_str()]).await? else { return Ok(None) };
        let session = session_of(&row)?;
        let Verdict::Good { must_rotate, is_confirmed, is_seen_stale } =
            session.judge(&hash, &self.inner.sessions, now)
        else {
            self.db.execute("DELETE FROM sessions WHERE id = $1", args![session.id.as_str()]).await?;
            return Ok(None);
        };
        if is_confirmed {
            let sql = "UPDATE sessions SET previous_until = $1 WHERE id = $2 AND token_hash = $3 \
                       AND previous_until IS NULL";
            let until = now + self.inner.sessions.grace_ms;
            self.db.execute(sql, args![until, session.id.as_str(), hash.as_str()]).await?;
        }
        let new_token = if must_rotate { self.rotate(&session, &hash, now).await? } else { None };
        if is_seen_stale && new_token.is_none() {
            let sql = "UPDATE sessions SET seen_at = $1 WHERE id = $2 AND seen_at < $1";
            self.db.execute(sql, args![now, session.id.as_str()]).await?;
        }
        let principal = Principal {
            org: OrgId::new(row.get::<String>("org_id")?),
            user: UserId::new(row.get::<String>("user_id")?),
            role: Role::of(&row)?,
            tier: row.get("tier")?,
            scopes: Scopes::all(),
            credential: Credential::Session(session.id.clone()),
        };
        let csrf = Secret::new(row.get::<String>("csrf")?);
        Ok(Some(SessionAuth { principal: Arc::new(principal), session: session.id, csrf, new_token }))
    }

    /// A new token in place of the current one; the one that came stays good as the previous one. Of requests that
    /// come together one gets it: `None` for the others.
    async fn rotate(&self, session: &Session, presented: &str, now: i64) -> Result<Option<Secret>> {
        let token = Secret::new(secret::random_text(TOKEN_CHARS)?);
        let new = secret::hash(Kind::SessionToken, token.expose()).to_hex();
        let sql = "UPDATE sessions SET token_hash = $1, previous_hash = $2, previous_until = NULL, \
                   rotated_at = $3, seen_at = $3 WHERE id = $4 AND token_hash = $5";
        let values = args![new.as_str(), presented, now, session.id.as_str(), &session.token_hash];
        Ok((self.db.execute(sql, values).await? == 1).then_some(token))
    }

    /// A user's sessions, the last seen first.
    ///
    /// # Errors
    /// The database's.
    pub async fn sessions(&self, user: &UserId, now: i64) -> Result<Vec<SessionInfo>> {
        let sql = "SELECT id, user_agent, address, created_at, seen_at FROM sessions \
                   WHERE user_id = $1 AND seen_at > $2 AND created_at > $3 ORDER BY seen_at DESC, id LIMIT $4";
        let policy = &self.inner.sessions;
        let (idle, longest) = (now - policy.idle_ms, now - policy.longest_ms);
        let rows = self.db.all(sql, args![user.as_str(), idle, longest, MAX_SESSIONS_PER_USER]).await?;
        let info = |row: &Row| {
            Ok(SessionInfo {
                id: SessionId::new(row.get::<String>("id")?),
                user_agent: row.get("user_agent")?,
                address: row.get("address")?,
                created_at: row.get("created_at")?,
                seen_at: row.get("seen_at")?,
            })
        };
        rows.iter().map(info).collect()
    }

    /// Ends one of a user's sessions. `false`: the user has no such session.
    ///
    /// # Errors
    /// The database's.
    pub async fn end_session(&self, user: &UserId, id: &SessionId) -> Result<bool> {
        let sql = "DELETE FROM sessions WHERE id = $1 AND user_id = $2";
        Ok(self.db.execute(sql, args![id.as_str(), user.as_str()]).await? == 1)
    }

    /// Ends a user's sessions, but for one to keep, and says how many.
    ///
    /// # Errors
    /// The database's.
    pub async fn end_sessions(&self, user: &UserId, keep: Option<&SessionId>) -> Result<u64> {
        let keep = keep.map_or("", SessionId::as_str);
        let sql = "DELETE FROM sessions WHERE user_id = $1 AND id <> $2";
        self.db.execute(sql, args![user.as_str(), keep]).await
    }

    /// Removes sessions that are over, and keys that were revoked or expired three months ago; once an hour will do.
    ///
    /// # Errors
    /// The database's.
    pub async fn purge(&self, now: i64) -> Result<u64> {
        let policy = &self.inner.sessions;
        let sessions = "DELETE FROM sessions WHERE seen_at <= $1 OR created_at <= $2";
        let ended = self.db.execute(sessions, args![now - policy.idle_ms, now - policy.longest_ms]).await?;
        let keys = "DELETE FROM api_keys WHERE revoked_at <= $1 OR expires_at <= $1";
        let dead = self.db.execute(keys, args![now - crate::keys::KEEP_DEAD_KEYS_MS]).await?;
        Ok(ended + dead)
    }
}

fn session_of(row: &Row) -> Result<Session> {
    Ok(Session {
        id: SessionId::new(row.get::<String>("id")?),
        token_hash: row.get("token_hash")?,
        previous_hash: row.get("previous_hash")?,
        previous_until: row.get("previous_until")?,
        created_at: row.get("created_at")?,
        rotated_at: row.get("rotated_at")?,
        seen_at: row.get("seen_at")?,
    })
}

/// A text from a header for the list of devices: cut, and without control characters.
fn label(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(MAX_LABEL_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: SessionPolicy =
        SessionPolicy { rotate_ms: 100, grace_ms: 10, idle_ms: 1_000, longest_ms: 5_000, seen_step_ms: 50 };

    /// A session rotated at 200, with its previous token good until the given time.
    fn session(previous_until: Option<i64>) -> Session {
        Session {
            id: SessionId::new("s"),
            token_hash: "current".into(),
            previous_hash: Some("previous".into()),
            previous_until,
            created_at: 0,
            rotated_at: 200,
            seen_at: 200,
        }
    }

    fn good(must_rotate: bool, is_confirmed: bool, is_seen_stale: bool) -> Verdict {
        Verdict::Good { must_rotate, is_confirmed, is_seen_stale }
    }

    #[test]
    fn tokens_are_judged_by_their_age_and_place() {
        for (until, token, now, want) in [
            (None, "current", 205, good(false, true, false)),
            (Some(215), "current", 260, good(false, false, true)),
            (Some(215), "current", 300, good(true, false, true)),
            (None, "previous", 209, good(false, false, false)),
            (None, "previous", 210, good(true, false, false)),
            (Some(215), "previous", 214, good(false, false, false)),
            (Some(215), "previous", 215, Verdict::End),
            (Some(215), "current", 1_199, good(true, false, true)),
            (Some(215), "current", 1_200, Verdict::End),
        ] {
            let verdict = session(until).judge(token, &POLICY, now);
            assert_eq!(verdict, want, "{until:?} {token} {now}");
        }
        let old = Session { seen_at: 4_990, rotated_at: 4_990, ..session(Some(0)) };
        assert_eq!(old.judge("current", &POLICY, 5_000), Verdict::End);
    }
}
