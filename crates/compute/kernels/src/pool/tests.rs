use super::*;

#[test]
fn every_task_runs_once() {
    for threads in [1, 2, 4] {
        let pool = ThreadPool::new(threads);
        for tasks in [0, 1, 2, 7, 100, 1000] {
            let counts: Vec<AtomicUsize> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
            for _ in 0..50 {
                pool.run(tasks, &|i| {
                    counts[i].fetch_add(1, Ordering::Relaxed);
                });
            }
            assert!(counts.iter().all(|c| c.load(Ordering::Relaxed) == 50));
        }
    }
}

/// Loops of all sizes, back to back and with pauses in which workers park, on more threads than CPUs: each
/// reads what the one before wrote, without atomics, so a lost or early end shows.
#[test]
fn loops_see_what_the_one_before_wrote() {
    for (threads, spin) in [(2, 50), (5, 0), (9, 5)] {
        let spin = Duration::from_micros(spin);
        let pool = ThreadPool::with_options(PoolOptions { spin, ..PoolOptions::new(threads) });
        let mut cells = vec![0u32; 97];
        for round in 0..4_000u32 {
            let tasks = (round as usize * 7) % 97 + 1;
            let first = SendPtr(cells.as_mut_ptr());
            pool.run(tasks, &|i| {
                // SAFETY: i < 97, and each index is given to one call.
                unsafe { *first.get().add(i) += 1 };
            });
            if round % 64 == 0 {
                std::thread::sleep(Duration::from_micros(u64::from(round % 5) * 60));
            }
        }
        let expected = |i: usize| (0..4_000usize).filter(|round| (round * 7) % 97 + 1 > i).count() as u32;
        assert!(cells.iter().enumerate().all(|(i, cell)| *cell == expected(i)), "{threads} threads");
    }
}

/// The closure and what it borrows are gone right after each loop: a late worker must not call it.
#[test]
fn closures_of_short_life() {
    let pool = ThreadPool::with_options(PoolOptions { spin: Duration::ZERO, ..PoolOptions::new(4) });
    for round in 0..3_000usize {
        let data: Vec<AtomicUsize> = (0..round % 9 + 2).map(|_| AtomicUsize::new(round)).collect();
        pool.run(data.len(), &|i| {
            assert_eq!(data[i].fetch_add(1, Ordering::Relaxed), round);
        });
        assert!(data.iter().all(|cell| cell.load(Ordering::Relaxed) == round + 1));
    }
}

#[test]
fn loops_within_loops_and_from_other_threads_run_alone() {
    let pool = ThreadPool::new(3);
    let count = AtomicUsize::new(0);
    let add = |_: usize| {
        count.fetch_add(1, Ordering::Relaxed);
    };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| (0..100).for_each(|_| pool.run(10, &|_| pool.run(10, &add))));
        }
    });
    assert_eq!(count.load(Ordering::Relaxed), 3 * 100 * 100);
}

#[test]
fn panics_everywhere_leave_a_sound_pool() {
    let pool = ThreadPool::new(2);
    for _ in 0..50 {
        assert!(catch_unwind(AssertUnwindSafe(|| pool.run(100, &|i| assert!(i > 1000)))).is_err());
        pool.run(100, &|_| {});
    }
}

#[test]
fn pools_come_and_go() {
    for _ in 0..500 {
        ThreadPool::new(3).run(4, &|_| {});
    }
    for _ in 0..100 {
        drop(ThreadPool::new(3));
    }
}

#[test]
fn pinned_workers_compute_too() {
    let threads = cpus::allowed().len();
    let pool =
        ThreadPool::with_options(PoolOptions { affinity: Affinity::Pinned, ..PoolOptions::new(threads) });
    let sum = AtomicUsize::new(0);
    pool.run(1000, &|i| {
        sum.fetch_add(i, Ordering::Relaxed);
    });
    assert_eq!(sum.load(Ordering::Relaxed), 499_500);
}

#[test]
fn a_panic_reaches_the_caller_and_the_pool_goes_on() {
    let pool = ThreadPool::new(3);
    let result = catch_unwind(AssertUnwindSafe(|| pool.run(100, &|i| assert!(i != 50, "task {i}"))));
    assert_eq!(result.unwrap_err().downcast_ref::<String>().unwrap(), "task 50");
    let count = AtomicUsize::new(0);
    pool.run(10, &|_| {
        count.fetch_add(1, Ordering::Relaxed);
    });
    assert_eq!(count.load(Ordering::Relaxed), 10);
}
