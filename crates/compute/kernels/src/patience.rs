//! How long an idle worker looks out for work before it sleeps.

use std::time::{Duration, Instant};

/// Turns without a look at the clock, some microseconds in all: the gap between two phases of a step.
const FIRST_TURNS: u32 = 64;
/// Turns between two looks at the clock.
const TURNS: u32 = 16;
/// From then on others are let run between two looks.
const POLITE_AFTER: Duration = Duration::from_micros(20);
/// A gap between two looks that only another process on this CPU, or a busy host, explains.
const INTERRUPTED: Duration = Duration::from_micros(200);
/// Spinning less would make every phase wake its workers.
const LEAST: Duration = Duration::from_micros(5);

/// The time a worker spins: shorter when the CPU turns out to be wanted elsewhere, up to `most` again when
/// spinning pays.
pub(crate) struct Patience {
    limit: Duration,
    most: Duration,
}

impl Patience {
    pub(crate) fn new(most: Duration) -> Self {
        Self { limit: most, most }
    }

    /// Spins until `is_ready`; `false` when that took too long.
    pub(crate) fn spin(&mut self, is_ready: impl Fn() -> bool) -> bool {
        if turns(FIRST_TURNS, &is_ready) {
            return self.found();
        }
        let began = Instant::now();
        let mut last = began;
        loop {
            if turns(TURNS, &is_ready) {
                return self.found();
            }
            let now = Instant::now();
            if now - last > INTERRUPTED {
                self.limit = (self.limit / 4).max(LEAST.min(self.most));
                return is_ready();
            }
            if now - began > self.limit {
                return is_ready();
            }
            last = now;
            if now - began > POLITE_AFTER {
                std::thread::yield_now();
            }
        }
    }

    fn found(&mut self) -> bool {
        self.limit = (self.limit * 2).min(self.most);
        true
    }
}

#[inline]
fn turns(count: u32, is_ready: &impl Fn() -> bool) -> bool {
    for _ in 0..count {
        if is_ready() {
            return true;
        }
        std::hint::spin_loop();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn gives_up_in_time_and_finds_what_is_there() {
        let mut patience = Patience::new(Duration::from_micros(50));
        assert!(patience.spin(|| true));
        // Between the first turns and the first two looks at the clock: no matter how slow the machine is.
        let turns = Cell::new(0u32);
        let count = || {
            turns.set(turns.get() + 1);
            turns.get() > FIRST_TURNS + TURNS / 2
        };
        assert!(patience.spin(count));
        assert!(!patience.spin(|| false));
    }

    #[test]
    fn an_interruption_shortens_it_and_success_restores_it() {
        let most = Duration::from_millis(50);
        let mut patience = Patience::new(most);
        let turn = Cell::new(0u32);
        let stalls = || {
            turn.set(turn.get() + 1);
            if turn.get() == FIRST_TURNS + 5 {
                std::thread::sleep(Duration::from_millis(1));
            }
            false
        };
        assert!(!patience.spin(stalls));
        assert_eq!(patience.limit, most / 4);
        (0..2).for_each(|_| assert!(patience.spin(|| true)));
        assert_eq!(patience.limit, most);
    }
}
