use std::collections::HashMap;
use std::time::Duration;

use motet_kv::PoolConfig;
use motet_sched::{LaneConfig, SchedConfig};
use motet_types::SequenceId;

use crate::memory::mix;
use crate::world::{MACHINE, Machine, World, p95};

const PAID: usize = 0;
const FREE: usize = 1;
const BATCH: usize = 2;

/// About an 8-billion-parameter model on a datacentre GPU.
pub(crate) const GPU: Machine = Machine { a: 0.008, b: 4e-5, c: 2e-10, noise: 0.05 };

fn config(itl_target: Duration, max_step_tokens: u32) -> SchedConfig {
    let lanes = vec![
        LaneConfig::interactive("paid", 8),
        LaneConfig::interactive("free", 1),
        LaneConfig::background("batch"),
    ];
    SchedConfig { lanes, max_running: 256, max_step_tokens, itl_target, ..SchedConfig::default() }
}

fn cpu() -> World {
    World::new(config(Duration::from_millis(150), 512), PoolConfig::single(4096, 16), MACHINE)
}

fn gpu() -> World {
    World::new(config(Duration::from_millis(50), 1024), PoolConfig::single(8192, 16), GPU)
}

/// Keeps `waiting` requests of a user in line, whatever has ended.
fn keep_waiting(world: &mut World, lane: usize, user: u64, waiting: usize, size: (usize, u32)) {
    while world.scheduler.counts().lanes[lane].waiting < waiting {
        let ask = world.ask(lane, user, size.0, size.1);
        if world.submit(&ask).is_err() {
            return;
        }
    }
}

/// Chats that come at random.
struct Chats {
    lane: usize,
    every: Duration,
    next: Duration,
    random: u64,
}

impl Chats {
    fn new(lane: usize, every: Duration) -> Self {
        Self { lane, every, next: Duration::ZERO, random: lane as u64 }
    }

    fn random(&mut self) -> u64 {
        self.random = mix(self.random, 1);
        self.random
    }

    /// Those who came until now, each at its own time.
    fn arrive(&mut self, world: &mut World) {
        while self.next <= world.now {
            let (prompt, output) = (100 + self.random() as usize % 600, 20 + self.random() as u32 % 160);
            let ask = world.ask(self.lane, self.random(), prompt, output);
            let now = std::mem::replace(&mut world.now, self.next);
            let refused = world.submit(&ask).is_err();
            assert!(!refused || self.lane == FREE);
            world.now = now;
            let uniform = (self.random() % 1_000_000 + 1) as f64 / 1_000_001.0;
            self.next += self.every.mul_f64(-uniform.ln());
        }
    }
}

/// What the free tier does meanwhile.
#[derive(Debug, Clone, Copy)]
enum Free {
    Nothing,
    /// As many chats as the paid tier has.
    Ordinary,
    /// Its line is always full of long prompts.
    Flood,
}

/// 95th percentile of paid TTFT.
fn paid_ttft(mut world: World, every: Duration, seconds: u64, free: Free) -> Duration {
    let mut paid = Chats::new(PAID, every);
    let mut ordinary = Chats::new(FREE, every);
    while world.now < Duration::from_secs(seconds) {
        paid.arrive(&mut world);
        match free {
            Free::Nothing => {}
            Free::Ordinary => ordinary.arrive(&mut world),
            Free::Flood => {
                let user = world.random() % 50;
                keep_waiting(&mut world, FREE, user, 200, (4000, 200));
            }
        }
        world.step();
    }
    assert_eq!(world.scheduler.check(), Ok(()));
    let replies = world.replies.values().filter(|reply| reply.lane == PAID);
    p95(replies.filter_map(|reply| reply.ttft()).collect())
}

#[test]
fn a_flood_of_long_free_prompts_hardly_moves_paid_ttft() {
    for (name, world, every, seconds) in [
        ("cpu", cpu as fn() -> World, Duration::from_millis(1600), 2400),
        ("gpu", gpu, Duration::from_millis(80), 120),
    ] {
        let [alone, ordinary, flood] =
            [Free::Nothing, Free::Ordinary, Free::Flood].map(|free| paid_ttft(world(), every, seconds, free));
        let moved = |from: Duration| 100.0 * (flood.as_secs_f64() / from.as_secs_f64() - 1.0);
        println!(
            "{name}: paid p95 TTFT {alone:.3?} alone, {ordinary:.3?} beside ordinary free traffic, {flood:.3?} in a \
             flood: {:+.1} % and {:+.1} %",
            moved(alone),
            moved(ordinary)
        );
        assert!(moved(alone) < 20.0, "{name}: {alone:?} -> {flood:?}");
    }
}

