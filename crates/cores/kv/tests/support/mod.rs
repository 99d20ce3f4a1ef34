//! What the tests of the pool share. Blocks have 4 tokens, so that borders are met often.
#![allow(dead_code, reason = "each test file uses a part")]

use std::collections::HashSet;
use std::time::Duration;

use motet_kv::{
    BlockHash, CacheKey, GroupConfig, KvEventKind, Pool, PoolConfig, Scope, ScopeParts, SecondTier, Tier,
};

pub(crate) const BLOCK: u32 = 4;

pub(crate) const fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) const PARTS: ScopeParts<'static> =
    ScopeParts { tenant: "a", model: "weights-1", tokenizer: "v1", adapter: None, namespace: None };

pub(crate) fn scope(parts: &ScopeParts) -> Scope {
    Scope::new(&CacheKey::new([7; 32]), parts)
}

pub(crate) fn tenant(tenant: &str) -> Scope {
    scope(&ScopeParts { tenant, ..PARTS })
}

/// `blocks` and windows of the groups.
pub(crate) fn config(groups: &[(u32, Option<u32>)]) -> PoolConfig {
    let groups =
        groups.iter().map(|(blocks, window)| GroupConfig { blocks: *blocks, window: *window }).collect();
    PoolConfig { block_tokens: BLOCK, groups, caching: true, second_tier: None }
}

pub(crate) fn pool(blocks: u32) -> Pool {
    Pool::new(config(&[(blocks, None)]))
}

pub(crate) fn two_tiers(blocks: u32, max_blocks: u32) -> Pool {
    let second_tier = Some(SecondTier { max_blocks, max_age: at(100) });
    Pool::new(PoolConfig { second_tier, ..config(&[(blocks, None)]) })
}

/// What a router knows of a pool: what the events say is where.
#[derive(Default)]
pub(crate) struct Follower {
    next: u64,
    pub(crate) held: HashSet<(Tier, usize, BlockHash)>,
}

impl Follower {
    pub(crate) fn follow(&mut self, pool: &Pool) {
        for event in pool.drain_events(usize::MAX) {
            assert_eq!(event.id, self.next, "ids have no gaps");
            self.next += 1;
            match event.kind {
                KvEventKind::Insert { tier, group, hash } => {
                    assert!(self.held.insert((tier, group, hash)), "inserted twice: {event:?}");
                }
                KvEventKind::Evict { tier, group, hash } => {
                    assert!(self.held.remove(&(tier, group, hash)), "was not there: {event:?}");
                }
                KvEventKind::Hit { tokens } | KvEventKind::Miss { tokens } => assert!(tokens > 0),
            }
        }
    }

    pub(crate) fn count(&self, tier: Tier) -> usize {
        self.held.iter().filter(|(of, ..)| *of == tier).count()
    }
}
