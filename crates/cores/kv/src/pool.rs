use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use motet_types::TokenId;

use crate::arena::Full;
use crate::lookup::{Demand, Lookup, Place};
use crate::state::State;
use crate::{
    Admission, BlockHash, Fill, KvEvent, KvEventKind, OutOfBlocks, PoolConfig, Scope, Spill, Table, Tiers,
};

/// All blocks and the prefix index; clones are handles to the same pool.
///
/// Times are `Duration`s since an epoch the caller chooses; they age the second tier and nothing else.
#[derive(Debug, Clone)]
pub struct Pool(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    config: PoolConfig,
    state: Mutex<State>,
}

impl Pool {
    /// A pool of free blocks.
    pub fn new(config: PoolConfig) -> Self {
        debug_assert!(config.block_tokens > 0 && !config.groups.is_empty());
        let config = PoolConfig { block_tokens: config.block_tokens.max(1), ..config };
        let state = Mutex::new(State::new(&config));
        Self(Arc::new(Shared { config, state }))
    }

    /// The pool's shape.
    pub fn config(&self) -> &PoolConfig {
        &self.0.config
    }

    /// Takes the longest cached prefix of `tokens`, in whole blocks of every group and from both tiers.
    ///
    /// Takes no blocks besides the prefix's; never fails. May cover all of `tokens`. Reports a hit, a miss or both.
    pub fn open(&self, scope: &Scope, tokens: &[TokenId], now: Duration) -> Table {
        let hashes = self.hashes(scope, tokens);
        let mut state = self.lock();
        state.advance(now);
        let found = Lookup::new(&state, self.config(), &hashes, Tiers::Both);
        let blocks = found.affordable(&state, Demand::default()).unwrap_or(0);
        self.take(&mut state, &found, blocks, &Prefix { scope, tokens, hashes: &hashes })
    }

    /// [`open`](Self::open) and [`Table::reserve`] at once, if that leaves the spare blocks asked for. When it
    /// does not, nothing is taken, touched or reported.
    pub fn admit(&self, admission: &Admission, now: Duration) -> Result<Table, OutOfBlocks> {
        let Admission { scope, tokens, tiers, reserve_tokens, spare_blocks } = *admission;
        let hashes = self.hashes(scope, tokens);
        let reserve = reserve_tokens.div_ceil(self.config().block_tokens);
        let mut state = self.lock();
        state.advance(now);
        let found = Lookup::new(&state, self.config(), &hashes, tiers);
        let blocks = found.affordable(&state, Demand { reserve, spare: spare_blocks })?;
        let mut table = self.take(&mut state, &found, blocks, &Prefix { scope, tokens, hashes: &hashes });
        state.extend(table.columns_mut(), reserve.saturating_sub(blocks as u32))?;
        Ok(table)
    }

    fn take(&self, state: &mut State, found: &Lookup, blocks: usize, prefix: &Prefix) -> Table {
        let opened = state.open(found, blocks, self.config().block_tokens);
        if self.config().caching {
            let hit = blocks as u32 * self.config().block_tokens;
            let miss = prefix.tokens.len() as u32 - hit;
            state.totals.hit_tokens += u64::from(hit);
            state.totals.miss_tokens += u64::from(miss);
            if hit > 0 {
                state.events.push(KvEventKind::Hit { tokens: hit });
            }
            if miss > 0 {
                state.events.push(KvEventKind::Miss { tokens: miss });
            }
        }
        let parent = blocks.checked_sub(1).map_or(BlockHash::ROOT, |last| prefix.hashes[last]);
        Table::new(self.clone(), prefix.scope.clone(), opened, parent)
    }

    /// Tokens of the longest prefix cached in either tier. Takes and touches nothing: a guess for estimates.
    pub fn probe(&self, scope: &Scope, tokens: &[TokenId]) -> u32 {
        self.probe_tiers(scope, tokens).both
    }

    /// Like [`probe`](Self::probe), and how much of it is there without filling.
    pub fn probe_tiers(&self, scope: &Scope, tokens: &[TokenId]) -> Probe {
        let hashes = self.hashes(scope, tokens);
        let state = self.lock();
        let tokens = |tiers| {
            let found = Lookup::new(&state, self.config(), &hashes, tiers);
            found.longest() as u32 * self.config().block_tokens
        };
        Probe { first: tokens(Tiers::First), both: tokens(Tiers::Both) }
    }

    /// Keeps what the first tier has of a prefix from eviction, for as long as the result lives.
    pub fn pin(&self, scope: &Scope, tokens: &[TokenId]) -> Pin {
        let hashes = self.hashes(scope, tokens);
        let mut state = self.lock();
        let found = Lookup::new(&state, self.config(), &hashes, Tiers::First);
        let blocks = found.longest();
        let mut held = Vec::with_capacity(found.rows.len());
        for (group, row) in found.rows.iter().enumerate() {
            let first = row.first(blocks, self.config().block_tokens);
            let resident = row.places[first..blocks].iter().filter_map(|place| match place {
                Some(Place::Resident(id)) => Some(state.arenas[group].pin(*id)),
                _ => None,
            });
            held.push(resident.collect());
        }
        Pin { pool: self.clone(), held, tokens: blocks as u32 * self.config().block_tokens }
    }

