//! Hashing and checking passwords with Argon2id. The work is done on threads for blocking work, a few at a time.

use std::sync::Arc;

use argon2::{Algorithm, Argon2, Params, PasswordHash, PasswordHasher, PasswordVerifier, Version};
use tokio::sync::Semaphore;

use crate::{
    Secret,
    error::{Result, StoreError},
};

/// The shortest password that is taken, in characters.
pub const MIN_PASSWORD_CHARS: usize = 8;

/// The longest password that is taken, in bytes. Hashing reads all of it, so there has to be an end.
pub const MAX_PASSWORD_BYTES: usize = 1024;

/// Each check takes [`PasswordCost::memory_kib`]; more at once would take memory from the model for no gain.
const AT_ONCE: usize = 2;

/// What hashing a password costs, for us and for whoever has stolen the hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PasswordCost {
    /// Memory, in KiB.
    pub memory_kib: u32,
    /// Passes over the memory.
    pub passes: u32,
}

impl Default for PasswordCost {
    /// The least that the OWASP password storage cheat sheet recommends for Argon2id: 19 MiB, two passes.
    fn default() -> Self {
        Self { memory_kib: 19 * 1024, passes: 2 }
    }
}

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    Wrong,
    Right,
    /// Right, but hashed at another cost; this hash has today's.
    RightWith(String),
}

/// Hashes and checks passwords.
#[derive(Debug)]
pub(crate) struct Passwords {
    argon: Argon2<'static>,
    turns: Arc<Semaphore>,
    /// A hash no password has, checked when there is no such user: the answer takes as long as for one there is.
    decoy: String,
}

impl Passwords {
    pub(crate) fn new(cost: PasswordCost) -> Result<Self> {
        let params = Params::new(cost.memory_kib, cost.passes, 1, None).map_err(failed)?;
        let argon = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
        let nobody = crate::secret::random_text(32)?;
        let decoy = hash(&argon, &nobody)?;
        Ok(Self { argon, turns: Arc::new(Semaphore::new(AT_ONCE)), decoy })
    }

    /// A PHC string.
    pub(crate) async fn hash(&self, password: &Secret) -> Result<String> {
        check_rules(password.expose())?;
        let (argon, password) = (self.argon.clone(), password.clone());
        self.blocking(move || hash(&argon, password.expose())).await
    }

    /// Checks against a stored hash; without one, takes the same time to say no.
    pub(crate) async fn verify(&self, password: &Secret, stored: Option<String>) -> Result<Verdict> {
        if password.expose().len() > MAX_PASSWORD_BYTES {
            return Ok(Verdict::Wrong);
        }
        let is_real = stored.is_some();
        let stored = stored.unwrap_or_else(|| self.decoy.clone());
        let (argon, password) = (self.argon.clone(), password.clone());
        let verdict = self.blocking(move || verify(&argon, password.expose(), &stored)).await?;
        Ok(if is_real { verdict } else { Verdict::Wrong })
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let turn = Arc::clone(&self.turns).acquire_owned().await.map_err(failed)?;
        // The turn goes with the work: a caller that leaves does not make room while the work goes on.
        let work = move || {
            let _turn = turn;
            work()
        };
        tokio::task::spawn_blocking(work).await.map_err(failed)?
    }
}

fn check_rules(password: &str) -> Result<()> {
    let rule = if password.chars().count() < MIN_PASSWORD_CHARS {
        "needs at least 8 characters"
    } else if password.len() > MAX_PASSWORD_BYTES {
        "may have at most 1024 bytes"
    } else {
        return Ok(());
    };
    Err(StoreError::Invalid { what: "the password", rule })
}

fn hash(argon: &Argon2<'_>, password: &str) -> Result<String> {
    let mut salt = [0_u8; 16];
    getrandom::fill(&mut salt).map_err(|error| StoreError::Random(error.to_string()))?;
    let hash = argon.hash_password_with_salt(password.as_bytes(), &salt).map_err(failed)?;
    Ok(hash.to_string())
}

fn verify(argon: &Argon2<'_>, password: &str, stored: &str) -> Result<Verdict> {
    let parsed = PasswordHash::new(stored).map_err(failed)?;
    // Takes its cost from the stored hash and compares in constant time.
    if argon.verify_password(password.as_bytes(), &parsed).is_err() {
        return Ok(Verdict::Wrong);
    }
    let is_current = Params::try_from(&parsed).is_ok_and(|params| {
        let today = argon.params();
        (params.m_cost(), params.t_cost(), params.p_cost())
            == (today.m_cost(), today.t_cost(), today.p_cost())
    });
    if is_current && parsed.algorithm == Algorithm::Argon2id.ident() {
        return Ok(Verdict::Right);
    }
    hash(argon, password).map(Verdict::RightWith)
}

fn failed(error: impl std::fmt::Display) -> StoreError {
    StoreError::Hashing(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cheap(passes: u32) -> Passwords {
        Passwords::new(PasswordCost { memory_kib: 64, passes }).unwrap()
    }

    #[tokio::test]
    async fn a_password_verifies_and_a_changed_cost_hashes_anew() {
        let (old, new) = (cheap(1), cheap(2));
        let right = Secret::new("correct horse");
        let stored = old.hash(&right).await.unwrap();
        assert!(stored.starts_with("$argon2id$v=19$m=64,t=1,p=1$"), "{stored}");
        assert_eq!(old.verify(&right, Some(stored.clone())).await.unwrap(), Verdict::Right);
        let Verdict::RightWith(rehashed) = new.verify(&right, Some(stored.clone())).await.unwrap() else {
            panic!("not hashed anew");
        };
        assert_eq!(new.verify(&right, Some(rehashed)).await.unwrap(), Verdict::Right);
        for wrong in ["", "correct horsf", "correct horse "] {
            assert_eq!(old.verify(&Secret::new(wrong), Some(stored.clone())).await.unwrap(), Verdict::Wrong);
        }
        assert_eq!(old.verify(&right, None).await.unwrap(), Verdict::Wrong);
    }

    #[tokio::test]
    async fn lengths_are_bounded() {
        let passwords = cheap(1);
        for (password, fits) in
            [("seven77".into(), false), ("eight888".into(), true), ("x".repeat(1025), false)]
        {
            assert_eq!(passwords.hash(&Secret::new(password)).await.is_ok(), fits);
        }
        let long = Secret::new("x".repeat(2000));
        assert_eq!(passwords.verify(&long, None).await.unwrap(), Verdict::Wrong);
    }
}
