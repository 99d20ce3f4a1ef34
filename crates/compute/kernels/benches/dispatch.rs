//! What it costs to hand a loop to the pool: empty loops, against a pool that publishes under a lock.
//!
//! `cargo bench -p motet-kernels --bench dispatch`. The figures are the median and the best of many runs of
//! back-to-back loops; only the ratios travel.
#![allow(clippy::print_stdout, clippy::unwrap_used, unsafe_code)]

mod locked;

use std::time::{Duration, Instant};

use locked::LockedPool;
use motet_kernels::{Affinity, PoolOptions, ThreadPool, available_threads};

const LOOPS: u32 = 2_000;
const RUNS: usize = 60;

fn main() {
    let threads = available_threads().max(2);
    println!("{threads} threads; ns per loop, median (best) of {RUNS} runs");
    println!("{:<34}{:>20}{:>20}{:>20}", "", "lock", "pool", "pinned");
    let locked = LockedPool::new(threads);
    let pool = ThreadPool::new(threads);
    let affinity = Affinity::Pinned;
    let pinned = ThreadPool::with_options(PoolOptions { affinity, ..PoolOptions::new(threads) });
    for (name, tasks, work) in [
        ("1 task", 1, 0),
        ("2 empty tasks", 2, 0),
        ("64 empty tasks", 64, 0),
        ("2 tasks of 1 µs", 2, 1_000),
        ("64 tasks of 1 µs", 64, 1_000),
        ("600 tasks of 0.2 µs", 600, 200),
    ] {
        let body = move |_: usize| busy(work);
        let mut all = [Vec::new(), Vec::new(), Vec::new()];
        // In turn, so that what else runs on the machine hits all alike.
        for _ in 0..RUNS {
            all[0].push(time(|| locked.run(tasks, &body)));
            all[1].push(time(|| pool.run(tasks, &body)));
            all[2].push(time(|| pinned.run(tasks, &body)));
        }
        let cell = |figures: &mut Vec<f64>| {
            figures.sort_by(f64::total_cmp);
            format!("{:.0} ({:.0})", figures[RUNS / 2], figures[0])
        };
        let [a, b, c] = all.each_mut().map(cell);
        println!("{name:<34}{a:>20}{b:>20}{c:>20}");
    }
    after_a_pause(&locked, &pool);
}

/// The first loop after workers went to sleep.
fn after_a_pause(locked: &LockedPool, pool: &ThreadPool) {
    let first = |run: &dyn Fn()| {
        let mut all: Vec<f64> = (0..RUNS)
            .map(|_| {
                std::thread::sleep(Duration::from_millis(2));
                let began = Instant::now();
                run();
                began.elapsed().as_nanos() as f64
            })
            .collect();
        all.sort_by(f64::total_cmp);
        format!("{:.0} ({:.0})", all[RUNS / 2], all[0])
    };
    let body = |_: usize| busy(1_000);
    let (a, b) = (first(&|| locked.run(64, &body)), first(&|| pool.run(64, &body)));
    println!("{:<34}{a:>20}{b:>20}", "64 of 1 µs after 2 ms of sleep");
}

/// Nanoseconds of one loop.
fn time(run: impl Fn()) -> f64 {
    run();
    let began = Instant::now();
    (0..LOOPS / 10).for_each(|_| run());
    began.elapsed().as_nanos() as f64 / f64::from(LOOPS / 10)
}

/// Keeps a core busy for about so many nanoseconds.
fn busy(nanoseconds: u64) {
    if nanoseconds > 0 {
        let began = Instant::now();
        while began.elapsed() < Duration::from_nanos(nanoseconds) {
            std::hint::spin_loop();
        }
    }
}
