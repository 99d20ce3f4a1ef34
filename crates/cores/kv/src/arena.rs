use std::collections::HashMap;

use crate::list::LruList;
use crate::{BlockHash, BlockId, GroupCounts};

/// The blocks of one group.
///
/// A block's state is in the type of the handle that names it: a [`Filling`] block has one holder, no
/// hash, and can only be filled or given back; a [`Full`] one can be shared but never written. Handles are
/// made here alone and consumed by what ends them, so a block is given back once. They have no `Drop`: they
/// live in tables and pins, whose `Drop` hands them back under one lock.
#[derive(Debug)]
pub(crate) struct Arena {
    blocks: Vec<Block>,
    /// Blocks without hash and holder; the last is taken first.
    free: Vec<BlockId>,
    /// Blocks with hash and without holder.
    cached: LruList,
    index: HashMap<BlockHash, BlockId>,
    pinned: u32,
    broken: u32,
}

/// A block its only holder writes to.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a block that is not given back is lost"]
pub(crate) struct Filling(BlockId);

/// A block nobody writes to.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a block that is not given back is lost"]
pub(crate) struct Full(BlockId);

#[derive(Debug, Clone)]
struct Block {
    /// Handles to it: tables, pins and the fills in flight.
    holders: u32,
    /// Pins among them.
    pins: u32,
    /// What it holds, if it was ever in the index; kept while it has holders.
    hash: Option<BlockHash>,
    is_indexed: bool,
    /// The table that filled it; with a hash alone.
    author: u64,
    bytes: Bytes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bytes {
    /// There, or about to be written by the holder.
    Present,
    /// In the second tier, and no fill has been handed out.
    Wanted,
    /// A fill failed. Not in the index; its holders can't go on.
    Broken,
}

/// A cached block that made room.
#[derive(Debug)]
pub(crate) struct Evicted {
    pub(crate) block: BlockId,
    pub(crate) hash: BlockHash,
    pub(crate) author: u64,
}

impl Filling {
    pub(crate) fn id(&self) -> BlockId {
        self.0
    }
}

impl Full {
    pub(crate) fn id(&self) -> BlockId {
        self.0
    }
}

impl Arena {
    pub(crate) fn new(blocks: u32) -> Self {
        let empty =
            Block { holders: 0, pins: 0, hash: None, is_indexed: false, author: 0, bytes: Bytes::Present };
        Self {
            blocks: vec![empty; blocks as usize],
            free: (0..blocks).rev().collect(),
            cached: LruList::new(),
            index: HashMap::new(),
            pinned: 0,
            broken: 0,
        }
    }

    pub(crate) fn counts(&self) -> GroupCounts {
        let (total, free, cached) = (self.blocks.len() as u32, self.free.len() as u32, self.cached.len());
        GroupCounts { total, used: total - free - cached, cached, free, pinned: self.pinned }
    }

    /// Blocks that [`take`](Self::take) can give.
    pub(crate) fn available(&self) -> u32 {
        self.free.len() as u32 + self.cached.len()
    }

    /// The block that holds what `hash` names.
    pub(crate) fn find(&self, hash: &BlockHash) -> Option<BlockId> {
        self.index.get(hash).copied()
    }

    /// Whether a block is without holder, so that a hit takes it from what is available.
    pub(crate) fn is_idle(&self, id: BlockId) -> bool {
        self.blocks[id as usize].holders == 0
    }

    /// An unused block, or else the least recently used cached one.
    pub(crate) fn take(&mut self) -> Option<(Filling, Option<Evicted>)> {
        let evicted = match self.free.last() {
            Some(_) => None,
            None => Some(self.evict()?),
        };
        let id = self.free.pop()?;
        self.blocks[id as usize].holders = 1;
        Some((Filling(id), evicted))
    }

    fn evict(&mut self) -> Option<Evicted> {
        let block = self.cached.oldest()?;
        let author = self.blocks[block as usize].author;
        let hash = self.unpublish(block)?;
        Some(Evicted { block, hash, author })
    }

    /// Gives back a block that did not become full.
    pub(crate) fn give_back(&mut self, filling: Filling) {
        self.blocks[filling.0 as usize].holders = 0;
        self.free.push(filling.0);
    }

