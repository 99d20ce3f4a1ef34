//! The Azure conversation trace of 2023: how much of the KV memory that is handed out holds tokens.

use std::time::Duration;

use motet_kv::PoolConfig;
use motet_sched::{LaneConfig, SchedConfig};

use crate::world::{Machine, World};

/// Blocks of two H100 beside Llama 3 70B: room for 61,035 tokens.
const BLOCKS: u32 = 61_035 / 16;
/// About that pair of GPUs: a step of 21 ms, 14,000 prompt tokens a second.
const GPUS: Machine = Machine { a: 0.021, b: 0.000_071, c: 2e-8, noise: 0.02 };
/// What vLLM's paper reports.
const SHARE: f64 = 0.963;
/// Requests of the trace that are replayed: an hour's worth would take minutes to simulate.
const REQUESTS: usize = 1500;

/// Arrival, prompt and output tokens of one line.
fn parse(line: &str) -> Option<(Duration, usize, u32)> {
    let mut fields = line.split(',');
    let time = fields.next()?.split_once(' ')?.1;
    let mut parts = time.split(':').map(|part| part.parse::<f64>().ok());
    let (hours, minutes, seconds) = (parts.next()??, parts.next()??, parts.next()??);
    let at = Duration::from_secs_f64(hours * 3600.0 + minutes * 60.0 + seconds);
    Some((at, fields.next()?.parse().ok()?, fields.next()?.trim().parse().ok()?))
}

#[test]
fn kv_slots_that_are_handed_out_hold_tokens() {
    let Some(path) = motet_testkit::shared("traces/azure_2023_conv.csv") else { return };
    let text = std::fs::read_to_string(path).expect("the trace is readable");
    let requests: Vec<_> = text.lines().filter_map(parse).take(REQUESTS).collect();
    let lanes = vec![LaneConfig { waiting: REQUESTS, ..LaneConfig::interactive("default", 1) }];
    let config = SchedConfig { lanes, max_running: 256, ..SchedConfig::default() };
    let pool = PoolConfig { caching: false, ..PoolConfig::single(BLOCKS, 16) };
    let mut world = World::new(config, pool, GPUS);
    let epoch = requests[0].0;
    let mut arrivals = requests.into_iter().peekable();
    let (mut held, mut handed_out, mut most_running) = (0u64, 0u64, 0);
    while arrivals.peek().is_some() || !world.scheduler.is_idle() {
        while let Some((_, prompt, output)) = arrivals.next_if(|(at, ..)| *at - epoch <= world.now) {
            let ask = world.ask(0, 0, prompt.max(1), output.max(1));
            world.submit(&ask).expect("everything fits");
        }
        world.step();
        let counts = world.scheduler.counts();
        held += counts.stored_tokens;
        handed_out += u64::from(world.scheduler.pool().counts().all.used) * 16;
        most_running = most_running.max(counts.running);
    }
    let share = held as f64 / handed_out as f64;
    println!(
        "{:.1} % of the slots handed out hold tokens; at most {most_running} sequences at once",
        share * 100.0
    );
    assert!(share >= SHARE, "{share}");
}
