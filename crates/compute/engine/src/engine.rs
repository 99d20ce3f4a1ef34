use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use motet_sched::{Executor, Limits, SequenceSpec};
use motet_types::{Backend, EventStream, Load, ModelInfo, Request, SequenceId, SubmitError, TokenId};

use crate::inbox::{Inbox, Submission};
use crate::reply;
use crate::step_loop::StepLoop;

/// What the engine has to know besides the executor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineConfig {
    /// The name clients ask for.
    pub id: String,
    /// Tokens the tokenizer knows; an output head padded beyond them is cut to it.
    pub vocab_size: u32,
    /// Tokens that end a reply.
    pub eos_tokens: Vec<TokenId>,
    /// Bounds of the schedule.
    pub limits: Limits,
}

/// Why an engine can't start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A limit under which nothing could run.
    #[error("{field} is {value}; the engine needs at least {least}")]
    Limit {
        /// The limit.
        field: &'static str,
        /// Its value.
        value: usize,
        /// The least that works.
        least: usize,
    },
    /// An end-of-reply token the model can't produce.
    #[error("end-of-reply token {token} is outside the vocabulary of {vocab_size}")]
    UnknownToken {
        /// The token.
        token: TokenId,
        /// Ids are below this.
        vocab_size: u32,
    },
    /// The system gave no thread.
    #[error("the engine's thread could not be started: {0}")]
    Thread(#[from] std::io::Error),
}

impl EngineConfig {
    fn check(&self, executor_vocab: u32) -> Result<(), StartError> {
        let Limits { running, waiting, step_tokens } = self.limits;
        // Every running sequence may decode, and one token more lets a prompt go on.
        let least =
            [("running", running, 1), ("waiting", waiting, 1), ("step_tokens", step_tokens, running + 1)];
        if let Some(&(field, value, least)) = least.iter().find(|(_, value, least)| value < least) {
            return Err(StartError::Limit { field, value, least });
        }
        let vocab_size = self.vocab_size.min(executor_vocab);
        match self.eos_tokens.iter().find(|token| **token >= vocab_size) {
            Some(&token) => Err(StartError::UnknownToken { token, vocab_size }),
            None => Ok(()),
        }
    }
}

/// The in-process backend: an executor and the thread that drives it.
pub struct Engine {
    info: ModelInfo,
    inbox: Arc<Inbox>,
    next_id: AtomicU64,
    thread: Option<JoinHandle<()>>,
}

impl Engine {
    /// Starts the loop on a thread of its own. The engine stops when the last handle is dropped.
    ///
    /// Fails where the configuration would leave the loop nothing it can run, or the system gives no thread.
    pub fn start(executor: Box<dyn Executor>, config: EngineConfig) -> Result<Arc<Self>, StartError> {
        let capacity = executor.capacity();
        config.check(capacity.vocab_size)?;
        let info = ModelInfo {
            id: config.id,
            context_length: capacity.sequence_tokens(),
            vocab_size: config.vocab_size.min(capacity.vocab_size),
            eos_tokens: config.eos_tokens,
        };
        let inbox = Arc::new(Inbox::new(config.limits.waiting, capacity));
        let mut step_loop = StepLoop::new(executor, info.clone(), config.limits, Arc::clone(&inbox));
        let thread =
            std::thread::Builder::new().name("motet-engine".into()).spawn(move || step_loop.run())?;
        Ok(Arc::new(Self { info, inbox, next_id: AtomicU64::new(0), thread: Some(thread) }))
    }

    fn check(&self, request: &Request) -> Result<(), SubmitError> {
        let (vocab_size, limit) = (self.info.vocab_size, self.info.context_length);
        if request.prompt.is_empty() {
            return Err(SubmitError::EmptyPrompt);
        }
        if request.max_tokens == 0 {
            return Err(SubmitError::NoOutput);
        }
        if let Some((field, value, allowed)) = request.sampling.invalid() {
            return Err(SubmitError::BadSampling { field, value: value.to_string(), allowed });
        }
        let ids = request.prompt.iter().chain(&request.stop.ids);
        if let Some(&token) = ids.clone().find(|token| **token >= vocab_size) {
            return Err(SubmitError::UnknownToken { token, vocab_size });
        }
        let prompt = u32::try_from(request.prompt.len()).unwrap_or(u32::MAX);
        if prompt.saturating_add(request.max_tokens) > limit {
            return Err(SubmitError::TooLong { prompt, max_tokens: request.max_tokens, limit });
        }
        Ok(())
    }
}

impl Backend for Engine {
    fn model(&self) -> &ModelInfo {
        &self.info
    }

    fn submit(&self, request: Request) -> Result<EventStream, SubmitError> {
        self.check(&request)?;
        let id = SequenceId(self.next_id.fetch_add(1, Ordering::Relaxed));
        let (reply, events) = reply::channel(&request);
        let sequence = SequenceSpec { id, prompt: request.prompt, max_tokens: request.max_tokens };
        self.inbox.push(Submission { sequence, reply })?;
        Ok(events)
    }

    fn load(&self) -> Load {
        self.inbox.load()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.inbox.close();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
