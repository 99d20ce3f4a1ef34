//! The whole generator against a scripted server on the loopback.

// Helpers of tests may fail as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub)]

mod support;

use std::time::Duration;

use motet_loadgen::{
    Caps, Endpoint, Experiment, FindRate, Lengths, Load, LoadError, Report, RequestOptions, Silent, Slo,
    Target, TraceRow, Workload, html, run, table,
};
use support::{Fake, Fault};
use tokio::sync::watch;

/// A small experiment on these servers.
fn experiment(targets: &[(&str, &Fake)]) -> Experiment {
    let target = |(name, fake): &(&str, &Fake)| Target { name: (*name).to_owned(), url: fake.url() };
    Experiment {
        targets: targets.iter().map(target).collect(),
        baseline: 0,
        api_key: None,
        model: None,
        request: RequestOptions {
            endpoint: Endpoint::Completions,
            ignore_eos: true,
            temperature: 0.0,
            timeout: Duration::from_secs(10),
        },
        workload: Workload::Random(Lengths { input: 40, output: 5, spread: 0.0 }),
        turns: 1,
        think: Duration::ZERO,
        loads: vec![Load::Concurrency(2)],
        find_rate: None,
        slo: None,
        requests: Some(8),
        warmup: 0,
        repeats: 1,
        seed: 3,
        stall: Duration::from_millis(500),
        max_in_flight: 64,
        keep_records: false,
    }
}

