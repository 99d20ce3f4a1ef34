use std::collections::HashMap;

use motet_types::SequenceId;

use crate::sequence::{Order, Sequence};
use crate::{Scheduler, UserKey};

impl Scheduler {
    /// States the invariants. Takes time in proportion to all there is.
    pub fn check(&self) -> Result<(), String> {
        self.check_ids()?;
        self.check_running()?;
        for lane in 0..self.lanes.all.len() {
            self.check_lane(lane).map_err(|problem| format!("lane {lane}: {problem}"))?;
        }
        self.pool.check()?;
        let counts = self.pool.counts().all;
        if counts.used + counts.cached + counts.free != counts.total {
            return Err(format!("blocks are not conserved: {counts:?}"));
        }
        if self.running.is_empty() && counts.used != counts.pinned {
            return Err(format!("{} blocks are used by nobody", counts.used - counts.pinned));
        }
        Ok(())
    }

    fn sequences(&self) -> impl Iterator<Item = (Order, &Sequence)> {
        let running = self.running.iter().map(|(order, running)| (*order, &running.sequence));
        running.chain(self.waiting.iter().map(|(order, waiting)| (*order, &waiting.sequence)))
    }

    fn check_ids(&self) -> Result<(), String> {
        let mut ids: HashMap<SequenceId, Order> = HashMap::new();
        let mut deadlines = 0;
        for (order, sequence) in self.sequences() {
            if sequence.order != order || sequence.samples.is_empty() {
                return Err(format!("{order:?} is kept as {:?}", sequence.order));
            }
            for id in &sequence.samples {
                if ids.insert(*id, order).is_some() {
                    return Err(format!("{id} names two sequences"));
                }
                let is_due = sequence.deadline.is_none_or(|at| self.deadlines.contains(&(at, *id)));
                deadlines += usize::from(sequence.deadline.is_some());
                if !is_due {
                    return Err(format!("{id} has a deadline that is not watched"));
                }
            }
        }
        match () {
            () if ids != self.ids => Err("ids are not those of the sequences".to_owned()),
            () if deadlines != self.deadlines.len() => Err("a deadline of nobody is watched".to_owned()),
            () => Ok(()),
        }
    }

    fn check_running(&self) -> Result<(), String> {
        if self.running.len() > self.config.max_running {
            return Err(format!("{} are in the batch", self.running.len()));
        }
        for (order, running) in &self.running {
            let (stored, capacity) = (running.table.stored_tokens(), running.table.capacity_tokens());
            let len = running.sequence.len();
            if stored > capacity || stored > len || running.sequence.generated() > running.sequence.max_tokens
            {
                return Err(format!("{order:?}: {stored} of {len} tokens stored in room for {capacity}"));
            }
            if self.waiting.contains_key(order) {
                return Err(format!("{order:?} waits and runs"));
            }
        }
        Ok(())
    }

    fn check_lane(&self, index: usize) -> Result<(), String> {
        let lane = &self.lanes.all[index];
        let running = || self.running.values().filter(|running| running.sequence.lane == index);
        let waiting = || self.waiting.values().filter(|waiting| waiting.sequence.lane == index);
        let behind = running().filter(|running| !running.is_decoding()).map(|running| running.sequence.order);
        let mut of_user: HashMap<UserKey, usize> = HashMap::new();
        for (_, sequence) in self.sequences().filter(|(_, sequence)| sequence.lane == index) {
            *of_user.entry(sequence.user).or_default() += 1;
        }
        lane.turns.check(|user| of_user.get(&user).copied().unwrap_or(0))?;
        let kv_tokens: u64 = running().map(|running| u64::from(running.sequence.len())).sum();
        let uncached: u64 = waiting().map(|waiting| u64::from(waiting.uncached)).sum();
        let returning = lane.returning.iter().filter(|order| self.waiting.contains_key(order)).count();
        match () {
            () if running().count() != lane.running => Err(format!("{} run", running().count())),
            () if kv_tokens != lane.kv_tokens => Err(format!("{kv_tokens} tokens, not {}", lane.kv_tokens)),
            () if uncached != lane.uncached => Err(format!("{uncached} uncached, not {}", lane.uncached)),
            () if waiting().count() != lane.waiting() + lane.returning.len() => {
                Err(format!("{} wait, {} in line", waiting().count(), lane.waiting() + lane.returning.len()))
            }
            () if returning != lane.returning.len() => Err("one that returns does not wait".to_owned()),
            () if running().count() + waiting().count() != lane.sequences => {
                Err(format!("{} sequences, not {}", running().count() + waiting().count(), lane.sequences))
            }
            () if !behind.eq(lane.prefilling.iter().copied()) => {
                Err("those behind are not those counted as behind".to_owned())
            }
            () => Ok(()),
        }
    }
}
