use crate::{KeyId, OrgId, Role, SessionId, UserId};

/// Who a request is from, and what they may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// The organisation: the tenant.
    pub org: OrgId,
    /// The user.
    pub user: UserId,
    /// The user's role in the organisation.
    pub role: Role,
    /// The name of the user's tier.
    pub tier: String,
    /// What this credential may be used for.
    pub scopes: Scopes,
    /// What was shown.
    pub credential: Credential,
}

impl Principal {
    /// The API key's id, where it was a key.
    #[must_use]
    pub fn key_id(&self) -> Option<&KeyId> {
        match &self.credential {
            Credential::Key(id) => Some(id),
            Credential::Session(_) | Credential::Earlier => None,
        }
    }
}

/// What a request was authenticated by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credential {
    /// An API key.
    Key(KeyId),
    /// A session of the web app.
    Session(SessionId),
    /// One of an earlier request without a key, whose work goes on.
    Earlier,
}

/// Whose rows a call is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner<'a> {
    /// All of an organisation's.
    Org(&'a OrgId),
    /// One user's.
    User(&'a OrgId, &'a UserId),
}

impl<'a> Owner<'a> {
    pub(crate) fn org(self) -> &'a str {
        match self {
            Self::Org(org) | Self::User(org, _) => org.as_str(),
        }
    }

    pub(crate) fn user(self) -> Option<&'a str> {
        match self {
            Self::Org(_) => None,
            Self::User(_, user) => Some(user.as_str()),
        }
    }
}

/// One thing a credential may be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Scope {
    /// Chat completions, completions and responses.
    Chat,
    /// Embeddings.
    Embeddings,
    /// Files and batches.
    Batches,
    /// Reading usage reports.
    Usage,
    /// Managing users, keys and limits, as far as the user's role allows.
    Admin,
}

impl Scope {
    /// Every scope.
    pub const ALL: [Self; 5] = [Self::Chat, Self::Embeddings, Self::Batches, Self::Usage, Self::Admin];

    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Embeddings => "embeddings",
            Self::Batches => "batches",
            Self::Usage => "usage",
            Self::Admin => "admin",
        }
    }

    /// The scope of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.as_str() == name)
    }
}

/// A set of scopes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Scopes(u8);

impl Scopes {
    /// Every scope there is.
    #[must_use]
    pub fn all() -> Self {
        Scope::ALL.into_iter().collect()
    }

    /// Whether it is in the set.
    #[must_use]
    pub fn has(self, scope: Scope) -> bool {
        self.0 & (1 << scope as u8) != 0
    }

    /// Those in the set, in the order of [`Scope::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Scope> {
        Scope::ALL.into_iter().filter(move |&scope| self.has(scope))
    }

    /// Names with spaces between them.
    pub(crate) fn to_text(self) -> String {
        self.iter().map(Scope::as_str).collect::<Vec<_>>().join(" ")
    }

    /// The opposite of `to_text`. A name that is unknown gives no right.
    pub(crate) fn from_text(text: &str) -> Self {
        text.split_whitespace().filter_map(Scope::from_name).collect()
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Self {
        Self(scopes.into_iter().fold(0, |set, scope| set | 1 << scope as u8))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_survive_text_and_unknown_names_give_nothing() {
        let two: Scopes = [Scope::Chat, Scope::Usage].into_iter().collect();
        assert_eq!(two.to_text(), "chat usage");
        assert_eq!(Scopes::from_text("usage later-scope chat"), two);
        assert!(two.has(Scope::Usage) && !two.has(Scope::Admin));
        assert_eq!(Scopes::from_text(&Scopes::all().to_text()), Scopes::all());
    }
}
