use motet_kernels::attention::Span;
use motet_kernels::kv::{BLOCK_TOKENS, KvArena, KvFormat};
use motet_kernels::{Isa, PackedMatrix, Precision, ThreadPool};
use motet_kv::{BlockCopy, BlockId, GroupConfig};
use motet_sched::{Capacity, Chunk, ExecuteError, Executor, StepOutput, StepPlan};
use motet_types::TokenId;

use crate::ModelError;
use crate::config::{LayerGroup, ModelConfig};
use crate::decoder::{Decoder, Spans};
use crate::gguf::Gguf;
use crate::kv_memory::{KvMemory, held_blocks};
use crate::weights::{LayerWeights, LoadProgress, Weights};

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

/// A model and its KV memory on the CPU.
pub struct CpuExecutor {
    decoder: Decoder,
    kv: KvMemory,
    capacity: Capacity,
    lists: Lists,
}

/// What a step is read into, kept for the memory.
#[derive(Default)]
struct Lists {
    tokens: Vec<TokenId>,
    /// For every group of layers, its spans.
    groups: Vec<Vec<Span<'static>>>,
    stored: Vec<usize>,
    wanted: Vec<usize>,
}

impl CpuExecutor {
    /// Reads all weights of `gguf` and reserves the arena.
    pub fn load(gguf: &Gguf, options: CpuOptions) -> Result<Self, ModelError> {
        Self::load_with(gguf, options, &|_| {})
    }

    /// The same, and tells `progress` after every matrix.
    pub fn load_with(
        gguf: &Gguf,
        options: CpuOptions,
        progress: &dyn Fn(LoadProgress),
    ) -> Result<Self, ModelError> {
        let config = ModelConfig::read(gguf)?;
        let pool = ThreadPool::new(options.threads);
        // Before the arena, so that a damaged file is told as such and not as a want of memory.
        let weights = Weights::load(gguf, &config, options.precision, &pool, progress)?;
        let kv = KvMemory::new(&config, options.kv, options.kv_bytes)?;
        let capacity = Capacity {
            groups: kv.shapes.clone(),
            block_tokens: BLOCK_TOKENS as u32,
            context_length: config.context_length as u32,
            vocab_size: weights.embedding.rows() as u32,
        };
        let decoder = Decoder::new(config, weights, pool, options.isa);
        Ok(Self { decoder, kv, capacity, lists: Lists::default() })
    }

    /// Tokens for which there is room, all sequences together, where each has `length` of them. The length
    /// counts where layers have windows: the longer the sequences, the less of them is kept.
    pub fn kv_tokens(&self, length: usize) -> usize {
        let groups = self.kv.groups.iter().zip(&self.kv.shapes);
        let room = |(group, shape): (&LayerGroup, &GroupConfig)| match group.window {
            None => shape.blocks as usize * BLOCK_TOKENS,
            Some(window) => shape.blocks as usize * length.max(1) / held_blocks(window, length),
        };
        groups.map(room).min().unwrap_or(0)
    }

    /// Weights that a token is multiplied with: in the layers, and in the output head where its logits are wanted.
    pub fn weights_per_token(&self) -> (u64, u64) {
        let size = |matrix: &PackedMatrix| matrix.rows() as u64 * matrix.cols() as u64;
        let weights = &self.decoder.weights;
        (weights.layers.iter().flat_map(LayerWeights::matrices).map(size).sum(), size(weights.head()))
    }

    /// Bytes of the KV memory: a little less than was asked for.
    pub fn kv_bytes(&self) -> usize {
        let bytes = |group: usize| {
            let block: usize = self.arenas(group).map(|arena| arena.block(0).len()).sum();
            block * self.capacity.groups[group].blocks as usize
        };
        (0..self.capacity.groups.len()).map(bytes).sum()
    }

    /// Logits after the `wanted` tokens of one sequence: `wanted.len() × vocab_size`.
    ///
    /// Uses the arenas from their first block on; no sequence may be in them.
    pub fn score(&mut self, tokens: &[TokenId], wanted: &[usize]) -> Result<Vec<f32>, ExecuteError> {
        let blocks: Vec<BlockId> = (0..tokens.len().div_ceil(BLOCK_TOKENS) as u32).collect();
        let chunk = Chunk {
            sequence: motet_types::SequenceId(0),
            siblings: Vec::new(),
            tokens: tokens.to_vec(),
            start: 0,
            stored: 0,
            tables: vec![blocks; self.capacity.groups.len()],
            wants_logits: false,
        };
        self.check(&chunk)?;
        if let Some(row) = wanted.iter().find(|row| **row >= chunk.tokens.len()) {
            return Err(ExecuteError(format!("row {row} of {}", chunk.tokens.len())));
        }
        self.lists.wanted.clear();
        self.lists.wanted.extend(wanted);
        let mut logits = Vec::new();
        self.run(std::slice::from_ref(&chunk), &mut logits);
        Ok(logits)
    }

