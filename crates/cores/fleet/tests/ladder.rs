//! The ladder: cases, and random histories against a naive model.

// Helpers of tests may fail as tests do.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::Duration;

use motet_fleet::{Change, LONGEST_GAP, Ladder, LadderConfig, LaneSignal, Measures, Rung, Signals, Standing};
use proptest::prelude::*;

const PAID: usize = 1;

fn config() -> LadderConfig {
    let lanes = vec![Standing::Free, Standing::Paid, Standing::Ordinary, Standing::Background];
    LadderConfig { smoothing: Duration::ZERO, lanes, ..LadderConfig::default() }
}

/// All lanes calm, but that the paid one makes newcomers wait for a part of its promise of a second.
fn paid(part: f64) -> Signals {
    let lane = LaneSignal { promise: Some(Duration::from_secs(1)), bound: 10, ..LaneSignal::default() };
    let mut lanes = vec![lane; 4];
    lanes[PAID].wait = Duration::from_secs_f64(part);
    Signals { lanes }
}

/// Observes the same for a while, every 100 ms, and notes where it goes when.
fn keep(ladder: &mut Ladder, from: u64, ms: u64, signals: &Signals) -> Vec<(u64, Rung)> {
    let times = (from..from + ms).step_by(100);
    let moved = times.filter_map(|at| {
        let change = ladder.observe(Duration::from_millis(at), signals)?;
        Some((at - from, change.to))
    });
    moved.collect()
}

#[test]
fn it_climbs_in_order_and_comes_back() {
    let mut ladder = Ladder::new(config());
    let up = keep(&mut ladder, 0, 30_000, &paid(1.0));
    let expected: Vec<_> = (1..6).map(|step| (2000 * step as u64 + 100, Rung::ALL[step])).collect();
    assert_eq!(up, expected);
    assert_eq!(keep(&mut ladder, 30_000, 60_000, &paid(0.5)), [], "between the thresholds it stays");
    let down = keep(&mut ladder, 90_000, 60_000, &paid(0.1));
    let expected: Vec<_> = (0..5).map(|step| (10_000 * (step as u64 + 1), Rung::ALL[4 - step])).collect();
    assert_eq!(down, expected);
    assert_eq!((ladder.rung(), ladder.measures()), (Rung::Normal, Measures::default()));
}

#[test]
fn what_counts_as_pressure() {
    let check = |name: &str, change: &dyn Fn(&mut Signals, &mut LadderConfig), expected: bool| {
        let (mut signals, mut config) = (paid(0.0), config());
        change(&mut signals, &mut config);
        let mut ladder = Ladder::new(config);
        keep(&mut ladder, 0, 5000, &signals);
        assert_eq!(ladder.rung() > Rung::Normal, expected, "{name}");
    };
    let endless = Duration::MAX;
    check("a paid wait", &|signals, _| signals.lanes[PAID].wait = endless, true);
    check("a full paid line", &|signals, _| signals.lanes[PAID].waiting = 10, true);
    check(
        "a paid wait without a promise",
        &|signals, _| {
            (signals.lanes[PAID].wait, signals.lanes[PAID].promise) = (endless, None);
        },
        false,
    );
    check("a promise of nothing", &|signals, _| signals.lanes[PAID].promise = Some(Duration::ZERO), false);
    check(
        "waits of others",
        &|signals, _| {
            [0, 2, 3]
                .iter()
                .for_each(|&lane| (signals.lanes[lane].wait, signals.lanes[lane].waiting) = (endless, 10));
        },
        false,
    );
    check(
        "a free wait where nobody pays",
        &|signals, config| {
            (config.lanes[PAID], signals.lanes[0].wait) = (Standing::Free, endless);
        },
        true,
    );
    check("no lanes", &|signals, _| signals.lanes.clear(), false);
    check(
        "a background wait alone",
        &|signals, config| {
            (config.lanes, signals.lanes[0].wait) = (vec![Standing::Background], endless);
        },
        false,
    );
}