    /// Blocks of a group that a table can get: free ones, and cached ones without holder.
    pub fn available(&self, group: usize) -> u32 {
        self.lock().arenas.get(group).map_or(0, |arena| arena.available())
    }

    /// How many blocks are in which state, and what happened so far.
    pub fn counts(&self) -> Counts {
        let state = self.lock();
        let groups: Vec<_> = state.arenas.iter().map(|arena| arena.counts()).collect();
        let mut all = GroupCounts::default();
        for group in &groups {
            all.total += group.total;
            all.used += group.used;
            all.cached += group.cached;
            all.free += group.free;
            all.pinned += group.pinned;
        }
        let spilled = state.second.as_ref().map_or(0, |second| second.len());
        Counts { groups, all, spilled, totals: state.totals }
    }

    /// Takes the oldest `limit` events. The pool keeps some thousands; see [`KvEvent::id`].
    pub fn drain_events(&self, limit: usize) -> Vec<KvEvent> {
        self.lock().events.drain(limit)
    }

    /// Ends a planning round: the evictions whose bytes must be read out before the next step writes.
    ///
    /// Called once per step, after [`Table::take_fills`] of all its sequences. The fills handed out so far
    /// then count as done unless [`fill_failed`](Self::fill_failed) says otherwise.
    pub fn take_spills(&self) -> Vec<Spill> {
        self.lock().end_round()
    }

    /// Reports a fill that a step could not carry out, before anything that step computed is
    /// [appended](Table::append). Tables that hold the block are [broken](Table::is_broken) from now on.
    pub fn fill_failed(&self, fill: &Fill) {
        if fill.group < self.config().groups.len() {
            self.lock().fill_failed(fill);
        }
    }

    /// Reports a spill that a step could not carry out; the block is forgotten.
    pub fn spill_failed(&self, spill: &Spill) {
        self.lock().forget((spill.group, spill.hash));
    }

    /// States the invariants that the pool alone can see. Takes time in proportion to the pool.
    pub fn check(&self) -> Result<(), String> {
        self.lock().check()
    }

    /// [`check`](Self::check), and every reference count equals the number of holders; `tables` and `pins`
    /// are all there are.
    pub fn audit<'a>(
        &self,
        tables: impl IntoIterator<Item = &'a Table>,
        pins: impl IntoIterator<Item = &'a Pin>,
    ) -> Result<(), String> {
        let (tables, pins): (Vec<_>, Vec<_>) = (tables.into_iter().collect(), pins.into_iter().collect());
        let state = self.lock();
        state.check()?;
        for (group, arena) in state.arenas.iter().enumerate() {
            let by_tables = tables.iter().flat_map(|table| table.ids(group)).copied();
            let by_pins = pins.iter().flat_map(|pin| &pin.held[group]).map(Full::id);
            let held =
                by_tables.filter(|id| *id != crate::NO_BLOCK).chain(by_pins).chain(state.issued(group));
            arena.audit(held).map_err(|problem| format!("group {group}: {problem}"))?;
        }
        Ok(())
    }

    fn hashes(&self, scope: &Scope, tokens: &[TokenId]) -> Vec<BlockHash> {
        if self.config().caching { scope.blocks(tokens, self.config().block_tokens) } else { Vec::new() }
    }

    /// A panic elsewhere does not stop tables from giving back their blocks.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A prompt and its hashes.
struct Prefix<'a> {
    scope: &'a Scope,
    tokens: &'a [TokenId],
    hashes: &'a [BlockHash],
}

/// Cached tokens of a prefix, by where they are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Probe {
    /// There without filling.
    pub first: u32,
    /// There when what the first tier lacks is filled; never less than `first`.
    pub both: u32,
}

/// How many blocks are in which state.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// By group.
    pub groups: Vec<GroupCounts>,
    /// Their sum.
    pub all: GroupCounts,
    /// Blocks in the second tier.
    pub spilled: u32,
    /// Counters that only grow.
    pub totals: Totals,
}

/// Blocks of one group; `used + cached + free = total`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GroupCounts {
    /// All.
    pub total: u32,
    /// Held by a table, a pin or a fill of the round being planned.
    pub used: u32,
    /// Held by nobody, and can be hit.
    pub cached: u32,
    /// Held by nobody, and hold nothing.
    pub free: u32,
    /// Those of `used` that a pin holds.
    pub pinned: u32,
}

/// What happened since the pool was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Tokens that opened tables found cached, those of sequences that come back from preemption included.
    pub hit_tokens: u64,
    /// Tokens that they did not find.
    pub miss_tokens: u64,
    /// Blocks that became full and new to the index.
    pub inserted: u64,
    /// Cached blocks that made room.
    pub evicted: u64,
    /// Those of them that went to the second tier.
    pub spilled: u64,
    /// Fills handed out.
    pub filled: u64,
    /// Fills that failed.
    pub failed_fills: u64,
}

/// Keeps the cached blocks of a prefix from eviction while it lives.
#[derive(Debug)]
#[must_use = "dropping a pin ends it"]
pub struct Pin {
    pool: Pool,
    held: Vec<Vec<Full>>,
    tokens: u32,
}

impl Pin {
    /// Tokens of the prefix that are kept.
    pub fn tokens(&self) -> u32 {
        self.tokens
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let mut state = self.pool.lock();
        for (group, held) in self.held.drain(..).enumerate() {
            held.into_iter().rev().for_each(|full| state.unpin(group, full));
        }
    }
}
