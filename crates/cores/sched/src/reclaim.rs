use motet_kv::{NO_BLOCK, OutOfBlocks, Table};

use crate::Scheduler;
use crate::plan::Draft;
use crate::sequence::{Order, Running, Sequence};

/// Blocks that an admission lacks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shortage {
    pub(crate) group: usize,
    pub(crate) blocks: u32,
}

/// A sequence that lost its blocks to other lanes so often comes back only when its lane's own share has room
/// for it, where nobody takes them again: lanes don't make each other compute the same things for ever.
const RECLAIMS: u32 = 2;

impl From<OutOfBlocks> for Shortage {
    fn from(error: OutOfBlocks) -> Self {
        let OutOfBlocks { group, needed, available } = error;
        Self { group, blocks: needed.saturating_sub(available) }
    }
}

/// What is still to be found.
#[derive(Debug, Clone, Copy)]
struct Quest {
    lane: usize,
    slots: usize,
    group: usize,
    blocks: u32,
}

/// What a lane has in the batch.
#[derive(Debug, Clone, Copy)]
struct Holding {
    slots: usize,
    tokens: u64,
}

impl Scheduler {
    /// Takes back, for a lane within its share, what other lanes hold beyond theirs: first from the last in the
    /// order of claims. All that is lacking, or nothing.
    pub(crate) fn reclaim(
        &mut self,
        order: Order,
        lacks_slot: bool,
        shortage: Option<Shortage>,
        draft: &mut Draft,
    ) -> bool {
        let Some(waiting) = self.waiting.get(&order) else { return false };
        let (lane, tokens) = (waiting.sequence.lane, waiting.sequence.len() + 1);
        let (group, blocks) = shortage.map_or((0, 0), |shortage| (shortage.group, shortage.blocks));
        let quest = Quest { lane, slots: usize::from(lacks_slot), group, blocks };
        if draft.is_closed || !self.is_within_share(tokens, &quest) {
            return false;
        }
        let Some(victims) = self.victims(quest) else { return false };
        for victim in victims {
            if let Some(running) = self.running.get_mut(&victim) {
                running.sequence.reclaimed += 1;
            }
            self.preempt(victim, draft);
        }
        true
    }

    fn holding(&self, lane: usize) -> Holding {
        let lane = &self.lanes.all[lane];
        Holding { slots: lane.running, tokens: lane.kv_tokens }
    }

    /// Slots and KV tokens that a lane's share amounts to; of slots at least one.
    fn entitlement(&self, lane: usize) -> (f64, f64) {
        let share = self.lanes.share(lane);
        let slots = share * self.config.max_running.min(self.batch_limit) as f64;
        let blocks = self.capacity.groups.first().map_or(0, |group| group.blocks);
        (slots.max(1.0), share * f64::from(blocks) * f64::from(self.bounds.block_tokens))
    }

    fn is_within_share(&self, tokens: u32, quest: &Quest) -> bool {
        let Holding { slots, tokens: held } = self.holding(quest.lane);
        let (own_slots, own_tokens) = self.entitlement(quest.lane);
        let fits_slots = quest.slots == 0 || (slots + 1) as f64 <= own_slots;
        let fits_tokens = quest.blocks == 0 || (held + u64::from(tokens)) as f64 <= own_tokens;
        self.lanes.all[quest.lane].is_interactive() && fits_slots && fits_tokens
    }

    /// Whether a lane with `holding` has more than its share of what is sought. Background lanes have none.
    fn is_beyond_share(&self, lane: usize, holding: Holding, quest: &Quest) -> bool {
        let (slots, tokens) = self.entitlement(lane);
        let is_beyond = (quest.slots > 0 && holding.slots as f64 > slots)
            || (quest.blocks > 0 && holding.tokens as f64 > tokens);
        is_beyond || !self.lanes.all[lane].is_interactive()
    }

