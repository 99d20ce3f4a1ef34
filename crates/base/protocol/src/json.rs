use serde_json::{Map, Value};

use crate::error::RequestError;

/// Deepest nesting of arrays and objects in a body.
pub const MAX_DEPTH: usize = 64;

/// Most JSON values in a body. A value costs some 80 bytes once read whatever it took on the wire
/// (`0,` is two), so this, not the body limit, bounds the memory of one request; it leaves room for
/// a batch of token-id prompts.
pub const MAX_VALUES: usize = 500_000;

/// Reads a request body: a JSON object in UTF-8, with or without a byte order mark.
///
/// Depth and number of values are checked by one pass over the bytes before anything is allocated.
///
/// # Errors
/// Says where the JSON breaks (line and column), or which bound it exceeds.
pub fn parse_body(bytes: &[u8]) -> Result<Map<String, Value>, RequestError> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(RequestError::not_json("the request body is empty; send a JSON object"));
    }
    check_shape(bytes)?;
    match serde_json::from_slice(bytes) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => Err(RequestError::not_json("the request body must be a JSON object")),
        Err(error) => Err(RequestError::not_json(format!("the request body is not valid JSON: {error}"))),
    }
}

/// Bounds depth and size. Counts what would be structure in valid JSON; in invalid JSON the counts
/// mean little, and the parser refuses it afterwards.
fn check_shape(bytes: &[u8]) -> Result<(), RequestError> {
    let (mut depth, mut values) = (0usize, 1usize);
    let (mut in_string, mut escaped) = (false, false);
    for &byte in bytes {
        if in_string {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'[' | b'{' => (depth, values) = (depth + 1, values + 1),
            b']' | b'}' => depth = depth.saturating_sub(1),
            b',' => values += 1,
            _ => {}
        }
        if depth > MAX_DEPTH {
            return Err(RequestError::not_json(format!(
                "the request body is nested deeper than {MAX_DEPTH} levels"
            )));
        }
        if values > MAX_VALUES {
            return Err(RequestError::not_json(format!(
                "the request body holds more than {MAX_VALUES} JSON values"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(body: &[u8], want: Result<usize, &str>) {
        let shown = String::from_utf8_lossy(&body[..body.len().min(60)]).into_owned();
        match (parse_body(body), want) {
            (Ok(map), Ok(keys)) => assert_eq!(map.len(), keys, "{shown}"),
            (Err(error), Err(part)) => assert!(error.message.contains(part), "{shown}: {}", error.message),
            (got, want) => panic!("{shown}: got {got:?}, want {want:?}"),
        }
    }

    #[test]
    fn bodies() {
        check(b"{}", Ok(0));
        check(b"\xef\xbb\xbf{\"a\":1}", Ok(1));
        check(b" \n{\"a\":1,\"a\":2}", Ok(1));
        check(br#"{"a":"[[[[{{{{,,,,\"[["}"#, Ok(1));
        check(b"", Err("empty"));
        check(b" \n", Err("empty"));
        check(b"[]", Err("must be a JSON object"));
        check(b"\"hi\"", Err("must be a JSON object"));
        check(b"{\"a\":", Err("not valid JSON"));
        check(b"{\"a\":NaN}", Err("not valid JSON"));
        check(b"{\"a\":1e999}", Err("not valid JSON"));
        check(br#"{"a":"\ud800"}"#, Err("not valid JSON"));
        check(b"{\"a\":\"\xff\"}", Err("not valid JSON"));
        check(b"hello", Err("not valid JSON"));
    }

    #[test]
    fn bounds() {
        let nested = |n: usize| format!("{{\"a\":{}{}}}", "[".repeat(n), "]".repeat(n));
        check(nested(MAX_DEPTH - 1).as_bytes(), Ok(1));
        check(nested(MAX_DEPTH).as_bytes(), Err("deeper than 64"));
        check("[".repeat(50_000).as_bytes(), Err("deeper than 64"));
        let wide = |n: usize| format!("{{\"a\":[0{}]}}", ",0".repeat(n));
        check(wide(1000).as_bytes(), Ok(1));
        check(wide(MAX_VALUES).as_bytes(), Err("more than 500000"));
    }
}
