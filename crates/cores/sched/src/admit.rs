use std::time::Duration;

use motet_kv::{Admission, OutOfBlocks, Tiers};

use crate::Scheduler;
use crate::plan::Draft;
use crate::reclaim::Shortage;
use crate::sequence::{Blocked, Order};

/// On what terms a sequence is admitted.
struct Terms {
    tiers: Tiers,
    /// Room it gets at once: for its first chunk.
    reserve_tokens: u32,
    /// Blocks it will need for the rest of its tokens and one more.
    later_blocks: u32,
    /// Blocks kept for others.
    spare_blocks: u32,
}

impl Scheduler {
    /// Admits the next of a lane and gives it its first chunk, or shuts the lane for this step.
    ///
    /// Whoever can't be admitted though it is its turn lets others go before it, but only for so long: then nobody
    /// whose turn is later is admitted until it fits.
    pub(crate) fn try_admit(&mut self, lane: usize, order: Order, draft: &mut Draft) {
        if self.waits_for_share(order) {
            return self.shut(order, lane, None, draft);
        }
        let lacks_slot = !self.has_slot();
        let mut shortage = self.known_shortage(order).or_else(|| self.foreseen_shortage(order, lacks_slot));
        if (lacks_slot || shortage.is_some()) && !self.reclaim(order, lacks_slot, shortage, draft) {
            return self.shut(order, lane, shortage, draft);
        }
        // What was cached when it came is known without hashing its prompt again.
        for probes in [false, true] {
            let Some(terms) = self.terms(order, probes, draft) else { break };
            let Err(error) = self.open(order, &terms, draft.now) else { return self.advance(order, draft) };
            shortage = Some(Shortage::from(error));
            if probes
                && self.reclaim(order, false, shortage, draft)
                && self.open(order, &terms, draft.now).is_ok()
            {
                return self.advance(order, draft);
            }
            self.block(order, error, &terms, draft.now);
        }
        self.shut(order, lane, shortage, draft);
    }

    fn open(&mut self, order: Order, terms: &Terms, now: Duration) -> Result<(), OutOfBlocks> {
        let Some(waiting) = self.waiting.get(&order) else { return Ok(()) };
        let admission = Admission {
            scope: &waiting.sequence.scope,
            tokens: &waiting.sequence.tokens,
            tiers: terms.tiers,
            reserve_tokens: terms.reserve_tokens,
            spare_blocks: terms.later_blocks + terms.spare_blocks,
        };
        let table = self.pool.admit(&admission, now)?;
        self.start(order, table);
        Ok(())
    }

    fn terms(&self, order: Order, probes: bool, draft: &Draft) -> Option<Terms> {
        let waiting = self.waiting.get(&order)?;
        let sequence = &waiting.sequence;
        let pays = self.cost.filling_pays(sequence.len() / 2, self.bounds.block_tokens);
        let tiers = if pays { Tiers::Both } else { Tiers::First };
        let hit = match probes {
            true => {
                let probe = self.pool.probe_tiers(&sequence.scope, &sequence.tokens);
                if pays { probe.both } else { probe.first }
            }
            false => sequence.len() - waiting.uncached.min(sequence.len()),
        };
        let start = hit.min(sequence.len() - 1);
        let reserve_tokens =
            start + self.budget_of(sequence.lane, draft).grant(&self.cost, start, sequence.len() - start);
        // Whoever is alone has room for the rest, or nobody ever has.
        let later_blocks = match self.running.is_empty() {
            true => 0,
            false => self.fit_windows(self.blocks(sequence.len() + 1) - self.blocks(reserve_tokens)),
        };
        Some(Terms { tiers, reserve_tokens, later_blocks, spare_blocks: self.spare_blocks() })
    }

    /// What it lacked when it was last tried, if that is still so. Spares hashing its prompt in every step.
    fn known_shortage(&self, order: Order) -> Option<Shortage> {
        let Blocked { group, needed, .. } = self.waiting.get(&order)?.blocked?;
        if self.running.is_empty() {
            return None; // on other terms than then
        }
        let needed = needed + self.spare_blocks();
        let available = self.pool.available(group);
        (available < needed).then(|| Shortage { group, blocks: needed - available })
    }

    /// What it will lack, so that no slot is taken back for it in vain.
    fn foreseen_shortage(&self, order: Order, lacks_slot: bool) -> Option<Shortage> {
        let waiting = self.waiting.get(&order).filter(|_| lacks_slot)?;
        let needed = self.blocks(waiting.uncached + 1) + self.spare_blocks();
        let available = self.pool.available(0);
        (available < needed).then(|| Shortage { group: 0, blocks: needed - available })
    }

    fn block(&mut self, order: Order, shortage: OutOfBlocks, terms: &Terms, now: Duration) {
        let Some(waiting) = self.waiting.get_mut(&order) else { return };
        let since = waiting.blocked.map_or(now, |blocked| blocked.since);
        let needed = shortage.needed.saturating_sub(terms.spare_blocks);
        waiting.blocked = Some(Blocked { since, group: shortage.group, needed });
    }

    fn shut(&mut self, order: Order, lane: usize, shortage: Option<Shortage>, draft: &mut Draft) {
        self.lanes.all[lane].shut = self.plans;
        let blocked = self.waiting.get(&order).and_then(|waiting| waiting.blocked);
        let has_aged =
            blocked.is_some_and(|blocked| draft.now.saturating_sub(blocked.since) >= self.config.ageing);
        draft.is_closed |= shortage.is_some() && has_aged && self.lanes.all[lane].is_interactive();
    }

    fn has_slot(&self) -> bool {
        self.running.len() < self.config.max_running.min(self.batch_limit)
    }

    /// Blocks that are for those in the batch: what their prompts still need, and some to grow.
    fn spare_blocks(&self) -> u32 {
        if self.running.is_empty() {
            return 0;
        }
        let prefilling = self.lanes.all.iter().flat_map(|lane| &lane.prefilling);
        let promised = prefilling.filter_map(|order| self.running.get(order)).map(|running| {
            let has = self.blocks(running.table.capacity_tokens());
            self.blocks(running.sequence.len() + 1).saturating_sub(has)
        });
        let total = self.capacity.groups.first().map_or(0, |group| group.blocks);
        let share = (f64::from(total) * f64::from(self.config.growth_reserve)).ceil() as u32;
        self.fit_windows(promised.sum::<u32>() + share.max(self.running.len() as u32))
    }

    pub(crate) fn blocks(&self, tokens: u32) -> u32 {
        tokens.div_ceil(self.bounds.block_tokens)
    }

    /// A windowed group holds less than the whole of its sequences and is not asked to keep that much.
    fn fit_windows(&self, blocks: u32) -> u32 {
        let windowed = self.capacity.groups.iter().filter(|group| group.window.is_some());
        windowed.map(|group| group.blocks / 4).fold(blocks, u32::min)
    }
}