    /// Enough of those beyond their lane's share, or none.
    fn victims(&self, mut quest: Quest) -> Option<Vec<Order>> {
        let mut holdings: Vec<_> = (0..self.lanes.all.len()).map(|lane| self.holding(lane)).collect();
        let can_give = |lane: usize| lane != quest.lane && self.is_beyond_share(lane, holdings[lane], &quest);
        if !(0..holdings.len()).any(can_give) {
            return None;
        }
        let mut holders = (quest.blocks > 0).then(|| self.holders(quest.group));
        let mut victims = Vec::new();
        for (order, running) in self.running.iter().rev() {
            if quest.slots == 0 && quest.blocks == 0 {
                break;
            }
            let lane = running.sequence.lane;
            let holding = holdings[lane];
            if lane == quest.lane
                || !self.is_beyond_share(lane, holding, &quest)
                || !self.may_lose(running, holding)
            {
                continue;
            }
            let freed = holders.as_mut().map_or(0, |holders| holders.free(&running.table));
            if quest.slots == 0 && freed == 0 {
                continue;
            }
            let tokens = holding.tokens - u64::from(running.sequence.len());
            holdings[lane] = Holding { slots: holding.slots - 1, tokens };
            quest.slots = quest.slots.saturating_sub(1);
            quest.blocks = quest.blocks.saturating_sub(freed);
            victims.push(*order);
        }
        (quest.slots == 0 && quest.blocks == 0).then_some(victims)
    }

    /// A lane's first sequence is left to it, so that each lane gets on. The fills of one admitted in this step
    /// are under way.
    fn may_lose(&self, running: &Running, holding: Holding) -> bool {
        let is_interactive = self.lanes.all[running.sequence.lane].is_interactive();
        running.admitted != self.plans && (!is_interactive || holding.slots > 1)
    }

    /// Whether a sequence has to wait for its lane's own share.
    pub(crate) fn waits_for_share(&self, order: Order) -> bool {
        let Some(waiting) = self.waiting.get(&order) else { return false };
        let Sequence { lane, reclaimed, .. } = waiting.sequence;
        let Holding { slots, tokens } = self.holding(lane);
        let needed = tokens + u64::from(waiting.sequence.len() + 1);
        let is_interactive = self.lanes.all[lane].is_interactive();
        is_interactive && reclaimed >= RECLAIMS && slots > 0 && needed as f64 > self.entitlement(lane).1
    }

    /// The last after `order` in the order of claims, of those that give a block of `group` back if there are any.
    /// None admitted in this step: its fills are under way.
    pub(crate) fn last_claim(&self, order: Order, group: usize) -> Option<Order> {
        let after = (std::ops::Bound::Excluded(order), std::ops::Bound::Unbounded);
        let holders = self.holders(group);
        let mut last = None;
        for (order, running) in self.running.range(after).rev().filter(|(_, r)| r.admitted != self.plans) {
            if holders.freed_by(&running.table) > 0 {
                return Some(*order);
            }
            last = last.or(Some(*order));
        }
        last
    }

    fn holders(&self, group: usize) -> Holders {
        let blocks = self.capacity.groups.get(group).map_or(0, |group| group.blocks);
        let mut holders = Holders { group, counts: vec![0; blocks as usize] };
        for running in self.running.values() {
            for id in holders.group_ids(&running.table) {
                holders.counts[id] += 1;
            }
        }
        holders
    }
}

/// How many of the batch hold each block of a group.
struct Holders {
    group: usize,
    counts: Vec<u32>,
}

impl Holders {
    fn group_ids<'a>(&self, table: &'a Table) -> impl Iterator<Item = usize> + use<'a> {
        table.ids(self.group).iter().filter(|id| **id != NO_BLOCK).map(|id| *id as usize)
    }

    /// Blocks that would be nobody's without this table.
    fn freed_by(&self, table: &Table) -> u32 {
        self.group_ids(table).filter(|id| self.counts[*id] == 1).count() as u32
    }

    /// Takes a table's holds away. Returns the blocks that are nobody's then.
    fn free(&mut self, table: &Table) -> u32 {
        let mut freed = 0;
        for id in self.group_ids(table) {
            self.counts[id] -= 1;
            freed += u32::from(self.counts[id] == 0);
        }
        freed
    }
}