#[test]
fn measures_say_whom_they_affect() {
    let check = |standing, expected: &[&str]| {
        let Measures { pause_background, shorten_output, smaller_model, queue_with_eta, shed_free } =
            Rung::ShedFree.measures().of(standing);
        let all = [pause_background, shorten_output, smaller_model, queue_with_eta, shed_free];
        let names = Rung::ALL[1..].iter().zip(all).filter(|(_, is_on)| *is_on).map(|(rung, _)| rung.name());
        assert_eq!(names.collect::<Vec<_>>(), expected, "{standing:?}");
        assert_eq!(Rung::Normal.measures().of(standing), Measures::default());
    };
    check(Standing::Paid, &[]);
    check(Standing::Ordinary, &["shorten-output"]);
    check(Standing::Free, &["shorten-output", "smaller-model", "queue-with-eta", "shed-free"]);
    check(Standing::Background, &["pause-background"]);
}

#[test]
fn a_gap_or_a_step_back_is_harmless() {
    let mut ladder = Ladder::new(config());
    let mut at = |seconds: f64| ladder.observe(Duration::from_secs_f64(seconds), &paid(1.0)).map(|c| c.to);
    assert_eq!(at(1000.0), None);
    assert_eq!(at(1001.0), None, "it crosses");
    assert_eq!(at(9000.0), None, "one second of eight thousand was seen");
    assert_eq!(at(3.0), None, "time went back: nothing was seen");
    assert_eq!(at(3.5), None);
    assert_eq!(at(4.0), Some(Rung::PauseBackground));
}

#[test]
fn when_a_rung_is_left_at_the_earliest() {
    let mut ladder = Ladder::new(config());
    let seconds = |ladder: &Ladder, rung| ladder.leaves_within(rung).as_secs_f64();
    assert_eq!(seconds(&ladder, Rung::ShedFree), 0.0);
    keep(&mut ladder, 0, 30_000, &paid(1.0));
    assert_eq!(seconds(&ladder, Rung::ShedFree), 10.0);
    assert_eq!(seconds(&ladder, Rung::PauseBackground), 50.0);
    keep(&mut ladder, 30_000, 4100, &paid(0.0));
    assert_eq!(seconds(&ladder, Rung::ShedFree), 6.0);
    assert_eq!(seconds(&ladder, Rung::PauseBackground), 46.0);
}

/// The ladder by its words: the whole history is looked at each time.
#[derive(Default)]
struct Naive {
    /// Time seen between two observations, and the pressure at the second.
    history: Vec<(Duration, f64)>,
    last: Option<Duration>,
    rung: usize,
    pressure: f64,
}

impl Naive {
    fn observe(&mut self, config: &LadderConfig, now: Duration, pressure: f64) -> usize {
        let seen =
            self.last.filter(|last| *last < now).map_or(Duration::ZERO, |last| (now - last).min(LONGEST_GAP));
        self.last = Some(now);
        let (dt, tau) = (seen.as_secs_f64(), config.smoothing.as_secs_f64());
        if dt > 0.0 {
            self.pressure += dt / (dt + tau) * (pressure.min(4.0) - self.pressure);
        }
        self.history.push((seen, self.pressure));
        // Time between neighbours of the history that are on one side, back from its end.
        let run = |is_on_side: &dyn Fn(f64) -> bool| {
            let side = self.history.iter().rev().take_while(|(_, pressure)| is_on_side(*pressure));
            let times: Vec<_> = side.map(|(seen, _)| *seen).collect();
            // What led to the first of the run came from another side, but for the calm at the very beginning.
            let is_whole = times.len() == self.history.len();
            let crossing = if is_whole { Duration::ZERO } else { times.last().copied().unwrap_or_default() };
            times.iter().sum::<Duration>() - crossing
        };
        let (above, below) = (run(&|p| p > config.up), run(&|p| p < config.down));
        let step: isize = match () {
            () if above >= config.climb_after && above > Duration::ZERO && self.rung < 5 => 1,
            () if below >= config.descend_after && below > Duration::ZERO && self.rung > 0 => -1,
            () => 0,
        };
        if step != 0 {
            self.rung = self.rung.checked_add_signed(step).unwrap();
            // What was seen is used up; the next time counts from here on, on the same side.
            let last = self.history.last().map(|(_, pressure)| *pressure).unwrap();
            self.history = vec![(Duration::ZERO, last)];
        }
        self.rung
    }
}

