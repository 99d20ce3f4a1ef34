//! Requests that can't be right, and what they are told.

use axum::body::Body;
use http::Request;
use serde_json::{Value, json};

use crate::support::{Client, World, asks, form, line};

#[tokio::test]
async fn uploads() {
    let world = World::new();
    let mut config = world.config();
    config.max_file_bytes = 1000;
    config.per_tenant.files = 3;
    let client = world.server_with(config);
    let check = async |form: (String, Vec<u8>), status: u16, param: Option<&str>, code: &str| {
        let reply = client.post_form(form).await;
        assert_eq!(reply.error(), (status, param.map(str::to_owned), code.to_owned()), "{:?}", reply.bytes);
    };
    let purpose = |purpose: &'static str| ("purpose", None, purpose.as_bytes());
    let file: (&str, Option<&str>, &[u8]) = ("file", Some("a.jsonl"), b"x");
    let missing = "missing_required_parameter";
    check(form(&[]), 400, Some("purpose"), missing).await;
    check(form(&[file]), 400, Some("purpose"), missing).await;
    check(form(&[purpose("batch")]), 400, Some("file"), missing).await;
    check(form(&[purpose("fine-tune"), file]), 400, Some("purpose"), "unsupported_parameter").await;
    check(form(&[purpose("assistants"), file]), 400, Some("purpose"), "unsupported_parameter").await;
    check(form(&[purpose("batch_output"), file]), 400, Some("purpose"), "invalid_value").await;
    check(form(&[("purpose", None, &[b'x'; 300]), file]), 400, Some("purpose"), "invalid_value").await;
    check(form(&[("purpose", None, b"\xff"), file]), 400, Some("purpose"), "invalid_value").await;
    check(form(&[purpose("batch"), ("file", Some("a"), b"")]), 400, Some("file"), "invalid_value").await;
    check(form(&[purpose("batch"), file, file]), 400, Some("file"), "invalid_value").await;
    let long = vec![b'x'; 1001];
    check(form(&[purpose("batch"), ("file", Some("a"), &long)]), 413, Some("file"), "request_too_large")
        .await;
    let many = vec![purpose("batch"); 20];
    check(form(&many), 400, None, "invalid_multipart").await;
    for (anchor, seconds) in [("now", "3600"), ("created_at", "3599"), ("created_at", "x")] {
        let life = |name, value: &'static str| (name, None, value.as_bytes());
        let fields = [
            purpose("batch"),
            file,
            life("expires_after[anchor]", anchor),
            life("expires_after[seconds]", seconds),
        ];
        let param = if anchor == "now" { "expires_after[anchor]" } else { "expires_after[seconds]" };
        check(form(&fields), 400, Some(param), "invalid_value").await;
    }
    let (kind, mut cut) = form(&[purpose("batch"), file]);
    cut.truncate(cut.len() - 12);
    check((kind, cut), 400, None, "invalid_multipart").await;
    check(("application/json".into(), b"{}".to_vec()), 415, None, "unsupported_content_type").await;
    check(("multipart/form-data".into(), b"{}".to_vec()), 415, None, "unsupported_content_type").await;
    check(("multipart/form-data; boundary=YY".into(), b"junk".to_vec()), 400, None, "invalid_multipart")
        .await;

    // Nothing of that was kept, and three files fit.
    assert_eq!(client.get("/v1/files").await.json()["data"], json!([]));
    let temporary = world.folder.path().join("files/tmp");
    assert_eq!(std::fs::read_dir(temporary).unwrap().count(), 0);
    for _ in 0..3 {
        client.upload(b"x").await;
    }
    let full = client.post_form(form(&[purpose("batch"), file])).await;
    assert_eq!(full.error(), (429, None, "storage_limit_reached".to_owned()));
    assert_eq!(full.headers["x-should-retry"], "false");
}

