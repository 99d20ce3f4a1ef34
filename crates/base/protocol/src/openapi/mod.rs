//! The OpenAPI 3.1 document of the API, made of the same tables and bounds that requests are read with.
//!
//! Schemas say what a request may hold; rules between parameters (`min_tokens` ≤ `max_tokens`) and what depends on a
//! model (the context's length) stay the parser's. Unknown parameters are allowed, as the API tolerates them.

mod embeddings;
mod headers;
mod inference;
mod replies;
mod requests;

use serde_json::{Map, Value, json};

pub use headers::{IGNORED_HEADER, LIMIT_HEADERS, REPLY_HEADERS};
pub use inference::inference;

/// The cookie of whoever is signed in.
pub const SESSION_COOKIE: &str = "motet_session";
/// The header that shows that a page of this server sends the cookie.
pub const CSRF_HEADER: &str = "x-csrf-token";

const JSON: &str = "application/json";

/// A document in the making: routes are added by what serves them.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    paths: Map<String, Value>,
    schemas: Map<String, Value>,
    version: String,
    accounts: Accounts,
}

/// Media types of a body, each with its schema.
pub type Bodies = Vec<(&'static str, Value)>;

/// Whether a server has accounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accounts {
    /// Only who has one gets in.
    On,
    /// It listens on loopback only, and takes any key or none.
    Off,
}

/// Who may use a route.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Access {
    /// Everybody; nobody is asked who they are.
    #[default]
    Everybody,
    /// Everybody; who is known gets to know more.
    Optional,
    /// Whoever has a key or is signed in, where there are accounts.
    Caller,
    /// Whoever is signed in: no key will do.
    Session,
}

/// A route's description. [`Operation::new`] is one that takes nothing, gives nothing and never fails.
#[derive(Debug, Clone, Default)]
pub struct Operation {
    /// Unique; code generators make function names of it.
    pub id: &'static str,
    /// Under which it is listed.
    pub tag: &'static str,
    /// One line.
    pub summary: &'static str,
    /// Of path, query and headers, as [`parameter`] makes them.
    pub parameters: Vec<Value>,
    /// The body's media type and schema.
    pub body: Option<(&'static str, Value)>,
    /// Status codes of success, each with what it means and its bodies by media type.
    pub answers: Vec<(u16, &'static str, Bodies)>,
    /// Names of headers that a success may have besides those of every answer.
    pub headers: Vec<&'static str>,
    /// Status codes of errors, which all have one shape.
    pub errors: &'static [u16],
    /// Media types, besides JSON, that errors have where a client prefers them.
    pub error_pages: &'static [&'static str],
    /// Who may use it.
    pub access: Access,
}

impl Document {
    /// A document without routes, of this version of the server.
    pub fn new(version: &str, accounts: Accounts) -> Self {
        let version = version.to_owned();
        let mut document = Self { paths: Map::new(), schemas: Map::new(), version, accounts };
        document.schema("Error", replies::error());
        document
    }

    /// Adds a schema that others refer to by [`reference`].
    pub fn schema(&mut self, name: &str, schema: Value) {
        self.schemas.insert(name.to_owned(), schema);
    }

    /// Adds a route; `{name}` in `path` is a parameter.
    pub fn route(&mut self, method: &str, path: &str, operation: &Operation) {
        let entry = self.paths.entry(path).or_insert_with(|| json!({}));
        entry[method] = operation.json(method, self.accounts);
    }

    /// The whole document.
    pub fn json(&self) -> Value {
        json!({
            "openapi": "3.1.0",
            "info": {
                "title": "Motet",
                "version": self.version,
                "description": "The OpenAI-compatible API of a Motet server. Unknown parameters are ignored and named in \
                    the header x-motet-ignored-parameters; known ones that would change the reply and can't be honoured \
                    are a 400 that names them.",
                "license": {"name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0"},
            },
            "servers": [{"url": "/"}],
            "paths": self.paths,
            "components": {
                "schemas": self.schemas,
                "headers": headers::components(),
                "securitySchemes": self.schemes(),
            },
        })
    }

