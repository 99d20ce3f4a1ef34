//! The in-process embedder: an encoder on a thread of its own, fed in batches.
//!
//! The queue is shared under a lock that is held to put a request in, to take a batch out and to deliver its vectors,
//! never while one is computed. Sequences stand in a batch without padding, so it is cut by tokens alone; what stands
//! together does not change a vector (contract 1). The thread ends when the embedder is dropped, and with it what
//! still waits.

mod queue;

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use motet_types::{EmbedError, EmbedFuture, EmbedLoad, Embedder, EmbedderInfo, TokenId};
use tokio::sync::oneshot;

use queue::{Queue, Reply, Taken};

/// Computes the vectors of sequences one after the other into the vector, `dimensions` numbers each. What it is given
/// was checked against the [`EmbedderInfo`]; an error is its own fault, in words.
pub type Encode = Box<dyn FnMut(&[&[TokenId]], &mut Vec<f32>) -> Result<(), String> + Send>;

/// Bounds of an [`EmbedEngine`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EmbedConfig {
    /// Most tokens of a batch; a longer input is a batch of its own. 512 keep two cores busy for some tenths of a
    /// second, which is how long a request waits that comes in between.
    pub batch_tokens: usize,
    /// Most tokens that wait; what would be more is refused. 600,000 are two of the largest requests, minutes of work
    /// on a small machine, and take 2.4 MB.
    pub max_waiting_tokens: u64,
}

impl Default for EmbedConfig {
    fn default() -> Self {
        Self { batch_tokens: 512, max_waiting_tokens: 600_000 }
    }
}

/// An encoder and the thread that drives it.
pub struct EmbedEngine {
    info: EmbedderInfo,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

type Sender = oneshot::Sender<Result<Vec<Vec<f32>>, EmbedError>>;

struct Shared {
    state: Mutex<State>,
    /// Something was pushed, or the end has come.
    changed: Condvar,
}

struct State {
    queue: Queue<Sender>,
    phase: Phase,
    load: EmbedLoad,
}

enum Phase {
    Open,
    /// Takes no more.
    Draining,
    /// The thread ends after its batch, or has ended.
    Closed,
}

impl Reply for Sender {
    fn has_left(&self) -> bool {
        self.is_closed()
    }

    fn send(self, vectors: Vec<Vec<f32>>) {
        let _ = oneshot::Sender::send(self, Ok(vectors));
    }
}

impl Shared {
    /// A panic in the encoder happens outside of the lock, so the state is whole.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EmbedEngine {
    /// Starts the thread.
    ///
    /// # Errors
    /// Where the system gives none.
    pub fn start(info: EmbedderInfo, encode: Encode, config: EmbedConfig) -> std::io::Result<Arc<Self>> {
        let queue = Queue::new(config.max_waiting_tokens);
        let state = State { queue, phase: Phase::Open, load: EmbedLoad::default() };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let mut batches = Batches {
            encode,
            dimensions: info.dimensions as usize,
            budget: config.batch_tokens,
            closing: Closing(Arc::clone(&shared)),
        };
        let builder = std::thread::Builder::new().name("motet-embed".into());
        let thread = builder.spawn(move || batches.run())?;
        Ok(Arc::new(Self { info, shared, thread: Some(thread) }))
    }

    fn check(&self, inputs: &[Vec<TokenId>]) -> Result<(), EmbedError> {
        let EmbedderInfo { context_length: limit, vocab_size, .. } = self.info;
        if inputs.is_empty() {
            return Err(EmbedError::Empty(0));
        }
        for (index, input) in inputs.iter().enumerate() {
            if input.is_empty() {
                return Err(EmbedError::Empty(index));
            }
            if input.len() > limit as usize {
                return Err(EmbedError::TooLong { index, tokens: input.len(), limit });
            }
            if let Some(&token) = input.iter().find(|token| **token >= vocab_size) {
                return Err(EmbedError::UnknownToken { index, token, vocab_size });
            }
        }
        Ok(())
    }
}

impl Embedder for EmbedEngine {
    fn model(&self) -> &EmbedderInfo {
        &self.info
    }