#[tokio::test]
async fn requests_for_batches() {
    let world = World::new();
    let client = world.server();
    let input = client.upload(line("a", json!({})).as_bytes()).await;
    let kept = client.post_form(form(&[("purpose", None, b"user_data"), ("file", Some("a"), b"x")])).await;
    let kept = kept.json()["id"].clone();
    let others = client.user("org_a", "bob").upload(b"x").await;
    let check = async |name: &str, value: Value, code: &str| {
        let mut body = asks(&input);
        body[name] = value;
        let reply = client.post("/v1/batches", body.to_string()).await;
        let (status, param, found) = reply.error();
        assert_eq!((status, found.as_str()), (400, code), "{:?}", reply.bytes);
        assert!(param.unwrap().starts_with(name), "{name}");
    };
    for name in ["input_file_id", "endpoint", "completion_window"] {
        check(name, Value::Null, "missing_required_parameter").await;
        check(name, json!(7), "invalid_type").await;
        check(name, json!("x"), "invalid_value").await;
    }
    check("input_file_id", kept, "invalid_value").await;
    check("input_file_id", json!(others), "invalid_value").await;
    check("endpoint", json!("/v1/responses"), "invalid_value").await;
    check("completion_window", json!("48h"), "invalid_value").await;
    check("metadata", json!([]), "invalid_type").await;
    check("metadata", json!({ "a": 1 }), "invalid_type").await;
    check("metadata", json!({ "a": "x".repeat(513) }), "invalid_value").await;
    check("metadata", json!({ "x".repeat(65): "a" }), "invalid_value").await;
    let pairs: Value = (0..17).map(|n| (n.to_string(), json!("x"))).collect::<serde_json::Map<_, _>>().into();
    check("metadata", pairs, "invalid_value").await;
    check("output_expires_after", json!({ "seconds": 3600 }), "unsupported_parameter").await;

    for body in ["", "[]", "{", "7", &"[".repeat(10_000), &" ".repeat(100_000)] {
        let reply = client.post("/v1/batches", body.to_owned()).await;
        assert_eq!(reply.error(), (400, None, "invalid_json".to_owned()), "{:.20}", body);
    }
    let form = Request::post("/v1/batches").header("content-type", "text/plain");
    let reply = client.send(form.body(Body::from(asks(&input).to_string())).unwrap()).await;
    assert_eq!(reply.error(), (415, None, "unsupported_content_type".to_owned()));
}

#[tokio::test]
async fn ids_cursors_and_scopes() {
    let world = World::new();
    let client = world.server();
    let not_found = (404, None, "not_found".to_owned());
    for id in ["nothing", "file-0", "..%2f..%2fhome", "%00", "batch_0"] {
        for path in
            [format!("/v1/files/{id}"), format!("/v1/files/{id}/content"), format!("/v1/batches/{id}")]
        {
            assert_eq!(client.get(&path).await.error(), not_found, "{path}");
        }
        assert_eq!(client.delete(&format!("/v1/files/{id}")).await.error(), not_found);
        assert_eq!(client.post(&format!("/v1/batches/{id}/cancel"), "").await.error(), not_found);
    }
    for (query, param) in
        [("limit=0", "limit"), ("limit=x", "limit"), ("order=up", "order"), ("after=x", "after")]
    {
        for path in ["files", "batches"] {
            let reply = client.get(&format!("/v1/{path}?{query}")).await;
            assert_eq!(reply.error(), (400, Some(param.to_owned()), "invalid_value".to_owned()), "{query}");
        }
    }
    let check = async |client: &Client, request: Request<Body>, code: &str| {
        assert_eq!(client.send(request).await.error(), (403, None, code.to_owned()));
    };
    let get = Request::get("/v1/files").body(Body::empty()).unwrap();
    check(&client.without_scope(), get, "insufficient_permissions").await;
    let (kind, body) = form(&[("purpose", None, b"batch"), ("file", Some("a"), b"x")]);
    let foreign = Request::post("/v1/files").header("content-type", kind).header("host", "localhost");
    let foreign = foreign.header("origin", "https://evil.example").body(body.into()).unwrap();
    check(&client, foreign, "origin_not_allowed").await;
}

#[tokio::test]
async fn a_store_that_cannot_be_opened_is_told() {
    let world = World::new();
    std::fs::create_dir(world.folder.path().join("motet.db")).unwrap();
    let client = world.server();
    for path in ["/v1/files", "/v1/batches", "/v1/files/x", "/v1/files/x/content", "/v1/batches/x"] {
        let reply = client.get(path).await;
        assert_eq!(reply.error(), (503, None, "files_unavailable".to_owned()), "{path}");
        assert_eq!(reply.headers["retry-after"], "5");
    }
    std::fs::remove_dir(world.folder.path().join("motet.db")).unwrap();
    assert_eq!(client.get("/v1/files").await.status, 200, "it is tried again");
}
