use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use motet_kv::{CacheKey, Pool, PoolConfig, Scope, ScopeParts};
use motet_sched::{Capacity, Executor, SchedConfig, Scheduler, Submission, UserKey};
use motet_types::{Backend, EventStream, Load, ModelInfo, Origin, Request, SequenceId, SubmitError, TokenId};

use crate::reply;
use crate::shared::{Arrived, Shared};
use crate::step_loop::StepLoop;
use crate::tier::{Tier, TierConfig};

/// What the engine has to know besides the executor.
#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// The name clients ask for.
    pub id: String,
    /// Tokens the tokenizer knows; an output head padded beyond them is cut to it.
    pub vocab_size: u32,
    /// Tokens that end a reply.
    pub eos_tokens: Vec<TokenId>,
    /// Lanes and how steps are filled.
    pub sched: SchedConfig,
    /// What is kept of ended sequences.
    pub cache: CacheConfig,
}

/// The prefix cache.
#[derive(Debug, Clone)]
pub struct CacheConfig {
    /// Whether computed prefixes are kept and reused. Replies are the same either way, only slower without.
    pub is_on: bool,
    /// Random, drawn at each start: keys the hashes of blocks and the bytes of the second tier.
    pub key: CacheKey,
    /// A digest of weights and tokenizer, or a number drawn at each load.
    pub model: String,
    /// Where evicted blocks go; none: nowhere.
    pub second_tier: Option<TierConfig>,
}

/// The in-process backend: an executor and the thread that drives it.
pub struct Engine {
    info: ModelInfo,
    cache: CacheConfig,
    shared: Arc<Shared>,
    next_id: AtomicU64,
    thread: Option<JoinHandle<()>>,
}

/// Why an engine can't start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An end-of-reply token the model can't produce.
    #[error("end-of-reply token {token} is outside the vocabulary of {vocab_size}")]
    UnknownToken {
        /// The token.
        token: TokenId,
        /// Ids are below this.
        vocab_size: u32,
    },
    /// The second tier's file can't be made.
    #[error("the second tier of the cache can't use {folder}: {source}")]
    SecondTier {
        /// Where it should be.
        folder: String,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The system gave no thread.
    #[error("the engine's thread could not be started: {0}")]
    Thread(std::io::Error),
}

impl Engine {
    /// Starts the loop on a thread of its own. The engine stops when the last handle is dropped.
    pub fn start(executor: Box<dyn Executor>, config: EngineConfig) -> Result<Arc<Self>, StartError> {
        let capacity = executor.capacity();
        let vocab_size = config.vocab_size.min(capacity.vocab_size);
        if let Some(&token) = config.eos_tokens.iter().find(|token| **token >= vocab_size) {
            return Err(StartError::UnknownToken { token, vocab_size });
        }
        let info = ModelInfo {
            id: config.id,
            context_length: capacity.sequence_tokens(),
            vocab_size,
            eos_tokens: config.eos_tokens,
        };
        let tier = match &config.cache.second_tier {
            Some(tier) if config.cache.is_on => {
                let folder = tier.folder.display().to_string();
                let open = Tier::open(tier, &config.cache.key, largest_block(&*executor, &capacity));
                Some(open.map_err(|source| StartError::SecondTier { folder, source })?)
            }
            _ => None,
        };
        let pool = Pool::new(PoolConfig {
            block_tokens: capacity.block_tokens,
            groups: capacity.groups.clone(),
            caching: config.cache.is_on,
            second_tier: tier.as_ref().map(Tier::bounds),
        });
        let shared = Arc::new(Shared::new(Scheduler::new(config.sched, pool, capacity)));
        let mut step_loop = StepLoop::new(executor, info.clone(), tier, Arc::clone(&shared));
        let thread = std::thread::Builder::new().name("motet-engine".into()).spawn(move || step_loop.run());
        let thread = thread.map_err(StartError::Thread)?;
        let next_id = AtomicU64::new(0);
        Ok(Arc::new(Self { info, cache: config.cache, shared, next_id, thread: Some(thread) }))
    }

    /// Takes no more requests; those that were taken end as asked.
    pub fn drain(&self) {
        self.shared.drain();
    }

    fn check(&self, request: &Request) -> Result<(), SubmitError> {
        let vocab_size = self.info.vocab_size;
        if request.prompt.is_empty() {
            return Err(SubmitError::EmptyPrompt);
        }
        if request.max_tokens == 0 {
            return Err(SubmitError::NoOutput);
        }
        if let Some((field, value, allowed)) = request.samples.iter().find_map(|sampling| sampling.invalid())
        {
            return Err(SubmitError::BadSampling { field, value: value.to_string(), allowed });
        }
        let mut ids = request.prompt.iter().chain(&request.stop.ids);
        match ids.find(|token| **token >= vocab_size) {
            Some(&token) => Err(SubmitError::UnknownToken { token, vocab_size }),
            None => Ok(()),
        }
    }

    /// Who may share this request's blocks.
    fn scope(&self, origin: &Origin) -> Scope {
        let parts = ScopeParts {
            tenant: &origin.tenant,
            model: &self.cache.model,
            tokenizer: "",
            adapter: None,
            namespace: origin.cache_namespace.as_deref(),
        };
        Scope::new(&self.cache.key, &parts)
    }
}

/// Bytes of the largest block of any group.
fn largest_block(executor: &dyn Executor, capacity: &Capacity) -> usize {
    let mut block = Vec::new();
    let mut bytes = |group| {
        block.clear();
        executor.read_block(group, 0, &mut block);
        block.len()
    };
    (0..capacity.groups.len()).map(&mut bytes).max().unwrap_or(0)
}

impl Backend for Engine {
    fn model(&self) -> &ModelInfo {
        &self.info
    }

    fn submit(&self, request: Request) -> Result<Vec<EventStream>, SubmitError> {
        self.check(&request)?;
        let count = request.samples.len();
        let first = self.next_id.fetch_add(count as u64, Ordering::Relaxed);
        let ids: Vec<SequenceId> = (0..count as u64).map(|i| SequenceId(first + i)).collect();
        let (replies, streams) = reply::channels(&request);
        let scope = self.scope(&request.origin);
        let submission = Submission {
            samples: ids.clone(),
            prompt: request.prompt,
            max_tokens: request.max_tokens,
            lane: request.origin.lane,
            user: UserKey(request.origin.user),
            scope,
            deadline: request.deadline,
            is_patient: request.origin.is_patient,
        };
        self.shared.submit(submission, Arrived { ids, replies })?;
        Ok(streams)
    }

    fn estimate(&self, lane: usize, prompt_tokens: u32) -> Duration {
        self.shared.estimate(lane, prompt_tokens)
    }

    fn load(&self) -> Load {
        self.shared.load()
    }

    fn pause_background(&self, is_paused: bool) {
        self.shared.pause_background(is_paused);
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.shared.close();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
