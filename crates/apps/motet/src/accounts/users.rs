use clap::{Subcommand, ValueEnum};
use motet_store::{Role, User, UserChange};
use serde_json::json;

use super::{NewAccount, all_users, create_user, open, org_or_hint, password, table, user};
use crate::{config::Config, failure::Failure, output::print};

/// `motet users …`.
#[derive(Debug, Subcommand)]
pub(crate) enum UsersCommand {
    /// Make a user; the first one is the owner
    Create {
        /// A name or an email address
        login: String,
        /// How the person is called [default: the login]
        #[arg(long, value_name = "TEXT")]
        name: Option<String>,
        /// What the user may do in the organisation
        #[arg(long, value_name = "ROLE")]
        role: Option<RoleName>,
        /// What the user may use [default: the first tier]
        #[arg(long, value_name = "TIER")]
        tier: Option<String>,
        /// Read a password to sign in with from standard input; without one the user has keys only
        #[arg(long)]
        password_stdin: bool,
    },
    /// Set the password a user signs in with; it ends the user's sessions
    SetPassword {
        /// Whose. The password is asked for, or read from standard input where that is no terminal
        login: String,
    },
    /// List users
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Change a user's role or tier, or keep the user out
    Change {
        /// Whom
        login: String,
        /// What the user may do in the organisation
        #[arg(long, value_name = "ROLE")]
        role: Option<RoleName>,
        /// What the user may use
        #[arg(long, value_name = "TIER")]
        tier: Option<String>,
        /// Keys and sessions work no more
        #[arg(long, conflicts_with = "enable")]
        disable: bool,
        /// They work again
        #[arg(long)]
        enable: bool,
    },
}

/// A role as it is typed.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum RoleName {
    Owner,
    Admin,
    Member,
}

impl From<RoleName> for Role {
    fn from(name: RoleName) -> Self {
        match name {
            RoleName::Owner => Self::Owner,
            RoleName::Admin => Self::Admin,
            RoleName::Member => Self::Member,
        }
    }
}

pub(crate) async fn users(command: &UsersCommand, config: &Config) -> Result<(), Failure> {
    let store = open(config).await?;
    match command {
        UsersCommand::Create { login, name, role, tier, password_stdin } => {
            let tier = known_tier(tier.as_deref(), config)?.unwrap_or(&config.tiers[0].name);
            let role = role.map(Role::from);
            let password = if *password_stdin { Some(password::read_line()?) } else { None };
            let password = password.as_ref();
            let new = NewAccount { login, display_name: name.as_deref(), role, tier, password };
            let made = create_user(&store, &new).await?;
            print(&format!("{} is {} of the tier {}\n", made.login, made.role.as_str(), made.tier))
        }
        UsersCommand::SetPassword { login } => {
            let user = user(&store, login).await?;
            let password = password::ask(&user.login)?;
            store.set_password(&user.id, &password, None).await.map_err(Failure::usage)?;
            print(&format!("{} signs in with the new password\n", user.login))
        }
        UsersCommand::List { json } => {
            let org = org_or_hint(&store).await?;
            let users = all_users(&store, &org.id).await?;
            print(&if *json { list_json(&users) } else { list(&users) })
        }
        UsersCommand::Change { login, role, tier, disable, enable } => {
            let user = user(&store, login).await?;
            let change = UserChange {
                role: role.map(Role::from),
                tier: known_tier(tier.as_deref(), config)?,
                is_disabled: (*disable || *enable).then_some(*disable),
                ..UserChange::default()
            };
            let user = store.update_user(&user.org, &user.id, &change).await.map_err(Failure::usage)?;
            print(&list(&[user]))
        }
    }
}

/// The name of a tier, if it is one.
fn known_tier<'a>(name: Option<&'a str>, config: &Config) -> Result<Option<&'a str>, Failure> {
    let Some(name) = name else { return Ok(None) };
    if config.tiers.iter().any(|tier| tier.name == name) {
        return Ok(Some(name));
    }
    let names: Vec<_> = config.tiers.iter().map(|tier| tier.name.as_str()).collect();
    Err(Failure::usage(format!("--tier {name}: no such tier; the configuration has {}", names.join(", "))))
}

fn list(users: &[User]) -> String {
    let mut rows = vec![["login", "name", "role", "tier", "state"].map(str::to_owned).to_vec()];
    for user in users {
        let state = if user.is_disabled { "disabled" } else { "works" };
        let cells = [&user.login, &user.display_name, user.role.as_str(), &user.tier, state];
        rows.push(cells.map(str::to_owned).to_vec());
    }
    table(&rows)
}

fn list_json(users: &[User]) -> String {
    let user = |user: &User| {
        json!({
            "id": user.id.as_str(), "login": user.login, "name": user.display_name,
            "role": user.role.as_str(), "tier": user.tier, "is_disabled": user.is_disabled,
            "created_at": user.created_at,
        })
    };
    format!("{:#}\n", users.iter().map(user).collect::<serde_json::Value>())
}
