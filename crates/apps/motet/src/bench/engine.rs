//! `motet bench engine`: steps of a model without a server.

use std::{path::Path, time::Instant};

use clap::Args;
use motet_kv::{BlockCopy, GroupConfig};
use motet_model::{BLOCK_TOKENS, CpuExecutor, CpuOptions, Gguf, KvFormat, ModelConfig, Precision};
use motet_sched::{Chunk, Executor, StepOutput, StepPlan};
use motet_types::SequenceId;
use serde_json::{Map, Value, json};

use super::Timed;
use crate::{
    config::{Config, available_memory, human_bytes},
    failure::Failure,
    load::find,
    output::{print, say},
};

pub(crate) const HELP: &str = "\
Examples:
  motet bench engine
  motet bench engine --model tiny.gguf --json
  motet bench engine --batch 1,2,4,8,16,32,64 --ctx 128,1000,4000

Prefill computes 512 tokens in one step. Decode computes one token each of so many sequences that
have so many tokens behind them, 16 steps in a row. The cases take turns, so that what else runs
on the machine hits all alike; the figures are the median and the best of --runs. --json prints
one object: prefill_512_tok_s, decode_1_tok_s and so on are medians, beside each one the best as
…_best; null is what the model's context or the memory has no room for.";

/// `motet bench engine`.
#[derive(Debug, Args)]
pub(crate) struct EngineBenchArgs {
    /// GGUF file, folder, name from `motet model list`, or hf:owner/name[:file]
    #[arg(long, short, value_name = "MODEL")]
    pub(super) model: Option<String>,
    #[command(flatten)]
    pub(super) compute: super::ComputeArgs,
    /// Sequences that are decoded at once, beside 1, 8 and 32
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    batch: Vec<u32>,
    /// Tokens they have behind them, beside 128
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    ctx: Vec<u32>,
    /// Time these figures alone, such as prefill_512,decode_32
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    only: Vec<String>,
    /// How often each case is timed
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// Instruction set, such as avx2 or neon [default: the fastest]
    #[arg(long, value_name = "NAME")]
    isa: Option<String>,
    /// Compute with f32 weights and activations: the reference
    #[arg(long)]
    exact: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Measures the configured model.
pub(crate) async fn bench(args: &EngineBenchArgs, config: &Config) -> Result<(), Failure> {
    let path = find(&config.model).await?;
    let isa = super::isa(args.isa.as_deref())?;
    let precision = if args.exact { Precision::Exact } else { Precision::Fast };
    let setup = Setup { isa, precision, threads: config.engine.threads, kv: config.engine.kv_format };
    let report = measure(&path, setup, args)?;
    print(&if args.json { format!("{}\n", Value::Object(report)) } else { table(&report) })
}

#[derive(Clone, Copy)]
struct Setup {
    isa: motet_model::Isa,
    precision: Precision,
    threads: usize,
    kv: KvFormat,
}

/// Tokens of a prefill.
const PROMPT: u32 = 512;
/// Steps of a decode.
const STEPS: u32 = 16;
/// Largest batch that can be asked for.
const MAX_BATCH: u32 = 4096;

/// What is timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Case {
    /// 512 tokens that end at this position.
    Prefill { end: u32 },
    /// One token each, so many steps in a row.
    Decode { sequences: u32, context: u32 },
}

impl Case {
    /// The figure's name.
    fn name(self) -> String {
        match self {
            Self::Prefill { end: PROMPT } => format!("prefill_{PROMPT}"),
            Self::Prefill { end } => format!("prefill_at_{end}"),
            Self::Decode { sequences, context: 128 } => format!("decode_{sequences}"),
            Self::Decode { sequences, context } => format!("decode_{sequences}_at_{context}"),
        }
    }

    /// Tokens of its longest sequence.
    fn length(self) -> u32 {
        match self {
            Self::Prefill { end } => end,
            Self::Decode { context, .. } => context.saturating_add(STEPS),
        }
    }

    /// Tokens that one run computes.
    fn tokens(self) -> f64 {
        match self {
            Self::Prefill { .. } => f64::from(PROMPT),
            Self::Decode { sequences, .. } => f64::from(sequences * STEPS),
        }
    }
}

