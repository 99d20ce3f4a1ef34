use std::collections::HashMap;
use std::time::Duration;

use motet_types::{SequenceId, TokenId};

use crate::lane::Lanes;
use crate::sequence::{Order, Running, Sequence, Waiting};
use crate::states::End;
use crate::{Chunk, Next, Outcome, Scheduler, StepPlan};

/// Weight of the latest step in the moving average.
const STEP_STEP: f64 = 0.02;

/// What the samples of a sequence do next.
#[derive(Debug, Default)]
struct Turnout {
    /// Go on, each after its token; without one it gets its logits again.
    branches: Vec<(SequenceId, Option<TokenId>)>,
    ended: Vec<(SequenceId, End)>,
}

impl Scheduler {
    /// Takes what became of a plan. What ended or was cancelled since is ignored.
    pub fn commit(&mut self, plan: &StepPlan, outcome: Outcome, now: Duration) {
        let Outcome { elapsed, results, failed_fills } = outcome;
        self.cost.observe(plan.shape(), elapsed);
        if !plan.is_empty() {
            self.mean_step += STEP_STEP * (elapsed.as_secs_f64() - self.mean_step);
        }
        if !failed_fills.is_empty() {
            failed_fills.iter().for_each(|fill| self.pool.fill_failed(fill));
            let broken = self.running.iter().filter(|(_, running)| running.table.is_broken());
            let broken: Vec<_> = broken.map(|(order, _)| *order).collect();
            broken.into_iter().for_each(|order| self.put_back(order));
        }
        let mut results: HashMap<_, _> = results.into_iter().collect();
        for chunk in &plan.chunks {
            self.settle(chunk, &mut results, now);
        }
    }

    fn settle(&mut self, chunk: &Chunk, results: &mut HashMap<SequenceId, Next>, now: Duration) {
        // The sequence that the chunk was of, under whichever of its samples is still wanted.
        let mut ids = std::iter::once(&chunk.sequence).chain(&chunk.siblings);
        let Some(order) = ids.find_map(|id| self.ids.get(id)).copied() else { return };
        let Some(running) = self.running.get_mut(&order) else { return };
        let samples = running.sequence.samples.iter();
        let next: Vec<_> = samples.map(|id| (*id, results.remove(id))).collect();
        if !next.iter().any(|(_, next)| *next == Some(Next::Fail)) {
            running.store(chunk, now);
            if running.is_decoding() {
                self.lanes.all[running.sequence.lane].prefilling.remove(&order);
            }
        }
        if chunk.wants_logits && next.iter().any(|(_, next)| next.is_some()) {
            let turnout = self.sort_out(order, next);
            self.follow(order, turnout, now);
        }
    }

    /// Sorts what goes on from what ends, and names the sequence by all branches, so that ending one of its ids
    /// does not end it while a branch is left.
    fn sort_out(&mut self, order: Order, next: Vec<(SequenceId, Option<Next>)>) -> Turnout {
        let mut turnout = Turnout::default();
        for (id, next) in next {
            match next {
                None => turnout.branches.push((id, None)),
                Some(Next::Append(token)) => turnout.branches.push((id, Some(token))),
                Some(Next::Finish) => turnout.ended.push((id, End::Finished)),
                Some(Next::Fail) => turnout.ended.push((id, End::Failed)),
                Some(Next::Fork(list)) => {
                    let before = turnout.branches.len();
                    for (branch, token) in list {
                        if branch == id || self.adopt(order, branch) {
                            turnout.branches.push((branch, Some(token)));
                        }
                    }
                    if !turnout.branches[before..].iter().any(|(branch, _)| *branch == id) {
                        turnout.ended.push((id, End::Finished));
                    }
                }
            }
        }
        turnout
    }

    /// Adds an id to a sequence's samples, unless it is in use.
    fn adopt(&mut self, order: Order, id: SequenceId) -> bool {
        let Some(running) = self.running.get_mut(&order) else { return false };
        if self.ids.contains_key(&id) {
            return false;
        }
        self.ids.insert(id, order);
        running.sequence.samples.push(id);
        self.deadlines.extend(running.sequence.deadline.map(|deadline| (deadline, id)));
        true
    }

    fn follow(&mut self, order: Order, turnout: Turnout, now: Duration) {
        let Turnout { branches, ended } = turnout;
        for (id, end) in ended {
            // The token that ends it was generated too.
            if let Some(running) = self.running.get_mut(&order).filter(|_| end == End::Finished) {
                count_output(&mut self.lanes, &mut running.sequence);
            }
            self.end(id, end);
        }
        let Some((&(first, token), others)) = branches.split_first() else { return };
        for &(id, token) in others {
            if let Some(branch) = self.split(order, id, now) {
                self.append(branch, id, token);
            }
        }
        self.append(order, first, token);
    }

    /// Makes one of a sequence's samples a sequence of its own, with the same tokens and shared blocks. Without a
    /// slot or a block for it, it comes back later and finds its prefix cached.
    fn split(&mut self, order: Order, id: SequenceId, now: Duration) -> Option<Order> {
        let has_slot = self.running.len() < self.config.max_running;
        self.branches += 1;
        let parent = self.running.get_mut(&order)?;
        parent.sequence.samples.retain(|sample| *sample != id);
        let branch = Order { branch: self.branches, ..order };
        let mut sequence = parent.sequence.branch(branch, id);
        let table = has_slot.then(|| parent.table.fork().ok()).flatten();
        let (admitted, planned) = (parent.admitted, parent.planned);
        self.ids.insert(id, branch);
        self.lanes.enter(sequence.lane, sequence.user, now);
        self.prepay(&mut sequence);
        match table {
            Some((table, copies)) => {
                self.copies.extend(copies);
                self.run(Running { sequence, table, admitted, planned, attained: 0 });
            }
            None => {
                let uncached = self.bounds.block_tokens;
                self.queue(Waiting { sequence, uncached, blocked: None });
            }
        }
        Some(branch)
    }

    /// A sequence's next token is known; if it has all it may have, it ends.
    fn append(&mut self, order: Order, id: SequenceId, token: Option<TokenId>) {
        let Some(token) = token else { return };
        let sequence = if let Some(running) = self.running.get_mut(&order) {
            self.lanes.all[running.sequence.lane].kv_tokens += 1;
            &mut running.sequence
        } else if let Some(waiting) = self.waiting.get_mut(&order) {
            &mut waiting.sequence
        } else {
            return;
        };
        count_output(&mut self.lanes, sequence);
        sequence.tokens.push(token);
        if sequence.generated() >= sequence.max_tokens {
            self.end(id, End::Finished);
        }
    }
}

/// A token was generated: it is paid for, now or in advance.
fn count_output(lanes: &mut Lanes, sequence: &mut Sequence) {
    if sequence.prepaid > 0 {
        sequence.prepaid -= 1;
    } else {
        lanes.charge(sequence.lane, sequence.user, 1);
    }
    lanes.all[sequence.lane].totals.output_tokens += 1;
}

impl Running {
    /// A chunk was computed: what was not stored before is now.
    fn store(&mut self, chunk: &Chunk, now: Duration) {
        let stored = self.table.stored_tokens();
        let new = stored.saturating_sub(chunk.start) as usize;
        if stored >= chunk.start && new < chunk.tokens.len() {
            self.table.append(&chunk.tokens[new..], now);
        }
    }
}
