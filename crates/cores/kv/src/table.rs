use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use motet_types::TokenId;

use crate::arena::{Filling, Full};
use crate::config::first_visible;
use crate::state::Opened;
use crate::{BlockCopy, BlockHash, BlockId, Fill, NO_BLOCK, OutOfBlocks, Pool, Scope};

/// One sequence's blocks in every group. Dropping it gives them back; what is hashed stays cached.
///
/// Positions below [`stored_tokens`](Self::stored_tokens) have their keys and values (once the
/// [fills](Self::take_fills) are done), those from there to [`capacity_tokens`](Self::capacity_tokens) have room.
#[must_use = "dropping a table gives its blocks back"]
pub struct Table {
    pool: Pool,
    scope: Scope,
    serial: u64,
    columns: Vec<Column>,
    /// Hash of the last full block.
    parent: BlockHash,
    /// Stored tokens behind the last full block.
    tail: Vec<TokenId>,
    cached: u32,
    stored: u32,
    /// Whether blocks that become full can be hit.
    publishes: bool,
    /// Whether blocks may wait for a fill that nobody has been handed.
    awaits_fills: bool,
}

impl Table {
    pub(crate) fn new(pool: Pool, scope: Scope, opened: Opened, parent: BlockHash) -> Self {
        let cached = opened.blocks as u32 * pool.config().block_tokens;
        Self {
            scope,
            serial: opened.serial,
            columns: opened.columns,
            parent,
            tail: Vec::new(),
            cached,
            stored: cached,
            publishes: pool.config().caching,
            awaits_fills: opened.awaits_fills,
            pool,
        }
    }

    pub(crate) fn columns_mut(&mut self) -> &mut [Column] {
        &mut self.columns
    }

    /// Tokens that were cached when the table was opened: a multiple of the block size, and of a fork the
    /// parent's.
    pub fn cached_tokens(&self) -> u32 {
        self.cached
    }

    /// Tokens whose keys and values are stored.
    pub fn stored_tokens(&self) -> u32 {
        self.stored
    }

    /// Tokens there is room for.
    pub fn capacity_tokens(&self) -> u32 {
        let blocks = self.columns.first().map_or(0, |column| column.ids.len());
        blocks as u32 * self.pool.config().block_tokens
    }

    /// The block table of a group, by position / block size; the same length in every group. Blocks of a
    /// windowed group that no later query can see are [`NO_BLOCK`]. Empty for a group that does not exist.
    pub fn ids(&self, group: usize) -> &[BlockId] {
        self.columns.get(group).map_or(&[], |column| &column.ids)
    }

    /// Makes room for the positions below `tokens` in every group, or changes nothing. Cached blocks are
    /// evicted as needed.
    pub fn reserve(&mut self, tokens: u32) -> Result<(), OutOfBlocks> {
        let missing = tokens.saturating_sub(self.capacity_tokens()).div_ceil(self.pool.config().block_tokens);
        if missing == 0 {
            return Ok(());
        }
        self.pool.lock().extend(&mut self.columns, missing)
    }

    /// Records that the keys and values of `tokens`, the next after the stored ones, are stored now. They must
    /// have room. Blocks that become full can be hit; what slid out of a window is given back.
    pub fn append(&mut self, tokens: &[TokenId], now: Duration) {
        let room = (self.capacity_tokens() - self.stored) as usize;
        debug_assert!(tokens.len() <= room, "{} tokens stored with room for {room}", tokens.len());
        debug_assert!(!self.awaits_fills, "computed before its fills were taken");
        let block_tokens = self.pool.config().block_tokens;
        let pool = self.pool.clone();
        let mut state = pool.lock();
        state.advance(now);
        // What was computed on top of bytes that never came must not be hit.
        self.publishes &= !self.awaits_fills && !state.are_broken(&self.columns);
        for &token in tokens.iter().take(room) {
            self.tail.push(token);
            self.stored += 1;
            if !self.stored.is_multiple_of(block_tokens) {
                continue;
            }
            self.parent = self.scope.block(self.parent, &self.tail);
            self.tail.clear();
            for (group, column) in self.columns.iter_mut().enumerate() {
                column.complete(|filling| match self.publishes {
                    true => state.publish(group, filling, self.parent, self.serial),
                    false => state.arenas[group].seal(filling),
                });
            }
        }
        for ((group, column), config) in self.columns.iter_mut().enumerate().zip(&pool.config().groups) {
            let visible = first_visible(self.stored, config.window, block_tokens);
            column.slide(visible).for_each(|full| state.release(group, full));
        }
    }

