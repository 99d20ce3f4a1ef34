use std::time::Duration;

use motet_kv::{BlockCopy, Fill};

use crate::budget::{Budget, batch_limit};
use crate::sequence::{Order, Running};
use crate::{Chunk, Scheduler, StepPlan, StepShape};

/// A step that is being planned.
#[derive(Debug)]
pub(crate) struct Draft {
    copies: Vec<BlockCopy>,
    fills: Vec<Fill>,
    chunks: Vec<(Order, Chunk)>,
    pub(crate) budget: Budget,
    /// Nobody more is admitted: blocks are being saved for one who has waited long.
    pub(crate) is_closed: bool,
    pub(crate) now: Duration,
}

/// Steps in a row that may pass over a decode because its lane has had more than its share.
const PASSED_OVER: u64 = 2;

/// Whose chunk is next.
enum Pick {
    /// One in the batch that is behind.
    Continue(Order),
    /// The next of a lane's that wait.
    Admit(usize, Order),
}

impl Scheduler {
    /// Decides the next step. Followed by [`commit`](Self::commit), even if it was empty.
    pub fn plan(&mut self, now: Duration) -> StepPlan {
        self.plans += 1;
        self.lanes.begin_step(now);
        if let Some((plan, rank)) = self.starved
            && plan + 1 == self.plans
        {
            self.lanes.shut_from(rank, self.plans);
        }
        let mut draft = self.open_draft(now);
        for shares in [true, false] {
            self.plan_decodes(shares, &mut draft);
            self.plan_prompts(shares, &mut draft);
        }
        self.budget_used = draft.budget.used(&self.cost);
        let Draft { copies, fills, chunks, .. } = draft;
        let chunks = chunks.into_iter().map(|(_, chunk)| chunk).collect();
        StepPlan { spills: self.pool.take_spills(), copies, fills, chunks }
    }

    fn open_draft(&mut self, now: Duration) -> Draft {
        let tokens: u64 = self.lanes.all.iter().map(|lane| lane.kv_tokens).sum();
        let context = tokens / (self.running.len() as u64).max(1);
        self.batch_limit = batch_limit(&self.cost, &self.bounds, context as u32);
        // Nobody waits for a background lane's tokens.
        let decoding =
            |lane: &crate::lane::Lane| lane.is_interactive() && lane.running > lane.prefilling.len();
        let has_decodes = self.lanes.all.iter().any(decoding);
        Draft {
            copies: std::mem::take(&mut self.copies),
            fills: Vec::new(),
            chunks: Vec::new(),
            budget: Budget::new(&self.cost, &self.bounds, has_decodes),
            is_closed: false,
            now,
        }
    }

    /// One token for everyone who is one behind. In lanes that don't share the step, or that have had more than
    /// the one whose prompt is next, only while there is room, those first whose last token is longest ago.
    fn plan_decodes(&mut self, shares: bool, draft: &mut Draft) {
        let mut yields = if shares { self.yields(draft) } else { vec![None; self.lanes.all.len()] };
        let lanes = &self.lanes.all;
        let due = |running: &&Running| running.is_decoding() && lanes[running.sequence.lane].shares == shares;
        let key = |running: &Running| {
            let is_bounded = !shares || yields[running.sequence.lane].is_some();
            (
                if shares { running.sequence.order.rank } else { 0 },
                if is_bounded { running.planned } else { 0 },
                running.sequence.order,
            )
        };
        let mut due: Vec<_> = self.running.values().filter(due).map(key).collect();
        due.sort_unstable();
        for (_, _, order) in due {
            // It may have given up its blocks to one before it.
            let Some(running) = self.running.get_mut(&order) else { continue };
            let (shape, end, lane) = (running.shape(1), running.sequence.len(), running.sequence.lane);
            // A step with nothing else in it takes one, whatever it is expected to take: someone always gets on.
            if !shares && !draft.chunks.is_empty() && !draft.budget.has_room_for(&self.cost, shape) {
                return;
            }
            if let Some(room) = &mut yields[lane] {
                let is_overdue = self.plans - running.planned > PASSED_OVER;
                if !is_overdue && !room.has_room_for(&self.cost, shape) {
                    continue;
                }
                room.spend(&self.cost, shape);
            }
            if running.table.reserve(end).is_ok() || self.secure(order, end, draft) {
                draft.budget.spend(&self.cost, shape);
                self.add_chunk(order, 1, draft);
            }
        }
    }

    /// By lane, what its decodes are bounded by, if they are: its share of the step, where it has had more than
    /// another whose prompt could be next.
    fn yields(&self, draft: &Draft) -> Vec<Option<Budget>> {
        let turn = self.lanes.in_turn(true);
        let mut yields = vec![None; self.lanes.all.len()];
        let has_prompts = |lane: &usize| {
            let lane = &self.lanes.all[*lane];
            let can_admit = lane.shut + 1 < self.plans && lane.waiting() + lane.returning.len() > 0;
            lane.is_interactive() && (can_admit || !lane.prefilling.is_empty())
        };
        let claimant = turn.iter().position(has_prompts).unwrap_or(turn.len());
        for &lane in turn.iter().skip(claimant + 1) {
            yields[lane] = Some(draft.budget.part(self.lanes.share(lane)));
        }
        yields
    }

    /// Chunks of prompts, as it is their turn, while there is room.
    fn plan_prompts(&mut self, shares: bool, draft: &mut Draft) {
        if !shares && !draft.chunks.is_empty() {
            draft.budget.end_floor();
        }
        while draft.budget.has_room(&self.cost) {
            match self.pick(shares, draft) {
                Some(Pick::Continue(order)) => self.advance(order, draft),
                Some(Pick::Admit(lane, order)) => self.try_admit(lane, order, draft),
                None => return,
            }
        }
    }

