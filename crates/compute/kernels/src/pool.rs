//! A few threads that share the loops of one caller, made for loops of some microseconds.
//!
//! # Invariants
//! - A job's closure outlives the job: `run` returns only after the [`Gate`] is closed and empty.
//! - Every thread has a share of the indices and a counter that hands them out, and who is done with its own goes
//!   on with the others': each index is computed once, and a worker that was descheduled costs its help and nothing
//!   else. On a shared machine the caller does the work alone instead of waiting.
//! - The job is written by the one caller that holds `is_taken`, while nobody is inside the gate, and read
//!   inside it. The gate's orderings make that free of races.
//! - The counters only have to hand out each index once: their operations are relaxed, the gate orders all else.
//! - A `run` allocates nothing and takes no lock, but to wake workers that sleep.

use std::any::Any;
use std::cell::UnsafeCell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::cpus;
use crate::gate::{Gate, MAX_WORKERS};
use crate::patience::Patience;

/// Pieces a thread's share is cut into, so that others can take over what a slower thread has not begun.
const PIECES_PER_THREAD: usize = 8;

/// How a pool is set up.
#[derive(Debug, Clone, Copy)]
pub struct PoolOptions {
    /// Threads in all, the caller's included; at least 1.
    pub threads: usize,
    /// How long a worker looks for the next loop before it sleeps.
    pub spin: Duration,
    /// Where workers run.
    pub affinity: Affinity,
}

/// Where the workers of a pool run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Affinity {
    /// Wherever the system puts them: they can evade what else runs on the machine.
    Free,
    /// Worker i on the i-th CPU this process may use, and the caller left to the system. Only done when
    /// there are as many threads as CPUs; without effect outside Linux.
    Pinned,
}

impl PoolOptions {
    /// `threads` threads that spin long enough for the phases of a step, and are not pinned.
    pub fn new(threads: usize) -> Self {
        Self { threads, spin: Duration::from_micros(50), affinity: Affinity::Free }
    }
}

/// Runs `0..tasks` loops on the calling thread and `threads - 1` workers.
pub struct ThreadPool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// Whether a caller is between writing a job and taking it back.
    is_taken: AtomicBool,
}

struct Shared {
    gate: Gate,
    /// Of each thread, the caller's first.
    shares: Box<[Share]>,
    job: UnsafeCell<Option<Job>>,
    is_ending: AtomicBool,
    has_panicked: AtomicBool,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

/// The next index of a thread's share that nobody has taken. A cache line of its own: as long as nobody takes from
/// another's share, it does not move between the cores.
#[repr(align(128))]
struct Share {
    next: AtomicUsize,
}

#[derive(Clone, Copy)]
struct Job {
    body: *const (dyn Fn(usize) + Sync),
    tasks: usize,
    piece: usize,
}

// SAFETY: the closure behind `body` is Sync, and `run` keeps it alive while a worker may call it.
unsafe impl Send for Job {}
// SAFETY: `job` is the one part that is not Sync by itself; see the module's text.
unsafe impl Sync for Shared {}

impl ThreadPool {
    /// A pool of `threads` threads in all, the caller's included; at least 1.
    ///
    /// Workers that can't be started are done without.
    pub fn new(threads: usize) -> Self {
        Self::with_options(PoolOptions::new(threads))
    }

    /// The same, set up as `options` say.
    pub fn with_options(options: PoolOptions) -> Self {
        let workers = options.threads.clamp(1, MAX_WORKERS + 1) - 1;
        let shared = Arc::new(Shared {
            gate: Gate::new(),
            shares: (0..=workers).map(|_| Share { next: AtomicUsize::new(0) }).collect(),
            job: UnsafeCell::new(None),
            is_ending: AtomicBool::new(false),
            has_panicked: AtomicBool::new(false),
            panic: Mutex::new(None),
        });
        let cpus = cpus::allowed();
        let is_pinned = options.affinity == Affinity::Pinned && cpus.len() == options.threads;
        let workers = (1..=workers)
            .filter_map(|index| {
                let shared = Arc::clone(&shared);
                let cpu = cpus.get(index).copied().filter(|_| is_pinned);
                let work = move || {
                    cpu.inspect(|cpu| cpus::pin(*cpu));
                    shared.work(index, Patience::new(options.spin));
                };
                std::thread::Builder::new().name(format!("motet-compute-{index}")).spawn(work).ok()
            })
            .collect();
        Self { shared, workers, is_taken: AtomicBool::new(false) }
    }

