use motet_kv::BlockId;
use motet_types::{SequenceId, TokenId};

/// One step's work: a flat list of tokens from many sequences.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StepPlan {
    /// At most one chunk per sequence.
    pub chunks: Vec<Chunk>,
}

impl StepPlan {
    /// Tokens of all chunks.
    pub fn tokens(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.tokens.len()).sum()
    }
}

/// Consecutive tokens of one sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// Whose they are.
    pub sequence: SequenceId,
    /// At least one token.
    pub tokens: Vec<TokenId>,
    /// Absolute position of the first token; everything before it is computed.
    pub start: u32,
    /// The sequence's block table from position 0, long enough for the last token.
    pub blocks: Vec<BlockId>,
    /// Whether the last token's logits are wanted.
    pub wants_logits: bool,
}

/// What a step computed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StepOutput {
    /// `vocab_size` logits for every chunk that wanted them, in the plan's order.
    pub logits: Vec<f32>,
}

/// What an executor can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// Blocks of its KV arena.
    pub kv_blocks: u32,
    /// Tokens in a block.
    pub block_tokens: u32,
    /// Positions the model was made for.
    pub context_length: u32,
    /// Logits of a row.
    pub vocab_size: u32,
}

impl Capacity {
    /// Most tokens one sequence may have.
    pub fn sequence_tokens(&self) -> u32 {
        self.context_length.min(self.kv_blocks.saturating_mul(self.block_tokens))
    }
}

/// Carries out steps: the CPU model, a cost model in simulation, later a GPU.
pub trait Executor: Send {
    /// What it can hold; constant.
    fn capacity(&self) -> Capacity;

    /// Computes keys and values of all tokens and the wanted logits.
    ///
    /// The numbers of a sequence depend on its own tokens only (contract 1).
    fn execute(&mut self, step: &StepPlan) -> Result<StepOutput, ExecuteError>;
}

/// A step that could not be carried out; the executor is unusable afterwards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecuteError(pub String);

impl std::fmt::Display for ExecuteError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ExecuteError {}