prop_compose! {
    fn histories()(
        smoothing in prop_oneof![Just(0u64), 100u64..3000],
        (climb, descend) in (200u64..4000, 200u64..20_000),
        (up, down) in (0.2..1.5f64, 0.0..1.0f64),
        // Mostly a few hundred milliseconds; sometimes none, a gap, or back.
        steps in prop::collection::vec(
            (prop_oneof![8 => 50i64..600, 1 => Just(0i64), 1 => -5000i64..0, 1 => 1000i64..100_000], 0usize..3, 0.0..2.0f64),
            1..400,
        ),
    ) -> (LadderConfig, Vec<(i64, f64)>) {
        let config = LadderConfig {
            up,
            down,
            climb_after: Duration::from_millis(climb),
            descend_after: Duration::from_millis(descend),
            smoothing: Duration::from_millis(smoothing),
            ..config()
        };
        // Runs of the same load, so that hold times are reached.
        let mut load = 0.0;
        let steps = steps.into_iter().map(|(dt, kind, part)| {
            load = match kind { 0 => part, _ => load };
            (dt, load)
        });
        let steps = steps.collect();
        (config, steps)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn it_does_what_its_words_say((config, steps) in histories()) {
        let mut ladder = Ladder::new(config.clone());
        let mut naive = Naive::default();
        let naive_config = LadderConfig {
            down: config.down.min(config.up),
            descend_after: config.descend_after.max(config.climb_after),
            ..config.clone()
        };
        let (mut now, mut since_change) = (1_000_000i64, Duration::ZERO);
        for (dt, load) in steps {
            now = (now + dt).max(0);
            let passed = Duration::from_millis(dt.max(0) as u64);
            since_change += passed.min(LONGEST_GAP);
            let before = ladder.rung();
            let change = ladder.observe(Duration::from_millis(now as u64), &paid(load));
            let expected = naive.observe(&naive_config, Duration::from_millis(now as u64), load);
            prop_assert_eq!(ladder.rung(), Rung::ALL[expected]);
            if let Some(Change { from, to, .. }) = change {
                prop_assert_eq!((from, to), (before, ladder.rung()));
                prop_assert_eq!((from as i32 - to as i32).abs(), 1, "it never skips");
                let hold = if to > from { naive_config.climb_after } else { naive_config.descend_after };
                prop_assert!(since_change >= hold, "{since_change:?} after the last one");
                since_change = Duration::ZERO;
            }
        }
        // Calm ends at the bottom, whatever was before.
        let calm = 5 * (naive_config.descend_after + LONGEST_GAP) + 20 * LONGEST_GAP + 20 * config.smoothing;
        if naive_config.down > 0.01 {
            for _ in 0..(calm.as_millis() as i64 / 100 + 200) {
                now += 100;
                ladder.observe(Duration::from_millis(now as u64), &paid(0.0));
            }
            prop_assert_eq!(ladder.rung(), Rung::Normal);
        }
    }

    #[test]
    fn more_pressure_is_never_a_lower_rung((config, steps) in histories(), more in 0.0..1.0f64) {
        // One of them is busier all the time: until the other has descended for the first time it is not above.
        let (mut low, mut high) = (Ladder::new(config.clone()), Ladder::new(config));
        let mut now = 1_000_000i64;
        for (dt, load) in steps {
            now = (now + dt).max(0);
            let at = Duration::from_millis(now as u64);
            low.observe(at, &paid(load));
            let change = high.observe(at, &paid(load + more));
            if change.is_some_and(|change| change.to < change.from) {
                break;
            }
            prop_assert!(high.rung() >= low.rung());
        }
    }
}