/// Tokens served to each lane in a while of steady demand; what is computed again after a preemption serves nobody.
fn served(mut world: World, steps: usize, demand: impl Fn(&mut World)) -> Vec<u64> {
    let totals = |world: &World| -> Vec<u64> {
        let lanes = world.scheduler.counts().lanes.into_iter();
        lanes.map(|lane| lane.totals.prompt_tokens + lane.totals.output_tokens).collect()
    };
    let mut before = Vec::new();
    for step in 0..2 * steps {
        if step == steps {
            before = totals(&world);
        }
        demand(&mut world);
        world.step();
    }
    assert_eq!(world.scheduler.check(), Ok(()));
    totals(&world).iter().zip(before).map(|(after, before)| after - before).collect()
}

#[test]
fn shares_converge_to_the_weights() {
    for (paid, free) in [((300, 100), (300, 100)), ((100, 300), (2000, 50)), ((2000, 50), (60, 200))] {
        let served = served(cpu(), 6000, |world| {
            keep_waiting(world, PAID, 1, 50, paid);
            keep_waiting(world, FREE, 2, 50, free);
        });
        let ratio = served[PAID] as f64 / served[FREE] as f64;
        println!("paid {paid:?}, free {free:?}: served {ratio:.3} : 1");
        assert!((ratio / 8.0 - 1.0).abs() < 0.05, "{served:?}");
    }
}

#[test]
fn what_a_lane_leaves_is_lent_and_given_back_at_once() {
    let mut world = gpu();
    for _ in 0..600 {
        keep_waiting(&mut world, FREE, 2, 50, (500, 100));
        world.step();
    }
    let borrowed = world.scheduler.counts().lanes[FREE].running;
    let mut steps = 0;
    let asked = world.ask(PAID, 1, 800, 10);
    let (id, _) = world.submit(&asked).unwrap();
    while world.replies[&id].times.is_empty() {
        keep_waiting(&mut world, FREE, 2, 50, (500, 100));
        world.step();
        steps += 1;
    }
    println!("{borrowed} free sequences ran; the paid one's first token came in step {steps}");
    assert!(borrowed > 64, "slots were lent: {borrowed}");
    assert!(steps <= 2);
}

#[test]
fn slots_and_blocks_that_were_lent_are_taken_back() {
    for (name, borrower, max_running, blocks) in [
        ("slots", FREE, 8, 4096),
        ("blocks", FREE, 64, 300),
        ("blocks", BATCH, 64, 300),
        ("slots", BATCH, 8, 4096),
    ] {
        let config = SchedConfig { max_running, ..config(Duration::from_millis(150), 512) };
        let mut world = World::new(config, PoolConfig::single(blocks, 16), MACHINE).with_memory();
        let first = world.ask(borrower, 1, 500, 300);
        let (first, _) = world.submit(&first).unwrap();
        for _ in 0..60 {
            keep_waiting(&mut world, borrower, 2, 10, (500, 300));
            world.step();
        }
        let before = world.scheduler.counts().lanes[borrower].running;
        let ask = world.ask(PAID, 3, 500, 20);
        let (paid, _) = world.submit(&ask).unwrap();
        world.step();
        let counts = world.scheduler.counts();
        assert_eq!(counts.lanes[PAID].running, 1, "{name}: it runs at once");
        assert!(
            counts.lanes[borrower].running < before && counts.lanes[borrower].totals.preemptions > 0,
            "{name}"
        );
        world.finish(20_000);
        assert!(world.replies[&paid].ttft().unwrap() < Duration::from_secs(2));
        assert_eq!(world.replies[&first].times.len(), 300);
        let preemptions = world.scheduler.counts().lanes[borrower].totals.preemptions;
        println!("{name} of {borrower}: {before} ran, {preemptions} preemptions for one paid request");
        assert!(preemptions < 10);
    }
}

