use std::collections::HashMap;

use motet_kv::{BlockHash, BlockId, Fill, GroupConfig, NO_BLOCK};
use motet_sched::{Chunk, StepPlan};
use motet_types::TokenId;

/// Stands for the KV arena: at every position of a block, the hash of all tokens up to there. Whatever a chunk
/// attends to must be what its own sequence's tokens give.
#[derive(Debug)]
pub(crate) struct Memory {
    block_tokens: u32,
    groups: Vec<GroupConfig>,
    arena: HashMap<(usize, BlockId, u32), u64>,
    slots: HashMap<u32, (BlockHash, Vec<Option<u64>>)>,
}

pub(crate) fn mix(hash: u64, value: u64) -> u64 {
    let mut mixed = (hash ^ value).wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// The hash at every position.
pub(crate) fn chain(tokens: &[TokenId]) -> Vec<u64> {
    let step = |hash: &mut u64, token: &TokenId| {
        *hash = mix(*hash, u64::from(*token));
        Some(*hash)
    };
    tokens.iter().scan(1, step).collect()
}

impl Memory {
    pub(crate) fn new(block_tokens: u32, groups: &[GroupConfig]) -> Self {
        Self { block_tokens, groups: groups.to_vec(), arena: HashMap::new(), slots: HashMap::new() }
    }

    /// What comes before computing. `breaks` decides which fills fail.
    pub(crate) fn move_blocks(&mut self, plan: &StepPlan, mut breaks: impl FnMut() -> bool) -> Vec<Fill> {
        for spill in &plan.spills {
            let bytes = self.block(spill.group, spill.block);
            self.slots.insert(spill.slot, (spill.hash, bytes));
        }
        for copy in &plan.copies {
            for offset in 0..self.block_tokens {
                let from = self.arena.get(&(copy.group, copy.from, offset)).copied();
                self.set((copy.group, copy.to, offset), from);
            }
        }
        let mut failed = Vec::new();
        for fill in &plan.fills {
            let (hash, bytes) = self.slots.get(&fill.slot).cloned().expect("a filled slot was spilled");
            assert_eq!(hash, fill.hash, "the slot holds another block");
            let is_broken = breaks();
            for (offset, value) in bytes.into_iter().enumerate() {
                self.set((fill.group, fill.block, offset as u32), value.filter(|_| !is_broken));
            }
            failed.extend(is_broken.then_some(*fill));
        }
        failed
    }

    fn block(&self, group: usize, block: BlockId) -> Vec<Option<u64>> {
        (0..self.block_tokens).map(|offset| self.arena.get(&(group, block, offset)).copied()).collect()
    }

    fn set(&mut self, place: (usize, BlockId, u32), value: Option<u64>) {
        match value {
            Some(value) => self.arena.insert(place, value),
            None => self.arena.remove(&place),
        };
    }

    /// Computes a chunk of a sequence whose tokens are `tokens`.
    pub(crate) fn compute(&mut self, chunk: &Chunk, tokens: &[TokenId]) {
        let end = chunk.start as usize + chunk.tokens.len();
        assert_eq!(chunk.tokens, tokens[chunk.start as usize..end], "not the sequence's own tokens");
        assert_eq!(chunk.wants_logits, end == tokens.len());
        let hashes = chain(tokens);
        for group in 0..self.groups.len() {
            for position in chunk.stored..end as u32 {
                let place = self.place(chunk, group, position);
                self.arena.insert(place, hashes[position as usize]);
            }
            let window = self.groups[group].window.unwrap_or(u32::MAX);
            for position in (chunk.start + 1).saturating_sub(window)..end as u32 {
                let place = self.place(chunk, group, position);
                assert_eq!(
                    self.arena.get(&place),
                    Some(&hashes[position as usize]),
                    "{}: position {position} of group {group} in {place:?}",
                    chunk.sequence
                );
            }
        }
    }

    fn place(&self, chunk: &Chunk, group: usize, position: u32) -> (usize, BlockId, u32) {
        let block = chunk.tables[group][(position / self.block_tokens) as usize];
        assert_ne!(block, NO_BLOCK, "position {position} is out of the table");
        (group, block, position % self.block_tokens)
    }
}
