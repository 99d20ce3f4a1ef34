//! Places of those who are refused: cases, and random histories against a naive list.

// Helpers of tests may fail as tests do.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::Duration;

use motet_fleet::{Arrival, LaneView, Returns, ReturnsConfig, Terms};
use proptest::prelude::*;

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A lane with room: nothing waits, a request takes a second.
const ROOM: LaneView =
    LaneView { ttft: Duration::ZERO, promise: Some(s(10)), waiting: 0, bound: 20, pace: s(1) };

fn terms(earliest: Duration, pace: Duration) -> Terms {
    Terms { earliest, pace }
}

fn returns() -> Returns {
    Returns::new(ReturnsConfig { margin: 1.0, ..ReturnsConfig::default() }, 2)
}

#[test]
fn the_refused_come_one_after_the_other() {
    let mut returns = returns();
    let waits: Vec<_> = (0..4).map(|key| returns.refuse(s(0), 0, key, terms(s(3), s(2))).as_secs()).collect();
    assert_eq!(waits, [3, 5, 7, 9]);
    assert_eq!(returns.refuse(s(1), 0, 9, terms(s(20), s(2))), s(20), "not before it can be");
    assert_eq!(
        returns.refuse(s(1), 0, 10, terms(s(3), s(2))),
        s(22),
        "and nobody before those who were there"
    );
    assert_eq!(returns.refuse(s(1), 1, 11, terms(s(3), s(2))), s(3), "another lane is another line");
    assert_eq!(returns.remaining(s(2), 0, 1), Some(s(3)));
    assert_eq!(returns.remaining(s(2), 0, 77), None);
    assert_eq!(returns.arrive(s(4), 0, 1, &ROOM), Arrival::Newcomer, "too early, but there is room");
    assert_eq!(returns.arrive(s(5), 0, 1, &ROOM), Arrival::Expected);
    assert_eq!(returns.arrive(s(5), 0, 1, &ROOM), Arrival::Newcomer, "once");
    assert_eq!(returns.remaining(s(8), 0, 2), Some(Duration::from_millis(100)), "it is late, and may come");
    assert_eq!(returns.check(), Ok(()));
}

#[test]
fn newcomers_leave_room_for_the_expected() {
    let check = |name: &str, view: LaneView, expected| {
        let mut returns = returns();
        (0..4).for_each(|key| assert!(returns.refuse(s(0), 0, key, terms(s(1), s(1))) > Duration::ZERO));
        assert_eq!(returns.arrive(s(0), 0, 99, &view), expected, "{name}");
        assert_eq!(returns.arrive(s(0), 1, 99, &view), Arrival::Newcomer, "{name} in another lane");
    };
    check("room", ROOM, Arrival::Newcomer);
    check("little time", LaneView { ttft: s(7), ..ROOM }, Arrival::Crowded);
    check("just enough time", LaneView { ttft: s(6), ..ROOM }, Arrival::Newcomer);
    check("no promise", LaneView { ttft: s(600), promise: None, ..ROOM }, Arrival::Newcomer);
    check("a line that they fill", LaneView { waiting: 16, promise: None, ..ROOM }, Arrival::Crowded);
    check("a line with one place more", LaneView { waiting: 15, ..ROOM }, Arrival::Newcomer);
    check(
        "a promise shorter than their times",
        LaneView { promise: Some(s(2)), pace: s(2), ..ROOM },
        Arrival::Crowded,
    );
}

