//! Prefill and decode speed of the default model, against the exact path in the same run.
//!
//! `cargo bench -p motet-model --bench steps`. Machines are shared and noisy: each figure is the
//! best of several runs, and only the ratios travel.
#![allow(clippy::print_stdout)]

use std::time::Instant;

use motet_model::{CpuExecutor, CpuOptions, Gguf, Isa, KvFormat, Precision};
use motet_sched::{Chunk, Executor, StepPlan};
use motet_types::SequenceId;

const PROMPT: usize = 512;
const RUNS: usize = 5;

struct Case {
    name: &'static str,
    precision: Precision,
    isa: Isa,
    threads: usize,
}

fn main() {
    let Some(path) = motet_testkit::default_model() else { return };
    let Ok(gguf) = Gguf::open(&path) else { return };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let (fast, exact, isa) = (Precision::Fast, Precision::Exact, Isa::detect());
    let cases = [
        Case { name: "exact", precision: exact, isa, threads },
        Case { name: "fast", precision: fast, isa, threads },
        Case { name: "fast, 1 thread", precision: fast, isa, threads: 1 },
    ];
    println!("{isa:?}, {threads} threads, best of {RUNS}; tokens/s (times the exact path)");
    println!(
        "{:<16}{:>16}{:>16}{:>16}{:>16}{:>16}",
        "", "prefill 512", "at 4,096", "decode 1", "decode 8", "decode 32"
    );
    let mut reference = None;
    for case in cases {
        let options = CpuOptions {
            threads: case.threads,
            kv_bytes: 2 << 30,
            precision: case.precision,
            kv: KvFormat::F16,
            isa: case.isa,
        };
        let Ok(mut model) = CpuExecutor::load(&gguf, options) else { return };
        let deep = best(128, || run(&mut model, vec![chunk(0, 3968, 128)]));
        let figures =
            [prefill(&mut model), deep, decode(&mut model, 1), decode(&mut model, 8), decode(&mut model, 32)];
        let base = *reference.get_or_insert(figures);
        let cell = |i: usize| format!("{:.0} ({:.1}×)", figures[i], figures[i] / base[i]);
        println!(
            "{:<16}{:>16}{:>16}{:>16}{:>16}{:>16}",
            case.name,
            cell(0),
            cell(1),
            cell(2),
            cell(3),
            cell(4)
        );
    }
}

/// Tokens per second over one 512-token prompt in chunks of 128.
fn prefill(model: &mut CpuExecutor) -> f64 {
    best(PROMPT, || {
        for start in (0..PROMPT).step_by(128) {
            run(model, vec![chunk(0, start, 128)]);
        }
    })
}

/// Tokens per second of `sequences` sequences that each have 128 tokens behind them.
fn decode(model: &mut CpuExecutor, sequences: u64) -> f64 {
    run(model, (0..sequences).map(|s| chunk(s, 0, 128)).collect());
    best(16 * sequences as usize, || {
        for position in 128..144 {
            run(model, (0..sequences).map(|s| chunk(s, position, 1)).collect());
        }
    })
}

fn best(tokens: usize, mut body: impl FnMut()) -> f64 {
    let time = |body: &mut dyn FnMut()| {
        let began = Instant::now();
        body();
        began.elapsed().as_secs_f64()
    };
    let fastest = (0..RUNS).map(|_| time(&mut body)).fold(f64::INFINITY, f64::min);
    tokens as f64 / fastest
}

fn chunk(sequence: u64, start: usize, len: usize) -> Chunk {
    let tokens = (start..start + len).map(|i| 1000 + (i as u32 * 37 + sequence as u32) % 40_000).collect();
    let blocks = (0..(start + len).div_ceil(16) as u32).map(|b| sequence as u32 * 150 + b).collect();
    Chunk {
        sequence: SequenceId(sequence),
        siblings: Vec::new(),
        tokens,
        start: start as u32,
        stored: start as u32,
        tables: vec![blocks],
        wants_logits: start + len >= 128,
    }
}

fn run(model: &mut CpuExecutor, chunks: Vec<Chunk>) {
    let _ = model.execute(&StepPlan { chunks, ..StepPlan::default() });
}
