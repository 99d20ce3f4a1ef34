use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::unfold;
use http::{HeaderName, header};
use motet_protocol::DONE;

use crate::error::ApiError;
use crate::gateway::Gateway;
use crate::reply::{Reply, Update, note_down};
use crate::wire::Shape;

/// What keeps proxies from collecting or changing the events.
const HEADERS: [(HeaderName, &str); 2] =
    [(header::CACHE_CONTROL, "no-cache, no-transform"), (HeaderName::from_static("x-accel-buffering"), "no")];

/// Sends `reply` as events. The headers go out at once and a comment after every
/// [`keep_alive`](crate::GatewayConfig::keep_alive) of silence, so a client sees that a reply which
/// still waits or reads its prompt is alive. The response body owns the reply: when the client leaves,
/// both are dropped.
pub(crate) fn respond<S: Shape>(gateway: Arc<Gateway>, reply: Reply, shape: S) -> Response {
    let keep_alive = KeepAlive::new().interval(gateway.config.keep_alive).text("keep-alive");
    let frames = Frames { gateway, reply, shape, queue: VecDeque::new(), opened: 0, has_ended: false };
    let events = unfold(frames, |mut frames| async {
        let data = frames.next().await?;
        Some((Ok::<_, Infallible>(Event::default().data(data)), frames))
    });
    (HEADERS, Sse::new(events).keep_alive(keep_alive)).into_response()
}

/// The events of a reply, in order. It ends with [`DONE`] exactly when the reply is whole.
struct Frames<S> {
    gateway: Arc<Gateway>,
    reply: Reply,
    shape: S,
    /// Written and not yet sent; one update makes a few.
    queue: VecDeque<String>,
    /// Choices that have had their opening event; always a prefix, so that they begin in order.
    opened: usize,
    has_ended: bool,
}

impl<S: Shape> Frames<S> {
    async fn next(&mut self) -> Option<String> {
        loop {
            if let Some(data) = self.queue.pop_front() {
                return Some(data);
            }
            if self.has_ended {
                return None;
            }
            let written = match self.reply.next().await {
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