#[test]
fn places_of_those_who_do_not_come_are_given_up() {
    let mut returns = returns();
    let full = LaneView { ttft: s(10), ..ROOM };
    (0..100).for_each(|key| assert!(returns.refuse(s(0), 0, key, terms(s(1), s(1))) > Duration::ZERO));
    assert_eq!(returns.arrive(s(50), 0, 999, &full), Arrival::Crowded);
    assert_eq!(returns.arrive(s(50), 0, 3, &full), Arrival::Crowded, "long past its time");
    assert!(returns.expects(0));
    // Few came, so that places are closer together and less room is kept.
    let mut told: Vec<_> = (200..300).map(|key| returns.refuse(s(200), 0, key, terms(s(1), s(1)))).collect();
    told.sort();
    assert!(told[99] < s(20), "{told:?}");
    let some = LaneView { ttft: s(5), ..ROOM };
    assert_eq!(returns.arrive(s(201), 0, 999, &some), Arrival::Crowded);
    assert_eq!(returns.arrive(s(300), 0, 999, &full), Arrival::Newcomer);
    assert!(!returns.expects(0));
    assert_eq!(returns.check(), Ok(()));
}

#[test]
fn waits_and_places_are_bounded() {
    let config = ReturnsConfig { longest: s(10), places: 5, margin: 1.0, ..ReturnsConfig::default() };
    let mut returns = Returns::new(config, 1);
    let waits: Vec<_> = (0..8).map(|key| returns.refuse(s(0), 0, key, terms(s(1), s(1))).as_secs()).collect();
    assert_eq!(waits, [1, 2, 3, 4, 5, 6, 6, 6], "the list is full");
    assert_eq!(returns.refuse(s(20), 0, 9, terms(Duration::MAX, Duration::MAX)), s(10));
    assert_eq!(returns.refuse(s(20), 0, 9, terms(s(1), s(1))), s(10), "the line is too long");
    assert_eq!(returns.refuse(s(20), 7, 9, terms(s(4), s(1))), s(4), "there is no such lane");
    assert_eq!(returns.arrive(s(20), 7, 9, &ROOM), Arrival::Newcomer);
    assert_eq!(returns.check(), Ok(()));
}

#[derive(Debug, Clone)]
enum Step {
    Refuse { key: u64, earliest: u64, pace: u64 },
    Arrive { key: u64 },
    Pass(i64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..20u64, 0..5000u64, 0..3000u64)
            .prop_map(|(key, earliest, pace)| Step::Refuse { key, earliest, pace }),
        4 => (0..20u64).prop_map(|key| Step::Arrive { key }),
        3 => (-2000..8000i64).prop_map(Step::Pass),
    ];
    prop::collection::vec(step, 1..300)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn who_comes_at_the_time_it_was_told_is_expected(steps in steps()) {
        let config = ReturnsConfig { places: 50, ..ReturnsConfig::default() };
        let mut returns = Returns::new(config, 1);
        // Who was told which time, as a list.
        let mut naive: Vec<(Duration, u64)> = Vec::new();
        let (mut clock, mut now) = (100_000i64, Duration::ZERO);
        let mut last = Duration::ZERO;
        for step in steps {
            match step {
                Step::Pass(ms) => clock = (clock + ms).max(0),
                Step::Refuse { key, earliest, pace } => {
                    let at = Duration::from_millis(clock as u64);
                    now = now.max(at);
                    naive.retain(|(time, _)| *time + config.lateness >= now);
                    let (earliest, pace) = (Duration::from_millis(earliest), Duration::from_millis(pace));
                    let wait = returns.refuse(at, 0, key, terms(earliest, pace));
                    prop_assert!(wait >= earliest && wait <= config.longest);
                    prop_assert!(now + wait >= last, "in order");
                    if naive.len() < config.places {
                        last = now + wait;
                        naive.push((last, key));
                    }
                }
                Step::Arrive { key } => {
                    let at = Duration::from_millis(clock as u64);
                    now = now.max(at);
                    naive.retain(|(time, _)| *time + config.lateness >= now);
                    let due = naive.iter().position(|(time, of)| *of == key && *time <= now + config.early);
                    let arrival = returns.arrive(at, 0, key, &ROOM);
                    prop_assert_eq!(arrival == Arrival::Expected, due.is_some());
                    due.map(|index| naive.remove(index));
                }
            }
            prop_assert_eq!(returns.check(), Ok(()));
        }
    }
}
