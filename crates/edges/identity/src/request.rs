//! What a request says: its body, its query, the end of its path.

use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use futures_util::StreamExt;
use http::request::Parts;
use http::{HeaderMap, header};
use motet_protocol::{Problem, RequestError};
use motet_store::{Role, Secret, StoreError};
use serde_json::{Map, Value};

use crate::error::Refusal;

/// The longest body: the longest password written as escapes fits four times.
const MAX_BODY_BYTES: usize = 32 << 10;

/// How long a body may take.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// The most that a page of a list may have, and has unless less is asked for.
pub(crate) const MAX_LIMIT: usize = 100;

/// A whole body, within bounds.
pub(crate) async fn read(body: Body) -> Result<Vec<u8>, Refusal> {
    let collect = async {
        let (mut stream, mut bytes) = (body.into_data_stream(), Vec::new());
        while let Some(chunk) = stream.next().await {
            bytes.extend_from_slice(&chunk.map_err(|_| Refusal::BrokenBody)?);
            if bytes.len() > MAX_BODY_BYTES {
                return Err(Refusal::TooLarge(MAX_BODY_BYTES));
            }
        }
        Ok(bytes)
    };
    let read = tokio::time::timeout(BODY_TIMEOUT, collect).await;
    read.unwrap_or(Err(Refusal::BodyTimeout(BODY_TIMEOUT.as_secs())))
}

/// A JSON object whose fields are taken one by one. `null` is the same as leaving a field out.
pub(crate) struct Fields(Map<String, Value>);

impl<S: Sync> FromRequest<S> for Fields {
    type Rejection = Refusal;

    async fn from_request(request: Request, _: &S) -> Result<Self, Refusal> {
        let (parts, body) = request.into_parts();
        if !is_json(&parts.headers) {
            return Err(Refusal::ContentType);
        }
        let bytes = to_bytes(body, MAX_BODY_BYTES).await.map_err(|_| Refusal::BrokenBody)?;
        match serde_json::from_slice(&bytes) {
            Ok(Value::Object(fields)) => Ok(Self(fields)),
            Ok(_) => Err(RequestError::not_json("the request body must be a JSON object").into()),
            Err(error) => {
                let why = format!("the request body is not JSON: {error}");
                Err(RequestError::not_json(why).into())
            }
        }
    }
}

/// Whether the body says that it is JSON, which a foreign page can't send without asking first.
fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
}

impl Fields {
    fn take(&mut self, name: &str) -> Option<Value> {
        self.0.remove(name).filter(|value| !value.is_null())
    }

    /// A string.
    pub(crate) fn text(&mut self, name: &str) -> Result<Option<String>, RequestError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(RequestError::wrong_type(name, "a string", &other)),
        }
    }

    /// A string that no message repeats.
    pub(crate) fn secret(&mut self, name: &str) -> Result<Option<Secret>, RequestError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(Secret::new(text))),
            Some(_) => {
                let message = format!("'{name}' must be a string");
                Err(RequestError { problem: Problem::WrongType, param: Some(name.to_owned()), message })
            }
        }
    }

    /// A boolean.
    pub(crate) fn flag(&mut self, name: &str) -> Result<Option<bool>, RequestError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(flag)),
            Some(other) => Err(RequestError::wrong_type(name, "a boolean", &other)),
        }
    }

    /// A whole number.
    pub(crate) fn number(&mut self, name: &str) -> Result<Option<i64>, RequestError> {
        let Some(value) = self.take(name) else { return Ok(None) };
        match value.as_i64() {
            Some(number) => Ok(Some(number)),
            None => Err(RequestError::wrong_type(name, "a whole number", &value)),
        }
    }

    /// A list of strings.
    pub(crate) fn names(&mut self, name: &str) -> Result<Option<Vec<String>>, RequestError> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let names = value.as_array().map(|items| items.iter().map(Value::as_str).collect::<Option<Vec<_>>>());
        match names.flatten() {
            Some(names) => Ok(Some(names.into_iter().map(str::to_owned).collect())),
            None => Err(RequestError::wrong_type(name, "a list of strings", &value)),
        }
    }

    /// The name of a role.
    pub(crate) fn role(&mut self, name: &str) -> Result<Option<Role>, RequestError> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        let role = Role::from_name(&text);
        role.map(Some).ok_or_else(|| RequestError::bad_value(name, "must be 'owner', 'admin' or 'member'"))
    }

    /// Fails when there is a field that was not taken: misspelt, it would be without effect.
    pub(crate) fn end(self) -> Result<(), RequestError> {
        let Some((name, _)) = self.0.into_iter().next() else { return Ok(()) };
        let name: String = name.chars().filter(|c| !c.is_control()).take(60).collect();
        Err(RequestError::unsupported(name, "is no parameter here; see docs/api.md for those that are"))
    }
}

/// A field that has to be there.
pub(crate) fn required<T>(field: Option<T>, name: &str) -> Result<T, RequestError> {
    field.ok_or_else(|| RequestError::missing(name))
}

/// The query of an address.
pub(crate) struct Params(Vec<(String, String)>);

impl<S: Sync> FromRequestParts<S> for Params {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        let query = Query::try_from_uri(&parts.uri);
        let unreadable = |_| RequestError::not_json("the query of the address can't be read");
        Ok(query.map(|Query(pairs)| Self(pairs)).map_err(unreadable)?)
    }
}

impl Params {
    /// The last value of this name.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The entry of a list after which to go on; an empty one, as clients send for the first part, is none.
    pub(crate) fn after(&self) -> Option<&str> {
        self.get("after").filter(|after| !after.is_empty())
    }

    /// How many entries of a list are asked for.
    pub(crate) fn limit(&self) -> Result<usize, RequestError> {
        let Some(text) = self.get("limit") else { return Ok(MAX_LIMIT) };
        let limit = text.parse().ok().filter(|limit| (1..=MAX_LIMIT).contains(limit));
        limit.ok_or_else(|| RequestError::bad_value("limit", format!("must be 1 to {MAX_LIMIT}")))
    }
}

/// The end of the path: whose or which one.
pub(crate) struct Named(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for Named {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        // What does not decode to text names nothing.
        let name = Path::from_request_parts(parts, state).await;
        name.map(|Path(name)| Self(name)).map_err(|_| StoreError::Missing("entry").into())
    }
}
