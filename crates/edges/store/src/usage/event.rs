use serde::{Deserialize, Serialize};

use crate::{
    KeyId, OrgId, UserId,
    error::{Result, StoreError},
};

/// The longest text of an event, in characters; longer ones are cut.
const MAX_TEXT_CHARS: usize = 200;

/// A million of the currency's unit: far above any reply, and nine million such events still fit in a sum.
const MAX_COST_MICROS: i64 = 1_000_000_000_000;

/// What tells one event from all others, so that one that is written twice counts once.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UsageId(String);

impl UsageId {
    /// A new id. It begins with the time, so that events of one time lie together in the database's index.
    ///
    /// # Errors
    /// The system has no random numbers to give.
    pub fn new(now: i64) -> Result<Self> {
        let mut random = [0_u8; 10];
        getrandom::fill(&mut random).map_err(|error| StoreError::Random(error.to_string()))?;
        let random = random.iter().fold(0_u128, |number, &byte| number << 8 | u128::from(byte));
        Ok(Self(format!("{:012x}{random:020x}", now.max(0) & 0xffff_ffff_ffff)))
    }

    /// An id that was made before.
    pub fn from_text(id: impl Into<String>) -> Self {
        Self(id.into())
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// How a reply ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UsageFinish {
    /// By itself or at a stop string.
    Stop,
    /// At its longest, or at the end of the context.
    Length,
    /// To call a tool.
    ToolCalls,
    /// By the user, or because the user left.
    Cancelled,
    /// By a safety check.
    Blocked,
    /// By an error.
    Failed,
}

impl UsageFinish {
    const ALL: [Self; 6] =
        [Self::Stop, Self::Length, Self::ToolCalls, Self::Cancelled, Self::Blocked, Self::Failed];

    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::ToolCalls => "tool_calls",
            Self::Cancelled => "cancelled",
            Self::Blocked => "blocked",
            Self::Failed => "failed",
        }
    }

    pub(crate) fn from_name(name: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|finish| finish.as_str() == name);
        found.ok_or_else(|| StoreError::corrupt("end of a reply", name))
    }
}

/// What one request used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageEvent {
    /// What tells it from all others.
    pub id: UsageId,
    /// When the reply ended.
    pub at: i64,
    /// The organisation.
    pub org: OrgId,
    /// The user.
    pub user: UserId,
    /// The API key, where it was one.
    pub key: Option<KeyId>,
    /// The request's id, as in its headers and in the logs.
    pub request_id: String,
    /// The model that answered.
    pub model: String,
    /// The tier it ran in.
    pub tier: String,
    /// How it ended.
    pub finish: UsageFinish,
    /// Tokens of the prompt.
    pub prompt_tokens: u32,
    /// Those of them found in the prefix cache.
    pub cached_tokens: u32,
    /// Generated tokens.
    pub output_tokens: u32,
    /// Those of them that were reasoning.
    pub reasoning_tokens: u32,
    /// Time in the queue.
    pub queue_ms: u32,
    /// From the request to its first token; absent when there was none.
    pub ttft_ms: Option<u32>,
    /// From the request to the end of the reply.
    pub duration_ms: u32,
    /// What it costs, in millionths of the currency's unit.
    pub cost_micros: i64,
}

impl UsageEvent {
    /// With every field in its bounds. No event can be one that a database refuses: the journal behind it would never
    /// be written. PostgreSQL refuses a text with a zero in it.
    pub(crate) fn bounded(&self) -> Self {
        Self {
            id: UsageId(short(&self.id.0)),
            org: OrgId::new(short(self.org.as_str())),
            user: UserId::new(short(self.user.as_str())),
            key: self.key.as_ref().map(|key| KeyId::new(short(key.as_str()))),
            request_id: short(&self.request_id),
            model: short(&self.model),
            tier: short(&self.tier),
            cost_micros: self.cost_micros.clamp(0, MAX_COST_MICROS),
            ..self.clone()
        }
    }
}

fn short(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(MAX_TEXT_CHARS).collect()
}

#[cfg(test)]
pub(crate) fn sample(id: &str, at: i64) -> UsageEvent {
    UsageEvent {
        id: UsageId::from_text(id),
        at,
        org: OrgId::new("org"),
        user: UserId::new("user"),
        key: Some(KeyId::new("key")),
        request_id: "req".into(),
        model: "model".into(),
        tier: "free".into(),
        finish: UsageFinish::Stop,
        prompt_tokens: 10,
        cached_tokens: 4,
        output_tokens: 5,
        reasoning_tokens: 2,
        queue_ms: 1,
        ttft_ms: Some(20),
        duration_ms: 90,
        cost_micros: 7,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_ordered_by_time_and_differ() {
        let (one, other, later) = (UsageId::new(5), UsageId::new(5), UsageId::new(6));
        let (one, other, later) = (one.unwrap(), other.unwrap(), later.unwrap());
        assert!(one != other && one < later && other < later);
        assert_eq!(one.as_str().len(), 32);
    }

    #[test]
    fn fields_are_brought_into_bounds() {
        let mut event = sample("e", 0);
        event.model = format!("a\0b\n{}", "é".repeat(500));
        event.cost_micros = i64::MAX;
        let bounded = event.bounded();
        assert!(bounded.model.starts_with("abé") && bounded.model.chars().count() == MAX_TEXT_CHARS);
        assert_eq!(bounded.cost_micros, MAX_COST_MICROS);
        assert_eq!(bounded.bounded(), bounded);
    }

    #[test]
    fn names_of_ends_are_those_of_the_journal() {
        for finish in UsageFinish::ALL {
            assert_eq!(serde_json::to_value(finish).unwrap(), finish.as_str());
            assert_eq!(UsageFinish::from_name(finish.as_str()).unwrap(), finish);
        }
        assert!(UsageFinish::from_name("later").is_err());
    }
}
