//! The OpenAPI 3.1 document of the API, made of the same tables and bounds that requests are read with.
//!
//! Schemas say what a request may hold; rules between parameters (`min_tokens` ≤ `max_tokens`) and what depends on a
//! model (the context's length) stay the parser's. Unknown parameters are allowed, as the API tolerates them.

mod inference;
mod replies;
mod requests;

use serde_json::{Map, Value, json};

pub use inference::inference;

/// A document in the making: routes are added by what serves them.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    paths: Map<String, Value>,
    schemas: Map<String, Value>,
    version: String,
}

/// Media types of a body, each with its schema.
pub type Bodies = Vec<(&'static str, Value)>;

/// A route's description.
#[derive(Debug, Clone)]
pub struct Operation {
    /// Unique; code generators make function names of it.
    pub id: &'static str,
    /// One line.
    pub summary: &'static str,
    /// Under which it is listed.
    pub tag: &'static str,
    /// Of path, query and headers, as [`parameter`] makes them.
    pub parameters: Vec<Value>,
    /// The body's media type and schema.
    pub body: Option<(&'static str, Value)>,
    /// Status codes of success, each with what it means and its bodies by media type.
    pub answers: Vec<(u16, &'static str, Bodies)>,
    /// Status codes of errors, which all have one shape.
    pub errors: &'static [u16],
    /// Whether it needs a key.
    pub has_key: bool,
}

impl Document {
    /// A document without routes, of this version of the server.
    pub fn new(version: &str) -> Self {
        let mut document = Self { paths: Map::new(), schemas: Map::new(), version: version.to_owned() };
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
        entry[method] = operation.json();
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
                "securitySchemes": {"key": {"type": "http", "scheme": "bearer", "description":
                    "An API key. A server without accounts, which listens on loopback only, takes any or none."}},
            },
        })
    }
}

impl Operation {
    fn json(&self) -> Value {
        let mut responses = Map::new();
        for (status, meaning, bodies) in &self.answers {
            let content: Map<String, Value> = bodies
                .iter()
                .map(|(media, schema)| ((*media).to_owned(), json!({"schema": schema})))
                .collect();
            let mut answer = json!({"description": meaning, "headers": headers()});
            if !content.is_empty() {
                answer["content"] = content.into();
            }
            responses.insert(status.to_string(), answer);
        }
        for status in self.errors {
            responses.insert(
                status.to_string(),
                json!({
                    "description": meaning(*status),
                    "headers": headers(),
                    "content": {"application/json": {"schema": reference("Error")}},
                }),
            );
        }
        let mut operation = json!({
            "operationId": self.id,
            "summary": self.summary,
            "tags": [self.tag],
            "responses": responses,
        });
        if !self.parameters.is_empty() {
            operation["parameters"] = self.parameters.clone().into();
        }
        if let Some((media, schema)) = &self.body {
            operation["requestBody"] = json!({"required": true, "content": {*media: {"schema": schema}}});
        }
        if self.has_key {
            // An empty alternative: without accounts no key is needed.
            operation["security"] = json!([{"key": []}, {}]);
        }
        operation
    }
}

/// What every answer carries.
fn headers() -> Value {
    json!({"x-request-id": {
        "description": "Names the request in this answer and in the server's log; the client's own is kept.",
        "schema": {"type": "string"},
    }})
}

fn meaning(status: u16) -> &'static str {
    match status {
        400 => "The request can't be understood or honoured; `param` names what is wrong.",
        401 => "No valid key.",
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

    fn document() -> Value {
        let mut document = Document::new("0.0.0");
        inference(&mut document);
        document.json()
    }

    #[test]
    fn it_stands_as_written() {
        insta::assert_json_snapshot!(document());
    }

    #[test]
    fn every_reference_leads_somewhere_and_ids_differ() {
        let document = document();
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