    /// A full block that is kept out of the index.
    pub(crate) fn seal(&mut self, filling: Filling) -> Full {
        Full(filling.0)
    }

    /// A full block that can be hit; true if it is new to the index. Where an equal block is cached already,
    /// the result is that block, unless its bytes have yet to come.
    pub(crate) fn publish(&mut self, filling: Filling, hash: BlockHash, author: u64) -> (Full, bool) {
        match self.find(&hash) {
            None => (self.insert(filling, hash, author), true),
            Some(equal) if self.blocks[equal as usize].bytes == Bytes::Present => {
                self.give_back(filling);
                (self.hold(equal), false)
            }
            Some(_) => (self.seal(filling), false),
        }
    }

    /// A block that can be hit and whose bytes are still in the second tier.
    pub(crate) fn publish_wanted(&mut self, filling: Filling, hash: BlockHash, author: u64) -> Full {
        let full = self.insert(filling, hash, author);
        self.blocks[full.0 as usize].bytes = Bytes::Wanted;
        full
    }

    fn insert(&mut self, filling: Filling, hash: BlockHash, author: u64) -> Full {
        let block = &mut self.blocks[filling.0 as usize];
        block.hash = Some(hash);
        block.is_indexed = true;
        block.author = author;
        self.index.insert(hash, filling.0);
        Full(filling.0)
    }

    /// One more handle to a block of the index.
    pub(crate) fn hold(&mut self, id: BlockId) -> Full {
        if self.is_idle(id) {
            self.cached.remove(id);
        }
        self.blocks[id as usize].holders += 1;
        Full(id)
    }

    /// One more handle to a block that has one.
    pub(crate) fn share(&mut self, full: &Full) -> Full {
        self.blocks[full.0 as usize].holders += 1;
        Full(full.0)
    }

    /// Like [`hold`](Self::hold), and counts the block as pinned.
    pub(crate) fn pin(&mut self, id: BlockId) -> Full {
        let block = &mut self.blocks[id as usize];
        self.pinned += u32::from(block.pins == 0);
        block.pins += 1;
        self.hold(id)
    }

    /// Ends [`pin`](Self::pin).
    pub(crate) fn unpin(&mut self, full: Full) -> Option<BlockHash> {
        let block = &mut self.blocks[full.0 as usize];
        block.pins -= 1;
        self.pinned -= u32::from(block.pins == 0);
        self.release(full)
    }

    /// Gives back a handle. The last one makes an indexed block cached and another free; a block whose fill
    /// nobody asked for any more leaves the index, and its hash is returned.
    pub(crate) fn release(&mut self, full: Full) -> Option<BlockHash> {
        let block = &mut self.blocks[full.0 as usize];
        block.holders -= 1;
        if block.holders > 0 {
            return None;
        }
        match (block.is_indexed, std::mem::replace(&mut block.bytes, Bytes::Present)) {
            (true, Bytes::Present) => {
                self.cached.push(full.0);
                None
            }
            (true, _) => {
                let hash = self.leave_index(full.0);
                self.make_free(full.0);
                hash
            }
            (false, bytes) => {
                self.broken -= u32::from(bytes == Bytes::Broken);
                self.make_free(full.0);
                None
            }
        }
    }

    /// Takes a block out of the index; if it is cached, it is free then. Returns its hash if it was there.
    pub(crate) fn unpublish(&mut self, id: BlockId) -> Option<BlockHash> {
        let hash = self.leave_index(id)?;
        if self.is_idle(id) {
            self.cached.remove(id);
            self.make_free(id);
        }
        Some(hash)
    }

    fn leave_index(&mut self, id: BlockId) -> Option<BlockHash> {
        let block = &mut self.blocks[id as usize];
        let hash = block.hash.filter(|_| block.is_indexed)?;
        block.is_indexed = false;
        self.index.remove(&hash);
        Some(hash)
    }

    fn make_free(&mut self, id: BlockId) {
        self.blocks[id as usize].hash = None;
        self.free.push(id);
    }

    /// Blocks of the index that `author` filled and whose bytes are there.
    pub(crate) fn filled_by(&self, author: u64) -> Vec<BlockId> {
        let is_filled =
            |block: &Block| block.is_indexed && block.author == author && block.bytes == Bytes::Present;
        (0..).zip(&self.blocks).filter(|(_, block)| is_filled(block)).map(|(id, _)| id).collect()
    }

