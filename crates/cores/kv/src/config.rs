use std::time::Duration;

use motet_types::TokenId;

use crate::Scope;

/// Shape of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolConfig {
    /// Tokens in a block, at least 1.
    pub block_tokens: u32,
    /// At least one; group 0 is the one with full attention where there is one.
    pub groups: Vec<GroupConfig>,
    /// Whether full blocks are hashed and hit. Off, every sequence computes all its tokens.
    pub caching: bool,
    /// Where evicted blocks go; none: nowhere.
    pub second_tier: Option<SecondTier>,
}

/// A set of layers with equal KV needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupConfig {
    /// Blocks of the group's arena, below [`NO_BLOCK`](crate::NO_BLOCK).
    pub blocks: u32,
    /// Positions a query sees, its own included; none: all. At least 1.
    pub window: Option<u32>,
}

/// Bounds of the second tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SecondTier {
    /// Most blocks, all groups together. Slots are numbered below this.
    pub max_blocks: u32,
    /// A block not spilled or filled for this long is forgotten.
    pub max_age: Duration,
}

/// Where a prefix may be taken from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tiers {
    /// The arena alone: filling costs more than computing.
    First,
    /// The arena, and the second tier for what the arena lacks.
    Both,
}

/// What a sequence needs to join the batch; see [`Pool::admit`](crate::Pool::admit).
#[derive(Debug, Clone, Copy)]
pub struct Admission<'a> {
    /// Who may share its blocks.
    pub scope: &'a Scope,
    /// Its tokens so far: prompt and what it generated before it was preempted.
    pub tokens: &'a [TokenId],
    /// Where its prefix may come from.
    pub tiers: Tiers,
    /// Room it must have at once: positions below this.
    pub reserve_tokens: u32,
    /// Blocks that must be left, free or evictable, in every group for others to grow into.
    pub spare_blocks: u32,
}

impl PoolConfig {
    /// One group with full attention, caching on, no second tier.
    pub fn single(blocks: u32, block_tokens: u32) -> Self {
        Self {
            block_tokens,
            groups: vec![GroupConfig { blocks, window: None }],
            caching: true,
            second_tier: None,
        }
    }

    /// Most tokens a sequence can ever have when alone and given `step_tokens` (at least 1) per step.
    ///
    /// A windowed group holds the window and the step's tokens, at worst with a partial block at either
    /// end; where that fits, the group sets no limit.
    pub fn sequence_tokens(&self, step_tokens: u32) -> u32 {
        let limit = |group: &GroupConfig| {
            let all = group.blocks.saturating_mul(self.block_tokens);
            match group.window {
                Some(window) if all >= self.windowed_tokens(window, step_tokens) => u32::MAX,
                _ => all,
            }
        };
        self.groups.iter().map(limit).min().unwrap_or(0)
    }

    fn windowed_tokens(&self, window: u32, step_tokens: u32) -> u32 {
        window.saturating_add(step_tokens).saturating_add(2 * self.block_tokens)
    }
}

/// The first block that queries at positions `stored - 1` and later can see.
///
/// `stored - 1` and not `stored`: a full hit computes its last token again.
pub(crate) fn first_visible(stored: u32, window: Option<u32>, block_tokens: u32) -> usize {
    window.map_or(0, |window| (stored.saturating_sub(window) / block_tokens) as usize)
}
