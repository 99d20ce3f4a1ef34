//! `kill -9` of a gateway that holds reservations, settles some, and reserves more meanwhile.

use std::collections::BTreeMap;
use std::env;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use motet_limits::{Actual, Limits, MemoryQuota, QuotaStore, Request, ReservationId, Ticket};

use crate::redis;
use crate::server::Server;
use crate::suite::{HOLD, Hands, request};

const URL: &str = "MOTET_LIMITS_KILLED_URL";

fn one() -> Request {
    let limits = Limits { tokens_per_day: Some(1_000_000), concurrent: Some(60_000), ..Limits::default() };
    request("killed", limits, 20, 180)
}

/// What a reservation's end was, told by its number: every third is held, every third never ran.
fn end(number: u128) -> Option<Actual> {
    match number % 3 {
        0 => None,
        1 => Some(Actual::Used { tokens: 50 + number as u64 % 100, cost: 0 }),
        _ => Some(Actual::NeverRan),
    }
}

/// Not a test of its own: the gateway that the test below kills. It says what was answered.
#[tokio::test]
async fn reserves_until_killed() {
    let Ok(url) = env::var(URL) else { return };
    let hands = Hands::new();
    let store = crate::redis_at(&url, Some(&hands));
    let say = |text: String| std::io::stderr().write_all(text.as_bytes()).unwrap();
    for number in 0.. {
        say(format!("asks {number}\n"));
        store.reserve(ReservationId(number), &one()).await.unwrap();
        if let Some(actual) = end(number) {
            store.settle(&Ticket::new(ReservationId(number), &one()), actual).await.unwrap();
        }
        say(format!("done {number}\n"));
    }
}

#[tokio::test]
async fn balances_after_a_kill_are_those_of_a_serial_replay() {
    let Some(server) = Server::start() else { return };
    let mut child = Command::new(env::current_exe().unwrap());
    child.args(["--exact", "killed::reserves_until_killed", "--nocapture"]).env(URL, server.url());
    let mut child = child.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    // The last word of each number.
    let mut said = BTreeMap::new();
    let mut is_killed = false;
    for line in lines {
        let Some((word, number)) = line.split_once(' ') else { continue };
        let Ok(number) = number.parse::<u128>() else { continue };
        said.insert(number, word.to_owned());
        if said.len() > 300 && !is_killed {
            child.kill().unwrap();
            is_killed = true;
        }
    }
    assert!(!child.wait().unwrap().success());
    let unknown: Vec<u128> =
        said.iter().filter(|(_, word)| *word == "asks").map(|(number, _)| *number).collect();
    assert!(unknown.len() <= 1 && said.len() > 300, "{} {unknown:?}", said.len());

    let hands = Hands::new();
    let killed = redis(&server, Some(&hands));
    // The one under way was not begun, reserved, or settled; nothing else is possible.
    let replays = unknown.first().map_or(1, |_| 3);
    let mut possible = Vec::new();
    for steps in 0..replays {
        let replay = MemoryQuota::with_clock(HOLD, hands.clock());
        for number in said.keys() {
            let (reserves, settles) =
                if unknown.contains(number) { (steps > 0, steps > 1) } else { (true, true) };
            if reserves {
                replay.reserve(ReservationId(*number), &one()).await.unwrap();
            }
            if let Some(actual) = end(*number).filter(|_| settles) {
                replay.settle(&Ticket::new(ReservationId(*number), &one()), actual).await.unwrap();
            }
        }
        possible.push(Arc::new(replay));
    }
    let left = async |store: &dyn QuotaStore| {
        let status = store.status(&one().scope, &one().policy).await.unwrap();
        status.gauges.iter().map(|gauge| gauge.remaining).collect::<Vec<_>>()
    };
    for later in [Duration::ZERO, HOLD * 2] {
        hands.pass(later.as_millis() as u64);
        let after = left(&killed).await;
        let mut replayed = Vec::new();
        for replay in &possible {
            replayed.push(left(&**replay).await);
        }
        assert!(replayed.contains(&after), "{later:?}: {after:?}, and {replayed:?} replayed");
    }
    // Nothing is held any more; what was held stays charged.
    let held = said.keys().filter(|number| end(**number).is_none()).count() as u64;
    let after = left(&killed).await;
    assert_eq!(after[1], 60_000);
    assert!(1_000_000 - after[0] >= (held - 1) * 200, "{after:?}");
}
