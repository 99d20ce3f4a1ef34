use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// A connection that breaks when its other end takes nothing for too long.
///
/// While nobody reads, a reply's events wait in memory: the time bounds how many they become, and what they are
/// computed with is given to others.
pub(crate) struct Unread<S> {
    stream: S,
    patience: Duration,
    /// Since a write has to wait.
    waits: Option<Pin<Box<Sleep>>>,
}

impl<S> Unread<S> {
    pub(crate) fn new(stream: S, patience: Duration) -> Self {
        Self { stream, patience, waits: None }
    }

    /// What a write came to; one that has waited for too long is an error.
    fn judge<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waits = None;
            return written;
        }
        let until = || Box::pin(sleep_until(Instant::now() + self.patience));
        let waits = self.waits.get_or_insert_with(until);
        match waits.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Unread<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Unread<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.judge(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, parts);
        self.judge(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.judge(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::time::{sleep, timeout};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_takes_nothing_is_dropped_and_a_slow_one_is_not() {
        let (near, mut far) = duplex(8);
        let mut near = Unread::new(near, PATIENCE);
        near.write_all(&[0; 8]).await.unwrap();
        // A byte every nine seconds is a slow reader.
        let reader = async {
            for _ in 0..8 {
                sleep(PATIENCE - Duration::from_secs(1)).await;
                far.read_u8().await.unwrap();
            }
            std::future::pending::<()>().await;
        };
        let writer = async {
            near.write_all(&[0; 8]).await.unwrap();
            let began = Instant::now();
            let error = near.write_all(&[0; 8]).await.unwrap_err();
            (error.kind(), began.elapsed())
        };
        tokio::select! {
            () = reader => unreachable!(),
            ended = writer => assert_eq!(ended, (io::ErrorKind::TimedOut, PATIENCE)),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn silence_of_the_writer_is_no_fault_of_the_reader() {
        let (near, mut far) = duplex(8);
        let mut near = Unread::new(near, PATIENCE);
        for _ in 0..3 {
            sleep(PATIENCE * 3).await;
            near.write_all(&[7; 8]).await.unwrap();
            far.read_exact(&mut [0; 8]).await.unwrap();
        }
        assert!(timeout(PATIENCE * 9, near.read_u8()).await.is_err());
    }
}
