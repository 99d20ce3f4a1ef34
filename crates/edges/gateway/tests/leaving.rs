//! Clients that leave, over real connections: the sequence must go with them.

// Helpers of tests may fail as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::sync::Arc;
use std::time::Duration;

use motet_gateway::ConnectionLimits;
use motet_types::Backend;
use serde_json::{Value, json};
use support::{Beat, Fake, MODEL, gateway, reply, say};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::oneshot;

/// A server on a port of its own, until it is dropped.
struct Server {
    port: u16,
    stop: Option<oneshot::Sender<()>>,
    task: tokio::task::JoinHandle<std::io::Result<()>>,
}

async fn start(fake: &Arc<Fake>) -> Server {
    start_with(fake, ConnectionLimits::default()).await
}

async fn start_with(fake: &Arc<Fake>, limits: ConnectionLimits) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (stop, stopped) = oneshot::channel();
    let shutdown = async move { drop(stopped.await) };
    let task = tokio::spawn(motet_gateway::serve(listener, gateway(fake).router(), limits, shutdown));
    Server { port, stop: Some(stop), task }
}

impl Server {
    async fn post(&self, path: &str, body: Value) -> TcpStream {
        let mut socket = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        socket.write_all(request(path, &body.to_string()).as_bytes()).await.unwrap();
        socket
    }
}

fn request(path: &str, body: &str) -> String {
    let length = body.len();
    let head = "host: localhost\r\ncontent-type: application/json";
    format!("POST {path} HTTP/1.1\r\n{head}\r\ncontent-length: {length}\r\n\r\n{body}")
}

async fn read_until(socket: &mut TcpStream, part: &str) -> String {
    let mut text = String::new();
    let mut buffer = [0; 1024];
    while !text.contains(part) {
        let count = socket.read(&mut buffer).await.unwrap();
        assert!(count > 0, "the connection ended before {part:?}: {text}");
        text += std::str::from_utf8(&buffer[..count]).unwrap();
    }
    text
}

/// Waits until `live` streams are left. There is no event to wait for: the server sees a closed
/// connection when the operating system says so.
async fn until_live(fake: &Fake, live: u32) {
    let waited = tokio::time::timeout(Duration::from_secs(10), async {
        while fake.live() != live {
            tokio::task::yield_now().await;
        }
    });
    assert!(waited.await.is_ok(), "{} streams are alive, not {live}", fake.live());
}

fn chat_body(extra: Value) -> Value {
    let mut body = json!({"model": MODEL, "messages": [{"role": "user", "content": "hi"}]});
    for (name, value) in extra.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

#[tokio::test]
async fn a_client_that_leaves_cancels() {
    let scripts: [fn() -> Vec<Beat>; 2] = [|| vec![Beat::Hang], || [say("abc"), vec![Beat::Hang]].concat()];
    for script in scripts {
        let fake = Fake::new(move |_| script());
        let server = start(&fake).await;
        for (path, body) in [
            ("/v1/chat/completions", chat_body(json!({"stream": false}))),
            ("/v1/chat/completions", chat_body(json!({"stream": true}))),
            ("/v1/chat/completions", chat_body(json!({"stream": true, "n": 4}))),
            ("/v1/completions", json!({"model": MODEL, "prompt": "a"})),
            ("/v1/completions", json!({"model": MODEL, "prompt": ["a", "b"], "stream": true})),
        ] {
            let socket = server.post(path, body.clone()).await;
            let sequences = match (&body["n"], &body["prompt"]) {
                (Value::Number(n), _) => n.as_u64().unwrap() as u32,
                (_, Value::Array(prompts)) => prompts.len() as u32,
                _ => 1,
            };
            until_live(&fake, sequences).await;
            drop(socket);
            until_live(&fake, 0).await;
        }
    }
}

#[tokio::test]
async fn headers_arrive_before_the_first_token() {
    let fake = Fake::new(|_| vec![Beat::Hang]);
    let server = start(&fake).await;
    let mut socket = server.post("/v1/chat/completions", chat_body(json!({"stream": true}))).await;
    let head = read_until(&mut socket, "\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    assert!(!head.contains("content-encoding"));
}

#[tokio::test]
async fn shutdown_lets_replies_end() {
    let fake = Fake::new(|_| [vec![Beat::Pause(Duration::from_millis(50))], reply("bye")].concat());
    let mut server = start(&fake).await;
    let mut socket = server.post("/v1/chat/completions", chat_body(json!({"stream": true}))).await;
    until_live(&fake, 1).await;
    drop(server.stop.take());
    read_until(&mut socket, "[DONE]").await;
    drop(socket);
    server.task.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_reader_that_stops_reading_frees_its_sequence() {
    let fake = Fake::new(|_| vec![Beat::Token(97); 300]);
    let limits =
        ConnectionLimits { unread_timeout: Duration::from_millis(200), ..ConnectionLimits::default() };
    let server = start_with(&fake, limits).await;
    // Some megabytes, of which the two sockets hold a part.
    let body =
        chat_body(json!({"stream": true, "logprobs": true, "top_logprobs": 20, "n": 8, "max_tokens": 300}))
            .to_string();
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut socket = socket.connect(([127, 0, 0, 1], server.port).into()).await.unwrap();
    socket.write_all(request("/v1/chat/completions", &body).as_bytes()).await.unwrap();
    socket.read_exact(&mut [0; 16]).await.unwrap();
    until_live(&fake, 0).await;
    assert!(fake.load().cancelled > 0);
    drop(socket);
    drop(server);
}
