use std::time::Duration;

use crate::arena::{Arena, Filling, Full};
use crate::event::EventLog;
use crate::lookup::{Lookup, Place};
use crate::second_tier::{Key, Offered, Slots};
use crate::table::Column;
use crate::{BlockHash, Fill, KvEventKind, OutOfBlocks, PoolConfig, Spill, Tier, Tiers, Totals};

/// What the pool's lock guards: the arenas, and what their changes mean for second tier and events.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) arenas: Vec<Arena>,
    pub(crate) second: Option<Slots>,
    pub(crate) events: EventLog,
    pub(crate) totals: Totals,
    /// Of the round being planned.
    spills: Vec<Spill>,
    /// Fills handed out in this round. Holding their blocks keeps those from being taken for something else
    /// that the same step writes.
    issued: Vec<(usize, Full, BlockHash)>,
    /// The latest time anyone told.
    now: Duration,
    /// Tables opened; each has a number of its own.
    tables: u64,
}

/// A prefix that was taken.
pub(crate) struct Opened {
    pub(crate) columns: Vec<Column>,
    pub(crate) blocks: usize,
    pub(crate) serial: u64,
    pub(crate) awaits_fills: bool,
}

impl State {
    pub(crate) fn new(config: &PoolConfig) -> Self {
        Self {
            arenas: config.groups.iter().map(|group| Arena::new(group.blocks)).collect(),
            second: config.second_tier.filter(|_| config.caching).map(Slots::new),
            events: EventLog::default(),
            totals: Totals::default(),
            spills: Vec::new(),
            issued: Vec::new(),
            now: Duration::ZERO,
            tables: 0,
        }
    }

    /// Time went on; what is too old in the second tier goes.
    pub(crate) fn advance(&mut self, now: Duration) {
        self.now = self.now.max(now);
        while let Some(key) = self.second.as_mut().and_then(|second| second.expire_one(self.now)) {
            self.left(Tier::Second, key);
        }
    }

    /// A number for a new table.
    pub(crate) fn serial(&mut self) -> u64 {
        self.tables += 1;
        self.tables
    }

    pub(crate) fn place(&self, group: usize, hash: &BlockHash, tiers: Tiers) -> Option<Place> {
        let second = self.second.as_ref().filter(|_| tiers == Tiers::Both);
        self.arenas[group]
            .find(hash)
            .map(Place::Resident)
            .or_else(|| second.filter(|second| second.has(&(group, *hash))).map(|_| Place::Spilled(*hash)))
    }

    /// Whether taking the block there leaves one less available.
    pub(crate) fn is_claim(&self, group: usize, place: Place) -> bool {
        match place {
            Place::Resident(id) => self.arenas[group].is_idle(id),
            Place::Spilled(_) => true,
        }
    }

    /// Takes the first `blocks` of what was found. [`Lookup::affordable`] has said that there is room.
    pub(crate) fn open(&mut self, found: &Lookup, blocks: usize, block_tokens: u32) -> Opened {
        let serial = self.serial();
        let mut columns = Vec::with_capacity(found.rows.len());
        let mut spilled = Vec::new();
        for (group, row) in found.rows.iter().enumerate() {
            let first = row.first(blocks, block_tokens);
            let mut column = Column::windowed(first);
            for (at, place) in row.places.iter().enumerate().take(blocks).skip(first) {
                match place {
                    Some(Place::Resident(id)) => column.push_full(Some(self.arenas[group].hold(*id))),
                    Some(Place::Spilled(hash)) => {
                        // All reads begin before the first block is taken: taking spills, and may drop entries.
                        let author =
                            self.second.as_mut().and_then(|second| second.begin_read(&(group, *hash)));
                        spilled.push((at, (group, *hash), author.unwrap_or_default()));
                        column.push_full(None);
                    }
                    None => debug_assert!(false, "a gap inside a hit"),
                }
            }
            columns.push(column);
        }
        for (at, key, author) in spilled {
            let Some(filling) = self.take(key.0) else {
                debug_assert!(false, "the caller has seen that there is room");
                self.end_read(key);
                continue;
            };
            let full = self.arenas[key.0].publish_wanted(filling, key.1, author);
            self.entered(Tier::First, key);
            columns[key.0].put_full(at, full);
        }
        let awaits_fills = self.awaits_fills(&columns);
        Opened { columns, blocks, serial, awaits_fills }
    }

    fn awaits_fills(&self, columns: &[Column]) -> bool {
        let mut groups = self.arenas.iter().zip(columns);
        groups.any(|(arena, column)| column.full().any(|full| arena.is_wanted(full)))
    }

    /// Whether a fill of one of these blocks failed.
    pub(crate) fn are_broken(&self, columns: &[Column]) -> bool {
        let mut groups = self.arenas.iter().zip(columns);
        groups.any(|(arena, column)| arena.has_broken() && column.full().any(|full| arena.is_broken(full)))
    }

    /// Gives every column `blocks` more blocks, or none any.
    pub(crate) fn extend(&mut self, columns: &mut [Column], blocks: u32) -> Result<(), OutOfBlocks> {
        for (group, arena) in self.arenas.iter().enumerate() {
            let available = arena.available();
            if blocks > available {
                return Err(OutOfBlocks { group, needed: blocks, available });
            }
        }
        for (group, column) in columns.iter_mut().enumerate() {
            for _ in 0..blocks {
                let Some(filling) = self.take(group) else { break };
                column.push_filling(filling);
            }
        }
        Ok(())
    }

