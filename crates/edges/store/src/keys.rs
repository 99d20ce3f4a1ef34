//! API keys: `mk-`, twelve characters that may be shown, and a secret.
//!
//! The twelve find the row; the row has the hash of the whole key. The secret has 190 bits, so a fast hash is enough
//! and a request pays about a microsecond for it.

use std::sync::Arc;

use crate::{
    Credential, DataOwner, KeyId, OrgId, Owner, Principal, Role, Scopes, Secret, Store, UserId,
    db::{Row, args},
    error::{Result, StoreError},
    key_cache::{Age, Known},
    secret::{self, Kind},
    users,
};

/// The most keys of one user that work: more are a program that makes keys.
pub const MAX_KEYS_PER_USER: usize = 100;

/// The most keys of one user that are revoked or expired and stay in lists: making and revoking keys in turns must not
/// fill the table.
const MAX_DEAD_KEYS_PER_USER: u32 = 100;

const START: &str = "mk-";
const SHOWN_CHARS: usize = 12;
const SECRET_CHARS: usize = 32;

/// The most keys in a list: revoked ones stay in it until they are purged.
const MAX_LISTED: u32 = 1_000;

/// The last use is stored at most this often per key, so that requests do not write.
const LAST_USED_STEP_MS: i64 = 300_000;

/// How long a key that is revoked or expired stays in lists.
pub(crate) const KEEP_DEAD_KEYS_MS: i64 = 90 * 24 * 3_600_000;

/// A key to make.
#[derive(Debug, Clone)]
pub struct NewKey<'a> {
    /// Whose it is.
    pub user: &'a UserId,
    /// What it is for, in the user's words.
    pub name: &'a str,
    /// What it may be used for.
    pub scopes: Scopes,
    /// When it stops working.
    pub expires_at: Option<i64>,
}

/// A key that was just made: the only time it can be seen whole.
#[derive(Debug, Clone)]
pub struct CreatedKey {
    /// What is stored.
    pub info: KeyInfo,
    /// The key.
    pub secret: Secret,
}

/// What is known of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyInfo {
    /// Its id.
    pub id: KeyId,
    /// The organisation.
    pub org: OrgId,
    /// Whose it is.
    pub user: UserId,
    /// What it is for, in the user's words.
    pub name: String,
    /// The start of the key, which may be shown.
    pub prefix: String,
    /// What it may be used for.
    pub scopes: Scopes,
    /// When it was made.
    pub created_at: i64,
    /// When it stops working.
    pub expires_at: Option<i64>,
    /// About when it was last used: five minutes or less before the last time.
    pub last_used_at: Option<i64>,
    /// When it was revoked.
    pub revoked_at: Option<i64>,
}

impl Store {
    /// Makes a key for a user.
    ///
    /// # Errors
    /// The name breaks a rule, there is no such user or too many keys, or the database's.
    pub async fn create_key(&self, new: &NewKey<'_>, now: i64) -> Result<CreatedKey> {
        let name = users::field("the key's name", new.name)?;
        let prefix = format!("{START}{}", secret::random_text(SHOWN_CHARS)?);
        let key = Secret::new(format!("{prefix}{}", secret::random_text(SECRET_CHARS)?));
        let hash = secret::hash(Kind::ApiKey, key.expose()).to_hex();
        let id = KeyId::random()?;
        let mut tx = self.db.begin().await?;
        let trim = "DELETE FROM api_keys WHERE id IN (SELECT id FROM api_keys WHERE user_id = $1 \
                    AND (revoked_at IS NOT NULL OR expires_at <= $2) ORDER BY created_at DESC, id \
                    LIMIT 1000 OFFSET $3)";
        tx.execute(trim, args![new.user.as_str(), now, MAX_DEAD_KEYS_PER_USER]).await?;
        let count = "SELECT COUNT(*) AS n FROM api_keys WHERE user_id = $1 AND revoked_at IS NULL \
                     AND (expires_at IS NULL OR expires_at > $2)";
        let row = tx.first(count, args![new.user.as_str(), now]).await?;
        let has = row.map_or(Ok(0), |row| row.get::<i64>("n"))?;
        if usize::try_from(has).is_ok_and(|has| has >= MAX_KEYS_PER_USER) {
            return Err(StoreError::TooMany { what: "keys", limit: MAX_KEYS_PER_USER });
        }
        let find = "SELECT org_id FROM users WHERE id = $1 AND disabled = 0";
        let user = tx.first(find, args![new.user.as_str()]).await?.ok_or(StoreError::Missing("user"))?;
        let org = OrgId::new(user.get::<String>("org_id")?);
        let sql = "INSERT INTO api_keys (id, org_id, user_id, name, prefix, hash, scopes, created_at, expires_at) \
                   VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";
        let (user, scopes) = (new.user.clone(), new.scopes.to_text());
        let values = args![
            id.as_str(),
            org.as_str(),
            user.as_str(),
            &name,
            &prefix,
            hash.as_str(),
            &scopes,
            now,
            new.expires_at,
        ];
        tx.execute(sql, values).await?;
        tx.commit().await?;
        let (scopes, expires_at) = (new.scopes, new.expires_at);
        let (created_at, last_used_at, revoked_at) = (now, None, None);
        let info =
            KeyInfo { id, org, user, name, prefix, scopes, created_at, expires_at, last_used_at, revoked_at };
        Ok(CreatedKey { info, secret: key })
    }

