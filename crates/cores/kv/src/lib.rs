//! The KV block pool and its prefix index: which block belongs to whom, and what it holds.
//!
//! The pool owns block *identity*; the bytes are the executor's. A block is [`block_tokens`]
//! consecutive positions of one sequence in one *group* of layers. A [`Table`] is one sequence's
//! blocks; dropping it gives them back.
//!
//! ```text
//!            reserve               append fills it            last holder drops
//!   free ──────────────► filling ─────────────────► full ──────────────────────► cached
//!    ▲                   mutable,                   immutable,                  hash kept,
//!    │                   one holder                 hashed, shareable ◄──────── evictable
//!    │                      │ drop                     │ drop, if unhashed  hit    │
//!    └──────────────────────┴──────────────────────────┴───────────────────────────┘ evict
//!                                                                                  │
//!                                        fill ◄──────── second tier ◄──────────────┘ spill
//! ```
//!
//! - **Prefix index.** A full block's [`BlockHash`] is a keyed hash over its [`Scope`] (who may share),
//!   the hash of the block before it, and its tokens. Equal hash therefore means equal scope and tokens
//!   from position 0 on, and so, by contract 1, equal bytes: a block that becomes full while an equal one
//!   is cached is replaced by it. Only full blocks are hashed; blocks filled while decoding are too.
//! - **Eviction.** Unhashed blocks are reused first, then cached ones, least recently used first; a table's
//!   tail is older than its head.
//! - **Windows.** A group with a window holds only the blocks that a later query can still see. A prefix of
//!   `n` blocks counts as cached when every group has what a query at its end can see.
//! - **Second tier.** The pool decides *what* is spilled and filled and in which slot; the engine moves the
//!   bytes. One planning round is everything up to a call of [`Pool::take_spills`]; the step that follows
//!   carries out, in this order: spills, copies, fills, compute. In that order no block or slot is
//!   overwritten before it is read. From then until the step's failed fills are reported, tables may be
//!   dropped but no block may be taken.
//!
//! # Invariants ([`Pool::check`])
//! - used + cached + free = total in every group; a block is in exactly one of these states.
//! - A block's reference count equals the number of tables and pins that hold it ([`Pool::audit`]), plus one
//!   while a fill handed out in this round has yet to be planned in full.
//! - The index names exactly the blocks that have a hash; cached blocks have one, free blocks have none.
//! - The LRU lists are intact and hold exactly the cached blocks, or the spilled ones without a pending fill.
//! - The second tier is within its bounds; what a pending fill reads stays there until the round ends.
//!
//! # Locks
//! One mutex per pool. It is held for the length of one call, never while calling out, so there is no lock
//! order to keep.
//!
//! [`block_tokens`]: PoolConfig::block_tokens

mod arena;
mod config;
mod event;
mod hash;
mod list;
mod lookup;
mod pool;
mod second_tier;
mod state;
mod table;

pub use config::{Admission, GroupConfig, PoolConfig, SecondTier, Tiers};
pub use event::{KvEvent, KvEventKind, Tier};
pub use hash::{BlockHash, CacheKey, Scope, ScopeParts};
pub use pool::{Counts, GroupCounts, Pin, Pool, Probe, Totals};
pub use table::Table;

/// Identity of a block inside one group's arena: `0..GroupConfig::blocks`.
pub type BlockId = u32;

/// Stands in block tables of windowed groups for blocks that no later query can see.
pub const NO_BLOCK: BlockId = BlockId::MAX;

/// Bytes to be read out of a block into a slot of the second tier, before the step writes anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Spill {
    /// The group whose arena the block is in.
    pub group: usize,
    /// Where the bytes are.
    pub block: BlockId,
    /// What they are; the fill that reads the slot names the same.
    pub hash: BlockHash,
    /// Where they go: below [`SecondTier::max_blocks`]. What was there before is not wanted any more.
    pub slot: u32,
}

/// Bytes to be put from a slot of the second tier into a block, before the step computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fill {
    /// The group whose arena the block is in.
    pub group: usize,
    /// Where the bytes go.
    pub block: BlockId,
    /// What they must be: the slot's last spill named the same.
    pub hash: BlockHash,
    /// Where they are.
    pub slot: u32,
}

/// Bytes to be copied between two blocks of a group, before the step computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BlockCopy {
    /// The group whose arena both are in.
    pub group: usize,
    /// Source.
    pub from: BlockId,
    /// Destination.
    pub to: BlockId,
}

/// Fewer blocks can be had than are needed; nothing was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("group {group} can give {available} KV blocks and {needed} are needed")]
pub struct OutOfBlocks {
    /// The first group that lacks blocks.
    pub group: usize,
    /// Blocks that were needed, including those to be left spare.
    pub needed: u32,
    /// Blocks that are free or cached without a holder.
    pub available: u32,
}
