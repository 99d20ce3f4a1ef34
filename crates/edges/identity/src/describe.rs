//! Accounts for the OpenAPI document, by the bounds that requests are read with.

use motet_protocol::openapi::{
    Access, Document, Operation, closed, nullable, object, parameter, reference, with,
};
use motet_store::{MAX_FIELD_CHARS, MAX_PASSWORD_BYTES, MIN_PASSWORD_CHARS, Role, Scope};
use serde_json::{Value, json};

use crate::request::MAX_LIMIT;
use crate::usage::{GROUPS, MAX_DAYS};

const SIGN_IN: &str = "Sign-in";
const ACCOUNT: &str = "Your account";
const USERS: &str = "Users";

/// What every route may answer with besides its own: each reads the body, whatever its method.
const OPEN: &[u16] = &[400, 403, 408, 413, 500, 503];
const READ: &[u16] = &[400, 401, 403, 408, 413, 500, 503];
const ONE: &[u16] = &[400, 401, 403, 404, 408, 413, 500, 503];
const SETUP: &[u16] = &[400, 403, 408, 413, 415, 500, 503];
const BODY: &[u16] = &[400, 401, 403, 404, 408, 413, 415, 500, 503];
/// Where passwords are tried: so often, and no more.
const PASSWORD: &[u16] = &[400, 401, 403, 404, 408, 413, 415, 429, 500, 503];

/// Adds the routes of [`Identity::routes`](crate::Identity::routes).
pub fn describe(document: &mut Document) {
    document.schema("User", user());
    document.schema("Session", session());
    document.schema("Key", key());
    sign_in(document);
    own_account(document);
    keys(document);
    users(document);
    usage(document);
}

fn sign_in(document: &mut Document) {
    let session = || reference("Session");
    let cookie = |operation| Operation { headers: vec!["set-cookie"], ..operation };
    let show = Operation {
        errors: OPEN,
        access: Access::Optional,
        ..Operation::new("getSession", SIGN_IN, "Who is signed in, and how somebody can be")
    };
    document.route(
        "get",
        "/api/session",
        &cookie(show.gives("The session; empty where there is none.", session())),
    );
    let text = || json!({"type": "string"});
    let credentials = closed(object(&["login", "password"], json!({"login": text(), "password": text()})));
    let sign_in = Operation { errors: PASSWORD, ..Operation::new("signIn", SIGN_IN, "Sign in") };
    let sign_in = cookie(sign_in.takes(credentials).gives("The session.", session()));
    document.route("post", "/api/session", &sign_in);
    let sign_out =
        Operation { errors: READ, access: Access::Session, ..Operation::new("signOut", SIGN_IN, "Sign out") };
    document.route("delete", "/api/session", &cookie(sign_out.gives("It has ended.", deleted("session"))));
    let first = closed(object(
        &["login", "password"],
        json!({
            "login": line("Without spaces."),
            "display_name": nullable(line("The login, unless there is another.")),
            "password": password(),
            "token": with(nullable(text()), "The one-time token that the server printed; needed from elsewhere."),
        }),
    ));
    let setup = Operation {
        errors: SETUP,
        ..Operation::new("createFirstAccount", SIGN_IN, "Make the first account and sign it in")
    };
    document.route("post", "/api/setup", &cookie(setup.takes(first).gives("The session.", session())));
    let both = json!({"old": text(), "new": password()});
    let change = Operation {
        errors: PASSWORD,
        access: Access::Session,
        ..Operation::new("changePassword", SIGN_IN, "Change your password and end your other sessions")
    };
    let change = change.takes(closed(object(&["old", "new"], both))).gives("You.", reference("User"));
    document.route("post", "/api/session/password", &change);
}

fn own_account(document: &mut Document) {
    let new = |id, summary, errors| Operation {
        errors,
        access: Access::Caller,
        ..Operation::new(id, ACCOUNT, summary)
    };
    let me = closed(object(&[], json!({"display_name": nullable(line("What others see."))})));
    let change = new("changeMe", "Change what others see of you", BODY).takes(me);
    document.route("patch", "/api/me", &change.gives("You.", reference("User")));
    let list = new("listDevices", "Where you are signed in", READ);
    document.route("get", "/api/devices", &list.gives("All of it, the last seen first.", part(device())));
    let others = object(
        &["object", "deleted", "count"],
        json!({"object": {"const": "devices"}, "deleted": {"const": true}, "count": count()}),
    );
    let end_others =
        new("endOtherDevices", "Sign out everywhere else", READ).gives("They have ended.", others);
    document.route("delete", "/api/devices", &end_others);
    let end = Operation { parameters: vec![id("device")], ..new("endDevice", "Sign out elsewhere", ONE) };
    document.route("delete", "/api/devices/{id}", &end.gives("It has ended.", deleted("device")));
}

