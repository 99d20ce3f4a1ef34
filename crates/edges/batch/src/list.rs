//! Lists, part by part.

use std::collections::HashMap;

use motet_protocol::RequestError;
use motet_store::Order;
use serde::Serialize;

/// What a client may say about a list.
pub(crate) type Query = axum::extract::Query<HashMap<String, String>>;

/// A part of a list as asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) after: Option<String>,
    pub(crate) limit: u32,
    pub(crate) order: Order,
}

/// How long the parts of a list are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) usual: u32,
    pub(crate) most: u32,
}

impl Asked {
    pub(crate) fn read(query: &HashMap<String, String>, limits: Limits) -> Result<Self, RequestError> {
        let Limits { usual, most } = limits;
        let limit = match query.get("limit") {
            None => usual,
            Some(text) => text.parse().ok().filter(|limit| (1..=most).contains(limit)).ok_or_else(|| {
                RequestError::bad_value("limit", format!("must be a whole number from 1 to {most}"))
            })?,
        };
        let order = match query.get("order").map(String::as_str) {
            None | Some("desc") => Order::Descending,
            Some("asc") => Order::Ascending,
            Some(_) => return Err(RequestError::bad_value("order", "must be 'asc' or 'desc'")),
        };
        Ok(Self { after: query.get("after").filter(|after| !after.is_empty()).cloned(), limit, order })
    }
}

/// The cursor names nothing of the client's.
pub(crate) fn unknown_cursor(what: &str) -> RequestError {
    RequestError::bad_value("after", format!("must be the id of a {what} of yours"))
}

/// A part of a list. Clients page for ever without `has_more`.
#[derive(Debug, Serialize)]
pub(crate) struct List<T> {
    object: &'static str,
    data: Vec<T>,
    first_id: Option<String>,
    last_id: Option<String>,
    has_more: bool,
}

impl<T> List<T> {
    /// Of one row more than was asked for, if there are so many.
    pub(crate) fn new(mut rows: Vec<T>, limit: u32, id: impl Fn(&T) -> String) -> Self {
        let has_more = rows.len() > limit as usize;
        rows.truncate(limit as usize);
        let (first_id, last_id) = (rows.first().map(&id), rows.last().map(&id));
        Self { object: "list", data: rows, first_id, last_id, has_more }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts() {
        let check = |query: &[(&str, &str)], expected: Result<(Option<&str>, u32, Order), &str>| {
            let query = query.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            let read = Asked::read(&query, Limits { usual: 20, most: 100 });
            let read = read.as_ref().map(|asked| (asked.after.as_deref(), asked.limit, asked.order));
            assert_eq!(read.map_err(|error| error.param.as_deref().unwrap()), expected);
        };
        check(&[], Ok((None, 20, Order::Descending)));
        check(&[("limit", "100"), ("order", "asc"), ("after", "x")], Ok((Some("x"), 100, Order::Ascending)));
        check(&[("after", "")], Ok((None, 20, Order::Descending)));
        for limit in ["0", "101", "-1", "x", ""] {
            check(&[("limit", limit)], Err("limit"));
        }
        check(&[("order", "up")], Err("order"));
    }

    #[test]
    fn a_part_says_whether_there_is_more() {
        let check = |rows: usize, limit, expected: &str| {
            let list = List::new((0..rows).collect(), limit, |n| n.to_string());
            assert_eq!(serde_json::to_string(&list).unwrap(), expected);
        };
        check(0, 2, r#"{"object":"list","data":[],"first_id":null,"last_id":null,"has_more":false}"#);
        check(2, 2, r#"{"object":"list","data":[0,1],"first_id":"0","last_id":"1","has_more":false}"#);
        check(3, 2, r#"{"object":"list","data":[0,1],"first_id":"0","last_id":"1","has_more":true}"#);
    }
}
