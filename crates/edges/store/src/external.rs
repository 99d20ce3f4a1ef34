//! Users who sign in with a provider.
//!
//! A user is known by issuer and subject alone: names and addresses change hands, and a provider may give one to somebody
//! who is not the user it was given to here. So an account that exists is never taken over because of an equal login or
//! address; its user links the identity while signed in ([`Store::link_identity`]).

use crate::{
    NewUser, OrgId, Role, Store, User, UserChange, UserId,
    db::{Row, Tx, args},
    error::{Result, StoreError},
    secret,
    users::{self, field, user_of},
};

/// The most identities of one user: people have a few providers.
pub const MAX_IDENTITIES_PER_USER: usize = 20;

/// Longest issuer and subject.
const MAX_ID_BYTES: usize = 1024;
/// Longest login that is made of a provider's name, so that there is room to make it unique.
const MAX_LOGIN_CHARS: usize = 200;
/// How many numbers are tried behind a login that is taken before random letters are.
const NUMBERED: u32 = 20;
/// Random letters behind a login that many have: 71 bits.
const RANDOM_CHARS: usize = 12;

/// Who somebody is at a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExternalId<'a> {
    /// The provider.
    pub issuer: &'a str,
    /// The provider's own name for the person.
    pub subject: &'a str,
}

impl ExternalId<'_> {
    fn check(self) -> Result<()> {
        for (what, text) in [("the issuer", self.issuer), ("the subject", self.subject)] {
            if text.is_empty() || text.len() > MAX_ID_BYTES || text.contains(char::is_control) {
                let rule = "may not be empty, have more than 1024 bytes, or have control characters in it";
                return Err(StoreError::Invalid { what, rule });
            }
        }
        Ok(())
    }
}

/// What a provider says about somebody who signs in.
#[derive(Debug, Clone, Copy)]
pub struct ExternalSignIn<'a> {
    /// Who it is.
    pub id: ExternalId<'a>,
    /// What a new account is called, made unique; it may be empty.
    pub login: &'a str,
    /// The name for people, where there is one.
    pub display_name: Option<&'a str>,
    /// The name of the tier.
    pub tier: &'a str,
    /// Whether the tier is that of the user's groups, which an account takes at each sign-in; else it is a new account's.
    pub has_mapped_tier: bool,
    /// Whether the user may become the owner of a database without users.
    pub may_be_first_owner: bool,
}

/// What came of a sign-in with a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExternalOutcome {
    /// A user there was, as the provider describes them now.
    Known(User),
    /// A user that was made.
    Created(User),
    /// A user who is kept out.
    Disabled(User),
    /// There is no user at all yet, and this one may not be the first: whoever came first would own the server.
    NoAccounts,
}

/// A line in the list of a user's identities.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkedIdentity {
    /// The provider.
    pub issuer: String,
    /// The provider's own name for the person.
    pub subject: String,
    /// When it was linked.
    pub linked_at: i64,
    /// When it was last used.
    pub seen_at: i64,
}

impl Store {
    /// The user an identity stands for.
    ///
    /// # Errors
    /// The identity breaks a rule, or the database's.
    pub async fn user_by_identity(&self, id: ExternalId<'_>) -> Result<Option<User>> {
        id.check()?;
        let sql = "SELECT u.id, u.org_id, u.login, u.display_name, u.role, u.tier, u.disabled, u.created_at \
                   FROM identities i JOIN users u ON u.id = i.user_id WHERE i.issuer = $1 AND i.subject = $2";
        let row = self.db.first(sql, args![id.issuer, id.subject]).await?;
        row.as_ref().map(user_of).transpose()
    }