/// The cases that everybody reports, and those of `--batch` and `--ctx`.
fn cases(args: &EngineBenchArgs) -> Result<Vec<Case>, Failure> {
    let (mut batches, mut contexts) = (vec![1, 8, 32], vec![128]);
    let mut all = vec![Case::Prefill { end: PROMPT }, Case::Prefill { end: 4096 }];
    batches.extend(&args.batch);
    contexts.extend(&args.ctx);
    if batches.iter().any(|n| !(1..=MAX_BATCH).contains(n)) || contexts.contains(&0) {
        return Err(Failure::usage(format!("--batch takes 1 to {MAX_BATCH}, --ctx at least 1")));
    }
    for context in contexts {
        all.extend(batches.iter().map(|&sequences| Case::Decode { sequences, context }));
    }
    all.push(Case::Decode { sequences: 32, context: 2000 });
    let mut seen = Vec::new();
    all.retain(|case| {
        !seen.contains(case) && {
            seen.push(*case);
            true
        }
    });
    let names: Vec<String> = seen.iter().map(|case| case.name()).collect();
    if let Some(unknown) = args.only.iter().find(|name| !names.contains(name)) {
        let known = names.join(", ");
        return Err(Failure::usage(format!("--only {unknown}: no such figure; there are {known}")));
    }
    all.retain(|case| args.only.is_empty() || args.only.contains(&case.name()));
    Ok(all)
}

/// Where sequences have their blocks: the first may be longer than the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Layout {
    first: u32,
    others: u32,
    sequences: u32,
}

impl Layout {
    fn of(cases: &[Case]) -> Self {
        let blocks = |tokens: u32| tokens.div_ceil(BLOCK_TOKENS as u32);
        let mut layout = Self { first: 1, others: 0, sequences: 1 };
        for case in cases {
            layout.first = layout.first.max(blocks(case.length()));
            if let Case::Decode { sequences: 2.., .. } = case {
                layout.others = layout.others.max(blocks(case.length()));
            }
            if let Case::Decode { sequences, .. } = case {
                layout.sequences = layout.sequences.max(*sequences);
            }
        }
        layout
    }

    fn blocks(self) -> usize {
        self.first as usize + (self.sequences as usize - 1) * self.others as usize
    }

    /// The sequence's `index`-th block.
    fn block(self, sequence: u32, index: u32) -> u32 {
        if sequence == 0 { index } else { self.first + (sequence - 1) * self.others + index }
    }
}

fn measure(path: &Path, setup: Setup, args: &EngineBenchArgs) -> Result<Map<String, Value>, Failure> {
    let began = Instant::now();
    let gguf = Gguf::open(path).map_err(Failure::usage)?;
    let config = ModelConfig::read(&gguf).map_err(Failure::usage)?;
    let wanted = cases(args)?;
    let mut fitting = wanted.clone();
    fitting.retain(|case| case.length() as usize <= config.context_length);
    let block_bytes = config.kv_block_bytes(setup.kv);
    let room = available_memory().saturating_sub(gguf.file_size()) / 4 * 3;
    while (Layout::of(&fitting).blocks() * block_bytes) as u64 > room && fitting.len() > 1 {
        let needs = |at: &usize| Layout::of(&fitting[*at..][..1]).blocks();
        (0..fitting.len()).max_by_key(needs).map(|at| fitting.remove(at));
    }
    let layout = Layout::of(&fitting);
    let Setup { isa, precision, threads, kv } = setup;
    let kv_bytes = layout.blocks() * block_bytes;
    let options = CpuOptions { threads, kv_bytes, precision, kv, isa };
    let model = CpuExecutor::load(&gguf, options).map_err(Failure::usage)?;
    let mut report = Map::new();
    let mut put = |name: &str, value: Value| report.insert(name.to_owned(), value);
    put("model", json!(path.file_name().map(|name| name.to_string_lossy())));
    put("file_bytes", json!(gguf.file_size()));
    put("isa", json!(isa.name()));
    put("threads", json!(threads));
    put("kv_format", json!(if kv == KvFormat::Int8 { "int8" } else { "f16" }));
    put("precision", json!(if args.exact { "exact" } else { "fast" }));
    put("kv_arena_bytes", json!(kv_bytes));
    put("load_seconds", json!(rounded(began.elapsed().as_secs_f64())));
    put("resident_bytes", json!(resident_bytes()));
    let (layers, head) = model.weights_per_token();
    put("layer_weights", json!(layers));
    put("head_weights", json!(head));
    put("runs", json!(args.runs));
    let mut bench = Bench { model, output: StepOutput::default(), layout, seed: 0 };
    let figures = bench.all(&fitting, args.runs)?;
    put("resident_after_bytes", json!(resident_bytes()));
    for case in wanted {
        let figure = fitting.iter().position(|fits| *fits == case).and_then(|at| figures[at]);
        let speed = |seconds: fn(Timed) -> f64| figure.map(|timed| rounded(case.tokens() / seconds(timed)));
        put(&format!("{}_tok_s", case.name()), json!(speed(|timed| timed.median)));
        put(&format!("{}_tok_s_best", case.name()), json!(speed(|timed| timed.best)));
    }
    Ok(report)
}

/// Four digits are more than a shared machine gives.
fn rounded(value: f64) -> f64 {
    if value >= 100.0 { value.round() } else { (value * 1000.0).round() / 1000.0 }
}

/// Resident memory of this process; `None` where the system does not say.
fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

