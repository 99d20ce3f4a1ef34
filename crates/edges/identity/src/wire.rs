//! The JSON of answers. Times are Unix seconds.

use motet_protocol::RequestError;
use motet_store::{KeyInfo, Scope, SessionId, SessionInfo, UsageSum, User};
use serde_json::{Value, json};

fn seconds(ms: i64) -> i64 {
    ms.div_euclid(1000)
}

pub(crate) fn user(user: &User) -> Value {
    json!({
        "object": "user",
        "id": user.id.as_str(),
        "org_id": user.org.as_str(),
        "login": user.login,
        "display_name": user.display_name,
        "role": user.role.as_str(),
        "tier": user.tier,
        "is_disabled": user.is_disabled,
        "created_at": seconds(user.created_at),
    })
}

pub(crate) fn key(key: &KeyInfo) -> Value {
    json!({
        "object": "api_key",
        "id": key.id.as_str(),
        "name": key.name,
        "prefix": key.prefix,
        "scopes": key.scopes.iter().map(Scope::as_str).collect::<Vec<_>>(),
        "created_at": seconds(key.created_at),
        "expires_at": key.expires_at.map(seconds),
        "last_used_at": key.last_used_at.map(seconds),
        "revoked_at": key.revoked_at.map(seconds),
    })
}

pub(crate) fn device(device: &SessionInfo, current: Option<&SessionId>) -> Value {
    json!({
        "object": "device",
        "id": device.id.as_str(),
        "user_agent": device.user_agent,
        "address": device.address,
        "created_at": seconds(device.created_at),
        "seen_at": seconds(device.seen_at),
        "is_current": current == Some(&device.id),
    })
}

pub(crate) fn usage(id: &str, sum: &UsageSum) -> Value {
    json!({
        "object": "usage",
        "id": id,
        "requests": sum.requests,
        "prompt_tokens": sum.prompt_tokens,
        "cached_tokens": sum.cached_tokens,
        "output_tokens": sum.output_tokens,
        "reasoning_tokens": sum.reasoning_tokens,
        "cost_micros": sum.cost_micros,
    })
}

pub(crate) fn deleted(object: &str, id: &str) -> Value {
    json!({"object": object, "id": id, "deleted": true})
}

/// A page of a list.
pub(crate) fn list(data: Vec<Value>, has_more: bool) -> Value {
    let id = |entry: Option<&Value>| entry.map_or(Value::Null, |entry| entry["id"].clone());
    let (first_id, last_id) = (id(data.first()), id(data.last()));
    json!({"object": "list", "data": data, "has_more": has_more, "first_id": first_id, "last_id": last_id})
}

/// The page of a whole list that comes after an entry.
pub(crate) fn page(mut data: Vec<Value>, after: Option<&str>, limit: usize) -> Result<Value, RequestError> {
    if let Some(after) = after {
        let at = data.iter().position(|entry| entry["id"] == after).ok_or_else(unknown_cursor)?;
        data.drain(..=at);
    }
    let has_more = data.len() > limit;
    data.truncate(limit);
    Ok(list(data, has_more))
}

pub(crate) fn unknown_cursor() -> RequestError {
    RequestError::bad_value("after", "must be the id of an entry of this list")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_end_and_name_their_ends() {
        let data = || ["a", "b", "c"].iter().map(|id| json!({"id": id})).collect::<Vec<_>>();
        let check = |after: Option<&str>, limit, ids: &[&str], has_more: bool| {
            let entries: Vec<_> = ids.iter().map(|id| json!({"id": id})).collect();
            let want = json!({
                "object": "list", "data": entries, "has_more": has_more, "first_id": ids.first(), "last_id": ids.last(),
            });
            assert_eq!(page(data(), after, limit).unwrap(), want);
        };
        check(None, 2, &["a", "b"], true);
        check(Some("b"), 2, &["c"], false);
        check(None, 3, &["a", "b", "c"], false);
        check(Some("c"), 3, &[], false);
        assert!(page(data(), Some("x"), 3).is_err());
    }
}
