use std::future::{Future, IntoFuture};
use std::io;
use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// How long replies in flight may go on after a shutdown is asked for. A supervisor kills after 10 s
/// or more, and a reply that takes longer is cut with its connection.
pub const SHUTDOWN_GRACE: Duration = Duration::from_secs(8);

/// Serves `router` until `shutdown` completes; then takes no more connections and returns when those
/// that are open have ended, or after [`SHUTDOWN_GRACE`].
///
/// # Errors
/// When the listener can't accept any more.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let (begun, has_begun) = oneshot::channel();
    let signal = async move {
        shutdown.await;
        let _ = begun.send(());
    };
    let listener = axum::serve::ListenerExt::tap_io(listener, |connection| {
        // A token's event is a small packet; waiting to fill a larger one would delay it.
        let _ = connection.set_nodelay(true);
    });
    let serving = axum::serve(listener, router).with_graceful_shutdown(signal).into_future();
    let deadline = async move {
        match has_begun.await {
            Ok(()) => tokio::time::sleep(SHUTDOWN_GRACE).await,
            // The server ended on its own, and the other branch has its result.
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        result = serving => result,
        () = deadline => Ok(()),
    }
}