fn keys(document: &mut Document) {
    let new = |id, summary, parameters, errors| {
        let operation = Operation::new(id, ACCOUNT, summary);
        Operation { parameters, errors, access: Access::Caller, ..operation }
    };
    let list = new("listKeys", "Your API keys", pages(), READ);
    let part = part(reference("Key"));
    document.route("get", "/api/keys", &list.gives("A part of the list, the newest first.", part));
    let scopes = json!({
        "type": "array", "minItems": 1, "items": {"type": "string", "enum": Scope::ALL.map(Scope::as_str)},
    });
    let expires = "Unix seconds in the future, within a hundred years; absent: never.";
    let asks = closed(object(
        &["name"],
        json!({
            "name": line("For you to know it by."),
            "scopes": with(nullable(scopes), "What it may be used for; absent: all but `admin`."),
            "expires_at": with(nullable(json!({"type": "integer", "minimum": 1})), expires),
        }),
    ));
    let secret = json!({"type": "object", "required": ["key"], "properties": {
        "key": {"type": "string", "description": "The key itself, this once."},
    }});
    let made = json!({"allOf": [reference("Key"), secret]});
    let create = new("createKey", "Make an API key", Vec::new(), BODY);
    document.route("post", "/api/keys", &create.takes(asks).gives("The key.", made));
    let revoke = new("revokeKey", "End an API key at once", vec![id("key")], ONE);
    document.route("delete", "/api/keys/{id}", &revoke.gives("It has ended.", deleted("api_key")));
}

fn users(document: &mut Document) {
    let new = |id, summary, parameters, errors| {
        let operation = Operation::new(id, USERS, summary);
        Operation { parameters, errors, access: Access::Caller, ..operation }
    };
    let list = new("listUsers", "Everybody of your organisation", pages(), READ);
    let of_users = part(reference("User"));
    document.route("get", "/api/users", &list.gives("A part of the list, by login.", of_users));
    let role = || nullable(json!({"type": "string", "enum": Role::ALL.map(Role::as_str)}));
    let tier = || nullable(line("The name of a tier there is."));
    let name = || nullable(line("What others see."));
    let asks = closed(object(
        &["login"],
        json!({
            "login": line("Without spaces."),
            "display_name": name(),
            "role": role(),
            "tier": tier(),
            "password": nullable(password()),
        }),
    ));
    let told = json!({"type": "object", "properties": {
        "password": {"type": "string", "description": "The one that was made, this once."},
    }});
    let told = || json!({"allOf": [reference("User"), told.clone()]});
    let create = new("createUser", "Make a user; without a password one is made", Vec::new(), BODY);
    document.route("post", "/api/users", &create.takes(asks).gives("The user.", told()));
    let flag = |what| with(json!({"type": ["boolean", "null"]}), what);
    let changes = closed(object(
        &[],
        json!({
            "display_name": name(),
            "role": role(),
            "tier": tier(),
            "is_disabled": flag("Whether to keep the user out, at once."),
            "reset_password": flag("Whether to make a new password and end the user's sessions."),
        }),
    ));
    let change = new("changeUser", "Change a user", vec![id("user")], BODY);
    document.route("patch", "/api/users/{id}", &change.takes(changes).gives("The user.", told()));
    let remove = new("removeUser", "Remove a user with keys and sessions", vec![id("user")], ONE);
    document.route("delete", "/api/users/{id}", &remove.gives("The user is gone.", deleted("user")));
}

fn usage(document: &mut Document) {
    let names = GROUPS.map(|group| group.1);
    let text = |more: Value| {
        let mut schema = json!({"type": "string"});
        if let (Some(schema), Value::Object(more)) = (schema.as_object_mut(), more) {
            schema.extend(more);
        }
        schema
    };
    let query = |name, what, schema: Value| parameter("query", name, what, &schema);
    let from = format!("The first day, in UTC; 30 days by default, {MAX_DAYS} at most.");
    let group = "What sums are by. Absent: days, and in CSV every request.";
    let mut parameters = vec![
        query("from", from.as_str(), text(json!({"format": "date"}))),
        query("to", "The last day; today by default.", text(json!({"format": "date"}))),
        query("group_by", group, text(json!({"enum": names}))),
        query("user", "A user's id or `all`, for administrators; absent: you.", text(json!({}))),
        query("format", "", text(json!({"enum": ["json", "csv"], "default": "json"}))),
    ];
    parameters.extend(pages());
    let csv = json!({"type": "string"});
    let bodies = vec![("application/json", part(sum())), ("text/csv", csv)];
    let report = Operation {
        parameters,
        answers: vec![(200, "Sums, or with `format=csv` rows.", bodies)],
        headers: vec!["content-disposition"],
        errors: ONE,
        access: Access::Caller,
        ..Operation::new("getUsage", "Usage", "What was used")
    };
    document.route("get", "/v1/usage", &report);
}

