use std::time::Duration;

use motet_kv::Scope;
use motet_types::{SequenceId, TokenId};

/// Who takes turns inside a lane: an account, however many requests it sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UserKey(pub u64);

/// A request to continue a prompt.
#[derive(Debug, Clone, PartialEq)]
pub struct Submission {
    /// One id per parallel sample, at least one; never used before. The prompt is computed once, then each
    /// sample is a sequence of its own. Each can be cancelled by its id at any time.
    pub samples: Vec<SequenceId>,
    /// At least one token.
    pub prompt: Vec<TokenId>,
    /// Most tokens a sample grows by, at least 1. A sample that reaches it is ended.
    pub max_tokens: u32,
    /// Index into the configured lanes.
    pub lane: usize,
    /// Whose turn it uses.
    pub user: UserKey,
    /// Who may share its blocks.
    pub scope: Scope,
    /// When it is of no use any more; see [`Scheduler::expired`](crate::Scheduler::expired).
    pub deadline: Option<Duration>,
    /// Whether it is taken though its first token is expected later than its lane promises. The line's length
    /// bounds it all the same.
    pub is_patient: bool,
}

/// A request that was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Admitted {
    /// When its first token is to be expected, from now.
    pub estimated_ttft: Duration,
    /// Tokens of its prompt that are cached now.
    pub cached_tokens: u32,
}

/// A request that was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Prompt and reply together are more than a sequence may ever hold here.
    #[error(
        "prompt ({prompt} tokens) and max_tokens ({max_tokens}) together exceed the {limit} tokens a sequence may hold"
    )]
    NeverFits {
        /// Tokens of the prompt.
        prompt: u32,
        /// Most tokens of the reply.
        max_tokens: u32,
        /// What prompt and reply may have together.
        limit: u32,
    },
    /// The lane's line is full.
    #[error("{waiting} requests are waiting already; try again in {} s", seconds(*.retry_after))]
    QueueFull {
        /// Its length.
        waiting: usize,
        /// When a place is likely to be free.
        retry_after: Duration,
    },
    /// The first token would come later than the lane promises.
    #[error(
        "the first token is expected in {} s, later than the {} s promised; try again in {} s",
        seconds(*.estimate), seconds(*.promise), seconds(*.retry_after)
    )]
    PromiseBroken {
        /// When the first token would come.
        estimate: Duration,
        /// When it should.
        promise: Duration,
        /// When the promise is likely to hold again.
        retry_after: Duration,
    },
    /// No more requests are taken; those that were taken end as asked.
    #[error("the engine is shutting down and takes no more requests")]
    Draining,
    /// More samples than can ever run together.
    #[error("{samples} samples were asked for; at least 1 and at most {limit} can run at once")]
    Samples {
        /// How many.
        samples: usize,
        /// How many can be.
        limit: usize,
    },
    /// An empty prompt, no tokens to generate, a lane that does not exist, or an id that is in use.
    #[error("{0}")]
    Malformed(&'static str),
}

fn seconds(duration: Duration) -> u64 {
    duration.as_secs_f64().ceil() as u64
}
