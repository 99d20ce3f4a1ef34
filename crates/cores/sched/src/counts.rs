use crate::{LaneTotals, Scheduler};

/// What the scheduler holds now and what it did since the start.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Counts {
    /// By lane, as configured.
    pub lanes: Vec<LaneCounts>,
    /// Sequences in the batch.
    pub running: usize,
    /// Sequences that wait for the first time. Samples that share their prompt count as one.
    pub waiting: usize,
    /// Sequences that gave up their blocks and wait to come back.
    pub preempted: usize,
    /// Most sequences that the inter-token target lets into the batch, as of the last plan.
    pub batch_limit: usize,
    /// Tokens of running sequences whose keys and values are stored; shared blocks count for each holder.
    pub stored_tokens: u64,
    /// Part of its time that the last step was expected to use; above 1 where decodes alone take longer.
    pub budget_used: f64,
    /// Steps planned.
    pub plans: u64,
}

/// One lane's part.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LaneCounts {
    /// Its name.
    pub name: String,
    /// Sequences in the batch.
    pub running: usize,
    /// Sequences that wait for the first time.
    pub waiting: usize,
    /// Sequences that wait to come back.
    pub preempted: usize,
    /// Tokens of its sequences in the batch.
    pub kv_tokens: u64,
    /// Since the start.
    pub totals: LaneTotals,
}

impl Scheduler {
    /// For gauges and counters.
    pub fn counts(&self) -> Counts {
        let lanes = self.lanes.all.iter().map(|lane| LaneCounts {
            name: lane.config.name.clone(),
            running: lane.running,
            waiting: lane.waiting(),
            preempted: lane.returning.len(),
            kv_tokens: lane.kv_tokens,
            totals: lane.totals,
        });
        let lanes: Vec<_> = lanes.collect();
        Counts {
            running: self.running.len(),
            waiting: lanes.iter().map(|lane| lane.waiting).sum(),
            preempted: lanes.iter().map(|lane| lane.preempted).sum(),
            lanes,
            stored_tokens: self
                .running
                .values()
                .map(|running| u64::from(running.table.stored_tokens()))
                .sum(),
            batch_limit: self.batch_limit,
            budget_used: self.budget_used,
            plans: self.plans,
        }
    }
}