    /// Whether a block waits for a fill that nobody has been handed.
    pub(crate) fn is_wanted(&self, full: &Full) -> bool {
        self.blocks[full.0 as usize].bytes == Bytes::Wanted
    }

    /// Marks the bytes as on their way; returns what they are, or nothing when they were not waited for.
    pub(crate) fn issue_fill(&mut self, full: &Full) -> Option<BlockHash> {
        let block = &mut self.blocks[full.0 as usize];
        if block.bytes != Bytes::Wanted {
            return None;
        }
        block.bytes = Bytes::Present;
        block.hash
    }

    /// The bytes did not come. True if the block leaves the index by that. A block that holds something else by
    /// now stays as it is.
    pub(crate) fn break_fill(&mut self, id: BlockId, hash: BlockHash) -> bool {
        let block = &mut self.blocks[id as usize];
        if block.hash != Some(hash) || block.bytes != Bytes::Present {
            return false;
        }
        // Its holders may not learn it from the index: a discard can have taken it out.
        if block.holders > 0 {
            block.bytes = Bytes::Broken;
            self.broken += 1;
        }
        self.unpublish(id).is_some()
    }

    /// Whether any block is broken; few arenas ever have one.
    pub(crate) fn has_broken(&self) -> bool {
        self.broken > 0
    }

    /// Whether the block's fill failed.
    pub(crate) fn is_broken(&self, full: &Full) -> bool {
        self.blocks[full.0 as usize].bytes == Bytes::Broken
    }

    /// Hashes of blocks that wait for a fill.
    pub(crate) fn wanted(&self) -> impl Iterator<Item = BlockHash> + '_ {
        self.blocks.iter().filter(|block| block.bytes == Bytes::Wanted).filter_map(|block| block.hash)
    }

    /// States the invariants of one group.
    pub(crate) fn check(&self) -> Result<(), String> {
        let mut state: Vec<Option<&str>> = vec![None; self.blocks.len()];
        let cached = self.cached.checked()?;
        let listed = self.free.iter().map(|id| (id, "free")).chain(cached.iter().map(|id| (id, "cached")));
        for (&id, list) in listed {
            if let Some(other) = state[id as usize].replace(list) {
                return Err(format!("block {id} is {other} and {list}"));
            }
        }
        for ((id, block), state) in (0..).zip(&self.blocks).zip(state) {
            let is_right = match state {
                Some("free") => block.holders == 0 && block.hash.is_none() && block.bytes == Bytes::Present,
                Some(_) => block.holders == 0 && block.is_indexed && block.bytes == Bytes::Present,
                None => block.holders > 0 && block.pins <= block.holders,
            };
            let indexed = block.hash.and_then(|hash| self.find(&hash)) == Some(id);
            let bytes_fit_index = match block.bytes {
                Bytes::Present => true,
                Bytes::Wanted => block.is_indexed,
                Bytes::Broken => !block.is_indexed,
            };
            if !is_right || indexed != block.is_indexed || !bytes_fit_index {
                return Err(format!("block {id} ({}) can't be {block:?}", state.unwrap_or("held")));
            }
        }
        let count = |is: fn(&Block) -> bool| self.blocks.iter().filter(|block| is(block)).count();
        let counted = [count(|b| b.is_indexed), count(|b| b.pins > 0), count(|b| b.bytes == Bytes::Broken)];
        let kept = [self.index.len(), self.pinned as usize, self.broken as usize];
        if counted != kept {
            return Err(format!("indexed, pinned, broken: {counted:?} blocks, but counted {kept:?}"));
        }
        Ok(())
    }

    /// Compares every reference count with `held`, the blocks named by all handles.
    pub(crate) fn audit(&self, held: impl Iterator<Item = BlockId>) -> Result<(), String> {
        let mut counts = vec![0; self.blocks.len()];
        for id in held {
            match counts.get_mut(id as usize) {
                Some(count) => *count += 1,
                None => return Err(format!("block {id} of {}", self.blocks.len())),
            }
        }
        match (0..).zip(&self.blocks).zip(counts).find(|((_, block), count)| block.holders != *count) {
            Some(((id, block), count)) => {
                Err(format!("block {id} counts {} holders and has {count}", block.holders))
            }
            None => Ok(()),
        }
    }
}