    /// A user's or an organisation's keys, newest first; at most a thousand.
    ///
    /// # Errors
    /// The database's.
    pub async fn keys(&self, owner: Owner<'_>) -> Result<Vec<KeyInfo>> {
        let sql = "SELECT id, org_id, user_id, name, prefix, scopes, created_at, expires_at, last_used_at, revoked_at \
                   FROM api_keys WHERE org_id = $1 AND (CAST($2 AS TEXT) IS NULL OR user_id = $2) \
                   ORDER BY created_at DESC, id LIMIT $3";
        let rows = self.db.all(sql, args![owner.org(), owner.user(), MAX_LISTED]).await?;
        rows.iter().map(info_of).collect()
    }

    /// Revokes a key. It stops working in this process at once. `false`: there is no such key of this owner's that
    /// still works.
    ///
    /// # Errors
    /// The database's.
    pub async fn revoke_key(&self, owner: Owner<'_>, id: &KeyId, now: i64) -> Result<bool> {
        let sql = "UPDATE api_keys SET revoked_at = $1 WHERE id = $2 AND org_id = $3 \
                   AND (CAST($4 AS TEXT) IS NULL OR user_id = $4) AND revoked_at IS NULL";
        let changed = self.db.execute(sql, args![now, id.as_str(), owner.org(), owner.user()]).await;
        // Even when the answer got lost: the change may have been made.
        self.inner.keys.forget_key(id);
        Ok(changed? == 1)
    }

    /// Who an API key stands for. `None`: it is no key, or revoked, expired, or of a disabled user.
    ///
    /// It costs a look into memory, or one indexed query when the key was not used in the last seconds. While the
    /// database does not answer, keys that were good minutes ago still are ([`KeyCacheLimits`](crate::KeyCacheLimits)).
    ///
    /// # Errors
    /// The database's, for a key that is not remembered.
    pub async fn authenticate_key(&self, key: &str, now: i64) -> Result<Option<Arc<Principal>>> {
        let Some(prefix) = shown_part(key) else { return Ok(None) };
        let hash = secret::hash(Kind::ApiKey, key);
        let cache = &self.inner.keys;
        if let Some(principal) = cache.get(&hash, Age::Fresh, now) {
            return Ok(Some(principal));
        }
        let generation = cache.generation();
        match self.read_key(prefix, &hash, now).await {
            Ok(Some(known)) => {
                let principal = Arc::clone(&known.principal);
                cache.put(&hash, known, generation);
                Ok(Some(principal))
            }
            Ok(None) => {
                cache.forget_hash(&hash);
                Ok(None)
            }
            Err(error) if error.is_temporary() => match cache.get(&hash, Age::Stale, now) {
                Some(principal) => Ok(Some(principal)),
                None => Err(error),
            },
            Err(error) => Err(error),
        }
    }

    async fn read_key(&self, prefix: &str, hash: &blake3::Hash, now: i64) -> Result<Option<Known>> {
        let sql = "SELECT k.id, k.org_id, k.user_id, k.hash, k.scopes, k.expires_at, k.last_used_at, u.role, u.tier \
                   FROM api_keys k JOIN users u ON u.id = k.user_id \
                   WHERE k.prefix = $1 AND k.revoked_at IS NULL AND u.disabled = 0";
        let Some(row) = self.db.first(sql, args![prefix]).await? else { return Ok(None) };
        let stored: String = row.get("hash")?;
        let stored =
            blake3::Hash::from_hex(&stored).map_err(|_| StoreError::corrupt("hash of a key", prefix))?;
        let expires_at: Option<i64> = row.get("expires_at")?;
        // `blake3::Hash` compares in constant time.
        if stored != *hash || expires_at.is_some_and(|expires_at| now >= expires_at) {
            return Ok(None);
        }
        let id = KeyId::new(row.get::<String>("id")?);
        if row.get::<Option<i64>>("last_used_at")?.is_none_or(|last| last <= now - LAST_USED_STEP_MS) {
            self.note_use(&id, now).await;
        }
        let principal = Principal {
            org: OrgId::new(row.get::<String>("org_id")?),
            user: UserId::new(row.get::<String>("user_id")?),
            role: Role::of(&row)?,
            tier: row.get("tier")?,
            scopes: Scopes::from_text(&row.get::<String>("scopes")?),
            credential: Credential::Key(id),
        };
        Ok(Some(Known { principal: Arc::new(principal), expires_at, read_at: now }))
    }

