use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use motet_protocol::FinishReason;
use motet_text::{Delta, ReplyDecoder, Tokenizer};
use motet_types::{Event, EventStream, FinishReason as BackendReason, Logprobs, TokenEvent, TokenId};
use tokio::time::Instant;

use crate::error::ApiError;

/// One choice: its events, and the text they have become.
///
/// Invariant: `events` is present exactly until the choice has ended or was cancelled.
pub(super) struct Choice {
    events: Option<EventStream>,
    decoder: ReplyDecoder,
    tokenizer: Arc<Tokenizer>,
    /// Scored tokens whose text is still held back.
    held: VecDeque<(usize, ScoredToken)>,
    /// Bytes of text that the tokens so far stand for.
    bytes: usize,
    /// Characters that begin in them.
    chars: u32,
    /// Bytes of text given out.
    given: usize,
    output: u32,
    /// Log-probability of the tokens so far, where it is reported, and how many they are.
    score: (f64, u32),
    cached: Option<u32>,
    queued: Duration,
    /// When the last token came.
    pub(super) last_token: Option<Instant>,
}

/// What one event adds to a choice.
#[derive(Debug)]
pub(crate) struct Update {
    /// More text; may be empty.
    pub(crate) text: String,
    /// The tokens of that text, when log-probabilities were asked for.
    pub(crate) tokens: Vec<ScoredToken>,
    /// Set once, last.
    pub(crate) finish: Option<FinishReason>,
    /// Whether a token came, as opposed to the end.
    pub(crate) is_token: bool,
}

/// A token of the text and its log-probabilities.
#[derive(Debug, Clone)]
pub(crate) struct ScoredToken {
    pub(crate) token: TokenId,
    pub(crate) logprobs: Logprobs,
    /// Where it begins in the choice's text, in characters.
    pub(crate) offset: u32,
}

impl Choice {
    pub(super) fn new(events: EventStream, tokenizer: Arc<Tokenizer>, stop: Vec<String>) -> Self {
        let decoder = ReplyDecoder::new(Arc::clone(&tokenizer), stop);
        Self {
            events: Some(events),
            decoder,
            tokenizer,
            held: VecDeque::new(),
            bytes: 0,
            chars: 0,
            given: 0,
            output: 0,
            score: (0.0, 0),
            cached: None,
            queued: Duration::ZERO,
            last_token: None,
        }
    }

    /// Tokens generated so far; after the end, a stop token included.
    pub(super) fn output(&self) -> u32 {
        self.output
    }

    /// Prompt tokens found in the cache. The backend says so at the end, which a choice with a stop
    /// string does not wait for.
    pub(super) fn cached(&self) -> Option<u32> {
        self.cached
    }

    /// Time in the backend's line, once it has said so at the end.
    pub(super) fn queued(&self) -> Duration {
        self.queued
    }

    /// Stops the sequence.
    pub(super) fn cancel(&mut self) {
        self.events = None;
    }

    /// The next update; `None` after the end.
    pub(super) fn poll_update(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Update, ApiError>>> {
        let Some(events) = &mut self.events else { return Poll::Ready(None) };
        let update = match ready!(events.as_mut().poll_next(cx)) {
            Some(Event::Token(event)) => Ok(self.on_token(event)),
            Some(Event::Finished { reason, usage }) => {
                (self.cached, self.output) = (Some(usage.cached), usage.output);
                self.queued = usage.queued;
                Ok(self.on_end(reason))
            }
            Some(Event::Failed(error)) => Err(ApiError::Reply(error)),
            None => Err(ApiError::Truncated),
        };
        if !matches!(&update, Ok(Update { finish: None, .. })) {
            self.cancel();
        }
        Poll::Ready(Some(update))
    }

    /// Log-probability per token; that of a choice without tokens is 0, the highest.
    pub(super) fn mean_logprob(&self) -> f64 {
        let (sum, count) = self.score;
        sum / f64::from(count.max(1))
    }

    fn on_token(&mut self, event: TokenEvent) -> Update {
        self.output += 1;
        if let Some(logprobs) = &event.logprobs {
            self.score = (self.score.0 + f64::from(logprobs.chosen), self.score.1 + 1);
        }
        self.hold(&event);
        let delta = self.decoder.push(event.token);
        self.given += delta.text.len();
        let tokens = self.release();
        let finish = delta.stopped.then_some(FinishReason::Stop);
        Update { text: delta.text, tokens, finish, is_token: true }
    }

    fn on_end(&mut self, reason: BackendReason) -> Update {
        let Delta { text, stopped } = self.decoder.finish();
        self.given += text.len();
        let tokens = self.held.drain(..).map(|(_, token)| token).collect();
        let finish = match reason {
            BackendReason::Length if !stopped => FinishReason::Length,
            _ => FinishReason::Stop,
        };
        Update { text, tokens, finish: Some(finish), is_token: false }
    }

    /// Notes where the token's text begins, and keeps its score until that text is given out.
    fn hold(&mut self, event: &TokenEvent) {
        let is_shown = !self.tokenizer.is_control(event.token);
        let bytes = if is_shown { self.tokenizer.token_bytes(event.token) } else { &[] };
        let begins_inside = bytes.first().is_some_and(|&byte| is_continuation(byte));
        if let Some(logprobs) = &event.logprobs {
            let offset = self.chars.saturating_sub(u32::from(begins_inside));
            let token = ScoredToken { token: event.token, logprobs: (**logprobs).clone(), offset };
            self.held.push_back((self.bytes, token));
        }
        self.bytes += bytes.len();
        self.chars += bytes.iter().filter(|&&byte| !is_continuation(byte)).count() as u32;
    }

    /// Tokens whose text has begun to be given out. After a stop string the others never are: they
    /// belong to the stop string or to what follows it.
    fn release(&mut self) -> Vec<ScoredToken> {
        let given = self.given;
        let count = self.held.iter().take_while(|(begins, _)| *begins < given).count();
        self.held.drain(..count).map(|(_, token)| token).collect()
    }
}

/// Whether a byte of UTF-8 is not the first of its character.
fn is_continuation(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}
