use std::time::Duration;

use motet_kv::{GroupConfig, PoolConfig, SecondTier};
use motet_sched::{LaneConfig, SchedConfig};
use motet_types::SequenceId;
use proptest::prelude::*;

use crate::world::{Ask, MACHINE, World};

/// One who arrives.
#[derive(Debug, Clone)]
struct Arrival {
    /// Steps after the one before.
    delay: usize,
    /// Tokens of a prefix that many share, then of its own.
    prompt: (usize, usize),
    output: u32,
    lane: usize,
    user: u64,
    samples: u64,
    /// Steps until its first sample is cancelled; odd: while a step is computed.
    cancelled: Option<usize>,
    /// Milliseconds until all are.
    deadline: Option<u64>,
    fails_at: Option<u32>,
}

fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    let rare = |range: std::ops::Range<usize>| prop_oneof![4 => Just(None), 1 => range.prop_map(Some)];
    let arrival = (
        (prop_oneof![3 => Just(0usize), 1 => 0usize..12], (0usize..40, 0usize..60), 1u32..40),
        (0usize..3, 0u64..3, prop_oneof![4 => Just(1u64), 1 => 2u64..4]),
        (rare(0..80), rare(1..4000), rare(0..20)),
    );
    let arrival =
        arrival.prop_map(|((delay, prompt, output), (lane, user, samples), (cancel, deadline, fails))| {
            Arrival {
                delay,
                prompt,
                output,
                lane,
                user,
                samples,
                cancelled: cancel,
                deadline: deadline.map(|at| at as u64),
                fails_at: fails.map(|at| at as u32),
            }
        });
    proptest::collection::vec(arrival, 1..24)
}

fn config(max_running: usize, max_step_tokens: u32) -> SchedConfig {
    let lanes = vec![
        LaneConfig::interactive("paid", 4),
        LaneConfig::interactive("free", 1),
        LaneConfig::background("batch"),
    ];
    SchedConfig {
        lanes,
        max_running,
        max_step_tokens,
        itl_target: Duration::from_millis(40),
        ageing: Duration::from_millis(500),
        turn_tokens: 16,
        ..SchedConfig::default()
    }
}

/// Blocks of 4 tokens; the largest request (39 + 59 + 39 tokens) just fits.
fn pool(blocks: u32, window: Option<u32>, second_tier: Option<SecondTier>) -> PoolConfig {
    let mut groups = vec![GroupConfig { blocks, window: None }];
    groups.extend(window.map(|window| GroupConfig { blocks: 10 + window.div_ceil(4), window: Some(window) }));
    PoolConfig { block_tokens: 4, groups, caching: true, second_tier }
}

fn ask(world: &mut World, arrival: &Arrival) -> Ask {
    let (shared, own) = arrival.prompt;
    let ask = world.ask(arrival.lane, arrival.user, own, arrival.output);
    // Without tokens of its own it may be cached in full.
    let prompt = (0..shared.max(usize::from(own == 0)) as u32).chain(ask.prompt).collect();
    let deadline = arrival.deadline.map(|ms| world.now + Duration::from_millis(ms));
    Ask { prompt, samples: arrival.samples, deadline, fails_at: arrival.fails_at, ..ask }
}

fn live(world: &mut World, arrivals: &[Arrival]) -> Result<(), TestCaseError> {
    let mut cancels: Vec<(usize, SequenceId)> = Vec::new();
    let mut arrivals = arrivals.iter().peekable();
    let mut next_at = arrivals.peek().map_or(0, |first| first.delay);
    for step in 0..20_000 {
        while step >= next_at
            && let Some(arrival) = arrivals.next()
        {
            let ask = ask(world, arrival);
            let (id, _) = world.submit(&ask).expect("all of them fit");
            cancels.extend(arrival.cancelled.map(|after| (step + after, id)));
            next_at = step + arrivals.peek().map_or(0, |next| next.delay);
        }
        let cancel = |world: &mut World, parity: usize| {
            for (_, id) in cancels.iter().filter(|(at, _)| *at == step && at % 2 == parity) {
                world.cancel(*id);
            }
        };
        cancel(world, 0);
        world.expire();
        prop_assert_eq!(world.scheduler.check(), Ok(()));
        world.step_with(|world| cancel(world, 1));
        prop_assert_eq!(world.scheduler.check(), Ok(()));
        if world.scheduler.is_idle() && arrivals.peek().is_none() {
            break;
        }
    }
    prop_assert!(world.scheduler.is_idle(), "never finished: {:?}", world.scheduler.counts());
    prop_assert!(world.replies.values().all(|reply| reply.is_over), "someone was forgotten");
    prop_assert_eq!(world.scheduler.pool().counts().all.used, 0);
    let lanes = world.scheduler.counts().lanes;
    let preemptions: u64 = lanes.iter().map(|lane| lane.totals.preemptions).sum();
    prop_assert!(preemptions <= 20 * world.replies.len() as u64, "{} preemptions", preemptions);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Whatever arrives, is cancelled, expires or fails, in every state: blocks are conserved after every step,
    /// every chunk attends to its own sequence's keys and values, everyone admitted finishes, nothing is left.
    #[test]
    fn everyone_finishes_and_nothing_is_left(
        arrivals in arrivals(),
        blocks in 36u32..80,
        window in proptest::option::of(1u32..30),
        second_tier in any::<bool>(),
        fill_fails in proptest::option::of(1u64..6),
        max_running in 3usize..12,
        max_step_tokens in 8u32..64,
    ) {
        let second_tier = second_tier.then_some(SecondTier { max_blocks: 30, max_age: Duration::from_secs(60) });
        let config = config(max_running, max_step_tokens);
        let mut world = World::new(config, pool(blocks, window, second_tier), MACHINE).with_memory();
        world.fill_fails = fill_fails;
        live(&mut world, &arrivals)?;
    }
}
