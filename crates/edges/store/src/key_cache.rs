//! Which keys were good a moment ago.
//!
//! Invariants:
//! - an entry is of a key that the database had as good, read after the last time anything was forgotten;
//! - there are never more entries than the limit.
//!
//! Without the first one a revocation could be lost: a request reads the key, the key is revoked and forgotten, and only
//! then the request puts down what it read. So a read begins with [`KeyCache::generation`], forgetting changes the
//! generation, and what was read under an older one is not put down.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;

use crate::{KeyId, Principal, UserId};

/// How many keys are remembered between requests, and how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyCacheLimits {
    /// The most keys. One takes about 300 bytes.
    pub most: usize,
    /// How long a key is used without asking the database: the longest that a revocation in another process takes to
    /// count here.
    pub fresh_ms: i64,
    /// How long a key is used when the database does not answer, so that programs go on working without it.
    pub stale_ms: i64,
}

impl Default for KeyCacheLimits {
    /// 10,000 keys, 10 seconds, 10 minutes.
    fn default() -> Self {
        Self { most: 10_000, fresh_ms: 10_000, stale_ms: 600_000 }
    }
}

/// A key the database had as good.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    pub(crate) principal: Arc<Principal>,
    pub(crate) expires_at: Option<i64>,
    pub(crate) read_at: i64,
}

#[derive(Debug, Default)]
struct Entries {
    by_hash: HashMap<[u8; 32], Known>,
    generation: u64,
}

#[derive(Debug)]
pub(crate) struct KeyCache {
    limits: KeyCacheLimits,
    entries: Mutex<Entries>,
}

/// How old an entry may be.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Age {
    Fresh,
    Stale,
}

impl KeyCache {
    pub(crate) fn new(limits: KeyCacheLimits) -> Self {
        Self { limits, entries: Mutex::default() }
    }

    pub(crate) fn generation(&self) -> u64 {
        self.entries.lock().generation
    }

    /// The entry of the key with this hash. The hash is of a secret, so looking it up tells nothing by its time.
    pub(crate) fn get(&self, hash: &blake3::Hash, age: Age, now: i64) -> Option<Arc<Principal>> {
        let most = match age {
            Age::Fresh => self.limits.fresh_ms,
            Age::Stale => self.limits.stale_ms,
        };
        let entries = self.entries.lock();
        let known = entries.by_hash.get(hash.as_bytes())?;
        let is_young = (0..most).contains(&(now - known.read_at));
        let is_valid = known.expires_at.is_none_or(|expires_at| now < expires_at);
        (is_young && is_valid).then(|| Arc::clone(&known.principal))
    }

    /// Puts down what was read, unless something was forgotten since `generation`.
    pub(crate) fn put(&self, hash: &blake3::Hash, known: Known, generation: u64) {
        let mut entries = self.entries.lock();
        if entries.generation != generation {
            return;
        }
        let (most, stale_ms) = (self.limits.most, self.limits.stale_ms);
        if entries.by_hash.len() >= most && !entries.by_hash.contains_key(hash.as_bytes()) {
            let now = known.read_at;
            entries.by_hash.retain(|_, old| now - old.read_at < stale_ms);
            // More keys in use than fit: starting anew costs each a read, and needs no order of use.
            if entries.by_hash.len() >= most {
                entries.by_hash.clear();
            }
        }
        if most > 0 {
            entries.by_hash.insert(*hash.as_bytes(), known);
        }
    }

    pub(crate) fn forget_key(&self, id: &KeyId) {
        self.forget(|principal| principal.key_id() == Some(id));
    }

    pub(crate) fn forget_user(&self, id: &UserId) {
        self.forget(|principal| principal.user == *id);
    }

    /// Drops the key with this hash, which the database has no more.
    pub(crate) fn forget_hash(&self, hash: &blake3::Hash) {
        self.entries.lock().by_hash.remove(hash.as_bytes());
    }

    fn forget(&self, is_meant: impl Fn(&Principal) -> bool) {
        let mut entries = self.entries.lock();
        entries.generation += 1;
        entries.by_hash.retain(|_, known| !is_meant(&known.principal));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Credential, OrgId, Role, Scopes};

    fn hash(name: &str) -> blake3::Hash {
        blake3::hash(name.as_bytes())
    }

    fn known(name: &str, read_at: i64) -> Known {
        let principal = Principal {
            org: OrgId::new("org"),
            user: UserId::new(format!("user-of-{name}")),
            role: Role::Member,
            tier: "free".into(),
            scopes: Scopes::all(),
            credential: Credential::Key(KeyId::new(name)),
        };
        Known { principal: Arc::new(principal), expires_at: None, read_at }
    }

    fn cache(most: usize) -> KeyCache {
        KeyCache::new(KeyCacheLimits { most, fresh_ms: 10, stale_ms: 100 })
    }

    #[test]
    fn entries_age_and_expire() {
        let cache = cache(10);
        cache.put(&hash("a"), known("a", 0), 0);
        cache.put(&hash("b"), Known { expires_at: Some(5), ..known("b", 0) }, 0);
        for (name, age, now, is_there) in [
            ("a", Age::Fresh, 9, true),
            ("a", Age::Fresh, 10, false),
            ("a", Age::Stale, 99, true),
            ("a", Age::Stale, 100, false),
            ("a", Age::Fresh, -1, false),
            ("b", Age::Fresh, 4, true),
            ("b", Age::Stale, 5, false),
            ("c", Age::Stale, 0, false),
        ] {
            assert_eq!(cache.get(&hash(name), age, now).is_some(), is_there, "{name} {age:?} {now}");
        }
    }

    #[test]
    fn what_was_read_before_a_revocation_is_not_put_down_after_it() {
        let cache = cache(10);
        let generation = cache.generation();
        cache.forget_key(&KeyId::new("a"));
        cache.put(&hash("a"), known("a", 0), generation);
        assert!(cache.get(&hash("a"), Age::Fresh, 0).is_none());
        cache.put(&hash("a"), known("a", 0), cache.generation());
        assert!(cache.get(&hash("a"), Age::Fresh, 0).is_some());
    }

    #[test]
    fn forgetting_meets_only_those_meant() {
        let cache = cache(10);
        for name in ["a", "b", "c"] {
            cache.put(&hash(name), known(name, 0), 0);
        }
        cache.forget_key(&KeyId::new("a"));
        cache.forget_user(&UserId::new("user-of-b"));
        let left = ["a", "b", "c"].map(|name| cache.get(&hash(name), Age::Fresh, 0).is_some());
        assert_eq!(left, [false, false, true]);
    }

    #[test]
    fn the_cache_is_bounded() {
        for most in [0, 1, 7] {
            let cache = cache(most);
            for n in 0..50 {
                cache.put(&hash(&n.to_string()), known(&n.to_string(), n), 0);
                assert!(cache.entries.lock().by_hash.len() <= most);
            }
        }
    }
}