async fn measure(experiment: &Experiment) -> Report {
    let (_keep, stop) = watch::channel(false);
    let outcome = tokio::time::timeout(Duration::from_secs(60), run(experiment, stop, &Silent)).await;
    outcome.expect("it ends").expect("it measures")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_loop_is_measured() {
    let fake = Fake::start().await;
    let report = measure(&Experiment { keep_records: true, ..experiment(&[("a", &fake)]) }).await;
    let summary = &report.rows[0].summary;
    assert_eq!((summary.requests, summary.completed, summary.output_tokens), (8, 8, 40));
    // The fake's template adds 3 tokens, which the calibration finds and takes off the prompt.
    assert_eq!(summary.prompt_tokens, 8 * 40);
    assert_eq!((report.targets[0].tokens_per_word, report.targets[0].overhead_tokens), (1.0, 3.0));
    assert_eq!(report.targets[0].model, "fake/model");
    assert!(summary.ttft_ms.mean.mean > 0.0 && summary.itl_ms.count == 32 && summary.tpot_ms.count == 8);
    assert_eq!(fake.most_at_once(), 2);
    assert_eq!(report.rows[0].records.as_ref().unwrap().as_array().unwrap().len(), 8);
    assert!(table(&report).contains("8/8") && html(&report).contains("8/8"));
    assert_eq!(Report::parse(&report.json(), "x").unwrap().rows.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn targets_get_the_same_prompts_and_rows_new_ones() {
    let (a, b) = (Fake::start().await, Fake::start().await);
    let loads = vec![Load::Concurrency(1), Load::Concurrency(2)];
    let report = measure(&Experiment { loads, repeats: 2, ..experiment(&[("a", &a), ("b", &b)]) }).await;
    let rows: Vec<(&str, Load)> = report.rows.iter().map(|row| (row.target.as_str(), row.load)).collect();
    let (one, two) = (Load::Concurrency(1), Load::Concurrency(2));
    assert_eq!(rows, [("a", one), ("b", one), ("a", two), ("b", two)]);
    let (mut first, mut second) = (a.prompts(), b.prompts());
    first.sort();
    second.sort();
    assert_eq!(first, second);
    // Two of calibration, then two rows of two repeats of eight requests.
    assert_eq!(first.len(), 2 + 32);
    first.dedup();
    assert_eq!(first.len(), 34);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_loop_does_not_wait_for_replies() {
    let fake = Fake::start().await;
    fake.pause(Duration::from_millis(150));
    let loads = vec![Load::Rate(400.0)];
    let full = Experiment { loads, requests: Some(20), max_in_flight: 6, ..experiment(&[("a", &fake)]) };
    let report = measure(&full).await;
    let summary = &report.rows[0].summary;
    assert_eq!(summary.requests, 20);
    assert_eq!(fake.most_at_once(), 6);
    assert_eq!(summary.failures["client full"] + summary.completed, 20);
    assert!(summary.failures["client full"] > 0);
    assert_eq!(summary.send_lag_ms.count, summary.completed);
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_are_results() {
    let check = async |fault: Fault, kind: &str| {
        let fake = Fake::start().await;
        fake.fail_after(2, fault);
        let options = RequestOptions { timeout: Duration::from_secs(3), ..experiment(&[]).request };
        let report =
            measure(&Experiment { request: options, requests: Some(2), ..experiment(&[("a", &fake)]) }).await;
        let summary = &report.rows[0].summary;
        assert_eq!(
            (summary.completed, summary.failures.get(kind)),
            (0, Some(&2)),
            "{kind}: {:?}",
            summary.failures
        );
        assert!(report.notes.iter().any(|note| note.contains(kind)), "{:?}", report.notes);
    };
    check(Fault::Status(429), "http 429").await;
    check(Fault::Cut, "cut").await;
    check(Fault::ErrorEvent, "error event").await;
    check(Fault::Hang, "timeout").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kept_connection_may_be_closed() {
    let url = support::closing_server().await;
    let target = Target { name: "a".to_owned(), url };
    let loads = vec![Load::Concurrency(8)];
    let options = Experiment { targets: vec![target], loads, requests: Some(40), ..experiment(&[]) };
    let report = measure(&options).await;
    let summary = &report.rows[0].summary;
    assert_eq!((summary.completed, &summary.first_failure), (40, &None));
}

#[tokio::test(flavor = "multi_thread")]
async fn conversations_send_their_history() {
    for endpoint in [Endpoint::Completions, Endpoint::Chat] {
        let fake = Fake::start().await;
        let options = RequestOptions { endpoint, ..experiment(&[]).request };
        let several =
            Experiment { request: options, turns: 3, requests: Some(6), ..experiment(&[("a", &fake)]) };
        let report = measure(&several).await;
        assert_eq!(report.rows[0].summary.completed, 6, "{endpoint:?}");
        let mut prompts = fake.prompts();
        prompts.drain(..2);
        prompts.sort_by_key(String::len);
        let (first, last) = (&prompts[0], &prompts[5]);
        let earlier = prompts[..4].iter().filter(|prompt| last.starts_with(prompt.as_str())).count();
        assert_eq!(earlier, 2, "{first} {last}");
        assert_eq!(last.matches("word word word word word").count(), 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prefix_is_warm_before_it_is_measured() {
    let fake = Fake::start().await;
    let tail = Lengths { input: 10, output: 2, spread: 0.0 };
    let workload = Workload::SharedPrefix { prefix: 50, tail };
    measure(&Experiment { workload, warmup: 3, ..experiment(&[("a", &fake)]) }).await;
    let prompts = fake.prompts();
    let prefix = |text: &str| text.split(' ').take(50).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(prompts.len(), 2 + 1 + 3 + 8);
    assert!(prompts[2..].iter().all(|prompt| prefix(prompt) == prefix(&prompts[2])));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trace_is_replayed() {
    let fake = Fake::start().await;
    let row = |at: u32| TraceRow {
        at_s: 100.0 + f64::from(at),
        input: 80 * (at + 1),
        output: 16,
        blocks: Vec::new(),
    };
    let rows = (0..4).map(row).collect();
    let workload = Workload::Trace { rows, divisor: 8.0, caps: Caps { input: 25, output: 100 } };
    let loads = vec![Load::TraceSpeed(20.0)];
    let report =
        measure(&Experiment { workload, loads, requests: None, ..experiment(&[("a", &fake)]) }).await;
    let summary = &report.rows[0].summary;
    assert_eq!((summary.completed, summary.output_tokens, summary.prompt_tokens), (4, 8, 10 + 20 + 25 + 25));
    assert!(summary.wall_s >= 0.15, "three seconds of the trace at 20 times the speed: {}", summary.wall_s);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_highest_rate_is_found() {
    let fake = Fake::start().await;
    // Six seats of 60 ms each: about 100 requests a second, then the others are refused.
    fake.pause(Duration::from_millis(60));
    fake.seats(6);
    let search = Experiment {
        loads: Vec::new(),
        find_rate: Some(FindRate { start: 20.0, share: 0.9, precision: 1.5 }),
        slo: Slo::parse("ttft<5s").ok(),
        requests: Some(40),
        ..experiment(&[("a", &fake)])
    };
    let report = measure(&search).await;
    let found = &report.searches[0];
    let best = found.best_rate.unwrap();
    assert!((1.0..=160.0).contains(&best), "{found:?}");
    let cut = found.tried.iter().find(|probe| probe.is_cut).expect("too high a rate is given up");
    assert!(cut.goodput < 0.9 && cut.rate > best);
    assert!(table(&report).contains("highest rate") && html(&report).contains("Goodput against rate"));
}

#[tokio::test(flavor = "multi_thread")]
async fn stopping_keeps_what_there_is() {
    let fake = Fake::start().await;
    fake.pause(Duration::from_millis(30));
    let long = Experiment { requests: Some(10_000), ..experiment(&[("a", &fake)]) };
    let (ask, stop) = watch::channel(false);
    let stopper = async {
        while fake.prompts().len() < 12 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        ask.send(true).unwrap();
    };
    let (report, ()) = tokio::join!(run(&long, stop, &Silent), stopper);
    let report = report.unwrap();
    assert!(report.is_partial && report.rows[0].summary.is_cut);
    assert!((1..100).contains(&report.rows[0].summary.completed));
    assert!(report.notes[0].contains("stopped"));
}

#[tokio::test(flavor = "multi_thread")]
async fn mistakes_say_what_to_do() {
    let fake = Fake::start().await;
    let check = async |experiment: Experiment, part: &str| {
        let (_keep, stop) = watch::channel(false);
        let error: LoadError = run(&experiment, stop, &Silent).await.unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
    };
    let good = || experiment(&[("a", &fake)]);
    check(experiment(&[]), "no --target").await;
    check(Experiment { loads: Vec::new(), ..good() }, "no load").await;
    check(Experiment { loads: vec![Load::Concurrency(5000)], ..good() }, "1 to 4096 clients").await;
    check(Experiment { loads: vec![Load::TraceSpeed(1.0)], ..good() }, "speed of a --trace").await;
    check(Experiment { requests: Some(1_000_000), ..good() }, "at most 100000").await;
    check(Experiment { find_rate: Some(FindRate::default()), ..good() }, "--goodput").await;
    check(Experiment { api_key: Some("two words".to_owned()), ..good() }, "--api-key").await;
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let target = Target { name: "gone".to_owned(), url: format!("http://{nobody}") };
    check(Experiment { targets: vec![target], ..good() }, "target gone (http://127.0.0.1").await;
    fake.fail_after(0, Fault::Status(400));
    check(good(), "--no-ignore-eos").await;
}
