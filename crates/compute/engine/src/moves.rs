use motet_kv::Fill;
use motet_sched::{Executor, StepPlan};

use crate::shared::Shared;
use crate::tier::Tier;

/// Moves the blocks a plan names, in the order that keeps every block until it is read: spills, copies,
/// fills. Returns the fills that failed.
pub(crate) fn carry_out(
    plan: &StepPlan,
    executor: &mut dyn Executor,
    mut tier: Option<&mut Tier>,
    shared: &Shared,
) -> Vec<Fill> {
    let mut bytes = Vec::new();
    for spill in &plan.spills {
        bytes.clear();
        executor.read_block(spill.group, spill.block, &mut bytes);
        let is_stored = tier.as_mut().is_some_and(|tier| tier.put(spill, &bytes).is_ok());
        if !is_stored {
            shared.spill_failed(spill);
        }
    }
    plan.copies.iter().for_each(|copy| executor.copy_block(copy));
    let mut failed = Vec::new();
    for fill in &plan.fills {
        match tier.as_mut().and_then(|tier| tier.get(fill).ok()) {
            Some(bytes) => executor.write_block(fill.group, fill.block, &bytes),
            None => failed.push(*fill),
        }
    }
    failed
}
