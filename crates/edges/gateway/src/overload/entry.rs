use std::hash::BuildHasher;
use std::time::Duration;

use http::HeaderValue;
use motet_fleet::{Measures, Rung, Terms};
use motet_protocol::ServiceTier;
use motet_types::SubmitError;
use serde::Deserialize;

use super::{END_BYTES, LEAST_PACE, Shed, Tries};
use crate::access::Caller;
use crate::error::ApiError;
use crate::gateway::{Gateway, Served};
use crate::prepare::Job;

/// A request that comes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Comer {
    /// What it is known by when it comes again.
    pub(super) mark: u64,
    /// Of its body.
    pub(super) bytes: usize,
    pub(super) tries: Tries,
}

/// A request that was let in, and on which terms.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    /// Where it waits.
    pub(crate) lane: usize,
    pub(super) key: u64,
    /// What is given up in its lane.
    pub(crate) measures: Measures,
    /// Whether only a full line refuses it.
    pub(crate) is_patient: bool,
}

impl Gateway {
    /// Who comes. What a client that tries again sends again: of long bodies the two ends are told apart, parameters and
    /// the latest message.
    pub(crate) fn comer(&self, caller: &Caller, bytes: &[u8], tries: Tries) -> Comer {
        let head = &bytes[..bytes.len().min(END_BYTES)];
        let tail = &bytes[bytes.len().saturating_sub(END_BYTES)..];
        let mark = self.marks.hash_one((&caller.tenant, caller.user, bytes.len(), head, tail));
        Comer { mark, bytes: bytes.len(), tries }
    }

    /// Lets a request into a lane, or refuses it and says when it may come again.
    pub(crate) fn admit(&self, served: &Served, lane: usize, comer: &Comer) -> Result<Entry, ApiError> {
        let admitted = served.overload.admit(&*served.model.backend, lane, comer);
        admitted.map_err(|(shed, wait)| {
            self.metrics.ladder.count_shed(served, lane, shed.reason());
            ApiError::Shed { shed, wait }
        })
    }

    /// A refusal of the backend's for one who was let in: it says when to come back such that all who are told can be
    /// taken then.
    pub(crate) fn refused(&self, served: &Served, entry: &Entry, error: SubmitError) -> SubmitError {
        let (reason, seconds) = match &error {
            SubmitError::QueueFull { retry_after_seconds, .. } => ("queue-full", *retry_after_seconds),
            SubmitError::TooSlow { retry_after_seconds, .. } => ("too-slow", *retry_after_seconds),
            _ => return error,
        };
        self.metrics.ladder.count_shed(served, entry.lane, reason);
        let pace = served.overload.lane(&*served.model.backend, entry.lane).pace.max(LEAST_PACE);
        let earliest = Duration::from_secs(u64::from(seconds));
        let wait = served.overload.book(entry.lane, entry.key, Tries::First, Terms { earliest, pace });
        let told = u32::try_from(wait.as_millis().div_ceil(1000)).unwrap_or(u32::MAX);
        match error {
            SubmitError::QueueFull { waiting, .. } => {
                SubmitError::QueueFull { waiting, retry_after_seconds: told }
            }
            SubmitError::TooSlow { estimate_seconds, .. } => {
                SubmitError::TooSlow { estimate_seconds, retry_after_seconds: told }
            }
            error => error,
        }
    }

    /// Most tokens of replies to requests that name no limit, where they are shortened.
    pub(crate) fn short_output(&self, entry: &Entry) -> Option<u32> {
        entry.measures.shorten_output.then_some(self.config.overload.short_output.max(1))
    }
}

impl Entry {
    /// What was given up for this request, for `x-motet-degraded`: a list of rungs' names. `None`: nothing.
    pub(crate) fn degraded(&self, job: &Job) -> Option<HeaderValue> {
        let mut names = Vec::new();
        if let Some(tokens) = job.shortened() {
            names.push(format!("{};max-tokens={tokens}", Rung::ShortenOutput.name()));
        }
        if self.measures.queue_with_eta {
            names.push(Rung::QueueWithEta.name().to_owned());
        }
        if names.is_empty() { None } else { HeaderValue::from_str(&names.join(", ")).ok() }
    }
}

impl Shed {
    /// What it is called in `x-motet-degraded`, if a rung is why.
    pub(crate) fn degraded(self) -> Option<HeaderValue> {
        match self {
            Self::Crowded => None,
            Self::Free | Self::Background => Some(HeaderValue::from_static(self.reason())),
        }
    }

    /// Why, in words.
    pub(crate) fn told(self) -> &'static str {
        match self {
            Self::Crowded => {
                "more requests came than can be answered in time, and those who came before are taken first"
            }
            Self::Free => "there is so much to do that no free requests are taken for now",
            Self::Background => {
                "there is so much to do that no background requests ('service_tier': 'flex' among them) are taken for now"
            }
        }
    }
}

/// What is looked for in a body that has not been parsed. What is too unusual or too long is found when the request is
/// parsed.
#[derive(Debug, Default, Deserialize)]
struct Peeked {
    model: Option<String>,
    service_tier: Option<String>,
}

/// Longest body that is looked into before a worker parses it: half a millisecond's.
const PEEKED_BYTES: usize = 256 << 10;

/// The model that a body names.
pub(crate) fn peek_model(bytes: &[u8]) -> Option<String> {
    peek(bytes, "\"model\"").model
}

/// A body's `service_tier`, as far as it matters here: whether it is `flex`.
pub(crate) fn peek_tier(bytes: &[u8]) -> Option<ServiceTier> {
    (peek(bytes, "\"flex\"").service_tier.as_deref() == Some("flex")).then_some(ServiceTier::Flex)
}

/// Nothing without `sign` in the body.
fn peek(bytes: &[u8], sign: &str) -> Peeked {
    let text =
        std::str::from_utf8(bytes).ok().filter(|text| text.len() <= PEEKED_BYTES && text.contains(sign));
    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tier_is_found_in_a_body() {
        let check = |body: &str, expected| assert_eq!(peek_tier(body.as_bytes()), expected, "{body}");
        check(r#"{"service_tier":"flex"}"#, Some(ServiceTier::Flex));
        check(r#"{"messages":[{"content":"x"}], "service_tier" : "flex", "n": 1}"#, Some(ServiceTier::Flex));
        check(r#"{"service_tier":"auto","user":"flex"}"#, None);
        check(r#"{"messages":[{"content":"\"service_tier\": \"flex\""}]}"#, None);
        check(r#"{"messages":[{"service_tier": "flex"}]}"#, None);
        check(r#"{"service_tier":"flex""#, None);
        check(r#"{"service_tier":null,"a":"flex"}"#, None);
        check("", None);
        assert_eq!(peek_model(br#"{"model": "a", "messages": []}"#).as_deref(), Some("a"));
    }
}
