//! Headers of answers.

use serde_json::{Map, Value, json};

/// What is left of the caller's limits by the minute.
pub const LIMIT_HEADERS: &[&str] = &[
    "x-ratelimit-limit-requests",
    "x-ratelimit-remaining-requests",
    "x-ratelimit-reset-requests",
    "x-ratelimit-limit-tokens",
    "x-ratelimit-remaining-tokens",
    "x-ratelimit-reset-tokens",
];

/// Which model made a reply, why it was that one, and what was given up for it.
pub const REPLY_HEADERS: &[&str] =
    &["x-motet-model", "x-motet-model-reason", "x-motet-degraded", "idempotent-replayed"];

/// Names what a request had and nobody knows.
pub const IGNORED_HEADER: &str = "x-motet-ignored-parameters";

/// On every answer.
const ALWAYS: [&str; 2] = ["x-request-id", "openapi-processing-ms"];
const RETRY: [&str; 2] = ["retry-after", "retry-after-ms"];
const SHOULD_RETRY: &str = "x-should-retry";

/// Every header that an answer may have and that means something to a program: name, type, meaning.
const ALL: [(&str, &str, &str); 20] = [
    (
        "x-request-id",
        "string",
        "Names the request in this answer and in the server's log; the client's own is kept.",
    ),
    ("openapi-processing-ms", "integer", "Milliseconds until the answer began."),
    ("x-ratelimit-limit-requests", "integer", "Most requests at once."),
    ("x-ratelimit-remaining-requests", "integer", "Requests that are left."),
    ("x-ratelimit-reset-requests", "string", "Until all of them are there again, as `1h2m3s` or `120ms`."),
    ("x-ratelimit-limit-tokens", "integer", "Most tokens at once."),
    ("x-ratelimit-remaining-tokens", "integer", "Tokens that are left."),
    ("x-ratelimit-reset-tokens", "string", "Until all of them are there again, as `1h2m3s` or `120ms`."),
    ("x-motet-model", "string", "The model that answers; `%` and two digits for bytes a header can't hold."),
    ("x-motet-model-reason", "string", "Why it is that one: `exact`, `alias:NAME`, `role:NAME`, `auto:WHY`."),
    ("x-motet-degraded", "string", "What was given up because there is too much to do, as a list."),
    ("idempotent-replayed", "string", "`true`: it is the answer of an earlier request with the same key."),
    (IGNORED_HEADER, "string", "Parameters of the request that are unknown here, as a list."),
    ("retry-after", "integer", "Seconds after which the same request may pass."),
    ("retry-after-ms", "integer", "The same in milliseconds."),
    (SHOULD_RETRY, "string", "`false`: trying again is no use."),
    ("www-authenticate", "string", "How to send a key."),
    ("location", "string", "Where to go on."),
    ("content-disposition", "string", "The name to save it under."),
    ("set-cookie", "string", "The session's cookie."),
];

/// All of them, for others to point to.
pub(super) fn components() -> Map<String, Value> {
    let header = |(name, kind, what): &(&str, &str, &str)| {
        ((*name).to_owned(), json!({"description": what, "schema": {"type": kind}}))
    };
    ALL.iter().map(header).collect()
}

/// What a success has besides `more`.
pub(super) fn of_success(more: &[&str]) -> Value {
    pointers(ALWAYS.iter().chain(more))
}

/// What an error of this status has.
pub(super) fn of_error(status: u16) -> Value {
    let own: &[&str] = match status {
        401 => &["www-authenticate", SHOULD_RETRY],
        403 => &[SHOULD_RETRY],
        429 => &[RETRY[0], RETRY[1], SHOULD_RETRY],
        503 => &[RETRY[0], RETRY[1], REPLY_HEADERS[2]],
        _ => &[],
    };
    let limits = if status == 429 { LIMIT_HEADERS } else { &[] };
    pointers(ALWAYS.iter().chain(own).chain(limits))
}

fn pointers<'a>(names: impl Iterator<Item = &'a &'a str>) -> Value {
    let pointer = |name: &&str| ((*name).to_owned(), json!({"$ref": format!("#/components/headers/{name}")}));
    names.map(pointer).collect::<Map<_, _>>().into()
}