    /// Threads that share a loop, the caller's included.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `body(i)` once for every `i` in `0..tasks`, in any order, and returns when all are done.
    ///
    /// A panic in any call reaches the caller after the others have stopped; some indices are then left
    /// out. While a loop runs, one that is started from within it or from another thread runs on its
    /// own thread alone.
    pub fn run(&self, tasks: usize, body: &(dyn Fn(usize) + Sync)) {
        let is_alone = tasks <= 1 || self.workers.is_empty();
        if is_alone || self.is_taken.swap(true, Ordering::Acquire) {
            (0..tasks).for_each(body);
            return;
        }
        let piece = (tasks / (self.threads() * PIECES_PER_THREAD)).max(1);
        // SAFETY: only the lifetime is erased; the gate is closed and empty before `body` ends.
        let body =
            unsafe { std::mem::transmute::<&(dyn Fn(usize) + Sync), &'static (dyn Fn(usize) + Sync)>(body) };
        let job = Job { body, tasks, piece };
        for (index, share) in self.shared.shares.iter().enumerate() {
            share.next.store(self.shared.indices(job, index).start, Ordering::Relaxed);
        }
        // SAFETY: `is_taken` makes this the only writer, and nobody is inside the closed gate to read.
        unsafe { *self.shared.job.get() = Some(job) };
        self.shared.gate.publish(tasks.div_ceil(piece) - 1);
        self.shared.take_part(job, 0);
        self.shared.gate.close();
        let panic = self.shared.take_panic();
        self.is_taken.store(false, Ordering::Release);
        if let Some(panic) = panic {
            resume_unwind(panic);
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

    /// The same over two slices, whose i-th rows, of `widths` elements, belong together.
    ///
    /// # Panics
    /// Where one has more rows than the other.
    pub fn for_row_pairs<T: Send>(
        &self,
        (a, b): (&mut [T], &mut [T]),
        widths: (usize, usize),
        body: &(impl Fn(usize, &mut [T], &mut [T]) + Sync),
    ) {
        assert_eq!(a.len() / widths.0, b.len() / widths.1, "rows of two slices");
        let first = SendPtr(b.as_mut_ptr());
        self.for_rows(a, widths.0, &|index, a| {
            // SAFETY: as in `for_rows`, for the rows of `b`.
            let b = unsafe { std::slice::from_raw_parts_mut(first.get().add(index * widths.1), widths.1) };
            body(index, a, b);
        });
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.shared.is_ending.store(true, Ordering::Relaxed);
        self.shared.gate.announce();
        for worker in self.workers.drain(..) {
            let _ = worker.join();
        }
    }
}

impl Shared {
    /// The indices in a thread's share.
    fn indices(&self, job: Job, thread: usize) -> Range<usize> {
        let bound = |thread: usize| job.tasks * thread / self.shares.len();
        bound(thread)..bound(thread + 1)
    }

    /// Computes pieces, a thread's own first, until none is left. The caller is inside the gate, or the one that
    /// opened it.
    fn take_part(&self, job: Job, thread: usize) {
        // SAFETY: the gate is not left or closed before the end of this call, so the closure is alive.
        let body = unsafe { &*job.body };
        let work = || {
            for thread in (thread..self.shares.len()).chain(0..thread) {
                let Range { end, .. } = self.indices(job, thread);
                loop {
                    let first = self.shares[thread].next.fetch_add(job.piece, Ordering::Relaxed);
                    if first >= end {
                        break;
                    }
                    (first..end.min(first + job.piece)).for_each(body);
                }
            }
        };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(work)) {
            self.shares.iter().for_each(|share| share.next.store(job.tasks, Ordering::Relaxed));
            self.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(panic);
            self.has_panicked.store(true, Ordering::Relaxed);
        }
    }

    /// What a call panicked with, of several the first. Called by who closed the gate.
    fn take_panic(&self) -> Option<Box<dyn Any + Send>> {
        if !self.has_panicked.load(Ordering::Relaxed) {
            return None;
        }
        self.has_panicked.store(false, Ordering::Relaxed);
        self.panic.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn work(&self, index: usize, mut patience: Patience) {
        let mut seen = Gate::START;
        loop {
            if !patience.spin(|| self.gate.has_news(seen)) {
                self.gate.park(seen);
            }
            let (epoch, is_inside) = self.gate.join();
            seen = epoch;
            if is_inside {
                // SAFETY: the job is written before the gate opens and again after this worker has left.
                if let Some(job) = unsafe { *self.job.get() } {
                    self.take_part(job, index);
                }
                self.gate.leave();
            } else if self.is_ending.load(Ordering::Relaxed) {
                return;
            }
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
mod tests;