    fn schemes(&self) -> Value {
        let key = |what: &str| json!({"type": "http", "scheme": "bearer", "description": what});
        match self.accounts {
            Accounts::Off => json!({"key": key("This server has no accounts: it takes any key, or none.")}),
            Accounts::On => json!({
                "key": key("An API key."),
                "session": {
                    "type": "apiKey", "in": "cookie", "name": SESSION_COOKIE,
                    "description": "Of whoever is signed in.",
                },
                "csrf": {
                    "type": "apiKey", "in": "header", "name": CSRF_HEADER,
                    "description": "What shows that a page of this server sends the cookie; `GET /api/session` has it.",
                },
            }),
        }
    }
}

impl Operation {
    /// One that takes nothing, gives nothing and never fails, for everybody.
    pub fn new(id: &'static str, tag: &'static str, summary: &'static str) -> Self {
        Self { id, tag, summary, ..Self::default() }
    }

    /// The same with an answer 200 in JSON.
    #[must_use]
    pub fn gives(self, meaning: &'static str, schema: Value) -> Self {
        Self { answers: vec![(200, meaning, vec![(JSON, schema)])], ..self }
    }

    /// The same with a body in JSON.
    #[must_use]
    pub fn takes(self, schema: Value) -> Self {
        Self { body: Some((JSON, schema)), ..self }
    }

    fn json(&self, method: &str, accounts: Accounts) -> Value {
        let mut operation = json!({
            "operationId": self.id,
            "summary": self.summary,
            "tags": [self.tag],
            "responses": self.responses(),
        });
        if !self.parameters.is_empty() {
            operation["parameters"] = self.parameters.clone().into();
        }
        if let Some((media, schema)) = &self.body {
            operation["requestBody"] = json!({"required": true, "content": {*media: {"schema": schema}}});
        }
        let session =
            if method == "get" { json!({"session": []}) } else { json!({"session": [], "csrf": []}) };
        let security = match (self.access, accounts) {
            (Access::Everybody, _) => return operation,
            // An empty alternative: it goes without.
            (_, Accounts::Off) => json!([{"key": []}, {}]),
            (Access::Optional, _) => json!([{"key": []}, session, {}]),
            (Access::Caller, _) => json!([{"key": []}, session]),
            (Access::Session, _) => json!([session]),
        };
        operation["security"] = security;
        operation
    }

    fn responses(&self) -> Map<String, Value> {
        let mut responses = Map::new();
        for (status, meaning, bodies) in &self.answers {
            let content: Map<String, Value> = bodies
                .iter()
                .map(|(media, schema)| ((*media).to_owned(), json!({"schema": schema})))
                .collect();
            let mut answer = json!({"description": meaning, "headers": headers::of_success(&self.headers)});
            if !content.is_empty() {
                answer["content"] = content.into();
            }
            responses.insert(status.to_string(), answer);
        }
        for status in self.errors {
            let mut content = json!({JSON: {"schema": reference("Error")}});
            for media in self.error_pages {
                content[*media] = json!({"schema": {"type": "string"}});
            }
            let (description, headers) = (meaning(*status), headers::of_error(*status));
            let error = json!({"description": description, "headers": headers, "content": content});
            responses.insert(status.to_string(), error);
        }
        responses
    }
}

fn meaning(status: u16) -> &'static str {
    match status {
        400 => "The request can't be understood or honoured; `param` names what is wrong.",
        401 => "No valid key, and nobody is signed in.",
        403 => "The key or account may not do this, or the server answers to other host names only.",
        404 => "There is no such thing, or none that this account may see.",
        408 => "The body did not arrive in time.",
        409 => "It is not in a state for this.",
        413 => "The body is too large.",
        415 => "The content type is not what the route takes.",
        422 => "The same idempotency key came with another body.",
        429 => {
            "Over a limit; `retry-after` says when the same request passes. With `insufficient_quota` it does not."
        }
        500 => "The server's mistake; its log says more under the request's id.",
        503 => "The model is loading, overloaded or down; `retry-after` says when to try again.",
        502 => "Another server, which this one asked, gave no answer that can be used.",
        504 => "The reply was not there in time.",
        _ => "An error.",
    }
}

