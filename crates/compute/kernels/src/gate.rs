//! The word through which a caller and its workers agree on who is inside a job.
//!
//! ```text
//! 63       32 31       17 16    15       0
//! |  epoch  |   parked  | open |  inside |
//! ```
//!
//! # Invariants
//! - A worker is inside a job only after a compare-and-swap that found `open` set, and `close` clears `open`
//!   in the same word: all agree on one order of the two, so who joins before the close is waited for, and who
//!   comes after finds no job. Nobody waits for a worker that has not joined.
//! - `epoch` only tells workers that something new was published. Were it to wrap around to the value that a
//!   worker has seen last, the worker would miss one job, which then has one helper less.
//! - `parked` plus `State::tokens` is the number of workers in `park`. Only a token ends parking, and who
//!   publishes turns `parked` into tokens in the order given above: a worker that parks before the publication is
//!   counted in the word that the publication returns, one that parks after it sees the new epoch and does not.
//!
//! # Orderings
//! - `publish` is a release and `join` an acquire: a worker sees the job as written. The steps between
//!   are read-modify-writes, which carry the release on.
//! - `leave` is a release and the last load of `wait_until_empty` an acquire: what workers wrote is seen by
//!   the caller, and the next job is written after the last read of this one.
//! - The mutex orders parking and tokens. No other step takes it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

const INSIDE: u64 = (1 << 16) - 1;
const OPEN: u64 = 1 << 16;
const PARKED: u64 = 1 << 17;
const PARKED_MASK: u64 = ((1 << 15) - 1) << 17;
const EPOCH: u64 = 1 << 32;

/// Most workers that a gate can count.
pub(crate) const MAX_WORKERS: usize = (1 << 15) - 1;

/// Turns a caller waits for the workers inside before it offers them its CPU: longer than most pieces, since who
/// else is waiting may keep it for milliseconds.
const TURNS_BEFORE_YIELD: u32 = 4096;

/// See the module's text. A cache line of its own, since idle workers read it all the time.
#[repr(align(128))]
pub(crate) struct Gate {
    word: AtomicU64,
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    /// Workers that may stop parking.
    tokens: usize,
}

/// A published job, or the end, as a worker last saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Epoch(u32);

impl Epoch {
    fn of(word: u64) -> Self {
        Self((word / EPOCH) as u32)
    }
}

impl Gate {
    pub(crate) fn new() -> Self {
        Self { word: AtomicU64::new(0), state: Mutex::default(), wake: Condvar::new() }
    }

    /// The epoch that workers start from.
    pub(crate) const START: Epoch = Epoch(0);

    /// Whether something was published since `seen`.
    #[inline]
    pub(crate) fn has_news(&self, seen: Epoch) -> bool {
        Epoch::of(self.word.load(Ordering::Relaxed)) != seen
    }

    /// Opens a job that was written before, and wakes up to `helpers` parked workers.
    pub(crate) fn publish(&self, helpers: usize) {
        let before = self.word.fetch_add(EPOCH | OPEN, Ordering::Release);
        self.wake(((before & PARKED_MASK) / PARKED) as usize, helpers);
    }

    /// Makes every worker look up without a job to join.
    pub(crate) fn announce(&self) {
        let before = self.word.fetch_add(EPOCH, Ordering::Release);
        self.wake(((before & PARKED_MASK) / PARKED) as usize, MAX_WORKERS);
    }

    fn wake(&self, parked: usize, helpers: usize) {
        if parked > 0 && helpers > 0 {
            self.hand_out_tokens(parked.min(helpers));
        }
    }

    #[cold]
    fn hand_out_tokens(&self, count: usize) {
        // Only this lowers `parked`, and publications come one after the other: at least `count` are there.
        self.word.fetch_sub(count as u64 * PARKED, Ordering::Relaxed);
        self.lock().tokens += count;
        for _ in 0..count {
            self.wake.notify_one();
        }
    }

    /// Enters the job that is open, if one is; the epoch is that of the job or of what was there instead.
    pub(crate) fn join(&self) -> (Epoch, bool) {
        let mut word = self.word.load(Ordering::Relaxed);
        while word & OPEN != 0 {
            match self.word.compare_exchange_weak(word, word + 1, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return (Epoch::of(word), true),
                Err(now) => word = now,
            }
        }
        // What was written before an announcement is seen by who finds it.
        std::sync::atomic::fence(Ordering::Acquire);
        (Epoch::of(word), false)
    }

    /// Leaves the job that [`join`](Self::join) entered.
    pub(crate) fn leave(&self) {
        self.word.fetch_sub(1, Ordering::Release);
    }

    /// Lets nobody in any more and waits until nobody is inside.
    pub(crate) fn close(&self) {
        let before = self.word.fetch_and(!OPEN, Ordering::Acquire);
        if before & INSIDE != 0 {
            self.wait_until_empty();
        }
    }

    fn wait_until_empty(&self) {
        let mut turns = 0u32;
        while self.word.load(Ordering::Acquire) & INSIDE != 0 {
            turns = turns.wrapping_add(1);
            if turns.is_multiple_of(TURNS_BEFORE_YIELD) {
                // The worker that is missing may be one that this CPU could run.
                std::thread::yield_now();
            }
            std::hint::spin_loop();
        }
    }

    /// Sleeps until woken by a publication; at once when there is one after `seen`.
    pub(crate) fn park(&self, seen: Epoch) {
        let mut state = self.lock();
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            if Epoch::of(word) != seen {
                return;
            }
            match self.word.compare_exchange_weak(word, word + PARKED, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => word = now,
            }
        }
        while state.tokens == 0 {
            state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.tokens -= 1;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_late_finds_nothing() {
        let gate = Gate::new();
        assert!(!gate.has_news(Gate::START));
        assert_eq!(gate.join(), (Gate::START, false));
        gate.publish(0);
        assert!(gate.has_news(Gate::START));
        let (epoch, is_inside) = gate.join();
        assert!(is_inside && !gate.has_news(epoch));
        gate.leave();
        gate.close();
        assert_eq!(gate.join(), (epoch, false));
    }

    #[test]
    fn the_epoch_wraps_and_leaves_the_rest_alone() {
        let gate = Gate::new();
        gate.word.store(u64::from(u32::MAX) * EPOCH + PARKED, Ordering::Relaxed);
        gate.publish(0);
        assert_eq!(gate.word.load(Ordering::Relaxed), OPEN + PARKED);
    }

    #[test]
    fn the_close_waits_for_those_inside() {
        let gate = Gate::new();
        let (joined, told) = std::sync::mpsc::channel();
        gate.publish(1);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert!(gate.join().1);
                joined.send(()).unwrap();
                std::thread::yield_now();
                gate.leave();
            });
            told.recv().unwrap();
            gate.close();
            assert_eq!(gate.word.load(Ordering::Relaxed) & (INSIDE | OPEN), 0);
        });
    }

    #[test]
    fn the_parked_are_woken_and_no_more_than_asked_for() {
        let gate = Gate::new();
        std::thread::scope(|scope| {
            let sleepers: Vec<_> = (0..3).map(|_| scope.spawn(|| gate.park(Gate::START))).collect();
            while gate.word.load(Ordering::Relaxed) & PARKED_MASK != 3 * PARKED {
                std::thread::yield_now();
            }
            gate.publish(2);
            assert_eq!(gate.word.load(Ordering::Relaxed) & PARKED_MASK, PARKED);
            gate.close();
            gate.announce();
            sleepers.into_iter().for_each(|sleeper| sleeper.join().unwrap());
            assert_eq!(gate.lock().tokens, 0);
        });
    }
}