    /// Who an owner of earlier work is now: what was asked for with a key is done while that key works, anything else
    /// while the user does. `None`: nothing may be done for them any more.
    ///
    /// # Errors
    /// The database's.
    pub async fn standing(
        &self,
        owner: &DataOwner,
        key: Option<&KeyId>,
        now: i64,
    ) -> Result<Option<Principal>> {
        let of_key = "SELECT k.scopes, k.expires_at, u.role, u.tier FROM api_keys k JOIN users u ON u.id = k.user_id \
                      WHERE u.org_id = $1 AND u.id = $2 AND u.disabled = 0 AND k.id = $3 AND k.revoked_at IS NULL";
        let of_user = "SELECT role, tier FROM users WHERE org_id = $1 AND id = $2 AND disabled = 0";
        let (org, user) = (owner.org.as_str(), owner.user.as_str());
        let row = match key {
            Some(key) => self.db.first(of_key, args![org, user, key.as_str()]).await?,
            None => self.db.first(of_user, args![org, user]).await?,
        };
        let Some(row) = row else { return Ok(None) };
        let (scopes, credential) = match key {
            Some(key) => {
                if row.get::<Option<i64>>("expires_at")?.is_some_and(|expires_at| now >= expires_at) {
                    return Ok(None);
                }
                (Scopes::from_text(&row.get::<String>("scopes")?), Credential::Key(key.clone()))
            }
            None => (Scopes::all(), Credential::Earlier),
        };
        let (org, user) = (owner.org.clone(), owner.user.clone());
        let (role, tier) = (Role::of(&row)?, row.get("tier")?);
        Ok(Some(Principal { org, user, role, tier, scopes, credential }))
    }

    /// Stores when a key was used. A database that can be read but not written does not keep anybody out.
    async fn note_use(&self, id: &KeyId, now: i64) {
        let sql = "UPDATE api_keys SET last_used_at = $1 WHERE id = $2 \
                   AND (last_used_at IS NULL OR last_used_at < $1)";
        if let Err(error) = self.db.execute(sql, args![now, id.as_str()]).await {
            tracing::warn!(%error, key = %id, "the last use of a key could not be stored");
        }
    }
}

/// The part of a key that finds its row, if the text has the form of a key.
fn shown_part(key: &str) -> Option<&str> {
    let body = key.strip_prefix(START)?;
    let has_form =
        body.len() == SHOWN_CHARS + SECRET_CHARS && body.bytes().all(|byte| byte.is_ascii_alphanumeric());
    has_form.then(|| &key[..START.len() + SHOWN_CHARS])
}

fn info_of(row: &Row) -> Result<KeyInfo> {
    Ok(KeyInfo {
        id: KeyId::new(row.get::<String>("id")?),
        org: OrgId::new(row.get::<String>("org_id")?),
        user: UserId::new(row.get::<String>("user_id")?),
        name: row.get("name")?,
        prefix: row.get("prefix")?,
        scopes: Scopes::from_text(&row.get::<String>("scopes")?),
        created_at: row.get("created_at")?,
        expires_at: row.get("expires_at")?,
        last_used_at: row.get("last_used_at")?,
        revoked_at: row.get("revoked_at")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_text_of_a_keys_form_is_looked_up() {
        let body = "A1b2".repeat(11);
        let key = format!("mk-{body}");
        assert_eq!(shown_part(&key), Some("mk-A1b2A1b2A1b2"));
        for bad in [
            "",
            "mk-",
            "sk-x",
            &key[1..],
            &key[..46],
            &format!("{key}x"),
            &key.replace('A', "-"),
            &key.replace("A1", "é"),
        ] {
            assert_eq!(shown_part(bad), None, "{bad}");
        }
    }
}
