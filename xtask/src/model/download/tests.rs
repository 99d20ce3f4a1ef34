//! The download against a server on this machine that drops connections.

use super::*;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// How the server treats one request.
#[derive(Clone, Copy)]
enum Answer {
    /// Send what the range asks for, but close after so many bytes of the body.
    Ranged { close_after: usize },
    /// Ignore the range and send everything.
    Whole,
    /// Only this status.
    Status(&'static str),
}

const ALL: Answer = Answer::Ranged { close_after: usize::MAX };

/// Serves `body`, one [`Answer`] per request; returns its address and the `Range` values it was asked for.
fn serve(body: Vec<u8>, answers: &[Answer]) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/pkg-1-py3-none-any.whl", listener.local_addr().unwrap());
    let ranges = Arc::new(Mutex::new(Vec::new()));
    let (answers, seen) = (answers.to_vec(), Arc::clone(&ranges));
    std::thread::spawn(move || {
        for answer in answers {
            let Ok((stream, _)) = listener.accept() else { return };
            seen.lock().unwrap().push(respond(stream, &body, answer));
        }
    });
    (url, ranges)
}

fn respond(mut stream: TcpStream, body: &[u8], answer: Answer) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|count| count == 1) {
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let range = head.lines().find_map(|line| line.strip_prefix("Range: bytes=")).unwrap_or("").to_owned();
    let from: usize = range.trim_end_matches('-').parse().unwrap_or(0);
    let total = body.len();
    let (head, sent) = match answer {
        Answer::Status(status) => (format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n"), &body[..0]),
        Answer::Whole => (format!("HTTP/1.1 200 OK\r\nContent-Length: {total}\r\n\r\n"), body),
        Answer::Ranged { close_after } => {
            let rest = &body[from..];
            let length = rest.len();
            let range = format!("Content-Range: bytes {from}-{}/{total}\r\n", total - 1);
            let status = if from == 0 { "200 OK" } else { "206 Partial Content" };
            let range = if from == 0 { String::new() } else { range };
            let head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n{range}\r\n");
            (head, &rest[..length.min(close_after)])
        }
    };
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(sent));
    range
}

fn body() -> Vec<u8> {
    (0..1_000_000_u32).map(|i| (i % 251) as u8).collect()
}

/// Fetches after `there` bytes have come in an earlier run; returns the outcome, the ranges asked for and the folder.
fn fetch(answers: &[Answer], there: &[u8]) -> (Result<()>, Vec<String>, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    if !there.is_empty() {
        fs::write(dir.path().join("pkg-1-py3-none-any.whl.part"), there).unwrap();
    }
    let (url, ranges) = serve(body(), answers);
    let outcome = with_ranges(Path::new("python3"), &url, dir.path(), "pkg-1-");
    let ranges = ranges.lock().unwrap().clone();
    (outcome, ranges, dir)
}

fn check(answers: &[Answer], there: &[u8], expected_ranges: &[&str]) {
    if sh::which("python3").is_none() {
        println!("skipped: no python3");
        return;
    }
    let (outcome, ranges, dir) = fetch(answers, there);
    outcome.unwrap();
    assert_eq!(ranges, expected_ranges);
    assert_eq!(fs::read(dir.path().join("pkg-1-py3-none-any.whl")).unwrap(), body());
    assert!(!dir.path().join("pkg-1-py3-none-any.whl.part").exists());
}

#[test]
fn a_download_in_one_go() {
    check(&[ALL], &[], &[""]);
}

#[test]
fn a_dropped_connection_is_resumed_in_the_same_run() {
    let dropped = Answer::Ranged { close_after: 400_000 };
    check(&[dropped, dropped, ALL], &[], &["", "400000-", "800000-"]);
}

#[test]
fn an_interrupted_run_is_resumed_by_the_next() {
    check(&[ALL], &body()[..600_000], &["600000-"]);
}

#[test]
fn a_server_without_ranges_starts_again() {
    check(&[Answer::Whole], &body()[..600_000], &["600000-"]);
}

#[test]
fn a_part_that_is_too_long_is_thrown_away() {
    let longer = vec![0; 2_000_000];
    check(&[Answer::Status("416 Range Not Satisfiable"), ALL], &longer, &["2000000-", ""]);
}

#[test]
fn a_busy_server_is_asked_again() {
    check(&[Answer::Status("503 Service Unavailable"), ALL], &[], &["", ""]);
}

#[test]
fn a_missing_file_is_an_error_and_keeps_what_came() {
    if sh::which("python3").is_none() {
        return;
    }
    let (outcome, _, dir) = fetch(&[Answer::Status("404 Not Found")], &body()[..10]);
    assert!(outcome.unwrap_err().to_string().contains("404"));
    assert_eq!(fs::read(dir.path().join("pkg-1-py3-none-any.whl.part")).unwrap().len(), 10);
}