    fn take(&mut self, group: usize) -> Option<Filling> {
        let (filling, evicted) = self.arenas[group].take()?;
        if let Some(evicted) = evicted {
            let key = (group, evicted.hash);
            self.totals.evicted += 1;
            self.left(Tier::First, key);
            let offered = self.second.as_mut().map(|second| second.offer(key, evicted.author, self.now));
            if let Some(Offered::Spill { slot, dropped }) = offered {
                if let Some(dropped) = dropped {
                    self.left(Tier::Second, dropped);
                }
                self.entered(Tier::Second, key);
                self.totals.spilled += 1;
                self.spills.push(Spill { group, block: evicted.block, hash: evicted.hash, slot });
            }
        }
        Some(filling)
    }

    /// A block became full and can be hit from now on.
    pub(crate) fn publish(&mut self, group: usize, filling: Filling, hash: BlockHash, author: u64) -> Full {
        let (full, is_new) = self.arenas[group].publish(filling, hash, author);
        if is_new {
            self.totals.inserted += 1;
            self.entered(Tier::First, (group, hash));
        }
        full
    }

    pub(crate) fn release(&mut self, group: usize, full: Full) {
        if let Some(hash) = self.arenas[group].release(full) {
            self.end_read((group, hash));
            self.left(Tier::First, (group, hash));
        }
    }

    pub(crate) fn unpin(&mut self, group: usize, full: Full) {
        if let Some(hash) = self.arenas[group].unpin(full) {
            self.end_read((group, hash));
            self.left(Tier::First, (group, hash));
        }
    }

    /// Gives back all blocks, the last first: what is released first is evicted first.
    pub(crate) fn give_back(&mut self, columns: &mut Vec<Column>) {
        for (group, column) in columns.drain(..).enumerate() {
            let (full, filling) = column.into_blocks();
            filling.for_each(|filling| self.arenas[group].give_back(filling));
            full.for_each(|full| self.release(group, full));
        }
    }

    /// Hands out the fill of a block that waits for one.
    pub(crate) fn issue_fill(&mut self, group: usize, full: &Full) -> Option<Fill> {
        let hash = self.arenas[group].issue_fill(full)?;
        let slot = self.second.as_ref()?.slot(&(group, hash))?;
        let held = self.arenas[group].share(full);
        self.issued.push((group, held, hash));
        self.totals.filled += 1;
        Some(Fill { group, block: full.id(), hash, slot })
    }

    /// The round's plan is complete.
    pub(crate) fn end_round(&mut self) -> Vec<Spill> {
        for (group, full, hash) in std::mem::take(&mut self.issued) {
            self.end_read((group, hash));
            self.release(group, full);
        }
        std::mem::take(&mut self.spills)
    }

    fn end_read(&mut self, key: Key) {
        if let Some(second) = &mut self.second {
            second.end_read(&key, self.now);
        }
    }

    /// A fill's bytes did not come: nobody may hit the block or the slot any more.
    pub(crate) fn fill_failed(&mut self, fill: &Fill) {
        self.totals.failed_fills += 1;
        if self.arenas[fill.group].break_fill(fill.block, fill.hash) {
            self.left(Tier::First, (fill.group, fill.hash));
        }
        self.forget((fill.group, fill.hash));
    }

    pub(crate) fn forget(&mut self, key: Key) {
        if self.second.as_mut().is_some_and(|second| second.forget(&key)) {
            self.left(Tier::Second, key);
        }
    }

    /// What this table filled can't be hit any more, wherever it is.
    pub(crate) fn disown(&mut self, author: u64) {
        for group in 0..self.arenas.len() {
            for id in self.arenas[group].filled_by(author) {
                if let Some(hash) = self.arenas[group].unpublish(id) {
                    self.left(Tier::First, (group, hash));
                }
            }
        }
        let spilled = self.second.as_ref().map(|second| second.filled_by(author)).unwrap_or_default();
        spilled.into_iter().for_each(|key| self.forget(key));
    }

    fn entered(&mut self, tier: Tier, (group, hash): Key) {
        self.events.push(KvEventKind::Insert { tier, group, hash });
    }

    fn left(&mut self, tier: Tier, (group, hash): Key) {
        self.events.push(KvEventKind::Evict { tier, group, hash });
    }

    /// The blocks of a group that handed-out fills hold.
    pub(crate) fn issued(&self, group: usize) -> impl Iterator<Item = u32> + '_ {
        self.issued.iter().filter(move |(of, ..)| *of == group).map(|(_, full, _)| full.id())
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        let mut reads: Vec<Key> = self.issued.iter().map(|(group, _, hash)| (*group, *hash)).collect();
        for (group, arena) in self.arenas.iter().enumerate() {
            arena.check().map_err(|problem| format!("group {group}: {problem}"))?;
            reads.extend(arena.wanted().map(|hash| (group, hash)));
        }
        match &self.second {
            Some(second) => second.check(&reads)?,
            None if reads.is_empty() => {}
            None => return Err(format!("{} fills and no second tier", reads.len())),
        }
        self.events.check()
    }
}
