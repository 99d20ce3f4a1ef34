//! Sign-in for the OpenAPI document.

use motet_protocol::openapi::{Document, Operation, object, parameter};
use serde_json::{Value, json};

const SIGN_IN: &str = "Sign-in";

/// Adds the routes of [`routes`](crate::routes).
pub fn describe(document: &mut Document) {
    let text = || json!({"type": "string"});
    let provider = object(&["name", "title", "url"], json!({"name": text(), "title": text(), "url": text()}));
    let list = Operation {
        errors: &[403, 500],
        ..Operation::new("listSignInProviders", SIGN_IN, "Other places where people can sign in")
    };
    let list =
        list.gives("They, in the order they are configured.", json!({"type": "array", "items": provider}));
    document.route("get", "/api/oidc", &list);
    let query = |name, what| parameter("query", name, what, &json!({"type": "string"}));
    let goes = |id, summary, status, meaning, parameters: Vec<Value>| Operation {
        parameters: [
            vec![parameter("path", "provider", "Its name.", &json!({"type": "string", "minLength": 1}))],
            parameters,
        ]
        .concat(),
        answers: vec![(status, meaning, Vec::new())],
        headers: vec!["location", "set-cookie"],
        errors: &[400, 403, 404, 500, 502, 503],
        error_pages: &["text/html"],
        ..Operation::new(id, SIGN_IN, summary)
    };
    let back = query("return_to", "The path of this server to go to afterwards.");
    let begin =
        goes("beginSignIn", "Sign in elsewhere: for a browser's window", 302, "To the provider.", vec![back]);
    document.route("get", "/api/oidc/{provider}", &begin);
    let answer = vec![
        query("state", "Which sign-in it is about."),
        query("code", "What is exchanged for who it is."),
        query("error", "Why there is none."),
        query("error_description", "The same for people."),
        query("iss", "Who sent the browser here."),
    ];
    let summary = "Where the provider sends the browser back to";
    let callback = goes("endSignIn", summary, 303, "Signed in: to `return_to`.", answer);
    document.route("get", "/api/oidc/{provider}/callback", &callback);
}

#[cfg(test)]
mod tests {
    use motet_protocol::openapi::Accounts;

    use super::*;

    #[test]
    fn it_stands_as_written() {
        let mut document = Document::new("0.0.0", Accounts::On);
        describe(&mut document);
        insta::assert_json_snapshot!(document.json()["paths"]);
    }
}
