//! A scripted server: a token is a word, the template adds three.

use std::{
    convert::Infallible,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use axum::{
    Json, Router,
    body::Body,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
    time::sleep,
};

/// How a request goes wrong.
#[derive(Debug, Clone, Copy)]
pub enum Fault {
    /// An answer with this status.
    Status(u16),
    /// The stream ends after a token.
    Cut,
    /// An error instead of the second token.
    ErrorEvent,
    /// Nothing comes for ten seconds.
    Hang,
}

#[derive(Debug, Default)]
struct Script {
    prompts: Vec<String>,
    fault: Option<(usize, Fault)>,
    pause: Duration,
    seats: Option<usize>,
}

#[derive(Debug, Default)]
struct Inner {
    script: Mutex<Script>,
    at_once: AtomicUsize,
    most: AtomicUsize,
}

/// The server; it ends when it is dropped.
#[derive(Debug)]
pub struct Fake {
    inner: Arc<Inner>,
    url: String,
    task: JoinHandle<()>,
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Fake {
    pub async fn start() -> Self {
        let inner = Arc::new(Inner::default());
        let router = Router::new()
            .route("/v1/models", get(|| async { Json(json!({"data": [{"id": "fake/model"}]})) }))
            .route("/v1/completions", post(complete))
            .route("/v1/chat/completions", post(complete))
            .with_state(Arc::clone(&inner));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { inner, url, task }
    }

    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// What was sent, in the order of arrival.
    pub fn prompts(&self) -> Vec<String> {
        self.inner.script.lock().unwrap().prompts.clone()
    }

    /// Requests that were open at the same time.
    pub fn most_at_once(&self) -> usize {
        self.inner.most.load(SeqCst)
    }

    /// Waits so long before the first token.
    pub fn pause(&self, pause: Duration) {
        self.inner.script.lock().unwrap().pause = pause;
    }

    /// Refuses what exceeds this number at the same time.
    pub fn seats(&self, seats: usize) {
        self.inner.script.lock().unwrap().seats = Some(seats);
    }

    /// Everything after so many requests goes wrong.
    pub fn fail_after(&self, requests: usize, fault: Fault) {
        self.inner.script.lock().unwrap().fault = Some((requests, fault));
    }
}

/// Counts a request while its reply is read.
struct Seat(Arc<Inner>);

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.at_once.fetch_sub(1, SeqCst);
    }
}

async fn complete(State(inner): State<Arc<Inner>>, Json(body): Json<Value>) -> Response {
    let at_once = inner.at_once.fetch_add(1, SeqCst) + 1;
    let seat = Seat(Arc::clone(&inner));
    let prompt = match body.get("messages") {
        Some(messages) => {
            let texts =
                messages.as_array().unwrap().iter().map(|message| message["content"].as_str().unwrap());
            texts.collect::<Vec<_>>().join("\n")
        }
        None => body["prompt"].as_str().unwrap().to_owned(),
    };
    let words = prompt.split_whitespace().count();
    let (fault, pause) = {
        let mut script = inner.script.lock().unwrap();
        let fault = script.fault.filter(|(after, _)| script.prompts.len() >= *after).map(|(_, fault)| fault);
        let is_full = script.seats.is_some_and(|seats| at_once > seats);
        script.prompts.push(prompt);
        (if is_full { Some(Fault::Status(429)) } else { fault }, script.pause)
    };
    inner.most.fetch_max(at_once, SeqCst);
    match fault {
        Some(Fault::Status(status)) => {
            let status = StatusCode::from_u16(status).unwrap();
            return (status, Json(json!({"error": {"message": "not now"}}))).into_response();
        }
        Some(Fault::Hang) => sleep(Duration::from_secs(10)).await,
        _ => sleep(pause).await,
    }
    let count = body["max_tokens"].as_u64().unwrap();
    let is_chat = body.get("messages").is_some();
    let events = events(count, (words, is_chat), fault);
    let paced = stream::iter(events).then(move |event| {
        let _held = &seat;
        async move {
            sleep(Duration::from_millis(1)).await;
            Ok::<_, Infallible>(format!("data: {event}\n\n"))
        }
    });
    ([("content-type", "text/event-stream")], Body::from_stream(paced)).into_response()
}

fn events(count: u64, (words, is_chat): (usize, bool), fault: Option<Fault>) -> Vec<String> {
    let piece = |index: u64| {
        let text = if index == 0 { "word" } else { " word" };
        let finish = (index + 1 == count).then_some("length");
        let choice = if is_chat {
            json!({"index": 0, "delta": {"content": text}, "finish_reason": finish})
        } else {
            json!({"index": 0, "text": text, "finish_reason": finish})
        };
        json!({"choices": [choice]}).to_string()
    };
    match fault {
        Some(Fault::Cut) => return vec![piece(0)],
        Some(Fault::ErrorEvent) => return vec![piece(0), json!({"error": {"message": "broke"}}).to_string()],
        _ => {}
    }
    let usage = json!({
        "prompt_tokens": words + 3,
        "completion_tokens": count,
        "prompt_tokens_details": {"cached_tokens": 0},
    });
    let mut events: Vec<String> = (0..count).map(piece).collect();
    events.extend([json!({"choices": [], "usage": usage}).to_string(), "[DONE]".to_owned()]);
    events
}

/// The address of a server that keeps every connection, but closes it when a second request comes on it.
pub async fn closing_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            tokio::spawn(answer_once(connection));
        }
    });
    url
}

async fn answer_once(mut connection: TcpStream) {
    let mut bytes = vec![0; 1 << 16];
    let read = connection.read(&mut bytes).await.unwrap();
    let body = if bytes[..read].starts_with(b"GET") {
        json!({"data": [{"id": "fake/model"}]}).to_string()
    } else {
        events(1, (1, false), None).iter().map(|event| format!("data: {event}\n\n")).collect()
    };
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
    connection.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    // The next request is read and dropped unanswered.
    let _ = connection.read(&mut bytes).await;
}