    /// Lets a user who exists sign in with an identity too. The caller knows that both are the same person: the user is
    /// signed in, and the provider has just vouched for the identity.
    ///
    /// # Errors
    /// It breaks a rule or stands for another user, the user has too many, there is no such user, or the database's.
    pub async fn link_identity(&self, user: &UserId, id: ExternalId<'_>, now: i64) -> Result<()> {
        let mut tx = self.db.begin().await?;
        // Holds the user's row to the end, so that the bound holds for requests that come together.
        let hold = "UPDATE users SET login = login WHERE id = $1";
        if tx.execute(hold, args![user.as_str()]).await? == 0 {
            return Err(StoreError::Missing("user"));
        }
        if !insert_identity(&mut tx, user, id, now).await? {
            let sql = "SELECT user_id FROM identities WHERE issuer = $1 AND subject = $2";
            let row = tx.first(sql, args![id.issuer, id.subject]).await?;
            let is_own = match row {
                Some(row) => row.get::<String>("user_id")? == user.as_str(),
                None => false,
            };
            return if is_own { Ok(()) } else { Err(StoreError::IdentityTaken) };
        }
        let sql = "SELECT CAST(COUNT(*) AS BIGINT) AS many FROM identities WHERE user_id = $1";
        let row = tx.first(sql, args![user.as_str()]).await?;
        let many = row.map_or(Ok(0), |row| row.get::<i64>("many"))?;
        if many > MAX_IDENTITIES_PER_USER as i64 {
            return Err(StoreError::TooMany { what: "identities", limit: MAX_IDENTITIES_PER_USER });
        }
        tx.commit().await
    }

    /// Takes an identity from a user. `false`: the user has no such identity.
    ///
    /// # Errors
    /// The identity breaks a rule, or the database's.
    pub async fn unlink_identity(&self, user: &UserId, id: ExternalId<'_>) -> Result<bool> {
        id.check()?;
        let sql = "DELETE FROM identities WHERE user_id = $1 AND issuer = $2 AND subject = $3";
        Ok(self.db.execute(sql, args![user.as_str(), id.issuer, id.subject]).await? == 1)
    }

    /// A user's identities, the first linked first.
    ///
    /// # Errors
    /// The database's.
    pub async fn identities(&self, user: &UserId) -> Result<Vec<LinkedIdentity>> {
        let sql = "SELECT issuer, subject, linked_at, seen_at FROM identities WHERE user_id = $1 \
                   ORDER BY linked_at, issuer, subject LIMIT $2";
        let rows = self.db.all(sql, args![user.as_str(), MAX_IDENTITIES_PER_USER as i64]).await?;
        let linked = |row: &Row| {
            Ok(LinkedIdentity {
                issuer: row.get("issuer")?,
                subject: row.get("subject")?,
                linked_at: row.get("linked_at")?,
                seen_at: row.get("seen_at")?,
            })
        };
        rows.iter().map(linked).collect()
    }

    /// Makes a user without a password for an identity. Of calls with one identity that come together one makes the
    /// user, and the others get it.
    ///
    /// # Errors
    /// A field breaks a rule, there is no such organisation, or the database's.
    pub async fn create_external_user(
        &self,
        org: &OrgId,
        sign_in: &ExternalSignIn<'_>,
        now: i64,
    ) -> Result<User> {
        let mut tx = self.db.begin().await?;
        if let Some(user) = insert_external(&mut tx, org, Role::Member, sign_in, now).await? {
            tx.commit().await?;
            return Ok(user);
        }
        drop(tx);
        self.user_by_identity(sign_in.id).await?.ok_or(StoreError::Missing("user"))
    }

    /// The user who signs in with a provider: the one the identity stands for, brought up to date, or a new one. The
    /// first user of all is one only if the sign-in may be the owner's; then it is the owner of an organisation of this name.
    ///
    /// # Errors
    /// A field breaks a rule, or the database's.
    pub async fn sign_in_external(
        &self,
        org_name: &str,
        sign_in: &ExternalSignIn<'_>,
        now: i64,
    ) -> Result<ExternalOutcome> {
        if let Some(user) = self.user_by_identity(sign_in.id).await? {
            return self.bring_up_to_date(user, sign_in, now).await;
        }
        if self.is_empty().await? {
            if !sign_in.may_be_first_owner {
                return Ok(ExternalOutcome::NoAccounts);
            }
            if let Some(user) = self.create_first_external_owner(org_name, sign_in, now).await? {
                return Ok(ExternalOutcome::Created(user));
            }
        }
        let org = self.orgs(None).await?.into_iter().next().ok_or(StoreError::Missing("organisation"))?;
        self.create_external_user(&org.id, sign_in, now).await.map(ExternalOutcome::Created)
    }

