use std::collections::VecDeque;

use motet_kv::{Blocks, Pool};
use motet_types::{SequenceId, TokenId};

use crate::{Capacity, Chunk, StepPlan};

/// Bounds of a [`Fifo`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most sequences in a step: bounds the logits a step produces.
    pub running: usize,
    /// Most sequences that wait: bounds the memory of prompts, and how long the last one waits.
    pub waiting: usize,
    /// Most tokens in a step: bounds how long running replies wait for a prompt's chunk.
    pub step_tokens: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { running: 64, waiting: 256, step_tokens: 128 }
    }
}

/// A sequence to be scheduled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SequenceSpec {
    /// Its identity; never reused.
    pub id: SequenceId,
    /// At least one token.
    pub prompt: Vec<TokenId>,
    /// Most tokens it will grow by.
    pub max_tokens: u32,
}

/// The waiting line is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueFull {
    /// Its length.
    pub waiting: usize,
}

/// First come, first served, with room for the whole reply reserved at admission.
///
/// There are no phases: a sequence has `computed` and all its tokens, and a step lets it catch up
/// under one token budget, sequences one token behind (decodes) first.
///
/// # Invariants ([`Fifo::check`])
/// - Every block is free or in the table of one running sequence; waiting sequences hold none.
/// - A running sequence's table has room for its prompt and `max_tokens`, so none is preempted.
/// - `computed < tokens.len()` between steps.
#[derive(Debug)]
pub struct Fifo {
    capacity: Capacity,
    limits: Limits,
    pool: Pool,
    waiting: VecDeque<SequenceSpec>,
    running: Vec<Running>,
}

#[derive(Debug)]
struct Running {
    id: SequenceId,
    tokens: Vec<TokenId>,
    computed: usize,
    blocks: Blocks,
}

impl Running {
    fn behind(&self) -> usize {
        self.tokens.len() - self.computed
    }
}

impl Fifo {
    /// An empty schedule over an executor's arena.
    pub fn new(capacity: Capacity, limits: Limits) -> Self {
        Self {
            capacity,
            limits,
            pool: Pool::new(capacity.kv_blocks),
            waiting: VecDeque::new(),
            running: Vec::new(),
        }
    }

    /// Puts a sequence at the end of the line. The caller has checked that it can ever fit.
    pub fn submit(&mut self, sequence: SequenceSpec) -> Result<(), QueueFull> {
        debug_assert!(self.blocks_for(&sequence) <= self.pool.total());
        if self.waiting.len() >= self.limits.waiting {
            return Err(QueueFull { waiting: self.waiting.len() });
        }
        self.waiting.push_back(sequence);
        Ok(())
    }

    /// What to run next; empty when there is nothing to do.
    pub fn plan(&mut self) -> StepPlan {
        self.admit();
        let mut budget = self.limits.step_tokens;
        let mut left = self.running.len();
        let mut chunks = Vec::with_capacity(self.running.len());
        let (decodes, catching_up): (Vec<_>, Vec<_>) = self.running.iter().partition(|s| s.behind() == 1);
        for sequence in decodes.into_iter().chain(catching_up) {
            // An equal share of what is left, so that a short prompt does not wait for a long one's end.
            let take = sequence.behind().min((budget / left).max(1)).min(budget);
            left -= 1;
            if take == 0 {
                break;
            }
            budget -= take;
            let end = sequence.computed + take;
            let blocks = end.div_ceil(self.capacity.block_tokens as usize);
            chunks.push(Chunk {
                sequence: sequence.id,
                tokens: sequence.tokens[sequence.computed..end].to_vec(),
                start: sequence.computed as u32,
                blocks: sequence.blocks.ids()[..blocks].to_vec(),
                wants_logits: end == sequence.tokens.len(),
            });
        }
        StepPlan { chunks }
    }

    /// Records that `plan` was executed. Each sequence that wanted logits then gets its next token
    /// by [`append`](Self::append) or leaves by [`remove`](Self::remove).
    pub fn commit(&mut self, plan: &StepPlan) {
        for chunk in &plan.chunks {
            if let Some(sequence) = self.running.iter_mut().find(|s| s.id == chunk.sequence) {
                sequence.computed += chunk.tokens.len();
            }
        }
    }

    /// Adds a generated token to a running sequence.
    pub fn append(&mut self, id: SequenceId, token: TokenId) {
        if let Some(sequence) = self.running.iter_mut().find(|s| s.id == id) {
            sequence.tokens.push(token);
        }
    }

    /// Takes a sequence out in whatever state it is; its blocks are free at once. False if unknown.
    pub fn remove(&mut self, id: SequenceId) -> bool {
        if let Some(index) = self.running.iter().position(|s| s.id == id) {
            let sequence = self.running.remove(index);
            self.pool.give_back(sequence.blocks);
            return true;
        }
        let before = self.waiting.len();
        self.waiting.retain(|s| s.id != id);
        self.waiting.len() < before
    }

    /// Sequences in the batch.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Sequences in the line.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Blocks held by running sequences.
    pub fn blocks_used(&self) -> u32 {
        self.pool.used()
    }