/// Points to a schema of the document.
pub fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// A parameter of the path, the query or the headers.
pub fn parameter(place: &str, name: &str, what: &str, schema: &Value) -> Value {
    json!({"name": name, "in": place, "required": place == "path", "description": what, "schema": schema})
}

/// The same object, which has no other properties.
#[must_use]
pub fn closed(mut object: Value) -> Value {
    object["additionalProperties"] = false.into();
    object
}

/// A schema with a description.
#[must_use]
pub fn with(mut schema: Value, what: &str) -> Value {
    schema["description"] = what.into();
    schema
}

/// An object with these properties, of which the first ones are required; others are allowed.
pub fn object(required: &[&str], properties: Value) -> Value {
    json!({"type": "object", "required": required, "properties": properties})
}

/// A schema or null, which means absent.
pub fn nullable(schema: Value) -> Value {
    match schema {
        Value::Object(mut map) => match map.get("type").cloned() {
            Some(Value::String(kind)) if !map.contains_key("enum") && !map.contains_key("const") => {
                map.insert("type".to_owned(), json!([kind, "null"]));
                Value::Object(map)
            }
            _ => json!({"anyOf": [map, {"type": "null"}]}),
        },
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(accounts: Accounts) -> Value {
        let mut document = Document::new("0.0.0", accounts);
        inference(&mut document);
        document.json()
    }

    #[test]
    fn it_stands_as_written() {
        insta::assert_json_snapshot!(document(Accounts::Off));
    }

    #[test]
    fn who_may_use_a_route() {
        let check = |access, accounts, method, want: Value| {
            let operation = Operation { access, ..Operation::new("a", "b", "c") };
            assert_eq!(
                operation.json(method, accounts)["security"],
                want,
                "{access:?} {accounts:?} {method}"
            );
        };
        let (on, off) = (Accounts::On, Accounts::Off);
        let cookie = json!({"session": [], "csrf": []});
        check(Access::Everybody, on, "post", Value::Null);
        check(Access::Optional, on, "get", json!([{"key": []}, {"session": []}, {}]));
        check(Access::Caller, on, "get", json!([{"key": []}, {"session": []}]));
        check(Access::Caller, on, "post", json!([{"key": []}, cookie]));
        check(Access::Session, on, "delete", json!([cookie]));
        check(Access::Caller, off, "post", json!([{"key": []}, {}]));
    }

    #[test]
    fn every_reference_leads_somewhere_and_ids_differ() {
        let document = document(Accounts::On);
        let mut references = Vec::new();
        let mut ids = Vec::new();
        walk(&document, &mut |key, value| match (key, value.as_str()) {
            ("$ref", Some(to)) => references.push(to.to_owned()),
            ("operationId", Some(id)) => ids.push(id.to_owned()),
            _ => {}
        });
        for to in references {
            assert!(document.pointer(to.trim_start_matches('#')).is_some(), "{to}");
        }
        let count = ids.len();
        ids.sort();
        ids.dedup();
        assert!(count > 5 && ids.len() == count);
    }

    fn walk(value: &Value, visit: &mut impl FnMut(&str, &Value)) {
        match value {
            Value::Object(map) => map.iter().for_each(|(key, value)| {
                visit(key, value);
                walk(value, visit);
            }),
            Value::Array(list) => list.iter().for_each(|value| walk(value, visit)),
            _ => {}
        }
    }

    #[test]
    fn null_is_added_to_any_schema() {
        let check = |schema: Value, want: Value| assert_eq!(nullable(schema), want);
        check(json!({"type": "string", "maxLength": 3}), json!({"type": ["string", "null"], "maxLength": 3}));
        check(json!({"enum": [1]}), json!({"anyOf": [{"enum": [1]}, {"type": "null"}]}));
        check(reference("X"), json!({"anyOf": [{"$ref": "#/components/schemas/X"}, {"type": "null"}]}));
    }
}
