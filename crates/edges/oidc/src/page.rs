//! What a browser shows when a sign-in fails.

use axum::response::{IntoResponse as _, Response};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use motet_protocol::{ErrorBody, ErrorObject};

use crate::{Class, SignInError};

/// A minute: what is wrong with a provider for a moment is over by then.
const RETRY_AFTER_SECONDS: u32 = 60;

/// No script, no picture, no frame: the page has words of others in it.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'";

/// The answer to a request whose sign-in failed: a page for a browser, an error object for a program.
pub(crate) fn failure(error: &SignInError, provider: Option<&str>, headers: &HeaderMap) -> Response {
    let status = match (error, error.class()) {
        (SignInError::Unreachable { .. }, _) => StatusCode::SERVICE_UNAVAILABLE,
        (SignInError::Random, _) => StatusCode::INTERNAL_SERVER_ERROR,
        (_, Class::Request) => StatusCode::BAD_REQUEST,
        (_, Class::Refused) => StatusCode::FORBIDDEN,
        (_, Class::Provider) => StatusCode::BAD_GATEWAY,
    };
    answer(status, &error.to_string(), error.code(), provider, headers)
}

/// An answer with a status and a message.
pub(crate) fn answer(
    status: StatusCode,
    message: &str,
    code: &str,
    provider: Option<&str>,
    headers: &HeaderMap,
) -> Response {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let mut response = if accept.contains("text/html") {
        let page = [
            (header::CONTENT_TYPE, "text/html; charset=utf-8"),
            (header::CONTENT_SECURITY_POLICY, POLICY),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        ];
        (status, page, html(message, provider)).into_response()
    } else {
        let kind = match status.as_u16() {
            403 => "permission_error",
            400..500 => "invalid_request_error",
            _ => "server_error",
        };
        let error = ErrorObject {
            message: message.to_owned(),
            kind: kind.to_owned(),
            param: None,
            code: Some(code.to_owned()),
        };
        (status, axum::Json(ErrorBody { error })).into_response()
    };
    if status == StatusCode::SERVICE_UNAVAILABLE {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER_SECONDS));
    }
    response
}

/// `provider` is a configured name, which needs no escaping.
fn html(message: &str, provider: Option<&str>) -> String {
    let message = escaped(message);
    let again = provider
        .map_or_else(String::new, |name| format!("<a href=\"/api/oidc/{name}\">Sign in again</a> &middot; "));
    format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>Sign-in failed</title>\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <style>body{{font:1rem/1.5 system-ui,sans-serif;max-width:40rem;margin:4rem auto;padding:0 1rem}}</style>\n\
         <h1>Sign-in failed</h1>\n<p>{message}.</p>\n<p>{again}<a href=\"/\">Start page</a></p></html>\n"
    )
}

fn escaped(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            other => html.push(other),
        }
    }
    html
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_others_are_no_html() {
        let page = html("a <script>\"'&", Some("corp"));
        assert!(page.contains("<p>a &lt;script&gt;&quot;&#39;&amp;.</p>"), "{page}");
        assert!(page.contains("href=\"/api/oidc/corp\"") && !html("a", None).contains("oidc"));
    }

    #[test]
    fn browsers_get_pages_and_programs_objects() {
        let check = |accept: &'static str, error: SignInError, status: u16, kind: &str| {
            let headers = HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(accept))]);
            let response = failure(&error, None, &headers);
            let found = response.headers()[header::CONTENT_TYPE].to_str().unwrap();
            assert_eq!((response.status().as_u16(), found), (status, kind), "{error}");
            assert_eq!(response.headers().contains_key(header::RETRY_AFTER), status == 503);
        };
        let page = "text/html; charset=utf-8";
        check("text/html,*/*;q=0.8", SignInError::NotUnderWay, 400, page);
        check("*/*", SignInError::NotAllowed("no".into()), 403, "application/json");
        check("", SignInError::bad("x", "y"), 502, "application/json");
        check("text/html", SignInError::Unreachable { what: "x", why: "y".into() }, 503, page);
    }
}
