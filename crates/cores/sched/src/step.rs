use std::time::Duration;

use motet_kv::{BlockCopy, BlockId, Fill, GroupConfig, PoolConfig, Spill};
use motet_types::{SequenceId, TokenId};

use crate::StepShape;

/// One step's work, carried out in the order of the fields: in that order no block is overwritten before
/// it is read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StepPlan {
    /// Blocks to be read out into the second tier.
    pub spills: Vec<Spill>,
    /// Blocks to be copied.
    pub copies: Vec<BlockCopy>,
    /// Blocks to be filled from the second tier. What fails is for [`StepPlan::drop_dependents`] and
    /// [`Outcome::failed_fills`].
    pub fills: Vec<Fill>,
    /// Tokens to be computed, at most one chunk per sequence.
    pub chunks: Vec<Chunk>,
}

impl StepPlan {
    /// Whether there is nothing to do. A plan without chunks may still have blocks to move.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty() && self.spills.is_empty() && self.copies.is_empty() && self.fills.is_empty()
    }

    /// Tokens of all chunks.
    pub fn tokens(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.tokens.len()).sum()
    }

    /// What the step's time depends on.
    pub fn shape(&self) -> StepShape {
        let moved = self.spills.len() + self.copies.len() + self.fills.len();
        let chunks = self.chunks.iter().map(|chunk| StepShape::chunk(chunk.start, chunk.tokens.len() as u32));
        chunks.sum::<StepShape>() + StepShape { moved: moved as f64, ..StepShape::default() }
    }

    /// Removes the chunks that read blocks whose fills failed, so that nothing is sampled from them.
    /// Called before computing; the plan that is left is what is committed.
    pub fn drop_dependents(&mut self, failed: &[Fill]) {
        let reads = |chunk: &Chunk, fill: &Fill| {
            chunk.tables.get(fill.group).is_some_and(|table| table.contains(&fill.block))
        };
        self.chunks.retain(|chunk| !failed.iter().any(|fill| reads(chunk, fill)));
    }
}

/// Consecutive tokens of one sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// Whose they are; of parallel samples that still share their prompt, the first that is wanted.
    pub sequence: SequenceId,
    /// The other samples that draw their first token from this chunk's logits. Empty without `wants_logits`.
    pub siblings: Vec<SequenceId>,
    /// At least one token.
    pub tokens: Vec<TokenId>,
    /// Absolute position of the first token.
    pub start: u32,
    /// Positions below this have their keys and values: they are read and never written. At least `start`;
    /// `start + 1` where a prompt is cached in full and its last token is computed for its logits alone.
    pub stored: u32,
    /// The block table of every group from position 0, long enough for the last token.
    pub tables: Vec<Vec<BlockId>>,
    /// Whether the last token's logits are wanted.
    pub wants_logits: bool,
}

/// What a step computed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StepOutput {
    /// `vocab_size` logits for every chunk that wanted them, in the plan's order.
    pub logits: Vec<f32>,
}

/// What became of a step.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// How long it took; zero teaches the cost model nothing.
    pub elapsed: Duration,
    /// What the sequences and siblings of chunks that wanted logits do next, in any order. One that is
    /// missing gets its logits again in the next step.
    pub results: Vec<(SequenceId, Next)>,
    /// Fills that could not be carried out.
    pub failed_fills: Vec<Fill>,
}

/// What a sequence does after a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// It continues after this token.
    Append(TokenId),
    /// It continues as these, each after its token, sharing what is stored: a step of beam search. Its own
    /// id may be among them; if not, it ends. An id that is in use is ignored, so is a list of none.
    Fork(Vec<(SequenceId, TokenId)>),
    /// It has ended as asked.
    Finish,
    /// It can't go on, and what it computed is not to be reused: its logits were not numbers.
    Fail,
}

/// What an executor can hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capacity {
    /// The arenas of its layer groups; at least one.
    pub groups: Vec<GroupConfig>,
    /// Tokens in a block.
    pub block_tokens: u32,
    /// Positions the model was made for.
    pub context_length: u32,
    /// Logits of a row.
    pub vocab_size: u32,
}

impl Capacity {
    /// Most tokens one sequence may have when it is alone.
    pub fn sequence_tokens(&self) -> u32 {
        let pool = PoolConfig {
            block_tokens: self.block_tokens,
            groups: self.groups.clone(),
            caching: false,
            second_tier: None,
        };
        // Where windows leave little room, prompts are computed a block at a time.
        self.context_length.min(pool.sequence_tokens(self.block_tokens))
    }

    /// Most tokens of a chunk for which a windowed group has room beside the window, with a partial block at
    /// either end; at least a block.
    pub(crate) fn chunk_tokens(&self) -> u32 {
        let room = |group: &GroupConfig| {
            let window = group.window?.saturating_add(2 * self.block_tokens);
            Some(group.blocks.saturating_mul(self.block_tokens).saturating_sub(window))
        };
        self.groups.iter().filter_map(room).min().unwrap_or(u32::MAX).max(self.block_tokens)
    }
}

/// Carries out steps: the CPU model, a cost model in simulation, later a GPU.
pub trait Executor: Send {
    /// What it can hold; constant.
    fn capacity(&self) -> Capacity;

    /// Appends the bytes of a block, over all layers of its group, to `out`: always the same number.
    fn read_block(&self, group: usize, block: BlockId, out: &mut Vec<u8>);

    /// Puts back what [`read_block`](Self::read_block) gave, in the same block or another.
    fn write_block(&mut self, group: usize, block: BlockId, bytes: &[u8]);

    /// Copies a block over another.
    fn copy_block(&mut self, copy: &BlockCopy);

    /// Computes the plan's chunks: keys and values of all tokens, and into `output` the wanted logits. The
    /// blocks the plan names were moved before; `output` holds what an earlier step left, for its memory.
    ///
    /// The numbers of a sequence depend on its own tokens only (contract 1).
    fn execute(&mut self, step: &StepPlan, output: &mut StepOutput) -> Result<(), ExecuteError>;
}

/// A step that could not be carried out; the executor is unusable afterwards.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ExecuteError(pub String);
