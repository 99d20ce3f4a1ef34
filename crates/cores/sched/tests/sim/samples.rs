use motet_kv::PoolConfig;
use motet_sched::{Next, Outcome, SchedConfig};
use motet_types::SequenceId;

use crate::world::{Ask, MACHINE, World};

fn world(blocks: u32) -> World {
    let config = SchedConfig { growth_reserve: 0.0, ..SchedConfig::default() };
    World::new(config, PoolConfig::single(blocks, 16), MACHINE).with_memory()
}

fn ask(world: &mut World, prompt: usize, output: u32, samples: u64) -> SequenceId {
    let ask = Ask { samples, ..world.ask(0, 1, prompt, output) };
    world.submit(&ask).unwrap().0
}

#[test]
fn samples_compute_their_prompt_once_and_share_its_blocks() {
    let mut world = world(64);
    let first = ask(&mut world, 100, 20, 4);
    let (plan, _) = world.step();
    let chunk = &plan.chunks[0];
    assert_eq!((chunk.sequence, chunk.tokens.len(), chunk.siblings.len()), (first, 100, 3));
    let (plan, _) = world.step();
    assert_eq!((plan.chunks.len(), plan.tokens(), plan.copies.len()), (4, 4, 3));
    assert_eq!(world.scheduler.pool().counts().all.used, 6 + 4, "6 full blocks are shared, 4 are their own");
    world.finish(30);
    let totals = world.scheduler.counts().lanes[0].totals;
    assert_eq!((totals.prompt_tokens, totals.output_tokens, totals.finished), (100, 80, 4));
    assert_eq!(world.scheduler.check(), Ok(()));
}

#[test]
fn any_sample_can_be_cancelled_before_and_after_they_part() {
    for cancelled in [vec![0], vec![1], vec![0, 2], vec![0, 1, 2]] {
        for before in [0, 1, 2] {
            let mut world = world(64);
            let first = ask(&mut world, 700, 20, 3);
            (0..before).for_each(|_| drop(world.step()));
            let ids: Vec<_> = cancelled.iter().map(|index| SequenceId(first.0 + index)).collect();
            world.step_with(|world| ids.iter().for_each(|id| assert!(world.cancel(*id))));
            assert_eq!(world.scheduler.check(), Ok(()));
            world.finish(100);
            let done = world.replies.values().filter(|reply| reply.times.len() == 20).count();
            assert_eq!(done, 3 - cancelled.len(), "{cancelled:?} in step {before}");
            assert_eq!(world.scheduler.pool().counts().all.used, 0);
        }
    }
}

#[test]
fn samples_without_a_block_come_back_later() {
    // 97 prompt tokens take 7 blocks of 9, three samples want a copy of the last.
    let mut world = world(9);
    ask(&mut world, 97, 20, 4);
    for _ in 0..200 {
        world.step();
        assert_eq!(world.scheduler.check(), Ok(()));
    }
    assert!(world.scheduler.is_idle());
    assert!(world.replies.values().all(|reply| reply.times.len() == 20));
}

#[test]
fn beams_fork_and_drop_at_every_step() {
    let mut world = world(64);
    let scope = world.scope();
    let scheduler = &mut world.scheduler;
    let submission = motet_sched::Submission {
        samples: vec![SequenceId(0)],
        prompt: (0..40).collect(),
        max_tokens: 12,
        lane: 0,
        user: motet_sched::UserKey(1),
        scope,
        deadline: None,
        is_patient: false,
    };
    scheduler.submit(submission, world.now).unwrap();
    let mut next_id = 1;
    for step in 0..10 {
        let plan = scheduler.plan(world.now);
        assert_eq!(plan.chunks.len(), if step == 0 { 1 } else { 4 });
        let mut results = Vec::new();
        for (index, chunk) in plan.chunks.iter().enumerate() {
            // The first beam goes on as four (itself among them only in even steps), the others end.
            let next = if index == 0 {
                let own = (step % 2 == 0).then_some((chunk.sequence, 500));
                let mut branches: Vec<_> = own.into_iter().collect();
                while branches.len() < 4 {
                    branches.push((SequenceId(next_id), 600 + branches.len() as u32));
                    next_id += 1;
                }
                Next::Fork(branches)
            } else {
                Next::Finish
            };
            results.push((chunk.sequence, next));
        }
        scheduler.commit(&plan, Outcome { results, ..Outcome::default() }, world.now);
        assert_eq!(scheduler.check(), Ok(()));
        assert_eq!(scheduler.counts().running, 4);
        // 40 + step tokens in shared full blocks, and a block for each beam.
        let full = (40 + step as u32) / 16;
        assert!(scheduler.pool().counts().all.used <= full + 4 + 1);
    }
    let left: Vec<_> = (0..next_id).map(SequenceId).filter(|id| scheduler.tokens(*id).is_some()).collect();
    assert_eq!(left.len(), 4);
    left.into_iter().for_each(|id| assert!(scheduler.cancel(id)));
    assert!(scheduler.is_idle() && scheduler.check().is_ok());
}

#[test]
fn a_broken_reply_fails_alone_and_leaves_nothing_in_the_cache() {
    let mut world = world(64);
    let broken = Ask { fails_at: Some(20), ..world.ask(0, 1, 30, 40) };
    world.submit(&broken).unwrap();
    let sound = ask(&mut world, 30, 40, 1);
    world.finish(60);
    assert_eq!(world.replies[&sound].times.len(), 40);
    let totals = world.scheduler.counts().lanes[0].totals;
    assert_eq!((totals.failed, totals.finished), (1, 1));
    // 69 tokens of the sound one are stored: 4 full blocks. Of the broken one none.
    assert_eq!(world.scheduler.pool().counts().all.cached, 4);
}