struct Bench {
    model: CpuExecutor,
    output: StepOutput,
    layout: Layout,
    /// Changes what is decoded from run to run.
    seed: u32,
}

impl Bench {
    /// The times of each case.
    fn all(&mut self, cases: &[Case], runs: u32) -> Result<Vec<Option<Timed>>, Failure> {
        say("computing the context of the cases…");
        self.prepare(cases)?;
        let mut times = vec![Vec::new(); cases.len()];
        for run in 1..=runs {
            say(&format!("run {run} of {runs}"));
            for (case, times) in cases.iter().zip(&mut times) {
                times.push(self.time(*case)?);
            }
        }
        Ok(times.into_iter().map(Timed::of).collect())
    }

    /// Gives every sequence keys and values: computed for the first, and copied to the others.
    fn prepare(&mut self, cases: &[Case]) -> Result<(), Failure> {
        let behind = |case: &Case| match case {
            Case::Prefill { end } => end - PROMPT,
            Case::Decode { context, .. } => *context,
        };
        let end = cases.iter().map(behind).max().unwrap_or(0);
        for start in (0..end).step_by(PROMPT as usize) {
            let chunk = self.chunk(0, start, PROMPT.min(end - start));
            self.step(vec![chunk])?;
        }
        let groups = self.model.capacity().groups;
        for sequence in 1..self.layout.sequences {
            for index in 0..self.layout.others {
                for (group, GroupConfig { blocks, .. }) in groups.iter().enumerate() {
                    let block = |sequence| self.layout.block(sequence, index) % blocks;
                    let (from, to) = (block(0), block(sequence));
                    self.model.copy_block(&BlockCopy { group, from, to });
                }
            }
        }
        Ok(())
    }

    fn time(&mut self, case: Case) -> Result<f64, Failure> {
        self.seed += 1;
        let began = Instant::now();
        match case {
            Case::Prefill { end } => {
                let chunk = self.chunk(0, end - PROMPT, PROMPT);
                self.step(vec![chunk])?;
            }
            Case::Decode { sequences, context } => {
                for position in context..context + STEPS {
                    let chunks = (0..sequences).map(|sequence| self.chunk(sequence, position, 1)).collect();
                    self.step(chunks)?;
                }
            }
        }
        Ok(began.elapsed().as_secs_f64())
    }

    fn step(&mut self, chunks: Vec<Chunk>) -> Result<(), Failure> {
        let plan = StepPlan { chunks, ..StepPlan::default() };
        self.model.execute(&plan, &mut self.output).map_err(Failure::runtime)
    }

    fn chunk(&self, sequence: u32, start: u32, len: u32) -> Chunk {
        let capacity = self.model.capacity();
        let token = |position: u32| {
            let mixed = (position * 37 + sequence * 101 + self.seed * 7).wrapping_mul(2_654_435_761);
            (mixed >> 8) % capacity.vocab_size
        };
        let blocks: Vec<u32> = (0..(start + len).div_ceil(BLOCK_TOKENS as u32))
            .map(|index| self.layout.block(sequence, index))
            .collect();
        let tables = |all: &[u32]| -> Vec<Vec<u32>> {
            let table = |group: &GroupConfig| all.iter().map(|block| block % group.blocks).collect();
            capacity.groups.iter().map(table).collect()
        };
        Chunk {
            sequence: SequenceId(sequence.into()),
            siblings: Vec::new(),
            tokens: (start..start + len).map(token).collect(),
            start,
            stored: start,
            // Layers with a window have fewer blocks: sequences then overwrite each other's, which costs the same.
            tables: tables(&blocks),
            wants_logits: true,
        }
    }
}

fn table(report: &Map<String, Value>) -> String {
    let text = |name: &str| report.get(name).map_or_else(String::new, |v| v.to_string().replace('"', ""));
    let bytes = |name: &str| {
        let bytes = report.get(name).and_then(Value::as_u64);
        bytes.map_or_else(|| "unknown".to_owned(), human_bytes)
    };
    let mut lines = format!(
        "{}, {}, {} threads, {} keys and values\nloaded in {} s; {} resident, {} after the runs\n\n{:<28}{:>12}{:>12}\n",
        text("model"),
        text("isa"),
        text("threads"),
        text("kv_format"),
        text("load_seconds"),
        bytes("resident_bytes"),
        bytes("resident_after_bytes"),
        "tokens/s",
        "median",
        "best",
    );
    for (name, value) in report {
        if let Some(case) = name.strip_suffix("_tok_s") {
            let shown = |value: &Value| value.as_f64().map_or("no room".to_owned(), |v| format!("{v:.0}"));
            let best = report.get(&format!("{name}_best")).map_or_else(String::new, shown);
            lines.push_str(&format!("{:<28}{:>12}{best:>12}\n", case.replace('_', " "), shown(value)));
        }
    }
    lines
}
