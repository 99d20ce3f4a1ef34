//! From a request's bytes to token sequences that a backend will take.
//!
//! This is processor work of up to seconds for a long prompt, so it runs on blocking threads, a bounded
//! number at once and a bounded number waiting ([`GatewayConfig`] says why).

use std::sync::Arc;

use motet_fleet::Why;
use motet_protocol::{ChatRequest, CompletionRequest, Generation, Prompt, RequestError, parse_body};
use motet_text::{CivilTime, RenderInput};
use motet_types::TokenId;
use tokio::sync::Semaphore;

use crate::access::Caller;
use crate::choosing::{Chosen, Desk, facts_of_chat, facts_of_completion};
use crate::config::GatewayConfig;
use crate::error::{ApiError, ContextLength, MODELS};
use crate::gateway::Served;
use crate::null_content;

/// Admission to the blocking threads.
pub(crate) struct Workers {
    /// Permits for those that work or wait.
    places: Arc<Semaphore>,
    /// Permits for their bodies, one for each [`UNIT`].
    memory: Arc<Semaphore>,
    /// Permits for those that work.
    working: Arc<Semaphore>,
    units: u32,
}

/// Bytes for which a body takes one permit.
const UNIT: usize = 1024;
/// Longest body that is worked on where it arrives: some 2,000 tokens, a few hundred microseconds.
const SHORT: usize = 8 << 10;

impl Workers {
    pub(crate) fn new(config: &GatewayConfig) -> Self {
        let workers = config.prepare_workers.max(1);
        let places = Arc::new(Semaphore::new(workers.saturating_add(config.prepare_waiting)));
        let units = u32::try_from(config.prepare_bytes / UNIT).unwrap_or(u32::MAX);
        let memory = Arc::new(Semaphore::new(units as usize));
        Self { places, memory, working: Arc::new(Semaphore::new(workers)), units }
    }

    /// Runs `work` on a body of `bytes` when it is its turn; on a short one at once, since handing it to another thread
    /// and back takes longer than the work. The permits belong to the work, not to the
    /// caller: work whose client left still occupies a thread until it ends.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        if bytes <= SHORT {
            return work();
        }
        // A body larger than all the memory for bodies takes all of it.
        let units = u32::try_from(bytes / UNIT).unwrap_or(u32::MAX).min(self.units);
        let place = Arc::clone(&self.places).try_acquire_owned().map_err(|_| ApiError::Busy)?;
        let memory = Arc::clone(&self.memory).try_acquire_many_owned(units).map_err(|_| ApiError::Busy)?;
        let turn = Arc::clone(&self.working).acquire_owned().await.map_err(|_| ApiError::Internal)?;
        let task = tokio::task::spawn_blocking(move || {
            let _held = (place, memory, turn);
            work()
        });
        // A join error is a panic inside `work`; the panic hook has reported it.
        task.await.unwrap_or(Err(ApiError::Internal))
    }
}

/// A request that is ready to be submitted.
pub(crate) struct Job {
    pub(crate) served: Arc<Served>,
    /// Why it is that model.
    pub(crate) why: Why,
    pub(crate) caller: Arc<Caller>,
    pub(crate) generation: Generation,
    /// Each at least one token.
    pub(crate) prompts: Vec<Vec<TokenId>>,
    /// What errors call the prompt: `messages` or `prompt`.
    pub(crate) param: &'static str,
    /// Most tokens of a reply if the request names no limit, while replies are shortened.
    pub(crate) short_output: Option<u32>,
}

/// Reads a chat request. `now` is in Unix seconds.
pub(crate) fn chat(desk: Desk, body: &[u8], now: u64) -> Result<Job, ApiError> {
    let mut request = ChatRequest::from_body(&parse_body(body)?)?;
    let Chosen { served, why } = desk.choose(&request.generation.model, || facts_of_chat(&request))?;
    let Some(template) = &served.model.template else {
        return Err(ApiError::Template("this model has no chat template; use /v1/completions".into()));
    };
    if !served.takes_null_content {
        null_content::fill(&mut request.messages);
    }
    let input = RenderInput {
        messages: request.messages,
        add_generation_prompt: request.add_generation_prompt,
        now: CivilTime::from_unix(i64::try_from(now).unwrap_or(i64::MAX)),
        extra: request.template_kwargs,
        ..RenderInput::default()
    };
    let tokens = template.prompt(&served.model.tokenizer, &input);
    let tokens = tokens.map_err(|error| ApiError::Template(error.to_string()))?;
    let (generation, prompts) = (request.generation, vec![tokens]);
    let (caller, short_output) = (desk.caller, None);
    Job { served, why, caller, generation, prompts, param: "messages", short_output }.checked()
}

