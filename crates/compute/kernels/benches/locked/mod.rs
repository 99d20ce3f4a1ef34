//! The reference of the dispatch benchmark: jobs published under a lock, workers that spin by count.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

const SPINS: u32 = 4_000;
const PIECES_PER_THREAD: usize = 8;

pub(crate) struct LockedPool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    turn: Mutex<()>,
}

struct Shared {
    epoch: AtomicU64,
    next: AtomicUsize,
    active: AtomicUsize,
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    job: Option<Job>,
    sleeping: usize,
    is_ending: bool,
}

#[derive(Clone, Copy)]
struct Job {
    body: &'static (dyn Fn(usize) + Sync),
    tasks: usize,
    piece: usize,
}

impl LockedPool {
    pub(crate) fn new(threads: usize) -> Self {
        let shared = Arc::new(Shared {
            epoch: AtomicU64::new(0),
            next: AtomicUsize::new(0),
            active: AtomicUsize::new(0),
            state: Mutex::default(),
            wake: Condvar::new(),
        });
        let start = |_| {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || shared.work())
        };
        Self { workers: (1..threads).map(start).collect(), shared, turn: Mutex::new(()) }
    }

    pub(crate) fn run(&self, tasks: usize, body: &(dyn Fn(usize) + Sync)) {
        if tasks <= 1 {
            return (0..tasks).for_each(body);
        }
        let _turn = self.turn.lock().unwrap();
        let piece = (tasks / ((self.workers.len() + 1) * PIECES_PER_THREAD)).max(1);
        // SAFETY: only the lifetime is erased, and `finish` waits until no worker holds the job.
        let body =
            unsafe { std::mem::transmute::<&(dyn Fn(usize) + Sync), &'static (dyn Fn(usize) + Sync)>(body) };
        let job = Job { body, tasks, piece };
        self.shared.publish(job);
        self.shared.take_part(job);
        self.shared.finish();
    }
}

impl Drop for LockedPool {
    fn drop(&mut self) {
        {
            let mut state = self.shared.state.lock().unwrap();
            state.is_ending = true;
            self.shared.epoch.fetch_add(1, Ordering::AcqRel);
        }
        self.shared.wake.notify_all();
        self.workers.drain(..).for_each(|worker| worker.join().unwrap());
    }
}

impl Shared {
    fn publish(&self, job: Job) {
        let mut state = self.state.lock().unwrap();
        self.next.store(0, Ordering::Relaxed);
        state.job = Some(job);
        self.epoch.fetch_add(1, Ordering::AcqRel);
        if state.sleeping > 0 {
            self.wake.notify_all();
        }
    }

    fn finish(&self) {
        self.state.lock().unwrap().job = None;
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
        loop {
            let first = self.next.fetch_add(job.piece, Ordering::Relaxed);
            if first >= job.tasks {
                return;
            }
            (first..(first + job.piece).min(job.tasks)).for_each(job.body);
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
            let mut state = self.state.lock().unwrap();
            while self.epoch.load(Ordering::Acquire) == seen {
                state.sleeping += 1;
                state = self.wake.wait(state).unwrap();
                state.sleeping -= 1;
            }
            if state.is_ending {
                return;
            }
            seen = self.epoch.load(Ordering::Acquire);
            let Some(job) = state.job else { continue };
            self.active.fetch_add(1, Ordering::AcqRel);
            drop(state);
            self.take_part(job);
            self.active.fetch_sub(1, Ordering::AcqRel);
        }
    }
}