    /// A second table with the same tokens. Full blocks are shared; the one being filled is copied, which is to
    /// be carried out before either table computes. Fails without change when a group can't give that block.
    pub fn fork(&self) -> Result<(Table, Vec<BlockCopy>), OutOfBlocks> {
        let mut state = self.pool.lock();
        let mut columns: Vec<Column> = Vec::with_capacity(self.columns.len());
        for (group, column) in self.columns.iter().enumerate() {
            let arena = &mut state.arenas[group];
            columns.push(column.share(|full| arena.share(full)));
        }
        if !self.tail.is_empty()
            && let Err(error) = state.extend(&mut columns, 1)
        {
            state.give_back(&mut columns);
            return Err(error);
        }
        let sources = self.columns.iter().map(|column| column.filling.front());
        let targets = columns.iter().map(|column| column.filling.front());
        let copies = sources.zip(targets).enumerate().filter_map(|(group, pair)| match pair {
            (Some(from), Some(to)) => Some(BlockCopy { group, from: from.id(), to: to.id() }),
            _ => None,
        });
        let copies = copies.collect();
        let child = Table {
            pool: self.pool.clone(),
            scope: self.scope.clone(),
            serial: state.serial(),
            columns,
            parent: self.parent,
            tail: self.tail.clone(),
            ..*self
        };
        Ok((child, copies))
    }

    /// Ends a sequence whose keys and values can't be trusted. Blocks it filled can't be hit any more, in
    /// either tier; blocks it had hit, and those of others that equal its own, stay.
    pub fn discard(self) {
        self.pool.lock().disown(self.serial);
    }

    /// The fills to be carried out before this table's next step. Fills that a table sharing the block was
    /// handed are not repeated. To be called whenever the table is in a step, before
    /// [`Pool::take_spills`].
    pub fn take_fills(&mut self) -> Vec<Fill> {
        if !self.awaits_fills {
            return Vec::new();
        }
        self.awaits_fills = false;
        let mut state = self.pool.lock();
        let mut fills = Vec::new();
        for (group, column) in self.columns.iter().enumerate() {
            fills.extend(column.full().filter_map(|full| state.issue_fill(group, full)));
        }
        fills
    }

    /// Whether a fill of one of its blocks failed. What the step computed for this sequence is then void: drop
    /// the table and open it again; the prefix up to the block still hits.
    pub fn is_broken(&self) -> bool {
        self.pool.lock().are_broken(&self.columns)
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        self.pool.lock().give_back(&mut self.columns);
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids: Vec<_> = self.columns.iter().map(|column| &column.ids).collect();
        f.debug_struct("Table")
            .field("cached", &self.cached)
            .field("stored", &self.stored)
            .field("ids", &ids)
            .finish()
    }
}

/// A table's blocks in one group: full ones, then those being filled. `ids` names all of them.
#[derive(Debug, Default)]
pub(crate) struct Column {
    ids: Vec<BlockId>,
    /// None where nothing can be seen any more, which is a head of the list.
    full: Vec<Option<Full>>,
    filling: VecDeque<Filling>,
    /// Blocks that slid out of the window.
    slid: usize,
}

impl Column {
    /// Nothing but `slid` blocks that can't be seen.
    pub(crate) fn windowed(slid: usize) -> Self {
        let full = std::iter::repeat_with(|| None).take(slid).collect();
        Self { ids: vec![NO_BLOCK; slid], full, filling: VecDeque::new(), slid }
    }

    /// Adds a full block, or a place for one.
    pub(crate) fn push_full(&mut self, full: Option<Full>) {
        self.ids.push(full.as_ref().map_or(NO_BLOCK, Full::id));
        self.full.push(full);
    }

    /// Fills a place made by [`push_full`](Self::push_full).
    pub(crate) fn put_full(&mut self, at: usize, full: Full) {
        self.ids[at] = full.id();
        self.full[at] = Some(full);
    }

    pub(crate) fn push_filling(&mut self, filling: Filling) {
        self.ids.push(filling.id());
        self.filling.push_back(filling);
    }

    /// Full blocks that can be seen.
    pub(crate) fn full(&self) -> impl Iterator<Item = &Full> {
        self.full[self.slid..].iter().flatten()
    }

    /// The first block being filled is full.
    fn complete(&mut self, seal: impl FnOnce(Filling) -> Full) {
        if let Some(filling) = self.filling.pop_front() {
            let full = seal(filling);
            self.ids[self.full.len()] = full.id();
            self.full.push(Some(full));
        }
    }

    /// Takes out the blocks before `visible`.
    fn slide(&mut self, visible: usize) -> impl Iterator<Item = Full> {
        let from = self.slid.min(visible);
        self.slid = self.slid.max(visible);
        self.ids[from..visible].fill(NO_BLOCK);
        self.full[from..visible].iter_mut().filter_map(Option::take)
    }

    /// The same full blocks, one more handle each.
    fn share(&self, mut share: impl FnMut(&Full) -> Full) -> Self {
        let mut column = Self::windowed(self.slid);
        self.full().for_each(|full| column.push_full(Some(share(full))));
        column
    }

    /// All blocks, last first: full ones and those being filled.
    pub(crate) fn into_blocks(self) -> (impl Iterator<Item = Full>, impl Iterator<Item = Filling>) {
        (self.full.into_iter().rev().flatten(), self.filling.into_iter().rev())
    }
}
