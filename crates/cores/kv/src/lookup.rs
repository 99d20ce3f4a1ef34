use crate::config::first_visible;
use crate::state::State;
use crate::{BlockHash, BlockId, OutOfBlocks, PoolConfig, Tiers};

/// Where the blocks of a prefix are, in every group, as long as it can be hit.
pub(crate) struct Lookup {
    pub(crate) rows: Vec<Row>,
    /// Blocks, longest first, at which every group has what a query there can see.
    ends: Vec<usize>,
    block_tokens: u32,
}

/// One group's part of a [`Lookup`].
pub(crate) struct Row {
    pub(crate) places: Vec<Option<Place>>,
    /// `claims[n]`: blocks that taking the first `n` would take out of what is available.
    claims: Vec<u32>,
    window: Option<u32>,
}

/// Where a block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the arena.
    Resident(BlockId),
    /// In the second tier.
    Spilled(BlockHash),
}

/// What must be available besides the prefix.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Demand {
    /// Blocks the table is to have, those of the prefix included.
    pub(crate) reserve: u32,
    /// Blocks that must be left.
    pub(crate) spare: u32,
}

impl Lookup {
    pub(crate) fn new(state: &State, config: &PoolConfig, hashes: &[BlockHash], tiers: Tiers) -> Self {
        let mut limit = hashes.len();
        // Without a window a group needs the whole prefix, so its first gap bounds the search in the others.
        for (group, _) in config.groups.iter().enumerate().filter(|(_, group)| group.window.is_none()) {
            let found = hashes[..limit].iter().take_while(|hash| state.place(group, hash, tiers).is_some());
            limit = found.count();
        }
        let hashes = &hashes[..limit];
        let row = |(group, config): (usize, &crate::GroupConfig)| {
            let places: Vec<_> = hashes.iter().map(|hash| state.place(group, hash, tiers)).collect();
            let mut claims = Vec::with_capacity(limit + 1);
            claims.push(0);
            let mut sum = 0;
            for place in &places {
                sum += u32::from(place.is_some_and(|place| state.is_claim(group, place)));
                claims.push(sum);
            }
            Row { places, claims, window: config.window }
        };
        let rows: Vec<Row> = config.groups.iter().enumerate().map(row).collect();
        let ends = ends(&rows, limit, config.block_tokens);
        Self { rows, ends, block_tokens: config.block_tokens }
    }

    /// The longest prefix in blocks, whether or not there is room to take it.
    pub(crate) fn longest(&self) -> usize {
        self.ends.first().copied().unwrap_or(0)
    }

    /// The longest prefix that can be taken with `demand` met, or what is short with the longest of all.
    pub(crate) fn affordable(&self, state: &State, demand: Demand) -> Result<usize, OutOfBlocks> {
        let mut first_shortage = None;
        for &blocks in &self.ends {
            match self.shortage(state, blocks, demand) {
                None => return Ok(blocks),
                Some(shortage) => {
                    first_shortage.get_or_insert(shortage);
                }
            }
        }
        first_shortage.map_or(Ok(0), Err)
    }

    fn shortage(&self, state: &State, blocks: usize, demand: Demand) -> Option<OutOfBlocks> {
        let fresh = demand.reserve.saturating_sub(blocks as u32);
        self.rows.iter().enumerate().find_map(|(group, row)| {
            let claims = row.claims[blocks] - row.claims[row.first(blocks, self.block_tokens)];
            let needed = claims.saturating_add(fresh).saturating_add(demand.spare);
            let available = state.arenas[group].available();
            (needed > available).then_some(OutOfBlocks { group, needed, available })
        })
    }
}

impl Row {
    /// The first of the prefix's `blocks` that must be there.
    pub(crate) fn first(&self, blocks: usize, block_tokens: u32) -> usize {
        first_visible(blocks as u32 * block_tokens, self.window, block_tokens)
    }
}

/// All `n` at which every row has its blocks from `first(n)` to `n`; the last is 0.
fn ends(rows: &[Row], limit: usize, block_tokens: u32) -> Vec<usize> {
    let mut runs = vec![0; rows.len()];
    let mut ends = vec![0];
    for end in 1..=limit {
        let mut is_hit = true;
        for (row, run) in rows.iter().zip(&mut runs) {
            *run = if row.places[end - 1].is_some() { *run + 1 } else { 0 };
            is_hit &= *run >= end - row.first(end, block_tokens);
        }
        if is_hit {
            ends.push(end);
        }
    }
    ends.reverse();
    ends
}
