//! `kill -9` while usage is recorded.

use std::{
    env,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Command, Stdio},
};

use motet_store::{OrgId, Owner, Store, UsageWriter, UsageWriterOptions};

use crate::usage::event;

const FOLDER: &str = "MOTET_STORE_CRASH_FOLDER";

/// Not a test of its own: the process that the test below kills.
#[tokio::test]
async fn records_until_killed() {
    let Some(folder) = env::var_os(FOLDER) else { return };
    let folder = Path::new(&folder);
    let store = Store::open(&format!("sqlite:{}", folder.join("motet.db").display())).await.unwrap();
    let writer = UsageWriter::start(store, &folder.join("journal"), UsageWriterOptions::default()).unwrap();
    for n in 0.. {
        writer.record(&event(&format!("e{n}"), 0)).unwrap();
        // Unbuffered: what the parent has read was recorded.
        std::io::stderr().write_all(format!("recorded {n}\n").as_bytes()).unwrap();
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn what_was_recorded_before_a_kill_is_counted_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut recorded = 0;
    for (round, lines) in [400, 900].into_iter().enumerate() {
        let mut child = Command::new(env::current_exe().unwrap());
        child.args(["--exact", "crash::records_until_killed", "--nocapture"]).env(FOLDER, folder.path());
        let mut child = child.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let mut numbers = output.filter_map(|line| line.strip_prefix("recorded ")?.parse::<i64>().ok());
        let last = numbers.nth(lines).unwrap();
        child.kill().unwrap();
        // What it said between our last look and its end counts too.
        recorded = numbers.last().unwrap_or(last).max(recorded);
        assert!(!child.wait().unwrap().success(), "round {round}");
    }
    let store = Store::open(&format!("sqlite:{}", folder.path().join("motet.db").display())).await.unwrap();
    let writer =
        UsageWriter::start(store.clone(), &folder.path().join("journal"), UsageWriterOptions::default())
            .unwrap();
    assert!(writer.flush().await, "{:?}", writer.status());
    let counted = store.usage_sum(Owner::Org(&OrgId::new("org_a")), 0..1).await.unwrap().requests;
    // The last one may have been recorded and not yet said.
    assert!((recorded + 1..=recorded + 2).contains(&counted), "{recorded} recorded, {counted} counted");
}
