//! How sequences change their state, and what their lanes count.

use motet_kv::Table;
use motet_types::SequenceId;

use crate::Scheduler;
use crate::sequence::{Order, Running, Sequence, Waiting};

/// How a sequence ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Finished,
    Cancelled,
    Failed,
}

impl Scheduler {
    /// Puts a sequence in line: a new one for its user's turn, any other at the head of its lane.
    pub(crate) fn queue(&mut self, waiting: Waiting) {
        let Sequence { order, lane, user, .. } = waiting.sequence;
        let is_new = waiting.sequence.reached == 0 && order.branch == 0;
        let lane = &mut self.lanes.all[lane];
        lane.uncached += u64::from(waiting.uncached);
        if is_new {
            lane.turns.push(user, order);
        } else {
            lane.returning.insert(order);
        }
        self.waiting.insert(order, waiting);
    }

    /// Takes a sequence out of line.
    fn dequeue(&mut self, order: Order) -> Option<Waiting> {
        let waiting = self.waiting.remove(&order)?;
        let lane = &mut self.lanes.all[waiting.sequence.lane];
        lane.uncached -= u64::from(waiting.uncached);
        if !lane.returning.remove(&order) {
            lane.turns.remove(waiting.sequence.user, order);
        }
        Some(waiting)
    }

    /// Waiting → running. The expected output is paid for in advance, so that the next turn is another's.
    pub(crate) fn start(&mut self, order: Order, table: Table) {
        let Some(waiting) = self.dequeue(order) else { return };
        let is_new = waiting.sequence.reached == 0;
        let mut running = waiting.start(table, self.plans);
        if is_new {
            let (reached, length) = (running.sequence.reached, running.sequence.len());
            let lane = &mut self.lanes.all[running.sequence.lane];
            lane.note_prompt(length - reached);
            lane.totals.started += 1;
            lane.totals.cached_tokens += u64::from(reached);
            self.prepay(&mut running.sequence);
        }
        self.run(running);
    }

    pub(crate) fn prepay(&mut self, sequence: &mut Sequence) {
        let lane = &self.lanes.all[sequence.lane];
        sequence.prepaid = lane.foreseen_output(sequence.max_tokens - sequence.generated());
        self.lanes.charge(sequence.lane, sequence.user, i64::from(sequence.prepaid));
    }

    /// Adds to the batch.
    pub(crate) fn run(&mut self, running: Running) {
        let order = running.sequence.order;
        let lane = &mut self.lanes.all[running.sequence.lane];
        lane.running += 1;
        lane.kv_tokens += u64::from(running.sequence.len());
        if !running.is_decoding() {
            lane.prefilling.insert(order);
        }
        self.running.insert(order, running);
    }

    /// Takes out of the batch.
    fn stop(&mut self, order: Order) -> Option<Running> {
        let running = self.running.remove(&order)?;
        let lane = &mut self.lanes.all[running.sequence.lane];
        lane.running -= 1;
        lane.kv_tokens -= u64::from(running.sequence.len());
        lane.prefilling.remove(&order);
        Some(running)
    }

    /// Running → waiting.
    pub(crate) fn put_back(&mut self, order: Order) {
        if let Some(running) = self.stop(order) {
            self.lanes.all[running.sequence.lane].totals.preemptions += 1;
            let mut waiting = running.preempt();
            // One that had not stored anything yet still returns to the head, not to the end of the line.
            waiting.sequence.reached = waiting.sequence.reached.max(1);
            self.queue(waiting);
        }
    }

    /// Ends what `id` names: one sample of several that share a sequence, or the sequence.
    pub(crate) fn end(&mut self, id: SequenceId, end: End) -> bool {
        let Some(order) = self.ids.get(&id).copied() else { return false };
        let running = self.running.get_mut(&order).map(|running| &mut running.sequence);
        let sequence = running.or_else(|| self.waiting.get_mut(&order).map(|waiting| &mut waiting.sequence));
        let Some(sequence) = sequence else { return false };
        if sequence.samples.len() > 1 {
            sequence.samples.retain(|sample| *sample != id);
            let (lane, deadline) = (sequence.lane, sequence.deadline);
            self.release(id, deadline);
            self.count(lane, end);
        } else if self.running.contains_key(&order) {
            if let Some(running) = self.stop(order) {
                if end == End::Failed {
                    running.table.discard();
                }
                self.close(&running.sequence, end);
            }
        } else if let Some(waiting) = self.dequeue(order) {
            self.close(&waiting.sequence, end);
        }
        true
    }

    /// The last of a sequence that is in no state any more.
    fn close(&mut self, sequence: &Sequence, end: End) {
        sequence.samples.iter().for_each(|id| self.release(*id, sequence.deadline));
        self.lanes.leave(sequence.lane, sequence.user, sequence.prepaid);
        self.count(sequence.lane, end);
        if end == End::Finished {
            self.lanes.all[sequence.lane].note_output(sequence.generated() + 1);
        }
    }

    fn release(&mut self, id: SequenceId, deadline: Option<std::time::Duration>) {
        self.ids.remove(&id);
        if let Some(deadline) = deadline {
            self.deadlines.remove(&(deadline, id));
        }
    }

    fn count(&mut self, lane: usize, end: End) {
        let totals = &mut self.lanes.all[lane].totals;
        match end {
            End::Finished => totals.finished += 1,
            End::Cancelled => totals.cancelled += 1,
            End::Failed => totals.failed += 1,
        }
    }
}
