use std::collections::HashMap;
use std::time::Duration;

use crate::list::LruList;
use crate::{BlockHash, SecondTier};

/// A spilled block: its group and what it holds.
pub(crate) type Key = (usize, BlockHash);

/// What is in which slot of the second tier.
///
/// A slot that a pending fill reads is not in `lru`, so neither size nor age takes it away.
#[derive(Debug)]
pub(crate) struct Slots {
    limits: SecondTier,
    slots: Vec<Option<Entry>>,
    free: Vec<u32>,
    lru: LruList,
    index: HashMap<Key, u32>,
}

#[derive(Debug)]
struct Entry {
    key: Key,
    author: u64,
    touched: Duration,
    /// Fills that have yet to be planned in full.
    readers: u32,
}

/// What became of a block that was offered.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Offered {
    /// It is there already.
    Known,
    /// It goes to `slot`, where `dropped` was.
    Spill { slot: u32, dropped: Option<Key> },
    /// Every slot is being read.
    Full,
}

impl Slots {
    pub(crate) fn new(limits: SecondTier) -> Self {
        Self { limits, slots: Vec::new(), free: Vec::new(), lru: LruList::new(), index: HashMap::new() }
    }

    pub(crate) fn len(&self) -> u32 {
        self.index.len() as u32
    }

    pub(crate) fn has(&self, key: &Key) -> bool {
        self.index.contains_key(key)
    }

    /// An evicted block asks for a place.
    pub(crate) fn offer(&mut self, key: Key, author: u64, now: Duration) -> Offered {
        if let Some(&slot) = self.index.get(&key) {
            self.touch(slot, now);
            return Offered::Known;
        }
        let Some((slot, dropped)) = self.vacate() else { return Offered::Full };
        self.slots[slot as usize] = Some(Entry { key, author, touched: now, readers: 0 });
        self.index.insert(key, slot);
        self.lru.push(slot);
        Offered::Spill { slot, dropped }
    }

    /// A slot without entry: a free one, a new one, or the least recently used one's.
    fn vacate(&mut self) -> Option<(u32, Option<Key>)> {
        if let Some(slot) = self.free.pop() {
            return Some((slot, None));
        }
        let next = self.slots.len() as u32;
        if next < self.limits.max_blocks {
            self.slots.push(None);
            return Some((next, None));
        }
        let dropped = self.drop_oldest()?;
        Some((self.free.pop()?, Some(dropped)))
    }

    fn drop_oldest(&mut self) -> Option<Key> {
        let slot = self.lru.pop_oldest()?;
        let entry = self.slots[slot as usize].take()?;
        self.index.remove(&entry.key);
        self.free.push(slot);
        Some(entry.key)
    }

    /// Forgets the oldest entry if it is too old.
    pub(crate) fn expire_one(&mut self, now: Duration) -> Option<Key> {
        let entry = self.slots[self.lru.oldest()? as usize].as_ref()?;
        let is_too_old = now.saturating_sub(entry.touched) > self.limits.max_age;
        if is_too_old { self.drop_oldest() } else { None }
    }

    fn touch(&mut self, slot: u32, now: Duration) {
        let Some(entry) = &mut self.slots[slot as usize] else { return };
        entry.touched = now;
        if entry.readers == 0 {
            self.lru.remove(slot);
            self.lru.push(slot);
        }
    }

    /// A fill will read this entry; returns who filled the block.
    pub(crate) fn begin_read(&mut self, key: &Key) -> Option<u64> {
        let slot = *self.index.get(key)?;
        let entry = self.slots[slot as usize].as_mut()?;
        entry.readers += 1;
        if entry.readers == 1 {
            self.lru.remove(slot);
        }
        Some(entry.author)
    }

    /// The slot of an entry.
    pub(crate) fn slot(&self, key: &Key) -> Option<u32> {
        self.index.get(key).copied()
    }

    /// The fill is planned or not wanted any more.
    pub(crate) fn end_read(&mut self, key: &Key, now: Duration) {
        let Some(&slot) = self.index.get(key) else { return };
        let Some(entry) = &mut self.slots[slot as usize] else { return };
        entry.readers -= 1;
        entry.touched = now;
        if entry.readers == 0 {
            self.lru.push(slot);
        }
    }

    /// Forgets an entry whose bytes are no good, unless a fill is to read it: that one will fail as well and
    /// forget it then. True if it is gone now.
    pub(crate) fn forget(&mut self, key: &Key) -> bool {
        let Some(&slot) = self.index.get(key) else { return false };
        if self.slots[slot as usize].as_ref().is_none_or(|entry| entry.readers > 0) {
            return false;
        }
        self.lru.remove(slot);
        self.index.remove(key);
        self.slots[slot as usize] = None;
        self.free.push(slot);
        true
    }

    /// Entries of blocks that `author` filled.
    pub(crate) fn filled_by(&self, author: u64) -> Vec<Key> {
        self.slots.iter().flatten().filter(|entry| entry.author == author).map(|entry| entry.key).collect()
    }

    /// States the invariants; `reads` are the keys of all pending fills.
    pub(crate) fn check(&self, reads: &[Key]) -> Result<(), String> {
        if self.slots.len() > self.limits.max_blocks as usize {
            return Err(format!("{} slots of {}", self.slots.len(), self.limits.max_blocks));
        }
        let entries = self.slots.iter().flatten().count();
        if entries != self.index.len() || entries + self.free.len() != self.slots.len() {
            return Err(format!("{entries} entries, {} indexed, {} free", self.index.len(), self.free.len()));
        }
        let mut idle = Vec::new();
        for (slot, entry) in (0..).zip(&self.slots) {
            let Some(entry) = entry else { continue };
            let pending = reads.iter().filter(|key| **key == entry.key).count();
            if self.slot(&entry.key) != Some(slot) || entry.readers as usize != pending {
                return Err(format!("slot {slot} can't be {entry:?} with {pending} fills pending"));
            }
            if entry.readers == 0 {
                idle.push(slot);
            }
        }
        if let Some(key) = reads.iter().find(|key| !self.has(key)) {
            return Err(format!("a fill waits for {key:?}, which is not there"));
        }
        let mut listed = self.lru.checked()?;
        let touched = |slot: &u32| self.slots[*slot as usize].as_ref().map(|entry| entry.touched);
        if !listed.is_sorted_by_key(touched) {
            return Err("the second tier's LRU list is out of order".to_owned());
        }
        listed.sort_unstable();
        if listed != idle {
            return Err(format!("slots {idle:?} are idle and {listed:?} listed"));
        }
        Ok(())
    }
}
