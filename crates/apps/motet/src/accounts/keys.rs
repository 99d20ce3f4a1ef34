use std::time::Duration;

use clap::Subcommand;
use motet_store::{KeyId, KeyInfo, NewKey, Owner, Role, Scope, Scopes, Store, User, date_of, day_of};
use serde_json::json;

use super::{FIRST_USER, NewAccount, all_users, create_user, now, open, org, org_or_hint, table, user};
use crate::{
    config::Config,
    failure::Failure,
    output::{print, say},
};

/// `motet keys …`.
#[derive(Debug, Subcommand)]
pub(crate) enum KeysCommand {
    /// Make a key and print it; it is not shown again
    #[command(after_help = CREATE_HELP)]
    Create {
        /// Whose key it is [default: the only user; the first one is made with its key]
        #[arg(long, value_name = "LOGIN")]
        user: Option<String>,
        /// What it is for
        #[arg(long, value_name = "TEXT", default_value = "key")]
        name: String,
        /// What it may be used for: chat, embeddings, batches, usage, admin
        #[arg(
            long,
            value_name = "SCOPE,…",
            value_delimiter = ',',
            default_value = "chat,embeddings,batches,usage"
        )]
        scopes: Vec<String>,
        /// Days until it ends [default: never]
        #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..=36_500))]
        expires: Option<u32>,
    },
    /// List keys: what they begin with, whose they are, when they were used
    List {
        /// Only this user's
        #[arg(long, value_name = "LOGIN")]
        user: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// End a key at once; a running server forgets it within 10 s
    Revoke {
        /// Its id, as `motet keys list` shows it
        id: String,
    },
}

const CREATE_HELP: &str = "\
Examples:
  motet keys create
  motet keys create --user ann --name laptop --expires 90
  motet users create scraper --role admin && motet keys create --user scraper --scopes admin

Only the key goes to standard output, so that it can be kept: motet keys create > key.txt";

/// Days to milliseconds.
const DAY: Duration = Duration::from_secs(86_400);

pub(crate) async fn keys(command: &KeysCommand, config: &Config) -> Result<(), Failure> {
    let store = open(config).await?;
    match command {
        KeysCommand::Create { user, name, scopes, expires } => {
            let scopes = scopes.iter().map(|name| scope(name)).collect::<Result<Scopes, _>>()?;
            let owner = key_user(&store, user.as_deref(), config).await?;
            if scopes.has(Scope::Admin) && owner.role == Role::Member {
                let login = &owner.login;
                let why = format!(
                    "{login} is a member, and only admins have keys with the scope admin; `motet users change {login} --role admin`"
                );
                return Err(Failure::usage(why));
            }
            let lifetime = expires.map(|days| DAY * days);
            let expires_at = lifetime.map(|time| now() + i64::try_from(time.as_millis()).unwrap_or(i64::MAX));
            let new = NewKey { user: &owner.id, name, scopes, expires_at };
            let key = store.create_key(&new, now()).await.map_err(Failure::usage)?;
            say(&format!(
                "key {} of {}; keep it now, it is not shown again:",
                key.info.id.as_str(),
                owner.login
            ));
            print(&format!("{}\n", key.secret.expose()))
        }
        KeysCommand::List { user: login, json } => {
            let org = org_or_hint(&store).await?;
            let of = match login {
                Some(login) => Some(user(&store, login).await?),
                None => None,
            };
            let owner = of.as_ref().map_or(Owner::Org(&org.id), |of| Owner::User(&of.org, &of.id));
            let keys = store.keys(owner).await.map_err(Failure::runtime)?;
            let users = all_users(&store, &org.id).await?;
            print(&if *json { list_json(&keys, &users) } else { list(&keys, &users) })
        }
        KeysCommand::Revoke { id } => {
            let org = org_or_hint(&store).await?;
            let is_new = store.revoke_key(Owner::Org(&org.id), &KeyId::new(id.as_str()), now()).await;
            match is_new.map_err(Failure::runtime)? {
                true => print(&format!("revoked {id}\n")),
                false => {
                    Err(Failure::usage(format!("there is no key {id} that works; see `motet keys list`")))
                }
            }
        }
    }
}

/// A key for models, of the first user.
pub(crate) async fn first_key(config: &Config) -> Result<String, Failure> {
    let store = open(config).await?;
    let owner = key_user(&store, None, config).await?;
    let scopes: Scopes = [Scope::Chat].into_iter().collect();
    let new = NewKey { user: &owner.id, name: "key", scopes, expires_at: None };
    let key = store.create_key(&new, now()).await.map_err(Failure::runtime)?;
    store.close().await;
    Ok(key.secret.expose().to_owned())
}

fn scope(name: &str) -> Result<Scope, Failure> {
    Scope::from_name(name).ok_or_else(|| {
        let names: Vec<_> = Scope::ALL.iter().map(|scope| scope.as_str()).collect();
        Failure::usage(format!("--scopes {name}: no such scope; there are {}", names.join(", ")))
    })
}

/// The user that is named, or the only one there is; the first is made.
async fn key_user(store: &Store, login: Option<&str>, config: &Config) -> Result<User, Failure> {
    if let Some(login) = login {
        return user(store, login).await;
    }
    let mut users = match org(store).await? {
        Some(org) => store.users(&org.id, None).await.map_err(Failure::runtime)?,
        None => Vec::new(),
    };
    match users.pop() {
        Some(only) if users.is_empty() => Ok(only),
        Some(_) => Err(Failure::usage("there are several users: say whose key it is with --user")),
        None => {
            let tier = &config.tiers[0].name;
            let new = NewAccount { login: FIRST_USER, display_name: None, role: None, tier, password: None };
            let made = create_user(store, &new).await?;
            say(&format!("made the first user, {FIRST_USER:?}, of the tier {tier:?}"));
            Ok(made)
        }
    }
}

fn login<'a>(key: &KeyInfo, users: &'a [User]) -> &'a str {
    users.iter().find(|user| user.id == key.user).map_or("", |user| user.login.as_str())
}

fn state(key: &KeyInfo) -> &'static str {
    match (key.revoked_at, key.expires_at) {
        (Some(_), _) => "revoked",
        (None, Some(end)) if end <= now() => "expired",
        _ => "works",
    }
}

fn list(keys: &[KeyInfo], users: &[User]) -> String {
    let day = |time: Option<i64>| time.map_or("-".to_owned(), |time| date_of(day_of(time)));
    let heading = ["id", "user", "name", "begins with", "scopes", "state", "made", "last used", "expires"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    for key in keys {
        let scopes: Vec<_> = key.scopes.iter().map(Scope::as_str).collect();
        rows.push(vec![
            key.id.as_str().to_owned(),
            login(key, users).to_owned(),
            key.name.clone(),
            key.prefix.clone(),
            scopes.join(","),
            state(key).to_owned(),
            day(Some(key.created_at)),
            day(key.last_used_at),
            day(key.expires_at),
        ]);
    }
    table(&rows)
}

fn list_json(keys: &[KeyInfo], users: &[User]) -> String {
    let key = |key: &KeyInfo| {
        json!({
            "id": key.id.as_str(), "user": login(key, users), "name": key.name, "prefix": key.prefix,
            "scopes": key.scopes.iter().map(Scope::as_str).collect::<Vec<_>>(), "state": state(key),
            "created_at": key.created_at, "last_used_at": key.last_used_at, "expires_at": key.expires_at,
            "revoked_at": key.revoked_at,
        })
    };
    format!("{:#}\n", keys.iter().map(key).collect::<serde_json::Value>())
}