fn id(what: &str) -> Value {
    parameter("path", "id", &format!("The {what}'s."), &json!({"type": "string", "minLength": 1}))
}

fn pages() -> Vec<Value> {
    let limit = json!({"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": MAX_LIMIT});
    let after = "The id of the last entry of the part before.";
    vec![
        parameter("query", "limit", "Most entries.", &limit),
        parameter("query", "after", after, &json!({"type": "string"})),
    ]
}

fn part(of: Value) -> Value {
    let id = || json!({"type": ["string", "null"]});
    let list = json!({"type": "array", "items": of});
    object(
        &["object", "data", "has_more", "first_id", "last_id"],
        json!({
            "object": {"const": "list"},
            "data": list,
            "has_more": {"type": "boolean"},
            "first_id": id(),
            "last_id": id(),
        }),
    )
}

fn deleted(what: &str) -> Value {
    object(
        &["object", "id", "deleted"],
        json!({"object": {"const": what}, "id": {"type": "string"}, "deleted": {"const": true}}),
    )
}

/// A text of one line.
fn line(what: &str) -> Value {
    with(json!({"type": "string", "minLength": 1, "maxLength": MAX_FIELD_CHARS}), what)
}

fn password() -> Value {
    let what = format!("At least {MIN_PASSWORD_CHARS} characters and at most {MAX_PASSWORD_BYTES} bytes.");
    with(json!({"type": "string", "minLength": MIN_PASSWORD_CHARS, "maxLength": MAX_PASSWORD_BYTES}), &what)
}

fn count() -> Value {
    json!({"type": "integer", "minimum": 0})
}

fn seconds() -> Value {
    json!({"type": "integer", "description": "Unix seconds."})
}

fn user() -> Value {
    let text = || json!({"type": "string"});
    object(
        &["object", "id", "org_id", "login", "display_name", "role", "tier", "is_disabled", "created_at"],
        json!({
            "object": {"const": "user"},
            "id": text(),
            "org_id": text(),
            "login": text(),
            "display_name": text(),
            "role": {"type": "string", "enum": Role::ALL.map(Role::as_str)},
            "tier": text(),
            "is_disabled": {"type": "boolean"},
            "created_at": seconds(),
        }),
    )
}

fn session() -> Value {
    let text = || json!({"type": ["string", "null"]});
    let provider = object(&["name", "url"], json!({"name": {"type": "string"}, "url": {"type": "string"}}));
    object(
        &["object", "id", "user", "csrf_token", "setup", "providers"],
        json!({
            "object": {"const": "session"},
            "id": text(),
            "user": nullable(reference("User")),
            "csrf_token": with(text(), "For the header x-csrf-token."),
            "setup": {
                "enum": ["open", "token", null],
                "description": "Whether there are no accounts yet, and what the first one takes.",
            },
            "providers": {"type": "array", "items": provider},
        }),
    )
}

fn key() -> Value {
    let text = || json!({"type": "string"});
    object(
        &[
            "object",
            "id",
            "name",
            "prefix",
            "scopes",
            "created_at",
            "expires_at",
            "last_used_at",
            "revoked_at",
        ],
        json!({
            "object": {"const": "api_key"},
            "id": text(),
            "name": text(),
            "prefix": with(text(), "How the key begins."),
            "scopes": {"type": "array", "items": {"enum": Scope::ALL.map(Scope::as_str)}},
            "created_at": seconds(),
            "expires_at": nullable(seconds()),
            "last_used_at": nullable(seconds()),
            "revoked_at": nullable(seconds()),
        }),
    )
}

fn device() -> Value {
    let text = || json!({"type": "string"});
    object(
        &["object", "id", "user_agent", "address", "created_at", "seen_at", "is_current"],
        json!({
            "object": {"const": "device"},
            "id": text(),
            "user_agent": text(),
            "address": text(),
            "created_at": seconds(),
            "seen_at": seconds(),
            "is_current": {"type": "boolean"},
        }),
    )
}

fn sum() -> Value {
    let counts =
        ["requests", "prompt_tokens", "cached_tokens", "output_tokens", "reasoning_tokens", "cost_micros"];
    let names = [&["object", "id"][..], &counts[..]].concat();
    let mut sum = object(&names, json!({"object": {"const": "usage"}, "id": {"type": "string"}}));
    for name in counts {
        sum["properties"][name] = count();
    }
    sum
}

#[cfg(test)]
mod tests {
    use motet_protocol::openapi::Accounts;

    use super::*;

    #[test]
    fn it_stands_as_written() {
        let mut document = Document::new("0.0.0", Accounts::On);
        describe(&mut document);
        let document = document.json();
        insta::assert_json_snapshot!([&document["paths"], &document["components"]["schemas"]]);
    }
}
