//! The KV block pool: which block belongs to whom.
//!
//! The pool owns block identity; the bytes are the executor's. First version: blocks are taken for
//! a sequence's whole life and given back at its end. Sharing and the prefix index come with the
//! engine's next version.
//!
//! # Invariants ([`Pool::check`])
//! - free + taken = total, and no block is in the free list twice.
//! - [`Blocks`] is neither cloned nor built elsewhere, so a block has one holder.

/// Identity of a KV block inside one arena.
pub type BlockId = u32;

/// Blocks held by one sequence, in order of position. Give them back to the pool they came from.
#[derive(Debug, Default, PartialEq, Eq)]
#[must_use = "blocks that are dropped are lost to the pool"]
pub struct Blocks(Vec<BlockId>);

impl Blocks {
    /// The block table.
    pub fn ids(&self) -> &[BlockId] {
        &self.0
    }
}

/// The blocks of one arena.
#[derive(Debug)]
pub struct Pool {
    free: Vec<BlockId>,
    total: u32,
}

impl Pool {
    /// A pool of `total` free blocks.
    pub fn new(total: u32) -> Self {
        Self { free: (0..total).rev().collect(), total }
    }

    /// Takes `count` blocks, or none when fewer are free.
    pub fn take(&mut self, count: u32) -> Option<Blocks> {
        let keep = self.free.len().checked_sub(count as usize)?;
        Some(Blocks(self.free.split_off(keep)))
    }

    /// Takes back what [`take`](Self::take) gave.
    pub fn give_back(&mut self, blocks: Blocks) {
        self.free.extend(blocks.0);
        debug_assert!(self.free.len() <= self.total as usize);
    }

    /// Blocks of the arena.
    pub fn total(&self) -> u32 {
        self.total
    }

    /// Blocks that are taken.
    pub fn used(&self) -> u32 {
        self.total - self.free.len() as u32
    }

    /// States the invariants; `held` are all block tables given out.
    pub fn check<'a>(&self, held: impl Iterator<Item = &'a Blocks>) -> Result<(), String> {
        let mut seen = vec![false; self.total as usize];
        for &id in self.free.iter().chain(held.flat_map(|blocks| blocks.ids())) {
            match seen.get_mut(id as usize) {
                Some(seen) if !*seen => *seen = true,
                Some(_) => return Err(format!("block {id} has two holders")),
                None => return Err(format!("block {id} is not one of the {}", self.total)),
            }
        }
        match seen.iter().position(|seen| !seen) {
            Some(id) => Err(format!("block {id} is lost")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn blocks_are_conserved(operations in proptest::collection::vec((any::<bool>(), 0u32..8), 0..60)) {
            let mut pool = Pool::new(20);
            let mut held = Vec::new();
            for (take, n) in operations {
                if take {
                    let room = pool.total() - pool.used();
                    let taken = pool.take(n);
                    prop_assert_eq!(taken.is_some(), n <= room);
                    held.extend(taken);
                } else if !held.is_empty() {
                    pool.give_back(held.swap_remove(n as usize % held.len()));
                }
                prop_assert_eq!(pool.check(held.iter()), Ok(()));
            }
        }
    }
}
