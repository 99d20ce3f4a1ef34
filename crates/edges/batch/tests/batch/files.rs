//! Files that come, are listed, read and deleted.

use axum::body::{Body, Bytes};
use futures_util::stream;
use http::Request;
use serde_json::{Value, json};

use crate::support::{World, form, line};

#[tokio::test]
async fn a_file_comes_and_goes() {
    let world = World::new();
    let client = world.idle();
    let fields = [
        ("file", Some("../my lines.jsonl"), b"first\r\n\r\nlast".as_slice()),
        ("expires_after[anchor]", None, b"created_at"),
        ("expires_after[seconds]", None, b"3600"),
        ("something", None, b"else"),
        ("purpose", None, b"batch"),
    ];
    let made = client.post_form(form(&fields)).await.json();
    let created = made["created_at"].as_i64().unwrap();
    let id = made["id"].as_str().unwrap();
    let expected = json!({
        "id": id, "object": "file", "bytes": 13, "created_at": created, "expires_at": created + 3600,
        "filename": "my lines.jsonl", "purpose": "batch", "status": "processed", "status_details": null,
    });
    assert_eq!(made, expected);
    assert!(id.starts_with("file-") && (1_700_000_000..1_700_000_010).contains(&created));
    let path = format!("/v1/files/{id}");
    assert_eq!(client.get(&path).await.json(), made);
    let content = client.get(&format!("{path}/content")).await;
    assert_eq!(content.bytes, b"first\r\n\r\nlast".as_slice());
    assert_eq!(content.headers["content-length"], "13");
    assert_eq!(content.headers["content-disposition"], "attachment; filename=\"my_lines.jsonl\"");

    // Others don't know of it.
    for other in [client.user("org_a", "bob"), client.user("org_b", "ada"), client.user("", "bob")] {
        for path in [path.clone(), format!("{path}/content")] {
            assert_eq!(other.get(&path).await.error(), (404, None, "not_found".to_owned()));
        }
        assert_eq!(other.delete(&path).await.status, 404);
        assert_eq!(other.get("/v1/files").await.json()["data"], json!([]));
    }

    let gone = client.delete(&path).await.json();
    assert_eq!(gone, json!({ "id": id, "object": "file", "deleted": true }));
    assert_eq!(client.get(&path).await.status, 404);
    assert_eq!(client.delete(&path).await.status, 404);
    let folder = world.folder.path().join("files/t-");
    assert_eq!(std::fs::read_dir(folder).unwrap().count(), 0);
}

#[tokio::test]
async fn lists_go_on_to_their_end() {
    let world = World::new();
    let client = world.idle();
    let mut made = Vec::new();
    for n in 0..7 {
        let purpose: &[u8] = if n == 3 { b"user_data" } else { b"batch" };
        let reply = client.post_form(form(&[("purpose", None, purpose), ("file", Some("a"), b"x")])).await;
        made.push(reply.json()["id"].as_str().unwrap().to_owned());
    }
    let walk = async |query: &str| {
        let (mut found, mut after) = (Vec::new(), String::new());
        loop {
            let page = client.get(&format!("/v1/files?{query}{after}")).await.json();
            let data = page["data"].as_array().unwrap().clone();
            assert_eq!(page["first_id"], data.first().map_or(Value::Null, |file| file["id"].clone()));
            assert_eq!(page["last_id"], data.last().map_or(Value::Null, |file| file["id"].clone()));
            found.extend(data.iter().map(|file| file["id"].as_str().unwrap().to_owned()));
            if page["has_more"] == false {
                return found;
            }
            after = format!("&after={}", page["last_id"].as_str().unwrap());
        }
    };
    let backwards: Vec<_> = made.iter().rev().cloned().collect();
    for limit in [1, 2, 7, 100] {
        assert_eq!(walk(&format!("limit={limit}&order=asc")).await, made);
        assert_eq!(walk(&format!("limit={limit}")).await, backwards);
    }
    assert_eq!(walk("limit=1&purpose=user_data").await, [made[3].clone()]);
    assert_eq!(walk("purpose=batch_output").await, [] as [String; 0]);
}

/// What is long is on the disk and not in memory: a body of many pieces that are made as they are read.
#[tokio::test]
async fn a_long_file_is_streamed() {
    const PIECE: usize = 64 << 10;
    const PIECES: usize = 400;
    let world = World::new();
    let client = world.idle();
    let head = "--XX\r\ncontent-disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n\
                --XX\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n";
    let pieces = (0..PIECES).map(|n| Bytes::from(vec![b'a' + (n % 26) as u8; PIECE]));
    let all = std::iter::once(Bytes::from_static(head.as_bytes()))
        .chain(pieces)
        .chain([Bytes::from_static(b"\r\n--XX--\r\n")]);
    let body = Body::from_stream(stream::iter(all.map(Ok::<_, std::io::Error>)));
    let request = Request::post("/v1/files").header("content-type", "multipart/form-data; boundary=XX");
    let made = client.send(request.body(body).unwrap()).await.json();
    assert_eq!(made["bytes"], PIECE * PIECES);
    let content = client.get(&format!("/v1/files/{}/content", made["id"].as_str().unwrap())).await.bytes;
    assert_eq!(content.len(), PIECE * PIECES);
    assert!(
        content.chunks(PIECE).enumerate().all(|(n, piece)| piece.iter().all(|&b| b == b'a' + (n % 26) as u8))
    );
}

#[tokio::test]
async fn an_upload_that_breaks_off_leaves_nothing() {
    let world = World::new();
    let client = world.idle();
    let head = Bytes::from_static(
        b"--XX\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\nabc",
    );
    let more = Bytes::from(vec![b'x'; 100_000]);
    let broken = std::io::Error::other("the client left");
    let body = Body::from_stream(stream::iter([Ok(head), Ok(more), Err(broken)]));
    let request = Request::post("/v1/files").header("content-type", "multipart/form-data; boundary=XX");
    assert_eq!(client.send(request.body(body).unwrap()).await.status, 400);
    assert_eq!(client.get("/v1/files").await.json()["data"], json!([]));
    assert_eq!(std::fs::read_dir(world.folder.path().join("files/tmp")).unwrap().count(), 0);
}

#[tokio::test]
async fn an_input_in_use_stays() {
    let world = World::new();
    let client = world.idle();
    let batch = client.batch(&[line("a", json!({}))]).await;
    let input = client.state(&batch).await["input_file_id"].as_str().unwrap().to_owned();
    let refused = client.delete(&format!("/v1/files/{input}")).await;
    assert_eq!(refused.error(), (400, None, "file_in_use".to_owned()));
}