/// Reads a completion request.
pub(crate) fn completion(desk: Desk, body: &[u8]) -> Result<Job, ApiError> {
    let request = CompletionRequest::from_body(&parse_body(body)?)?;
    let Chosen { served, why } = desk.choose(&request.generation.model, || facts_of_completion(&request))?;
    let tokenize = |prompt| match prompt {
        Prompt::Text(text) => Ok(served.model.tokenizer.encode_prompt(&text)),
        Prompt::Tokens { path, ids } => check_ids(&served, &path, ids),
    };
    let prompts = request.prompts.into_iter().map(tokenize).collect::<Result<_, ApiError>>()?;
    let (caller, generation, short_output) = (desk.caller, request.generation, None);
    Job { served, why, caller, generation, prompts, param: "prompt", short_output }.checked()
}

fn check_ids(served: &Served, path: &str, ids: Vec<TokenId>) -> Result<Vec<TokenId>, ApiError> {
    let vocab_size = served.vocab_size();
    match ids.iter().position(|&id| id >= vocab_size) {
        None => Ok(ids),
        Some(i) => Err(ApiError::UnknownToken { param: format!("{path}[{i}]"), id: ids[i], vocab_size }),
    }
}

impl Served {
    /// Ids below this have both a text and a row in the output head.
    fn vocab_size(&self) -> u32 {
        let named = u32::try_from(self.model.tokenizer.vocab_size()).unwrap_or(u32::MAX);
        self.model.backend.model().vocab_size.min(named)
    }
}

impl Job {
    /// Checks what depends on the model: ids against the vocabulary, lengths against the context.
    fn checked(mut self) -> Result<Self, ApiError> {
        let ids = std::mem::take(&mut self.generation.stop_token_ids);
        self.generation.stop_token_ids = check_ids(&self.served, "stop_token_ids", ids)?;
        for prompt in &self.prompts {
            self.room(prompt)?;
        }
        Ok(self)
    }

    /// Most tokens to generate after `prompt`: what was asked for, or what is left of the context.
    pub(crate) fn room(&self, prompt: &[TokenId]) -> Result<u32, ApiError> {
        if prompt.is_empty() {
            return Err(ApiError::EmptyPrompt { param: self.param });
        }
        let limit = self.context_limit();
        let room = room(u32::try_from(prompt.len()).unwrap_or(u32::MAX), self.generation.max_tokens, limit)
            .ok_or_else(|| self.too_long(prompt, limit))?;
        match (self.caller.max_output, self.generation.max_tokens) {
            (Some(most), Some(asked)) if asked > most => {
                let name = self.generation.max_tokens_name;
                let why = format!("is {asked}, and your account allows at most {most} tokens a reply");
                Err(RequestError::bad_value(name, why).into())
            }
            (Some(most), _) => Ok(room.min(most)),
            (None, _) => Ok(room),
        }
        .map(|room| room.min(self.short_limit().unwrap_or(room)))
    }

    /// The limit that replies are shortened to, where the request names none itself.
    fn short_limit(&self) -> Option<u32> {
        let Generation { max_tokens, min_tokens, .. } = self.generation;
        self.short_output.filter(|_| max_tokens.is_none()).map(|limit| limit.max(min_tokens))
    }

    /// The limit that replies are shortened to, if that makes a difference to one of them.
    pub(crate) fn shortened(&self) -> Option<u32> {
        let limit = self.short_limit()?;
        let most = self.caller.max_output.unwrap_or(u32::MAX);
        let left = |prompt: &Vec<TokenId>| self.context_limit().saturating_sub(prompt.len() as u32);
        self.prompts.iter().any(|prompt| left(prompt).min(most) > limit).then_some(limit)
    }