    /// States the invariants.
    pub fn check(&self) -> Result<(), String> {
        self.pool.check(self.running.iter().map(|s| &s.blocks))?;
        match self.running.iter().find(|s| s.computed >= s.tokens.len()) {
            Some(sequence) => Err(format!("{} has nothing left to compute", sequence.id)),
            None => Ok(()),
        }
    }

    /// Moves the head of the line into the batch while there is room for its whole life.
    fn admit(&mut self) {
        while self.running.len() < self.limits.running {
            let Some(head) = self.waiting.front() else { return };
            let Some(blocks) = self.pool.take(self.blocks_for(head)) else { return };
            let Some(SequenceSpec { id, prompt, .. }) = self.waiting.pop_front() else { return };
            self.running.push(Running { id, tokens: prompt, computed: 0, blocks });
        }
    }

    /// The last generated token is never computed, but a block more is simpler than a case less.
    fn blocks_for(&self, sequence: &SequenceSpec) -> u32 {
        (sequence.prompt.len() as u32)
            .saturating_add(sequence.max_tokens)
            .div_ceil(self.capacity.block_tokens)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CAPACITY: Capacity =
        Capacity { kv_blocks: 12, block_tokens: 16, context_length: 192, vocab_size: 100 };
    const LIMITS: Limits = Limits { running: 3, waiting: 4, step_tokens: 20 };

    fn spec(id: u64, prompt: usize, max_tokens: u32) -> SequenceSpec {
        SequenceSpec { id: SequenceId(id), prompt: vec![7; prompt], max_tokens }
    }

    /// Runs one step; every sequence that wanted logits gets token 1. Returns who got one.
    fn step(fifo: &mut Fifo) -> Vec<SequenceId> {
        let plan = fifo.plan();
        fifo.commit(&plan);
        let got: Vec<_> = plan.chunks.iter().filter(|c| c.wants_logits).map(|c| c.sequence).collect();
        got.iter().for_each(|id| fifo.append(*id, 1));
        got
    }

    #[test]
    fn decodes_go_before_chunks_of_prompts() {
        let mut fifo = Fifo::new(CAPACITY, LIMITS);
        fifo.submit(spec(1, 5, 10)).unwrap();
        assert_eq!(step(&mut fifo), [SequenceId(1)]);
        fifo.submit(spec(2, 50, 10)).unwrap();
        let plan = fifo.plan();
        let shape: Vec<_> =
            plan.chunks.iter().map(|c| (c.sequence.0, c.start, c.tokens.len(), c.wants_logits)).collect();
        assert_eq!(shape, [(1, 5, 1, true), (2, 0, 19, false)]);
    }

    #[test]
    fn a_short_prompt_does_not_wait_for_a_long_ones_end() {
        let mut fifo = Fifo::new(CAPACITY, LIMITS);
        fifo.submit(spec(1, 90, 1)).unwrap();
        fifo.submit(spec(2, 8, 1)).unwrap();
        assert_eq!(step(&mut fifo), [SequenceId(2)]);
    }

    #[test]
    fn the_line_is_bounded() {
        let mut fifo = Fifo::new(CAPACITY, LIMITS);
        for id in 0..4 {
            fifo.submit(spec(id, 5, 10)).unwrap();
        }
        assert_eq!(fifo.submit(spec(9, 5, 10)), Err(QueueFull { waiting: 4 }));
    }

    proptest! {
        /// Blocks are conserved whatever comes, goes or is cancelled, and everything left finishes in order of arrival.
        #[test]
        fn conserved_and_finished(
            arrivals in proptest::collection::vec((1usize..100, 1u32..60, any::<bool>()), 1..12),
            cancels in proptest::collection::vec((0usize..60, 0u64..12), 0..6),
        ) {
            let mut fifo = Fifo::new(CAPACITY, LIMITS);
            let mut left = std::collections::HashMap::new();
            let mut arrivals = arrivals.into_iter().enumerate().peekable();
            let mut first_tokens = Vec::new();
            for tick in 0..4000 {
                while let Some((id, (prompt, max, go_on))) = arrivals.next_if(|_| fifo.waiting() < LIMITS.waiting) {
                    fifo.submit(spec(id as u64, prompt, max)).unwrap();
                    left.insert(id as u64, max);
                    if !go_on { break; }
                }
                for (_, id) in cancels.iter().filter(|(at, _)| *at == tick) {
                    prop_assert_eq!(fifo.remove(SequenceId(*id)), left.remove(id).is_some());
                }
                for id in step(&mut fifo) {
                    let Some(rest) = left.get_mut(&id.0) else { continue };
                    *rest -= 1;
                    if !first_tokens.contains(&id.0) { first_tokens.push(id.0); }
                    if *rest == 0 {
                        left.remove(&id.0);
                        prop_assert!(fifo.remove(id));
                    }
                }
                prop_assert_eq!(fifo.check(), Ok(()));
                if left.is_empty() && arrivals.peek().is_none() { break; }
            }
            prop_assert!(left.is_empty(), "never finished: {:?}", left);
            prop_assert_eq!(fifo.blocks_used(), 0);
            prop_assert_eq!(fifo.running() + fifo.waiting(), 0);
        }
    }
}