    fn embed(&self, inputs: Vec<Vec<TokenId>>) -> Result<EmbedFuture, EmbedError> {
        self.check(&inputs)?;
        let (sender, receiver) = oneshot::channel();
        let mut state = self.shared.lock();
        match state.phase {
            Phase::Open => {}
            Phase::Draining => return Err(EmbedError::Draining),
            Phase::Closed => return Err(down()),
        }
        if state.queue.push(inputs, sender).is_err() {
            let waiting_tokens = state.queue.waiting_tokens();
            let retry_after_seconds = state.load.seconds_for(waiting_tokens);
            return Err(EmbedError::QueueFull { waiting_tokens, retry_after_seconds });
        }
        drop(state);
        self.shared.changed.notify_one();
        Ok(Box::pin(async { receiver.await.unwrap_or_else(|_| Err(down())) }))
    }

    fn drain(&self) {
        let mut state = self.shared.lock();
        if matches!(state.phase, Phase::Open) {
            state.phase = Phase::Draining;
        }
    }

    fn load(&self) -> EmbedLoad {
        let state = self.shared.lock();
        EmbedLoad {
            requests: u32::try_from(state.queue.jobs()).unwrap_or(u32::MAX),
            waiting_tokens: state.queue.waiting_tokens(),
            ..state.load
        }
    }
}

impl Drop for EmbedEngine {
    fn drop(&mut self) {
        self.shared.lock().phase = Phase::Closed;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn down() -> EmbedError {
    EmbedError::Down("its thread has ended".to_owned())
}

/// How long who is refused is asked to wait while nothing was measured, and at most.
const RETRY_SECONDS: (f64, f64) = (5.0, 60.0);

/// What the queue's length means in time.
trait Pace {
    fn seconds_for(&self, tokens: u64) -> u32;
}

impl Pace for EmbedLoad {
    /// A tenth of what `tokens` take: then there is room for a request of usual size.
    fn seconds_for(&self, tokens: u64) -> u32 {
        let (unknown, most) = RETRY_SECONDS;
        let seconds = if self.tokens == 0 {
            unknown
        } else {
            self.batch_seconds / self.tokens as f64 * tokens as f64 / 10.0
        };
        seconds.clamp(1.0, most).ceil() as u32
    }
}

/// What the thread does.
struct Batches {
    encode: Encode,
    dimensions: usize,
    budget: usize,
    closing: Closing,
}

/// However the thread ends, nobody waits for it any more.
struct Closing(Arc<Shared>);

impl Drop for Closing {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.phase = Phase::Closed;
        state.queue.clear();
    }
}

impl Batches {
    fn run(&mut self) {
        let mut vectors = Vec::new();
        while let Some(batch) = self.next() {
            let begun = Instant::now();
            let tokens: Vec<&[TokenId]> = batch.iter().map(|taken| taken.tokens.as_slice()).collect();
            vectors.clear();
            let outcome = (self.encode)(&tokens, &mut vectors).and_then(|()| {
                let (given, wanted) = (vectors.len(), tokens.len() * self.dimensions);
                if given == wanted { Ok(()) } else { Err(format!("{given} numbers where {wanted} belong")) }
            });
            let mut state = self.closing.0.lock();
            let load = &mut state.load;
            load.batches += 1;
            load.batch_seconds += begun.elapsed().as_secs_f64();
            load.inputs += batch.len() as u64;
            load.tokens += tokens.iter().map(|tokens| tokens.len() as u64).sum::<u64>();
            match outcome {
                Ok(()) => deliver(&mut state.queue, &batch, vectors.chunks_exact(self.dimensions)),
                Err(why) => {
                    tracing::error!(%why, "a batch of embeddings failed");
                    batch
                        .iter()
                        .for_each(|taken| fail(&mut state.queue, taken, EmbedError::Down(why.clone())));
                }
            }
        }
    }

    /// Waits for a batch; `None` at the end.
    fn next(&self) -> Option<Vec<Taken>> {
        let shared = &self.closing.0;
        let mut state = shared.lock();
        loop {
            if matches!(state.phase, Phase::Closed) {
                return None;
            }
            let batch = state.queue.batch(self.budget);
            if !batch.is_empty() {
                return Some(batch);
            }
            state = shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

fn deliver<'a>(queue: &mut Queue<Sender>, batch: &[Taken], vectors: impl Iterator<Item = &'a [f32]>) {
    for (taken, vector) in batch.iter().zip(vectors) {
        if vector.iter().all(|value| value.is_finite()) {
            queue.deliver(taken, vector.to_vec());
        } else {
            fail(queue, taken, EmbedError::NotFinite);
        }
    }
}

fn fail(queue: &mut Queue<Sender>, taken: &Taken, error: EmbedError) {
    if let Some(sender) = queue.fail(taken) {
        let _ = oneshot::Sender::send(sender, Err(error));
    }
}