    /// Most tokens of prompt and reply: what the model can read, or less where the caller may.
    pub(crate) fn context_limit(&self) -> u32 {
        let context = self.served.context();
        self.caller.max_context.map_or(context, |most| context.min(most))
    }

    /// Tokens of all prompts.
    pub(crate) fn prompt_tokens(&self) -> u64 {
        self.prompts.iter().map(|prompt| prompt.len() as u64).sum()
    }

    /// Tokens of all replies at most.
    pub(crate) fn output_tokens(&self) -> Result<u64, ApiError> {
        let choices = u64::from(self.generation.best_of);
        self.prompts.iter().try_fold(0, |sum, prompt| Ok(sum + u64::from(self.room(prompt)?) * choices))
    }

    pub(crate) fn too_long(&self, prompt: &[TokenId], limit: u32) -> ApiError {
        let prompt = u32::try_from(prompt.len()).unwrap_or(u32::MAX);
        let max_tokens = self.generation.max_tokens;
        // A prompt that leaves room for a reply is not what has to change.
        let is_limit_at_fault = max_tokens.is_some() && prompt < limit;
        let param = if is_limit_at_fault { self.generation.max_tokens_name } else { self.param };
        let is_account = self.caller.max_context == Some(limit) && limit < self.served.context();
        let whose = if is_account { "Your account's" } else { MODELS };
        ContextLength { limit, whose, prompt, max_tokens, given_in: self.param, param }.into()
    }
}

/// The rule: `prompt + max_tokens ≤ limit`, and at least one token fits.
fn room(prompt: u32, max_tokens: Option<u32>, limit: u32) -> Option<u32> {
    let left = limit.checked_sub(prompt).filter(|&left| left > 0)?;
    match max_tokens {
        None => Some(left),
        Some(asked) => (asked <= left).then_some(asked),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_in_the_context() {
        let check = |prompt, max_tokens, want| assert_eq!(room(prompt, max_tokens, 4096), want, "{prompt}");
        check(4000, None, Some(96));
        check(4000, Some(96), Some(96));
        check(4000, Some(97), None);
        check(4095, None, Some(1));
        check(4096, None, None);
        check(9000, None, None);
        check(1, Some(u32::MAX), None);
        check(u32::MAX, Some(u32::MAX), None);
    }

    #[tokio::test]
    async fn workers_are_bounded() {
        let config = GatewayConfig { prepare_workers: 1, prepare_waiting: 1, ..GatewayConfig::default() };
        let small = SHORT + 1;
        let workers = Workers::new(&config);
        let (release, gate) = std::sync::mpsc::channel::<()>();
        let first = workers.run(small, move || gate.recv().map_err(|_| ApiError::Internal));
        let second = workers.run(small, || Ok(()));
        let third = async {
            let full = workers.run(small, || Ok(())).await;
            release.send(()).unwrap();
            full
        };
        let (first, second, third) = tokio::join!(biased; first, second, third);
        assert!(first.is_ok() && second.is_ok());
        assert!(matches!(third, Err(ApiError::Busy)));
        assert!(workers.run(small, || Ok(())).await.is_ok());
        let panicked = workers.run(small, || -> Result<(), ApiError> { panic!("for the test") }).await;
        assert!(matches!(panicked, Err(ApiError::Internal)));
        assert!(workers.run(small, || Ok(())).await.is_ok());
    }

    #[tokio::test]
    async fn bodies_that_wait_are_bounded_together() {
        let config =
            GatewayConfig { prepare_workers: 1, prepare_bytes: 32 << 10, ..GatewayConfig::default() };
        let workers = Workers::new(&config);
        let (release, gate) = std::sync::mpsc::channel::<()>();
        let first = workers.run(24 << 10, move || gate.recv().map_err(|_| ApiError::Internal));
        let second = async {
            let too_much = workers.run(16 << 10, || Ok(())).await;
            release.send(()).unwrap();
            too_much
        };
        let (first, too_much) = tokio::join!(biased; first, second);
        assert!(first.is_ok());
        assert!(matches!(too_much, Err(ApiError::Busy)));
        assert!(workers.run(16 << 10, || Ok(())).await.is_ok());
        assert!(workers.run(1 << 20, || Ok(())).await.is_ok());
    }
}