    /// What the kernels index with is checked here, once per chunk.
    fn check(&self, chunk: &Chunk) -> Result<(), ExecuteError> {
        let Capacity { context_length, vocab_size, groups, .. } = &self.capacity;
        let end = chunk.start as usize + chunk.tokens.len();
        let problem = if chunk.tokens.is_empty() {
            "no tokens".to_owned()
        } else if end > *context_length as usize {
            format!("{end} tokens in a context of {context_length}")
        } else if chunk.tables.len() != groups.len() {
            format!("{} block tables for {} groups", chunk.tables.len(), groups.len())
        } else if let Some(token) = chunk.tokens.iter().find(|token| *token >= vocab_size) {
            format!("token {token} of {vocab_size}")
        } else if let Some(problem) = (0..groups.len()).find_map(|group| self.misplaced(chunk, group)) {
            problem
        } else {
            return Ok(());
        };
        Err(ExecuteError(format!("{}: {problem}", chunk.sequence)))
    }

    /// What is wrong with a chunk's block table of a group: it must name a block for every position from
    /// the first that the chunk's first token sees to its last token.
    fn misplaced(&self, chunk: &Chunk, group: usize) -> Option<String> {
        let shape = self.capacity.groups[group];
        let (start, end) = (chunk.start as usize, chunk.start as usize + chunk.tokens.len());
        let first_seen = shape.window.map_or(0, |window| (start + 1).saturating_sub(window as usize));
        let table = &chunk.tables[group];
        let Some(seen) = table.get(first_seen / BLOCK_TOKENS..end.div_ceil(BLOCK_TOKENS)) else {
            return Some(format!("{end} tokens in {} blocks of group {group}", table.len()));
        };
        let block = seen.iter().find(|block| **block >= shape.blocks)?;
        Some(format!("block {block} of {} in group {group}", shape.blocks))
    }

    /// Runs the chunks and leaves the logits of the rows that `lists.wanted` names.
    fn run(&mut self, chunks: &[Chunk], logits: &mut Vec<f32>) {
        let Lists { mut tokens, groups, mut stored, wanted } = std::mem::take(&mut self.lists);
        tokens.clear();
        tokens.extend(chunks.iter().flat_map(|chunk| &chunk.tokens));
        stored.clear();
        stored.extend(chunks.iter().map(|chunk| chunk.stored as usize));
        let mut groups: Vec<Vec<Span<'_>>> = groups.into_iter().map(recycle).collect();
        groups.resize_with(self.kv.groups.len(), Vec::new);
        for (group, spans) in groups.iter_mut().enumerate() {
            let mut first_row = 0;
            spans.extend(chunks.iter().map(|chunk| {
                let (len, start) = (chunk.tokens.len(), chunk.start as usize);
                let span = Span { first_row, len, start, blocks: &chunk.tables[group] };
                first_row += len;
                span
            }));
        }
        let spans = Spans { groups: &groups, stored: &stored };
        self.decoder.forward(&tokens, spans, &mut self.kv.arenas, (&wanted, logits));
        let groups = groups.into_iter().map(recycle).collect();
        self.lists = Lists { tokens, groups, stored, wanted };
    }

    /// The arenas of a group's layers; none where there is no such group.
    fn arenas(&self, group: usize) -> impl Iterator<Item = &KvArena> {
        let layers = self.kv.groups.get(group).map_or(&[][..], |group| &group.layers);
        layers.iter().map(|layer| &self.kv.arenas[*layer])
    }
}

impl Executor for CpuExecutor {
    fn capacity(&self) -> Capacity {
        self.capacity.clone()
    }

    fn read_block(&self, group: usize, block: BlockId, out: &mut Vec<u8>) {
        self.arenas(group).for_each(|arena| out.extend_from_slice(arena.block(block)));
    }

    fn write_block(&mut self, group: usize, block: BlockId, bytes: &[u8]) {
        let layers = self.kv.groups.get(group).map_or(&[][..], |group| &group.layers);
        let layer_bytes = bytes.len() / layers.len().max(1);
        for (layer, bytes) in layers.iter().zip(bytes.chunks_exact(layer_bytes.max(1))) {
            self.kv.arenas[*layer].block_mut(block).copy_from_slice(bytes);
        }
    }

    fn copy_block(&mut self, copy: &BlockCopy) {
        let layers = self.kv.groups.get(copy.group).map_or(&[][..], |group| &group.layers);
        layers.iter().for_each(|layer| self.kv.arenas[*layer].copy(copy.from, copy.to));
    }

    fn execute(&mut self, step: &StepPlan, output: &mut StepOutput) -> Result<(), ExecuteError> {
        self.lists.wanted.clear();
        let mut end = 0;
        for chunk in &step.chunks {
            self.check(chunk)?;
            end += chunk.tokens.len();
            self.lists.wanted.extend(chunk.wants_logits.then(|| end - 1));
        }
        self.run(&step.chunks, &mut output.logits);
        Ok(())
    }
}

/// No spans, of another lifetime, in the memory of these: the collection happens in place.
#[allow(clippy::unnecessary_filter_map)] // a filter would keep the lifetime
fn recycle<'a>(spans: Vec<Span<'_>>) -> Vec<Span<'a>> {
    spans.into_iter().filter_map(|_| None).collect()
}
