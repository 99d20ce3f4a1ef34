//! Time of a plan and its commit with 256 sequences in the batch and 10,000 waiting.
//!
//! Prints medians and 95th percentiles, and the ratio to the same with nobody waiting.

#![allow(clippy::print_stdout)]

use std::time::{Duration, Instant};

use motet_kv::{CacheKey, Pool, PoolConfig, Scope, ScopeParts};
use motet_sched::{Capacity, LaneConfig, Next, Outcome, SchedConfig, Scheduler, Submission, UserKey};
use motet_types::SequenceId;

const RUNNING: usize = 256;
const OUTPUT: u32 = 400;

struct Load {
    scheduler: Scheduler,
    scope: Scope,
    ids: u64,
    random: u64,
    now: Duration,
}

impl Load {
    fn new(blocks: u32) -> Self {
        let lanes = [("enterprise", 16), ("pro", 4), ("free", 1)];
        let lanes = lanes
            .map(|(name, weight)| LaneConfig { waiting: 20_000, ..LaneConfig::interactive(name, weight) });
        let config = SchedConfig {
            lanes: lanes.to_vec(),
            max_running: RUNNING,
            max_step_tokens: 2048,
            itl_target: Duration::from_millis(100),
            ..SchedConfig::default()
        };
        let pool = PoolConfig::single(blocks, 16);
        let capacity = Capacity {
            groups: pool.groups.clone(),
            block_tokens: 16,
            context_length: 32_768,
            vocab_size: 50_000,
        };
        let parts = ScopeParts { tenant: "t", model: "m", tokenizer: "k", adapter: None, namespace: None };
        let scope = Scope::new(&CacheKey::new([1; 32]), &parts);
        Self {
            scheduler: Scheduler::new(config, Pool::new(pool), capacity),
            scope,
            ids: 0,
            random: 1,
            now: Duration::ZERO,
        }
    }

    fn random(&mut self) -> u64 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.random >> 33
    }

    fn submit(&mut self) {
        let length = 200 + self.random() % 1600;
        let prompt = (0..length).map(|_| (self.random() % 50_000) as u32).collect();
        self.ids += 1;
        let submission = Submission {
            samples: vec![SequenceId(self.ids)],
            prompt,
            max_tokens: OUTPUT,
            lane: (self.random() % 3) as usize,
            user: UserKey(self.random() % 2000),
            scope: self.scope.clone(),
            deadline: None,
            is_patient: false,
        };
        let _ = self.scheduler.submit(submission, self.now);
    }

    /// A step whose computation is made up. Returns the time of its plan and its commit.
    fn step(&mut self) -> Duration {
        let began = Instant::now();
        let plan = self.scheduler.plan(self.now);
        let planning = began.elapsed();
        let shape = plan.shape();
        let elapsed = Duration::from_secs_f64(0.008 + 4e-5 * shape.tokens + 2e-10 * shape.context);
        self.now += elapsed;
        let mut results = Vec::with_capacity(RUNNING);
        for chunk in plan.chunks.iter().filter(|chunk| chunk.wants_logits) {
            let is_last = self.random().is_multiple_of(u64::from(OUTPUT));
            let next = if is_last { Next::Finish } else { Next::Append(chunk.start) };
            results.push((chunk.sequence, next));
        }
        let outcome = Outcome { elapsed, results, failed_fills: Vec::new() };
        let began = Instant::now();
        self.scheduler.commit(&plan, outcome, self.now);
        planning + began.elapsed()
    }
}

/// Prints median and 95th percentile in µs of steps with a full batch and `waiting` in line. Returns the median.
fn measure(name: &str, blocks: u32, waiting: usize) -> f64 {
    let mut load = Load::new(blocks);
    let fill = |load: &mut Load| {
        let mut counts = load.scheduler.counts();
        // One at a time, until the batch is full, where nobody is to wait.
        let room = RUNNING.saturating_sub(counts.running).min(4);
        while counts.waiting < waiting.max(room) {
            (0..waiting.max(room) - counts.waiting).for_each(|_| load.submit());
            counts = load.scheduler.counts();
        }
    };
    let mut times = Vec::new();
    for step in 0..3000 {
        fill(&mut load);
        let time = load.step().as_secs_f64() * 1e6;
        if step >= 1000 {
            times.push(time);
        }
    }
    times.sort_by(f64::total_cmp);
    let [median, p95] = [50, 95].map(|part| times[times.len() * part / 100]);
    let counts = load.scheduler.counts();
    println!(
        "{name}: plan + commit {median:.0} µs median, {p95:.0} µs p95; {} running, {} waiting, {} preempted",
        counts.running, counts.waiting, counts.preempted
    );
    median
}

fn main() {
    let alone = measure("nobody waiting", 40_000, 0);
    let crowd = measure("10,000 waiting", 40_000, 10_000);
    println!("ratio {:.2}", crowd / alone);
    measure("10,000 waiting, blocks short", 12_000, 10_000);
}
