//! Accounts: who may use the server, what they may use, and what they have used.
//!
//! `door` is what the gateway asks; `keys`, `users` and `usage` are the commands of the same names, which work on
//! the database itself, beside a running server or without one.

mod door;
mod external;
mod keys;
mod password;
mod usage;
mod users;

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use motet_store::{NewUser, Org, OrgId, Role, Secret, Store, User};

pub(crate) use door::Door;
pub(crate) use keys::{KeysCommand, first_key, keys};
pub(crate) use usage::{UsageArgs, usage};
pub(crate) use users::{UsersCommand, users};

use crate::{config::Config, failure::Failure};

/// The organisation that is made for the first user.
const FIRST_ORG: &str = "default";
/// The user that is made for the first key.
const FIRST_USER: &str = "owner";

/// Milliseconds since 1970.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |time| i64::try_from(time.as_millis()).unwrap_or(i64::MAX))
}

/// Opens the configured database; a file is made where there is none.
async fn open(config: &Config) -> Result<Store, Failure> {
    open_at(config.accounts.store.as_deref()).await
}

/// Opens the database of this address, or the usual one.
pub(crate) async fn open_at(url: Option<&str>) -> Result<Store, Failure> {
    let url = match url {
        Some(url) => url.to_owned(),
        None => {
            let folder = data_folder()?;
            std::fs::create_dir_all(&folder).map_err(|e| {
                Failure::usage(format!(
                    "the folder {} can't be made: {e}; set accounts.store",
                    folder.display()
                ))
            })?;
            format!("sqlite:{}", folder.join("motet.db").display())
        }
    };
    Store::open(&url).await.map_err(Failure::usage)
}

/// `motet` in the user's data folder.
pub(crate) fn data_folder() -> Result<PathBuf, Failure> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = variable("XDG_DATA_HOME").or_else(|| Some(variable("HOME")?.join(".local/share")));
    let home = home.ok_or_else(|| {
        Failure::usage("there is no home folder for accounts and the journal of usage; set XDG_DATA_HOME")
    })?;
    Ok(home.join("motet"))
}

/// The organisation of this machine's accounts: the first.
async fn org(store: &Store) -> Result<Option<Org>, Failure> {
    Ok(store.orgs(None).await.map_err(Failure::runtime)?.into_iter().next())
}

async fn org_or_hint(store: &Store) -> Result<Org, Failure> {
    let hint = "there are no accounts yet; `motet keys create` makes the first and its key";
    org(store).await?.ok_or_else(|| Failure::usage(hint))
}

/// The user of this login.
async fn user(store: &Store, login: &str) -> Result<User, Failure> {
    let found = store.user_by_login(login).await.map_err(Failure::runtime)?;
    found.ok_or_else(|| {
        Failure::usage(format!(
            "there is no user {login:?}; `motet users list` shows all, `motet users create {login}` makes it"
        ))
    })
}

/// All users of an organisation, page by page.
async fn all_users(store: &Store, org: &OrgId) -> Result<Vec<User>, Failure> {
    let mut users: Vec<User> = Vec::new();
    loop {
        let after = users.last().map(|user| user.login.clone());
        let page = store.users(org, after.as_deref()).await.map_err(Failure::runtime)?;
        if page.is_empty() {
            return Ok(users);
        }
        users.extend(page);
    }
}

/// Makes a user; the first one is the owner of an organisation that is made for it.
async fn create_user(store: &Store, new: &NewAccount<'_>) -> Result<User, Failure> {
    let (org, role) = match org(store).await? {
        // An organisation without users is what an attempt left that failed.
        Some(org) if store.users(&org.id, None).await.map_err(Failure::runtime)?.is_empty() => {
            (org.id, Role::Owner)
        }
        Some(org) => (org.id, new.role.unwrap_or(Role::Member)),
        None => {
            let org = store.create_org(FIRST_ORG, now()).await.map_err(Failure::runtime)?;
            (org.id, Role::Owner)
        }
    };
    let display_name = new.display_name.unwrap_or(new.login);
    let user =
        NewUser { org: &org, login: new.login, display_name, role, tier: new.tier, password: new.password };
    store.create_user(&user, now()).await.map_err(Failure::usage)
}

/// What a new account is to be.
struct NewAccount<'a> {
    login: &'a str,
    display_name: Option<&'a str>,
    role: Option<Role>,
    tier: &'a str,
    /// What it signs in with.
    password: Option<&'a Secret>,
}

/// Rows as columns; the first row is the heading.
fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}
