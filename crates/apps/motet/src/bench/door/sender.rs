//! Sends requests at random times, and times them.
//!
//! It runs on a thread of its own, so that it takes no turn from the server's tasks, and does no more per request than
//! write its bytes and look for the end of the reply.

use std::{
    io,
    net::SocketAddr,
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::mpsc,
    task::LocalSet,
};

use crate::failure::Failure;

/// Requests that wait for a connection at most: a second's at the highest rate.
const WAITING: usize = 100_000;
/// Longest reply.
const MAX_REPLY: usize = 4 << 20;

/// What is sent.
#[derive(Debug, Clone)]
pub(super) struct Load {
    /// Requests a second.
    pub(super) rate: f64,
    pub(super) length: Duration,
    pub(super) connections: u32,
    /// Head and body.
    pub(super) request: Vec<u8>,
    pub(super) seed: u64,
}

/// Times of replies, in milliseconds.
#[derive(Debug, Default)]
pub(super) struct Sample {
    sorted: Vec<f64>,
    pub(super) failed: usize,
    seconds: f64,
}

impl Sample {
    /// Adds a round.
    pub(super) fn add(&mut self, round: Self) {
        self.sorted.extend(round.sorted);
        self.sorted.sort_by(f64::total_cmp);
        self.failed += round.failed;
        self.seconds += round.seconds;
    }

    /// The time that this share of replies did not take longer than.
    pub(super) fn at(&self, share: f64) -> f64 {
        let rank = (share * self.sorted.len() as f64).ceil() as usize;
        self.sorted.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
    }

    /// Replies a second.
    pub(super) fn rate(&self) -> f64 {
        self.sorted.len() as f64 / self.seconds
    }
}

/// Puts `load` on the server and waits for its replies.
pub(super) async fn send(address: SocketAddr, load: Load) -> Result<Sample, Failure> {
    let work = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        LocalSet::new().block_on(&runtime, run(address, load))
    };
    let task = tokio::task::spawn_blocking(work).await;
    task.map_err(Failure::runtime)?.map_err(|e: io::Error| Failure::runtime(format!("{address}: {e}")))
}

async fn run(address: SocketAddr, load: Load) -> io::Result<Sample> {
    let (give, take) = mpsc::channel(WAITING);
    let take = std::rc::Rc::new(tokio::sync::Mutex::new(take));
    let mut connections = Vec::new();
    for _ in 0..load.connections {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (take, request) = (std::rc::Rc::clone(&take), load.request.clone());
        connections.push(tokio::task::spawn_local(connection(stream, take, request)));
    }
    let began = Instant::now();
    let mut failed = arrivals(&load, &give).await;
    drop(give);
    let mut sorted = Vec::new();
    for connection in connections {
        match connection.await.map_err(io::Error::other)? {
            (times, None) => sorted.extend(times),
            (times, Some(_)) => {
                sorted.extend(times);
                failed += 1;
            }
        }
    }
    sorted.sort_by(f64::total_cmp);
    Ok(Sample { sorted, failed, seconds: began.elapsed().as_secs_f64() })
}

/// Gives each request's time to the connections; how many found no place in the line.
async fn arrivals(load: &Load, give: &mpsc::Sender<Instant>) -> usize {
    let began = Instant::now();
    let (mut at, mut state, mut failed) = (0.0, load.seed, 0);
    while at < load.length.as_secs_f64() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let uniform = (state >> 11) as f64 / (1u64 << 53) as f64;
        at -= (1.0 - uniform).ln() / load.rate;
        tokio::time::sleep_until((began + Duration::from_secs_f64(at)).into()).await;
        failed += usize::from(give.try_send(Instant::now()).is_err());
        tokio::task::yield_now().await;
    }
    failed
}

type Arrivals = std::rc::Rc<tokio::sync::Mutex<mpsc::Receiver<Instant>>>;

/// Sends requests one after the other; ends with its first failure.
async fn connection(
    mut stream: TcpStream,
    take: Arrivals,
    request: Vec<u8>,
) -> (Vec<f64>, Option<io::Error>) {
    let (mut times, mut buffer) = (Vec::new(), Vec::with_capacity(64 << 10));
    loop {
        let next = take.lock().await.recv().await;
        let Some(arrived) = next else { return (times, None) };
        match exchange(&mut stream, &request, &mut buffer).await {
            Ok(()) => times.push(arrived.elapsed().as_secs_f64() * 1e3),
            Err(error) => return (times, Some(error)),
        }
    }
}

/// Sends a request and reads its reply to the end.
async fn exchange(stream: &mut TcpStream, request: &[u8], buffer: &mut Vec<u8>) -> io::Result<()> {
    stream.write_all(request).await?;
    buffer.clear();
    loop {
        if stream.read_buf(buffer).await? == 0 || buffer.len() > MAX_REPLY {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if is_whole(buffer) {
            return if buffer.starts_with(b"HTTP/1.1 200") {
                Ok(())
            } else {
                Err(io::Error::other(String::from_utf8_lossy(buffer).into_owned()))
            };
        }
    }
}

/// Whether a reply with a length, or one in chunks, is there to its end.
fn is_whole(bytes: &[u8]) -> bool {
    let Some(head) = bytes.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4) else {
        return false;
    };
    let names = String::from_utf8_lossy(&bytes[..head]).to_ascii_lowercase();
    match names.lines().find_map(|line| line.strip_prefix("content-length: ")) {
        Some(length) => length.trim().parse().is_ok_and(|length: usize| bytes.len() >= head + length),
        None => bytes.ends_with(b"\r\n0\r\n\r\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_replies_are_found() {
        let check = |text: &str, want| assert_eq!(is_whole(text.as_bytes()), want, "{text:?}");
        check("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n", false);
        check("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{", false);
        check("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", true);
        check("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n", false);
        check("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", true);
    }

    #[test]
    fn shares_of_a_sample() {
        let mut sample = Sample::default();
        sample.add(Sample { sorted: vec![3.0, 1.0], failed: 1, seconds: 1.0 });
        sample.add(Sample { sorted: vec![2.0, 4.0], failed: 0, seconds: 1.0 });
        assert_eq!([sample.at(0.5), sample.at(0.99), sample.rate()], [2.0, 4.0, 2.0]);
        assert!(Sample::default().at(0.5).is_nan());
    }
}
