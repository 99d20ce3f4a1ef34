//! A few threads that share the loops of one caller.
//!
//! # Invariants
//! - A job's closure outlives the job: `run` returns only after no worker is inside it.
//! - A worker that was descheduled and joins late finds no job; nobody waits for it. On a shared
//!   machine the caller then does the work alone instead of waiting.
//! - Lock order: `turn` (held by the caller of `run`), then `state`.
//! - What waiting workers wake for is written under `state`, so no wakeup is lost.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Turns a worker looks for a new job before it sleeps: the gap between two matmuls is shorter.
const SPINS: u32 = 4_000;
/// Pieces per thread a loop is cut into, so that a slower thread takes fewer.
const PIECES_PER_THREAD: usize = 8;

/// Runs `0..tasks` loops on the calling thread and `threads - 1` workers.
pub struct ThreadPool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    turn: Mutex<()>,
}

struct Shared {
    /// Number of jobs published; a change is what workers spin on.
    epoch: AtomicU64,
    next: AtomicUsize,
    active: AtomicUsize,
    has_panicked: AtomicBool,
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    job: Option<Job>,
    sleeping: usize,
    is_shutting_down: bool,
}

#[derive(Clone, Copy)]
struct Job {
    body: *const (dyn Fn(usize) + Sync),
    tasks: usize,
    piece: usize,
}

// SAFETY: the closure behind `body` is Sync, and `run` keeps it alive while a worker may call it.
unsafe impl Send for Job {}

impl ThreadPool {
    /// A pool of `threads` threads in all, the caller's included; at least 1.
    ///
    /// Workers that can't be started are done without.
    pub fn new(threads: usize) -> Self {
        let shared = Arc::new(Shared {
            epoch: AtomicU64::new(0),
            next: AtomicUsize::new(0),
            active: AtomicUsize::new(0),
            has_panicked: AtomicBool::new(false),
            state: Mutex::new(State::default()),
            wake: Condvar::new(),
        });
        let workers = (1..threads)
            .filter_map(|index| {
                let shared = Arc::clone(&shared);
                std::thread::Builder::new()
                    .name(format!("motet-compute-{index}"))
                    .spawn(move || shared.work())
                    .ok()
            })
            .collect();
        Self { shared, workers, turn: Mutex::new(()) }
    }

    /// Threads that share a loop, the caller's included.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `body(i)` once for every `i` in `0..tasks`, in any order, and returns when all are done.
    ///
    /// A panic in any call reaches the caller after the others have stopped. `body` must not use the
    /// same pool: a nested loop would wait for its own caller.
    pub fn run(&self, tasks: usize, body: &(dyn Fn(usize) + Sync)) {
        if self.workers.is_empty() || tasks <= 1 {
            (0..tasks).for_each(body);
            return;
        }
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let piece = (tasks / (self.threads() * PIECES_PER_THREAD)).max(1);
        // SAFETY: only the lifetime is erased; `finish` below waits until no worker holds the job.
        let body =
            unsafe { std::mem::transmute::<&(dyn Fn(usize) + Sync), &'static (dyn Fn(usize) + Sync)>(body) };
        let job = Job { body, tasks, piece };
        self.shared.publish(job);
        let own = catch_unwind(AssertUnwindSafe(|| self.shared.take_part(job)));
        self.shared.finish();
        let has_worker_panicked = self.shared.has_panicked.swap(false, Ordering::AcqRel);
        if let Err(panic) = own {
            resume_unwind(panic);
        }
        if has_worker_panicked {
            resume_unwind(Box::new("a compute worker panicked") as Box<dyn Any + Send>);
        }
    }

    /// Calls `body(i, row)` once for every row of `width` elements, `width` at least 1; elements after
    /// the last whole row are left alone.
    pub fn for_rows<T: Send>(&self, rows: &mut [T], width: usize, body: &(dyn Fn(usize, &mut [T]) + Sync)) {
        let (count, first) = (rows.len() / width, SendPtr(rows.as_mut_ptr()));
        self.run(count, &|index| {
            // SAFETY: rows are disjoint ranges inside `rows`, each lent to the one call that has its index.
            body(index, unsafe { std::slice::from_raw_parts_mut(first.get().add(index * width), width) });
        });
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        {
            let mut state = self.shared.lock();
            state.is_shutting_down = true;
            self.shared.epoch.fetch_add(1, Ordering::AcqRel);
        }
        self.shared.wake.notify_all();
        for worker in self.workers.drain(..) {
            let _ = worker.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn publish(&self, job: Job) {
        let mut state = self.lock();
        self.next.store(0, Ordering::Relaxed);
        state.job = Some(job);
        self.epoch.fetch_add(1, Ordering::AcqRel);
        if state.sleeping > 0 {
            self.wake.notify_all();
        }
    }

    /// Withdraws the job and waits for the workers that had joined it.
    fn finish(&self) {
        self.lock().job = None;
        let mut turns = 0u32;
        while self.active.load(Ordering::Acquire) > 0 {
            turns = turns.wrapping_add(1);
            if turns.is_multiple_of(SPINS) {
                std::thread::yield_now();
            }
            std::hint::spin_loop();
        }
    }

    fn take_part(&self, job: Job) {
        // SAFETY: the job is published and not yet finished, so its closure is alive.
        let body = unsafe { &*job.body };
        loop {
            let first = self.next.fetch_add(job.piece, Ordering::Relaxed);
            if first >= job.tasks {
                return;
            }
            (first..(first + job.piece).min(job.tasks)).for_each(body);
        }
    }

    fn work(&self) {
        let mut seen = 0;
        loop {
            for _ in 0..SPINS {
                if self.epoch.load(Ordering::Acquire) != seen {
                    break;
                }
                std::hint::spin_loop();
            }
            let mut state = self.lock();
            while self.epoch.load(Ordering::Acquire) == seen {
                state.sleeping += 1;
                state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.sleeping -= 1;
            }
            if state.is_shutting_down {
                return;
            }
            seen = self.epoch.load(Ordering::Acquire);
            let Some(job) = state.job else { continue };
            self.active.fetch_add(1, Ordering::AcqRel);
            drop(state);
            if catch_unwind(AssertUnwindSafe(|| self.take_part(job))).is_err() {
                self.has_panicked.store(true, Ordering::Release);
                self.next.store(job.tasks, Ordering::Relaxed);
            }
            self.active.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// A pointer that tasks of one loop share; each writes only what its index owns.
pub(crate) struct SendPtr<T>(pub(crate) *mut T);

// SAFETY: the pointer is only dereferenced inside `ThreadPool::run`, at indices that tasks don't share.
unsafe impl<T> Send for SendPtr<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for SendPtr<T> {}

impl<T> SendPtr<T> {
    pub(crate) fn get(&self) -> *mut T {
        self.0
    }
}

#[cfg(test)]
mod tests {
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
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_goes_on() {
        let pool = ThreadPool::new(3);
        let result = catch_unwind(AssertUnwindSafe(|| pool.run(100, &|i| assert!(i != 50, "task 50"))));
        assert!(result.is_err());
        let count = AtomicUsize::new(0);
        pool.run(10, &|_| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(count.load(Ordering::Relaxed), 10);
    }
}
