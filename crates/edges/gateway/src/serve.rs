use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::connect_info::ConnectInfo;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tower::ServiceExt;

use crate::unread::Unread;

/// How long replies in flight may go on after a shutdown is asked for. A supervisor kills after 10 s
/// or more, and a reply that takes longer is cut with its connection.
pub const SHUTDOWN_GRACE: Duration = Duration::from_secs(8);
/// After an accept that failed for want of file descriptors or memory: trying at once would fail again.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What a connection may take of the server before it has sent a request.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionLimits {
    /// Connections at once; more wait in the system's queue. Each takes some tens of kilobytes: the default of 4,096
    /// bounds them to a few hundred megabytes.
    pub connections: usize,
    /// How long a connection may be idle or take to send a request's head; then it is closed. The default of 60 s is
    /// longer than clients keep connections for their next request, and short for one that only occupies its place.
    pub head_timeout: Duration,
    /// How long the other end may take nothing while something waits to be sent; then the connection is closed, and the
    /// reply on it is cancelled. The default of 10 s is longer than a phone changes networks, and bounds what piles up
    /// for a reader that has stopped.
    pub unread_timeout: Duration,
    /// Bytes of a request's head, 64 KiB by default: cookies and proxies add some kilobytes.
    pub head_bytes: usize,
    /// Header lines of a request, 100 by default.
    pub headers: usize,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        let (head_timeout, unread_timeout) = (Duration::from_secs(60), Duration::from_secs(10));
        Self { connections: 4096, head_timeout, unread_timeout, head_bytes: 64 << 10, headers: 100 }
    }
}

/// Serves `router` until `shutdown` completes; then takes no more connections and returns when those
/// that are open have ended, or after [`SHUTDOWN_GRACE`].
///
/// Handlers find the client's address as [`ConnectInfo<SocketAddr>`].
///
/// # Errors
/// Never at present: what a connection or an accept fails with concerns that connection alone.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    limits: ConnectionLimits,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let places = Arc::new(Semaphore::new(limits.connections));
    let builder = builder(limits);
    let graceful = GracefulShutdown::new();
    let closing = watch::Sender::new(());
    // Ends the connections that are left when this function returns or is dropped.
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        let next = async {
            let place = Arc::clone(&places).acquire_owned().await;
            (accept(&listener).await, place)
        };
        let ((stream, peer), place) = tokio::select! {
            next = next => next,
            () = &mut shutdown => break,
        };
        let service = hyper::service::service_fn({
            let router = router.clone();
            move |mut request: Request<Incoming>| {
                request.extensions_mut().insert(ConnectInfo(peer));
                router.clone().oneshot(request.map(Body::new))
            }
        });
        let (builder, watcher, mut has_closed) = (builder.clone(), graceful.watcher(), closing.subscribe());
        connections.spawn(async move {
            let _place = place;
            let begins = tokio::select! {
                begins = tokio::time::timeout(limits.head_timeout, begins(&stream)) => begins,
                // Nothing has begun that a shutdown would have to wait for.
                _ = has_closed.changed() => return,
            };
            if begins.is_err() {
                return;
            }
            let stream = Unread::new(stream, limits.unread_timeout);
            let connection = builder.serve_connection(TokioIo::new(stream), service);
            // An error is the client's: it left, was too slow, or did not speak HTTP.
            let _ = watcher.watch(connection).await;
        });
        while connections.try_join_next().is_some() {}
    }
    drop((listener, closing));
    let _ = tokio::time::timeout(SHUTDOWN_GRACE, graceful.shutdown()).await;
    // What is cut here ends before this returns, so that what it used is known.
    connections.shutdown().await;
    Ok(())
}

/// HTTP/1.1 only: without TLS browsers and SDKs speak nothing else, and an HTTP/2 connection could keep its place for
/// ever by answering pings.
fn builder(limits: ConnectionLimits) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_timeout)
        .max_buf_size(limits.head_bytes)
        .max_headers(limits.headers);
    builder
}

/// Waits for a connection's first byte: the time for a head begins with it.
async fn begins(stream: &TcpStream) {
    let _ = stream.peek(&mut [0]).await;
}

/// The next connection.
async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                // A token's event is a small packet; waiting to fill a larger one would delay it.
                let _ = stream.set_nodelay(true);
                return (stream, peer);
            }
            Err(error) if is_of_connection(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "no connection can be taken");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Whether an accept failed because the client left meanwhile.
fn is_of_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}
