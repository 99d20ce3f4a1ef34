use crate::{error::Result, secret};

/// 22 base62 characters hold 131 bits: two never meet.
pub(crate) const RANDOM_CHARS: usize = 22;

/// A type for one kind of row's id, so that kinds can't be confused.
macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// An id that comes from outside; whether there is such a row is the database's to say.
            pub fn new(id: impl Into<String>) -> Self {
                Self(id.into())
            }

            /// The id as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }

            pub(crate) fn random() -> Result<Self> {
                Ok(Self(format!(concat!($prefix, "{}"), secret::random_text(RANDOM_CHARS)?)))
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

id!(
    /// An organisation: whose data it is, the tenant of every other part.
    OrgId,
    "org_"
);
id!(
    /// A user.
    UserId,
    "user_"
);
id!(
    /// An API key's row; not the key.
    KeyId,
    "key_"
);
id!(
    /// A session's row; not its token.
    SessionId,
    "sess_"
);
id!(
    /// A file.
    FileId,
    "file-"
);
id!(
    /// A batch.
    BatchId,
    "batch_"
);
