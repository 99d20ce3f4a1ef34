//! Ctrl-C and SIGTERM.

use std::{
    future::Future,
    process,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::sync::watch;

/// As shells report a program that Ctrl-C ended.
const INTERRUPTED: i32 = 130;

/// Completes at the first SIGINT or SIGTERM; from then on a second one ends the process at once.
pub(crate) async fn shutdown_asked() {
    any_signal().await;
    tokio::spawn(async {
        any_signal().await;
        process::exit(INTERRUPTED);
    });
}

#[cfg(unix)]
async fn any_signal() {
    use tokio::signal::unix::{SignalKind, signal};
    match signal(SignalKind::terminate()) {
        Ok(mut terminate) => {
            tokio::select! {
                _ = terminate.recv() => {}
                () = interrupt() => {}
            }
        }
        Err(_) => interrupt().await,
    }
}

#[cfg(not(unix))]
async fn any_signal() {
    interrupt().await;
}

/// Never completes where the system can't report Ctrl-C: then it ends the process as usual.
async fn interrupt() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Ctrl-C for commands with replies: it stops the reply in flight, and ends the process when there is none.
pub(crate) struct Interrupts {
    is_replying: Arc<AtomicBool>,
    /// How often a reply was to stop.
    stops: watch::Receiver<u64>,
}

impl Interrupts {
    /// Listens from now on, in a task of the current runtime, which ends it.
    pub(crate) fn listen() -> Self {
        let (stop, stops) = watch::channel(0);
        let interrupts = Self { is_replying: Arc::default(), stops };
        let is_replying = Arc::clone(&interrupts.is_replying);
        tokio::spawn(async move {
            loop {
                interrupt().await;
                if !is_replying.swap(false, Ordering::SeqCst) {
                    process::exit(INTERRUPTED);
                }
                stop.send_modify(|count| *count += 1);
            }
        });
        interrupts
    }

    /// Marks the start of a reply and completes when it is to stop.
    pub(crate) fn stopped(&self) -> impl Future<Output = ()> + use<> {
        let mut stops = self.stops.clone();
        stops.mark_unchanged();
        self.is_replying.store(true, Ordering::SeqCst);
        async move {
            if stops.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Marks the end of a reply.
    pub(crate) fn reply_ended(&self) {
        self.is_replying.store(false, Ordering::SeqCst);
    }
}
