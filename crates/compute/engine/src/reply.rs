use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use motet_sample::{NonFinite, logprobs, sample};
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
    output: u32,
    events: mpsc::Sender<Event>,
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

/// The two sides of a reply.
///
/// The channel holds every event the reply can have, so sending never waits; its memory grows with
/// what is in it, not with the bound.
pub(crate) fn channel(request: &Request) -> (Reply, EventStream) {
    let (events, receiver) = mpsc::channel(request.max_tokens as usize + 1);
    let reply = Reply {
        sampling: request.sampling,
        stop: request.stop.clone(),
        max_tokens: request.max_tokens,
        logprobs: request.logprobs,
        prompt: request.prompt.len() as u32,
        output: 0,
        events,
    };
    (reply, Box::pin(Events(receiver)))
}

impl Reply {
    /// Whether the reader has left.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.events.is_closed()
    }

    /// Tokens of its prompt.
    pub(crate) fn prompt_tokens(&self) -> u32 {
        self.prompt
    }

    /// Draws the next token from its logits and tells the reader.
    pub(crate) fn advance(&mut self, logits: &mut [f32], eos_tokens: &[TokenId]) -> Next {
        match self.draw(logits, eos_tokens) {
            Ok(drawn) => self.publish(drawn, eos_tokens),
            Err(NonFinite) => {
                self.fail(ReplyError::NonFiniteLogits { index: self.output });
                Next::Failed
            }
        }
    }

    /// Ends the reply with an error.
    pub(crate) fn fail(&self, error: ReplyError) {
        self.send(Event::Failed(error));
    }

    fn draw(&self, logits: &mut [f32], eos_tokens: &[TokenId]) -> Result<Drawn, NonFinite> {
        // Log-probabilities are of the model's own distribution, before anything is forbidden.
        let raw = self.logprobs.map(|_| logits.to_vec());
        if self.output < self.stop.min_tokens {
            for id in self.stop.ids.iter().chain(eos_tokens) {
                let logit = &mut logits[*id as usize];
                // A vanishing weight instead of infinity, which would pass for a broken model's.
                *logit = if logit.is_finite() { f32::MIN } else { f32::NAN };
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

    fn finish(&self, reason: FinishReason) -> Next {
        let usage = Usage { prompt: self.prompt, cached: 0, output: self.output };
        self.send(Event::Finished { reason, usage });
        Next::Finished
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
