use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::unfold;
use http::{HeaderName, header};
use motet_protocol::DONE;

use crate::error::ApiError;
use crate::gateway::{Gateway, Served};
use crate::overload::Notices;
use crate::reply::{Reply, Update, note_down};
use crate::wire::Shape;

/// The text of comments that only show that a stream is alive.
pub(crate) const KEEP_ALIVE: &str = "keep-alive";

/// What keeps proxies from collecting or changing the events.
const HEADERS: [(HeaderName, &str); 2] =
    [(header::CACHE_CONTROL, "no-cache, no-transform"), (HeaderName::from_static("x-accel-buffering"), "no")];

/// Sends `reply` as events. The headers go out at once and a comment after every
/// `keep_alive` of silence, unless it is none, so a client sees that a reply which
/// still waits or reads its prompt is alive. The response body owns the reply: when the client leaves,
/// both are dropped.
pub(crate) fn respond<S: Shape>(
    gateway: Arc<Gateway>,
    reply: Reply,
    shape: S,
    notices: Notices,
    keep_alive: Option<Duration>,
) -> Response {
    let frames =
        Frames { gateway, reply, shape, notices, queue: VecDeque::new(), opened: 0, has_ended: false };
    let events = unfold(frames, |mut frames| async {
        let event = match frames.next().await? {
            Frame::Data(data) => Event::default().data(data),
            Frame::Notice(text) => Event::default().comment(text),
        };
        Some((Ok::<_, Infallible>(event), frames))
    });
    let events = Sse::new(events);
    match keep_alive.map(|silence| KeepAlive::new().interval(silence).text(KEEP_ALIVE)) {
        Some(keep_alive) => (HEADERS, events.keep_alive(keep_alive)).into_response(),
        None => (HEADERS, events).into_response(),
    }
}

/// What a stream sends.
enum Frame {
    /// An event of the reply.
    Data(String),
    /// A comment beside it.
    Notice(String),
}

/// The events of a reply, in order. It ends with [`DONE`] exactly when the reply is whole.
struct Frames<S> {
    gateway: Arc<Gateway>,
    reply: Reply,
    shape: S,
    notices: Notices,
    /// Written and not yet sent; one update makes a few.
    queue: VecDeque<String>,
    /// Choices that have had their opening event; always a prefix, so that they begin in order.
    opened: usize,
    has_ended: bool,
}

impl<S: Shape> Frames<S> {
    async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(text) = self.notices.take_first() {
                return Some(Frame::Notice(text));
            }
            if let Some(data) = self.queue.pop_front() {
                return Some(Frame::Data(data));
            }
            if self.has_ended {
                return None;
            }
            let next = match self.notices.next_at() {
                None => self.reply.next().await,
                Some(at) => tokio::select! {
                    biased;
                    next = self.reply.next() => next,
                    () = tokio::time::sleep_until(at) => {
                        let served: &Served = &self.shape.envelope().served;
                        match self.notices.next(&served.overload) {
                            Some(text) => return Some(Frame::Notice(text)),
                            None => continue,
                        }
                    }
                },
            };
            self.notices.end();
            let written = match next {
                Ok(Some((choice, update))) => self.write(choice, update),
                Ok(None) => self.end(),
                Err(error) => Err(error),
            };
            if let Err(error) = written {
                self.fail(&error);
            }
        }
    }

    fn write(&mut self, choice: usize, update: Update) -> Result<(), ApiError> {
        while self.opened <= choice {
            let opening = self.shape.opening(self.opened as u32)?;
            self.queue.extend(opening);
            self.opened += 1;
        }
        let choice = choice as u32;
        if !update.text.is_empty() || !update.tokens.is_empty() {
            self.queue.push_back(self.shape.text(choice, update.text, &update.tokens)?);
        }
        if let Some(finish) = update.finish {
            self.queue.push_back(self.shape.closing(choice, finish)?);
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), ApiError> {
        if self.shape.envelope().has_usage {
            self.queue.push_back(self.shape.usage(self.reply.usage())?);
        }
        self.queue.push_back(DONE.to_owned());
        self.has_ended = true;
        Ok(())
    }

    fn fail(&mut self, error: &ApiError) {
        tracing::warn!(%error, id = self.shape.envelope().id, "a stream failed");
        note_down(&self.gateway, &self.shape.envelope().served, error);
        // An error body is strings only. Were it not writable, the stream would still end without DONE.
        self.queue.extend(serde_json::to_string(&error.body()).ok());
        self.has_ended = true;
    }
}