    fn pick(&self, shares: bool, draft: &Draft) -> Option<Pick> {
        let turn = self.lanes.in_turn(shares).into_iter();
        turn.filter(|&lane| self.budget_of(lane, draft).has_room(&self.cost))
            .find_map(|lane| self.pick_in(lane, draft))
    }

    /// What prompts of a lane may take.
    pub(crate) fn budget_of(&self, lane: usize, draft: &Draft) -> Budget {
        match self.lanes.is_borrowing(lane, draft.now) {
            true => draft.budget.lent(),
            false => draft.budget.clone(),
        }
    }

    /// Those who return, then whose turn it is: by the user's turns, then by the sequence's own, then by arrival.
    fn pick_in(&self, index: usize, draft: &Draft) -> Option<Pick> {
        let lane = &self.lanes.all[index];
        let is_open = !draft.is_closed && lane.shut != self.plans && !self.is_held(index);
        if let Some(&order) = lane.returning.first().filter(|_| is_open) {
            return Some(Pick::Admit(index, order));
        }
        let key = |order: &Order| {
            let running = self.running.get(order).filter(|running| running.planned != self.plans)?;
            let turns = running.attained / self.config.turn_tokens.max(1);
            Some((lane.turns.turn(running.sequence.user), turns, *order))
        };
        let behind = lane.prefilling.iter().filter_map(key).min();
        let next = lane.turns.next().filter(|_| is_open).map(|(turn, order)| (turn, 0, order));
        match (behind, next) {
            (Some(behind), Some(next)) if next < behind => Some(Pick::Admit(index, next.2)),
            (Some((_, _, order)), _) => Some(Pick::Continue(order)),
            (None, next) => next.map(|(_, _, order)| Pick::Admit(index, order)),
        }
    }

    /// Gives one in the batch its chunk: as much as the budget grants, a block's worth where blocks are short.
    pub(crate) fn advance(&mut self, order: Order, draft: &mut Draft) {
        let Some(running) = self.running.get_mut(&order) else { return };
        // Whatever happens, it is not picked again in this plan.
        running.planned = self.plans;
        let (start, behind) = (running.start(), running.behind());
        let lane = running.sequence.lane;
        let mut tokens = self.budget_of(lane, draft).grant(&self.cost, start, behind);
        let Some(running) = self.running.get_mut(&order) else { return };
        if running.admitted == self.plans {
            // What it was admitted with; more is spared for others.
            tokens = tokens.min(running.table.capacity_tokens().saturating_sub(start)).max(1);
        }
        if running.table.reserve(start + tokens).is_err() {
            tokens = tokens.min(self.bounds.block_tokens);
            if !self.secure(order, start + tokens, draft) {
                return;
            }
        }
        draft.budget.spend_prefill(&self.cost, StepShape::chunk(start, tokens));
        if let Some(running) = self.running.get_mut(&order) {
            running.attained = running.attained.saturating_add(tokens);
            self.lanes.serve(running.sequence.lane, running.sequence.user, running.sequence.prepaid);
        }
        self.add_chunk(order, tokens, draft);
    }

    /// Room for the positions below `end`; the last in the order of claims gives up its blocks for it. The last itself
    /// keeps what it has and waits, until there is a block for it or one before it needs its own. Until then nobody
    /// is admitted who comes after it.
    fn secure(&mut self, order: Order, end: u32, draft: &mut Draft) -> bool {
        loop {
            let Some(running) = self.running.get_mut(&order) else { return false };
            let Err(error) = running.table.reserve(end) else { return true };
            let victim = self.last_claim(order, error.group);
            self.lanes.shut_from(victim.unwrap_or(order).rank, self.plans);
            let Some(victim) = victim else {
                self.starved = Some((self.plans, order.rank));
                return false;
            };
            self.preempt(victim, draft);
        }
    }

    pub(crate) fn preempt(&mut self, order: Order, draft: &mut Draft) {
        draft.chunks.retain(|(planned, _)| *planned != order);
        self.put_back(order);
    }

    /// Adds a chunk for which there is room.
    fn add_chunk(&mut self, order: Order, tokens: u32, draft: &mut Draft) {
        let groups = self.capacity.groups.len();
        let Some(running) = self.running.get_mut(&order) else { return };
        running.planned = self.plans;
        let (start, sequence) = (running.start(), &mut running.sequence);
        let end = start + tokens;
        let wants_logits = end == sequence.len();
        let siblings = if wants_logits { sequence.samples[1..].to_vec() } else { Vec::new() };
        let chunk = Chunk {
            sequence: sequence.samples[0],
            siblings,
            tokens: sequence.tokens[start as usize..end as usize].to_vec(),
            start,
            stored: running.table.stored_tokens(),
            tables: (0..groups).map(|group| running.table.ids(group).to_vec()).collect(),
            wants_logits,
        };
        draft.fills.extend(running.table.take_fills());
        draft.chunks.push((order, chunk));
        // Positions of the reply are charged when they are generated.
        let charged = end.min(sequence.prompt).saturating_sub(sequence.reached);
        sequence.reached = sequence.reached.max(end);
        let (lane, user) = (sequence.lane, sequence.user);
        self.lanes.charge(lane, user, i64::from(charged));
        self.lanes.touch(lane, draft.now);
        self.lanes.all[lane].totals.prompt_tokens += u64::from(charged);
    }
}
