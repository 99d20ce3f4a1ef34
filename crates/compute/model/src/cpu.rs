use motet_kernels::attention::Span;
use motet_kernels::kv::{BLOCK_TOKENS, KvArena, KvFormat};
use motet_kernels::{Isa, Precision, ThreadPool};
use motet_kv::{BlockCopy, BlockId, GroupConfig};
use motet_sched::{Capacity, Chunk, ExecuteError, Executor, StepOutput, StepPlan};
use motet_types::TokenId;

use crate::gguf::Gguf;
use crate::layers::{Llama, Spans};
use crate::weights::Weights;
use crate::{LlamaConfig, ModelError};

/// How a model is run.
#[derive(Debug, Clone, Copy)]
pub struct CpuOptions {
    /// Threads that compute, at least 1.
    pub threads: usize,
    /// Bytes of the KV arena. Pages are taken from the system when first written.
    pub kv_bytes: usize,
    /// Exact (f32 activations) or fast (8-bit activations).
    pub precision: Precision,
    /// How keys and values are kept.
    pub kv: KvFormat,
    /// The instruction set; [`Isa::detect`] as a rule.
    pub isa: Isa,
}

/// A llama model and its KV arena on the CPU.
pub struct CpuExecutor {
    llama: Llama,
    /// One arena per layer.
    kv: Vec<KvArena>,
    capacity: Capacity,
}

impl CpuExecutor {
    /// Reads all weights of `gguf` and reserves the arena.
    pub fn load(gguf: &Gguf, options: CpuOptions) -> Result<Self, ModelError> {
        let config = LlamaConfig::read(gguf)?;
        let pool = ThreadPool::new(options.threads);
        // Before the arena, so that a damaged file is told as such and not as a want of memory.
        let weights = Weights::load(gguf, &config, options.precision, &pool)?;
        let blocks = kv_blocks(&config, options)?;
        let capacity = Capacity {
            groups: vec![GroupConfig { blocks: blocks as u32, window: None }],
            block_tokens: BLOCK_TOKENS as u32,
            context_length: config.context_length as u32,
            vocab_size: weights.embedding.rows() as u32,
        };
        let arena = || KvArena::new(options.kv, config.head_shape(), blocks);
        let arenas: Option<Vec<KvArena>> = (0..config.layers).map(|_| arena()).collect();
        let kv = arenas.ok_or(ModelError::OutOfMemory { bytes: options.kv_bytes })?;
        Ok(Self { llama: Llama::new(config, weights, pool, options.isa), kv, capacity })
    }

    /// Logits after the `wanted` tokens of one sequence: `wanted.len() × vocab_size`.
    ///
    /// Uses the arena from its first block on; no sequence may be in it.
    pub fn score(&mut self, tokens: &[TokenId], wanted: &[usize]) -> Result<Vec<f32>, ExecuteError> {
        let blocks = (0..tokens.len().div_ceil(BLOCK_TOKENS) as u32).collect();
        let tokens = tokens.to_vec();
        let chunk = Chunk {
            sequence: motet_types::SequenceId(0),
            siblings: Vec::new(),
            tokens,
            start: 0,
            stored: 0,
            tables: vec![blocks],
            wants_logits: false,
        };
        self.check(&chunk)?;
        if let Some(row) = wanted.iter().find(|row| **row >= chunk.tokens.len()) {
            return Err(ExecuteError(format!("row {row} of {}", chunk.tokens.len())));
        }
        Ok(self.run(std::slice::from_ref(&chunk), wanted))
    }

    /// What the kernels index with is checked here, once per chunk.
    fn check(&self, chunk: &Chunk) -> Result<(), ExecuteError> {
        let Capacity { context_length, vocab_size, .. } = self.capacity;
        let kv_blocks = self.capacity.groups.first().map_or(0, |group| group.blocks);
        let blocks = chunk.tables.first().map_or(&[][..], Vec::as_slice);
        let end = chunk.start as usize + chunk.tokens.len();
        let problem = if chunk.tokens.is_empty() {
            "no tokens".to_owned()
        } else if end > context_length as usize || end > blocks.len() * BLOCK_TOKENS {
            format!("{end} tokens in {} blocks and a context of {context_length}", blocks.len())
        } else if let Some(block) = blocks.iter().find(|block| **block >= kv_blocks) {
            format!("block {block} of {kv_blocks}")
        } else if let Some(token) = chunk.tokens.iter().find(|token| **token >= vocab_size) {
            format!("token {token} of {vocab_size}")
        } else {
            return Ok(());
        };
        Err(ExecuteError(format!("{}: {problem}", chunk.sequence)))
    }

    fn run(&mut self, chunks: &[Chunk], wanted: &[usize]) -> Vec<f32> {
        let tokens: Vec<TokenId> = chunks.iter().flat_map(|chunk| &chunk.tokens).copied().collect();
        let mut spans = Vec::with_capacity(chunks.len());
        let mut first_row = 0;
        let mut stored = Vec::with_capacity(chunks.len());
        for chunk in chunks {
            let len = chunk.tokens.len();
            spans.push(Span { first_row, len, start: chunk.start as usize, blocks: &chunk.tables[0] });
            stored.push(chunk.stored as usize);
            first_row += len;
        }
        self.llama.forward(&tokens, Spans { all: &spans, stored: &stored }, &mut self.kv, wanted)
    }
}

impl Executor for CpuExecutor {
    fn capacity(&self) -> Capacity {
        self.capacity.clone()
    }

    fn read_block(&self, _group: usize, block: BlockId, out: &mut Vec<u8>) {
        self.kv.iter().for_each(|arena| out.extend_from_slice(arena.block(block)));
    }

    fn write_block(&mut self, _group: usize, block: BlockId, bytes: &[u8]) {
        let layer = bytes.len() / self.kv.len();
        for (arena, bytes) in self.kv.iter_mut().zip(bytes.chunks_exact(layer)) {
            arena.block_mut(block).copy_from_slice(bytes);
        }
    }

    fn copy_block(&mut self, copy: &BlockCopy) {
        self.kv.iter_mut().for_each(|arena| arena.copy(copy.from, copy.to));
    }

    fn execute(&mut self, step: &StepPlan) -> Result<StepOutput, ExecuteError> {
        let mut wanted = Vec::new();
        let mut end = 0;
        for chunk in &step.chunks {
            self.check(chunk)?;
            end += chunk.tokens.len();
            wanted.extend(chunk.wants_logits.then(|| end - 1));
        }
        Ok(StepOutput { logits: self.run(&step.chunks, &wanted) })
    }
}

/// Most blocks an arena has: 67 million tokens, far beyond what a CPU serves, bound the block tables.
const MAX_BLOCKS: usize = 1 << 22;

/// Blocks that fit the memory.
fn kv_blocks(config: &LlamaConfig, options: CpuOptions) -> Result<usize, ModelError> {
    let per_block = config.layers * options.kv.block_bytes(config.head_shape());
    let blocks = (options.kv_bytes / per_block).min(MAX_BLOCKS);
    if blocks == 0 {
        return Err(ModelError::KvTooSmall {
            given: options.kv_bytes,
            tokens: BLOCK_TOKENS,
            least: per_block,
        });
    }
    Ok(blocks)
}
