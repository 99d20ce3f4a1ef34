use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures_core::Stream;
use motet_sample::{FORBIDDEN, NonFinite, logprobs, sample};
use motet_types::{
    Event, EventStream, FinishReason, Logprobs, ReplyError, Request, SamplingParams, StopTokens, TokenEvent,
    TokenId, Usage,
};
use tokio::sync::mpsc;

/// The loop's side of a reply: how its tokens are drawn, when it ends, and where its events go.
pub(crate) struct Reply {
    sampling: SamplingParams,
    stop: StopTokens,
    max_tokens: u32,
    logprobs: Option<u8>,
    prompt: u32,
    /// What the first chunk has shown; one for all samples of a request, since they share the prompt's chunks.
    began: Arc<OnceLock<Began>>,
    submitted: Instant,
    output: u32,
    events: mpsc::Sender<Event>,
    /// The last event is out; nothing may follow it.
    is_over: bool,
}

/// How a reply began to be computed.
#[derive(Debug, Clone, Copy, Default)]
struct Began {
    /// Prompt tokens found cached.
    cached: u32,
    /// Time in line.
    queued: Duration,
}

/// What a reply does after a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Continue after this token.
    Append(TokenId),
    /// The reply is over, as asked.
    Finished,
    /// The reply is over because it can't go on.
    Failed,
}

struct Drawn {
    token: TokenId,
    logprobs: Option<Box<Logprobs>>,
}

struct Events(mpsc::Receiver<Event>);

impl Stream for Events {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        self.0.poll_recv(cx)
    }
}

/// The two sides of each of a request's replies.
///
/// The channel holds every event the reply can have, so sending never waits; its memory grows with
/// what is in it, not with the bound.
pub(crate) fn channels(request: &Request) -> (Vec<Reply>, Vec<EventStream>) {
    let (began, submitted) = (Arc::<OnceLock<Began>>::default(), Instant::now());
    let channel = |sampling: &SamplingParams| {
        let (events, receiver) = mpsc::channel(request.max_tokens as usize + 1);
        let reply = Reply {
            sampling: *sampling,
            stop: request.stop.clone(),
            max_tokens: request.max_tokens,
            logprobs: request.logprobs,
            prompt: request.prompt.len() as u32,
            began: Arc::clone(&began),
            submitted,
            output: 0,
            events,
            is_over: false,
        };
        (reply, Box::pin(Events(receiver)) as EventStream)
    };
    request.samples.iter().map(channel).unzip()
}

impl Reply {
    /// Whether the reader has left.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.events.is_closed()
    }

    /// Notes where the first chunk began: what is before it need not be computed. Later chunks don't count;
    /// what is before them was computed for this reply.
    pub(crate) fn note_cached(&mut self, start: u32) {
        let began = || Began { cached: start.min(self.prompt), queued: self.submitted.elapsed() };
        self.began.get_or_init(began);
    }

    /// Draws the next token from its logits and tells the reader.
    pub(crate) fn advance(&mut self, logits: &mut [f32], eos_tokens: &[TokenId]) -> Next {
        match self.draw(logits, eos_tokens) {
            Ok(drawn) => self.publish(drawn, eos_tokens),
            Err(NonFinite) => {
                self.end(Event::Failed(ReplyError::NonFiniteLogits { index: self.output }));
                Next::Failed
            }
        }
    }

    /// Ends the reply with an error.
    pub(crate) fn fail(&mut self, error: ReplyError) {
        self.end(Event::Failed(error));
    }

    /// Ends the reply because the engine stops.
    pub(crate) fn fail_down(&mut self, why: &str) {
        self.fail(ReplyError::BackendDown(why.to_owned()));
    }

    fn draw(&self, logits: &mut [f32], eos_tokens: &[TokenId]) -> Result<Drawn, NonFinite> {
        // Log-probabilities are of the model's own distribution, before anything is forbidden.
        let raw = self.logprobs.map(|_| logits.to_vec());
        if self.output < self.stop.min_tokens {
            for id in self.stop.ids.iter().chain(eos_tokens) {
                if let Some(logit) = logits.get_mut(*id as usize).filter(|logit| logit.is_finite()) {
                    *logit = FORBIDDEN;
                }
            }
        }
        let token = sample(logits, &self.sampling, self.output)?;
        let logprobs = match (&raw, self.logprobs) {
            (Some(raw), Some(top)) => Some(Box::new(logprobs(raw, token, usize::from(top))?)),
            _ => None,
        };
        Ok(Drawn { token, logprobs })
    }

    fn publish(&mut self, Drawn { token, logprobs }: Drawn, eos: &[TokenId]) -> Next {
        let index = self.output;
        self.output += 1;
        if self.stop.ids.contains(&token) || (!self.stop.ignore_eos && eos.contains(&token)) {
            return self.finish(FinishReason::StopToken(token));
        }
        self.send(Event::Token(TokenEvent { index, token, logprobs }));
        if self.output == self.max_tokens {
            return self.finish(FinishReason::Length);
        }
        Next::Append(token)
    }

    fn finish(&mut self, reason: FinishReason) -> Next {
        let Began { cached, queued } = self.began.get().copied().unwrap_or_default();
        let usage = Usage { prompt: self.prompt, cached, output: self.output, queued };
        self.end(Event::Finished { reason, usage });
        Next::Finished
    }

    fn end(&mut self, event: Event) {
        if !std::mem::replace(&mut self.is_over, true) {
            self.send(event);
        }
    }

    /// A reader that has left is noticed at the next step; the channel can't be full.
    fn send(&self, event: Event) {
        let sent = self.events.try_send(event);
        debug_assert!(
            !matches!(sent, Err(mpsc::error::TrySendError::Full(_))),
            "a reply outgrew its channel"
        );
    }
}

impl Drop for Reply {
    /// However the loop lets go of a reply, its reader hears of the end exactly once.
    fn drop(&mut self) {
        self.fail_down("it lost the reply");
    }
}