    async fn bring_up_to_date(
        &self,
        user: User,
        sign_in: &ExternalSignIn<'_>,
        now: i64,
    ) -> Result<ExternalOutcome> {
        if user.is_disabled {
            return Ok(ExternalOutcome::Disabled(user));
        }
        let sql = "UPDATE identities SET seen_at = $1 WHERE issuer = $2 AND subject = $3";
        self.db.execute(sql, args![now, sign_in.id.issuer, sign_in.id.subject]).await?;
        // A name that breaks a rule keeps nobody out.
        let name = sign_in.display_name.and_then(|name| field("the display name", name).ok());
        let name = name.filter(|name| *name != user.display_name);
        let tier = Some(sign_in.tier).filter(|tier| sign_in.has_mapped_tier && *tier != user.tier);
        if name.is_none() && tier.is_none() {
            return Ok(ExternalOutcome::Known(user));
        }
        let change = UserChange { display_name: name.as_deref(), tier, ..UserChange::default() };
        self.update_user(&user.org, &user.id, &change).await.map(ExternalOutcome::Known)
    }

    /// `None`: there is a user already.
    async fn create_first_external_owner(
        &self,
        org_name: &str,
        sign_in: &ExternalSignIn<'_>,
        now: i64,
    ) -> Result<Option<User>> {
        let mut tx = self.db.begin().await?;
        if !users::claim_first(&mut tx, now).await? {
            return Ok(None);
        }
        // An organisation without users is what an attempt left that failed.
        let org = match tx.first("SELECT id FROM orgs ORDER BY id LIMIT 1", &[]).await? {
            Some(row) => OrgId::new(row.get::<String>("id")?),
            None => {
                let org = users::new_org(org_name, now)?;
                users::insert_org(&mut tx, &org).await?;
                org.id
            }
        };
        let user = insert_external(&mut tx, &org, Role::Owner, sign_in, now).await?;
        tx.commit().await?;
        Ok(user)
    }
}

/// Makes a user and links the identity. `None`, with the transaction to be dropped: it stands for a user already.
async fn insert_external(
    tx: &mut Tx,
    org: &OrgId,
    role: Role,
    sign_in: &ExternalSignIn<'_>,
    now: i64,
) -> Result<Option<User>> {
    let base = login_of(sign_in.login);
    for number in 1..=NUMBERED + 1 {
        let login = match number {
            1 => base.clone(),
            2..=NUMBERED => format!("{base}-{number}"),
            _ => format!("{base}-{}", secret::random_text(RANDOM_CHARS)?),
        };
        let name = sign_in.display_name.and_then(|name| field("the display name", name).ok());
        let display_name = name.as_deref().unwrap_or(&base);
        let new = NewUser { org, login: &login, display_name, role, tier: sign_in.tier, password: None };
        let user = users::new_user(&new, now)?;
        match users::insert_user(tx, &user, None).await {
            Ok(()) => return Ok(insert_identity(tx, &user.id, sign_in.id, now).await?.then_some(user)),
            Err(StoreError::LoginTaken) => {}
            Err(error) => return Err(error),
        }
    }
    Err(StoreError::LoginTaken)
}

/// `false`: the identity stands for a user already.
async fn insert_identity(tx: &mut Tx, user: &UserId, id: ExternalId<'_>, now: i64) -> Result<bool> {
    id.check()?;
    let sql = "INSERT INTO identities (issuer, subject, user_id, linked_at, seen_at) \
               VALUES ($1, $2, $3, $4, $4) ON CONFLICT (issuer, subject) DO NOTHING";
    Ok(tx.execute(sql, args![id.issuer, id.subject, user.as_str(), now]).await? == 1)
}

/// A login made of what a provider calls a user.
fn login_of(text: &str) -> String {
    let is_fit = |c: &char| !c.is_control() && !c.is_whitespace();
    let login: String = text.chars().filter(is_fit).take(MAX_LOGIN_CHARS).collect();
    if login.is_empty() { "user".to_owned() } else { users::fold_login(&login) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logins_are_made_of_what_there_is() {
        for (text, expected) in
            [("Ann@Example.org", "ann@example.org"), (" Ann\tA. ", "anna."), ("", "user"), ("\n", "user")]
        {
            assert_eq!(login_of(text), expected, "{text:?}");
        }
        assert_eq!(login_of(&"x".repeat(300)).len(), MAX_LOGIN_CHARS);
    }
}
