//! One reply from tokens in to text out, for the commands that talk to the engine directly.

use std::{
    future::Future,
    hash::{BuildHasher, Hasher},
    io,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use futures_util::StreamExt;
use motet_text::{ChatTemplate, CivilTime, RenderInput, ReplyDecoder};
use motet_types::{
    Backend, Event, EventStream, FinishReason, Origin, Request, SamplingParams, StopTokens, SubmitError,
    TokenId, Usage,
};

use crate::{config::SamplingSettings, failure::Failure, load::Loaded};

/// What to continue, and how.
pub(crate) struct Ask {
    pub(crate) prompt: Vec<TokenId>,
    pub(crate) sampling: SamplingParams,
    /// Shortened to what the context has left.
    pub(crate) max_tokens: u32,
}

/// A reply that ended.
pub(crate) struct Reply {
    pub(crate) text: String,
    pub(crate) end: End,
    pub(crate) usage: Usage,
    /// From the first token to the last.
    pub(crate) generating: Duration,
}

/// Why a reply ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The model was done.
    Done,
    /// `max_tokens`.
    MaxTokens,
    /// The context is full.
    ContextFull,
    /// The user stopped it.
    Stopped,
}

impl Reply {
    /// Tokens per second after the first token; `None` for a reply too short to time.
    pub(crate) fn tokens_per_second(&self) -> Option<f64> {
        let seconds = self.generating.as_secs_f64();
        (self.usage.output > 1 && seconds > 0.0).then(|| f64::from(self.usage.output - 1) / seconds)
    }
}

/// The prompt's tokens for a conversation. `messages` is the JSON array that templates take.
pub(crate) fn chat_prompt(loaded: &Loaded, messages: &serde_json::Value) -> Result<Vec<TokenId>, Failure> {
    let template: &ChatTemplate = match &loaded.template {
        Ok(template) => template,
        Err(why) => return Err(Failure::usage(format!("{why}; motet run --raw continues plain text"))),
    };
    let input = RenderInput {
        messages: messages.clone(),
        add_generation_prompt: true,
        now: now(),
        ..RenderInput::default()
    };
    template.prompt(&loaded.tokenizer, &input).map_err(Failure::usage)
}

/// The parameters of one reply; without a configured seed each gets its own.
pub(crate) fn params(settings: &SamplingSettings) -> SamplingParams {
    let seed = settings.seed.unwrap_or_else(|| std::hash::RandomState::new().build_hasher().finish());
    SamplingParams { seed, ..settings.params }
}

/// Runs one reply. `on_text` gets each piece as it comes; `stop` ends the reply early, and the
/// sequence is gone at the engine's next step.
pub(crate) async fn generate(
    loaded: &Loaded,
    ask: Ask,
    mut on_text: impl FnMut(&str) -> io::Result<()>,
    stop: impl Future<Output = ()>,
) -> Result<Reply, Failure> {
    let (request, full) = request(loaded, ask)?;
    let prompt = request.prompt.len() as u32;
    let mut events = submit(loaded, request).map_err(Failure::runtime)?;
    let mut decoder = ReplyDecoder::new(loaded.tokenizer.clone(), Vec::new());
    let mut reply = Reply {
        text: String::new(),
        end: End::Stopped,
        usage: Usage { prompt, ..Usage::default() },
        generating: Duration::ZERO,
    };
    let mut first: Option<Instant> = None;
    tokio::pin!(stop);
    loop {
        let event = tokio::select! {
            biased;
            () = &mut stop => break,
            event = events.next() => event,
        };
        match event {
            Some(Event::Token(token)) => {
                reply.generating = first.get_or_insert_with(Instant::now).elapsed();
                reply.usage.output += 1;
                push(&mut reply, &decoder.push(token.token).text, &mut on_text)?;
            }
            Some(Event::Finished { reason, usage }) => {
                reply.usage = usage;
                reply.end = match reason {
                    FinishReason::StopToken(_) => End::Done,
                    FinishReason::Length => full,
                };
                break;
            }
            Some(Event::Failed(error)) => return Err(Failure::runtime(error)),
            None => return Err(Failure::runtime("the engine stopped in the middle of the reply")),
        }
    }
    push(&mut reply, &decoder.finish().text, &mut on_text)?;
    Ok(reply)
}

/// One short generation, so that the first user does not pay for first-time work.
pub(crate) async fn warm(loaded: &Loaded) -> Result<(), Failure> {
    let mut prompt = loaded.tokenizer.encode_prompt("Hello");
    if prompt.is_empty() {
        prompt.push(0);
    }
    let stop = StopTokens { ignore_eos: true, ..StopTokens::default() };
    let request = Request { stop, ..plain(prompt, 2, SamplingParams::GREEDY) };
    let mut events = submit(loaded, request).map_err(Failure::usage)?;
    while let Some(event) = events.next().await {
        match event {
            Event::Token(_) => {}
            Event::Finished { .. } => return Ok(()),
            Event::Failed(error) => return Err(Failure::usage(format!("{}: {error}", loaded.id))),
        }
    }
    Err(Failure::usage(format!("{}: the engine stopped while it generated its first tokens", loaded.id)))
}

fn push(
    reply: &mut Reply,
    text: &str,
    on_text: &mut impl FnMut(&str) -> io::Result<()>,
) -> Result<(), Failure> {
    if text.is_empty() {
        return Ok(());
    }
    reply.text.push_str(text);
    on_text(text).map_err(Failure::output)
}

/// The request, and what it means when it ends by length.
fn request(loaded: &Loaded, ask: Ask) -> Result<(Request, End), Failure> {
    let limit = loaded.engine.model().context_length;
    let prompt = u32::try_from(ask.prompt.len()).unwrap_or(u32::MAX);
    let left = limit.saturating_sub(prompt);
    if left == 0 {
        return Err(Failure::usage(format!(
            "the prompt has {prompt} tokens and the model holds {limit} with the reply; shorten it"
        )));
    }
    let full = if ask.max_tokens > left { End::ContextFull } else { End::MaxTokens };
    Ok((plain(ask.prompt, ask.max_tokens.min(left), ask.sampling), full))
}

/// A request for one reply on nobody's behalf.
fn plain(prompt: Vec<TokenId>, max_tokens: u32, sampling: SamplingParams) -> Request {
    Request {
        prompt,
        max_tokens,
        samples: vec![sampling],
        stop: StopTokens::default(),
        logprobs: None,
        origin: Origin::default(),
        deadline: None,
    }
}

/// The events of a request's one sample.
fn submit(loaded: &Loaded, request: Request) -> Result<EventStream, SubmitError> {
    let mut streams = loaded.engine.submit(request)?;
    streams.pop().ok_or_else(|| SubmitError::Down("it returned no reply".to_owned()))
}

/// The date that templates print, in UTC.
fn now() -> CivilTime {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_secs());
    CivilTime::from_unix(seconds.cast_signed())
}