#[test]
fn a_prompt_too_large_for_what_is_free_is_not_passed_over_for_ever() {
    let mut world = World::new(
        SchedConfig { ageing: Duration::from_secs(5), ..config(Duration::from_millis(150), 512) },
        PoolConfig::single(256, 16),
        MACHINE,
    );
    for _ in 0..200 {
        keep_waiting(&mut world, PAID, 1, 20, (200, 100));
        world.step();
    }
    // More than its lane's share, so nobody has to make room for it.
    let ask = world.ask(FREE, 2, 3800, 10);
    let (large, _) = world.submit(&ask).unwrap();
    while world.replies[&large].times.is_empty() {
        keep_waiting(&mut world, PAID, 1, 20, (200, 100));
        world.step();
        assert!(world.now < Duration::from_secs(600), "{:?}", world.scheduler.counts());
    }
    println!("the large prompt waited {:.1?}", world.replies[&large].ttft().unwrap());
}

#[test]
fn one_heavy_user_gets_no_more_than_an_equal_share() {
    let mut world = cpu();
    let mut in_line: HashMap<u64, Vec<SequenceId>> = HashMap::new();
    let mut served: HashMap<u64, u64> = HashMap::new();
    for step in 0..8000 {
        // The heavy one always has hundreds in line, nine others a few.
        keep_waiting(&mut world, FREE, 0, 200, (400, 200));
        for user in 1..10 {
            in_line.entry(user).or_default().retain(|id: &SequenceId| world.replies[id].times.is_empty());
            while in_line[&user].len() < 3 {
                let ask = world.ask(FREE, user, 400, 200);
                let (id, _) = world.submit(&ask).unwrap();
                in_line.entry(user).or_default().push(id);
            }
        }
        let (plan, _) = world.step();
        for chunk in plan.chunks.iter().filter(|_| step > 2000) {
            *served.entry(world.replies[&chunk.sequence].user).or_default() += chunk.tokens.len() as u64;
        }
    }
    let all: u64 = served.values().sum();
    let heavy = served[&0] as f64 / all as f64;
    println!("the heavy user got {:.2} % of the tokens, {:.2} % is its share", heavy * 100.0, 10.0);
    assert!(heavy < 0.105, "{served:?}");
}

#[test]
fn background_runs_in_the_remainder_and_does_not_starve() {
    let busy = served(cpu(), 4000, |world| {
        keep_waiting(world, FREE, 1, 50, (300, 100));
        keep_waiting(world, BATCH, 2, 50, (300, 100));
    });
    let part = busy[BATCH] as f64 / busy[FREE] as f64;
    println!("background got {:.2} % of what a busy lane got", part * 100.0);
    assert!(part > 0.0 && part < 0.05, "{busy:?}");
    let idle = served(cpu(), 500, |world| keep_waiting(world, BATCH, 2, 50, (300, 100)));
    assert!(idle[BATCH] > 0);
}

#[test]
fn a_paused_background_starts_nothing_and_ends_what_it_began() {
    let config = SchedConfig { max_running: 8, ..config(Duration::from_millis(150), 512) };
    let mut world = World::new(config, PoolConfig::single(4096, 16), MACHINE).with_memory();
    for _ in 0..3 {
        keep_waiting(&mut world, BATCH, 1, 10, (300, 40));
        world.step();
    }
    let lane = &world.scheduler.counts().lanes[BATCH];
    let (begun, waiting) = (lane.totals.started, lane.waiting);
    assert!(begun > 0 && waiting > 0);
    world.scheduler.pause_background(true);
    assert!(!world.scheduler.is_at_rest(), "some run still");
    while !world.scheduler.is_at_rest() {
        world.step();
        let lane = &world.scheduler.counts().lanes[BATCH];
        assert_eq!((lane.totals.started, lane.waiting), (begun, waiting));
    }
    assert_eq!(world.scheduler.counts().lanes[BATCH].totals.finished, begun);
    assert!(world.step().0.is_empty());
    // Nobody else is kept from anything, and lines go on being filled and left.
    let ask = world.ask(PAID, 2, 200, 10);
    let (paid, _) = world.submit(&ask).unwrap();
    let ask = world.ask(BATCH, 3, 50, 10);
    let (left, _) = world.submit(&ask).unwrap();
    assert!(!world.scheduler.is_at_rest());
    while !world.scheduler.is_at_rest() {
        world.step();
    }
    assert_eq!(world.replies[&paid].times.len(), 10);
    assert!(world.cancel(left));
    world.scheduler.pause_background(false);
    assert!(!world.scheduler.is_at_rest());
    world.finish(20_000);
    assert_eq!(world.scheduler.counts().lanes[BATCH].totals.finished, begun + waiting as u64);
}
