//! Runs that end anywhere and begin again.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use motet_store::Whose;
use serde_json::{Value, json};

use crate::support::{World, many, names};

/// A generator for the places of the cuts: a run is the same for a seed but for the scheduler's choices.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: u64) -> u64 {
        // Knuth's MMIX generator; its high bits are the random ones.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

/// The runner is dropped at random points, sometimes with its files cut as a crash cuts them; then another takes over,
/// until the batch has ended. Every line is in the answers exactly once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_is_cut_every_line_is_answered_once() {
    for seed in 0..12 {
        let mut dice = Dice(seed);
        let world = World::new();
        let client = world.idle();
        let lines = many(40 + usize::try_from(dice.below(60)).unwrap());
        let id = client.batch(&lines).await;
        let mut cuts = 0;
        let ended = loop {
            let batches = world.batches(world.config());
            let runner = world.runner(&batches);
            let asked = || world.model.asked.lock().values().sum::<u32>();
            let room = asked() + u32::try_from(1 + dice.below(30)).unwrap();
            world.model.room.store(room, Ordering::SeqCst);
            client.until(&id, |state| state["completed_at"].is_i64() || asked() > room).await;
            drop(runner);
            world.until_nothing_runs().await;
            let state = client.state(&id).await;
            if state["completed_at"].is_i64() {
                break state;
            }
            cuts += 1;
            if dice.below(2) == 0 {
                cut_a_line(&world, &id, &mut dice);
            }
        };
        assert_eq!(ended["status"], "completed", "seed {seed}");
        let answers = client.lines(&ended, "output_file_id").await;
        let lines: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(names(&answers), names(&lines), "seed {seed}");
        assert!(cuts > 0, "seed {seed}");
        // What is asked again is what was in flight or cut, no more.
        let again: u32 = world.model.asked.lock().values().map(|times| times - 1).sum();
        assert!(again <= cuts * 5, "seed {seed}: {again} lines asked again after {cuts} cuts");
    }
}

/// Takes the end of the answers away, within the last line: as much of it as a crash may lose.
fn cut_a_line(world: &World, batch: &str, dice: &mut Dice) {
    let name = format!("file-{}o", batch.trim_start_matches("batch_"));
    let path = world.folder.path().join("files/t-").join(name);
    let Ok(bytes) = std::fs::read(&path) else { return };
    let Some(before) = bytes.len().checked_sub(1) else { return };
    let start = bytes[..before].iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    let left = start as u64 + dice.below((bytes.len() - start) as u64);
    std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(left).unwrap();
}

#[tokio::test]
async fn a_server_that_stops_lets_lines_in_flight_end() {
    const LINES: usize = 2_000;
    let world = World::new();
    let client = world.idle();
    let id = client.batch(&many(LINES)).await;
    let batches = world.batches(world.config());
    let runner = world.runner(&batches);
    client.until(&id, |state| state["request_counts"]["completed"].as_i64() > Some(3)).await;
    runner.close(Duration::from_secs(60)).await;
    let asked: HashMap<String, u32> = world.model.asked.lock().clone();
    assert!(asked.len() < LINES);
    let _runner = world.runner(&world.batches(world.config()));
    let ended = client.ended(&id).await;
    assert_eq!(ended["request_counts"], json!({ "total": LINES, "completed": LINES, "failed": 0 }));
    assert!(world.model.asked.lock().values().all(|&times| times == 1), "no line was cut");
}

/// Of two processes on one folder one runs its batches; the other takes over when it has ended.
#[tokio::test]
async fn one_runner_at_a_time() {
    let world = World::new();
    let client = world.idle();
    let (one, two) = (world.batches(world.config()), world.batches(world.config()));
    let (first, second) = (world.runner(&one), world.runner(&two));
    for _ in 0..3 {
        client.ended(&client.batch(&many(20)).await).await;
    }
    assert!(world.model.asked.lock().values().all(|&times| times == 3));
    drop(first);
    client.ended(&client.batch(&many(20)).await).await;
    drop(second);
    assert!(world.model.asked.lock().values().all(|&times| times == 4));
}

/// A server without accounts leaves theirs alone, and the other way round.
#[tokio::test]
async fn batches_wait_for_a_server_of_their_kind() {
    let world = World::new();
    let nobody = world.idle();
    let ada = nobody.user("org_a", "ada");
    let (adas, nobodys) = (ada.batch(&many(3)).await, nobody.batch(&many(3)).await);
    let runner = world.runner(&world.batches(world.config()));
    nobody.ended(&nobodys).await;
    assert_eq!(ada.state(&adas).await["status"], "validating");
    drop(runner);
    let mut config = world.config();
    config.whose = Whose::Accounts;
    let _runner = world.runner(&world.batches(config));
    assert_eq!(ada.ended(&adas).await["status"], "completed");
}

#[tokio::test]
async fn an_input_that_vanished_is_told() {
    let world = World::new();
    let client = world.idle();
    let id = client.batch(&many(3)).await;
    let input = client.state(&id).await["input_file_id"].as_str().unwrap().to_owned();
    std::fs::remove_file(world.folder.path().join("files/t-").join(input)).unwrap();
    let _runner = world.runner(&world.batches(world.config()));
    let ended = client.ended(&id).await;
    assert_eq!(ended["errors"]["data"][0]["code"], "input_file_missing");
    assert_eq!(world.model.most.load(Ordering::SeqCst), 0);
}
