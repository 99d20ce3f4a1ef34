//! What can be typed after `motet bench serve`, and the experiment it asks for.

use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{Args, ValueEnum};
use motet_loadgen::{
    Caps, Endpoint, Experiment, FindRate, Lengths, Load, LoadError, MAX_TRACE_BYTES, RequestOptions, Slo,
    Target, Workload, baseline, duration, read_prompts, read_trace,
};

use crate::failure::Failure;

pub(super) const HELP: &str = "\
Examples:
  motet bench serve --target http://127.0.0.1:8080
  motet bench serve --target motet=http://127.0.0.1:8080 --target llama=http://127.0.0.1:8081 \\
    --concurrency 1,8,32,64 --report report.html
  motet bench serve --target http://127.0.0.1:8080 --concurrency 8 --prefix-tokens 1000
  motet bench serve --target http://127.0.0.1:8080 --trace azure.csv --scale-lengths 8 \\
    --find-rate --goodput \"ttft<1s,itl<50ms\"
  motet bench serve --target http://127.0.0.1:8080 --trace mooncake.jsonl --speed 2
  motet bench serve --from motet.json --from llama.json --report both.html

Several targets get the same prompts and take turns in each repeat. Without a load: --concurrency 1,8,32.
Ctrl-C ends it with what was measured by then. docs/benchmarking.md says what each number means.";

/// `motet bench serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeBenchArgs {
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    workload: WorkloadArgs,
    #[command(flatten)]
    pub(super) output: OutputArgs,
}

/// Whom to ask and how.
#[derive(Debug, Args)]
struct TargetArgs {
    /// A server: name=http://host:port, or the address alone; can be given several times
    #[arg(long, value_name = "NAME=URL")]
    target: Vec<String>,
    /// The target that the others are compared with [default: the first]
    #[arg(long, value_name = "NAME")]
    baseline: Option<String>,
    /// Key for all targets
    #[arg(long, value_name = "KEY", env = "MOTET_BENCH_API_KEY", hide_env_values = true)]
    api_key: Option<String>,
    /// Model to ask for [default: the first that a target lists]
    #[arg(long, value_name = "ID")]
    model: Option<String>,
    /// Which API: /v1/completions for exact prompts, or /v1/chat/completions with the server's template
    #[arg(long, value_enum, default_value_t = Api::Completions)]
    endpoint: Api,
    /// Let replies end where the model ends them; for servers that don't know ignore_eos
    #[arg(long)]
    no_ignore_eos: bool,
    /// Sampling temperature
    #[arg(long, value_name = "T", default_value_t = 0.0)]
    temperature: f64,
    /// A request that takes longer has failed
    #[arg(long, value_name = "TIME", default_value = "10min", value_parser = time)]
    timeout: Duration,
}

/// Which API is asked. Its variants have no text of their own: that keeps the whole help short.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Api {
    Completions,
    Chat,
}

/// How much at once.
#[derive(Debug, Args)]
#[command(next_help_heading = "Load")]
struct LoadArgs {
    /// Clients that each send when their last reply has ended; a list gives a row each
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    concurrency: Vec<usize>,
    /// Poisson arrivals a second, whether replies are ready or not; a list gives a row each
    #[arg(long, value_name = "R,…", value_delimiter = ',')]
    rate: Vec<f64>,
    /// Arrivals as recorded in --trace, so many times as fast; a list gives a row each
    #[arg(long, value_name = "X,…", value_delimiter = ',', requires = "trace")]
    speed: Vec<f64>,
    /// Look for the highest Poisson rate at which enough requests meet --goodput
    #[arg(long, requires = "goodput")]
    find_rate: bool,
    /// The first rate that --find-rate tries
    #[arg(long, value_name = "R", default_value_t = 1.0)]
    start_rate: f64,
    /// What a good request keeps: limits for ttft, itl (its mean) and e2e, such as "ttft<1s,itl<50ms"
    #[arg(long, value_name = "LIMITS")]
    goodput: Option<String>,
    /// Share of good requests that is enough for --find-rate
    #[arg(long, value_name = "SHARE", default_value_t = 0.9)]
    goodput_share: f64,
    /// Requests in a row [default: 4 a client and at least 16; 100 in an open loop; the whole trace with --speed]
    #[arg(long, short = 'n', value_name = "N")]
    requests: Option<usize>,
    /// Requests before each row that are not measured
    #[arg(long, value_name = "N", default_value_t = 2)]
    warmup: usize,
    /// How often each row is run; targets take turns
    #[arg(long, value_name = "N", default_value_t = 1)]
    repeats: usize,
    /// Most requests at once in an open loop; what arrives beyond it has failed
    #[arg(long, value_name = "N", default_value_t = 1024)]
    max_in_flight: usize,
}

/// What to send.
#[derive(Debug, Args)]
#[command(next_help_heading = "Prompts")]
struct WorkloadArgs {
    /// Tokens of a prompt, after the shared prefix if there is one
    #[arg(long, value_name = "N", default_value_t = 128)]
    input_tokens: u32,
    /// Tokens of a reply
    #[arg(long, value_name = "N", default_value_t = 64)]
    output_tokens: u32,
    /// Lengths are uniform within this share around them, from 0 to below 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    range_ratio: f64,
    /// All prompts begin with the same so many tokens, which are in the cache beforehand
    #[arg(long, value_name = "N", conflicts_with_all = ["trace", "prompts"])]
    prefix_tokens: Option<u32>,
    /// Lengths and times of recorded requests: an Azure LLM trace (CSV) or a Mooncake trace (JSON lines)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["prompts", "turns"])]
    trace: Option<PathBuf>,
    /// Divide the trace's lengths by this
    #[arg(long, value_name = "X", default_value_t = 1.0, requires = "trace")]
    scale_lengths: f64,
    /// Cut longer prompts of the trace to this
    #[arg(long, value_name = "N", default_value_t = 1_000_000, requires = "trace")]
    max_input_tokens: u32,
    /// Cut longer replies of the trace to this
    #[arg(long, value_name = "N", default_value_t = 100_000, requires = "trace")]
    max_output_tokens: u32,
    /// JSON lines with "prompt", text or token ids, and optionally "output_tokens"
    #[arg(long, value_name = "FILE")]
    prompts: Option<PathBuf>,
    /// Turns of a conversation: each sends what came before and new text
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "prompts")]
    turns: usize,
    /// Between a reply and the next turn
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = time)]
    think_time: Duration,
    /// Another number gives other prompts and arrivals
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
}

/// What comes out.
#[derive(Debug, Args)]
#[command(next_help_heading = "Results")]
pub(super) struct OutputArgs {
    /// Save the results as JSON; - prints them instead of the table
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
    /// Write a page with tables and plots
    #[arg(long, value_name = "FILE.html")]
    pub(super) report: Option<PathBuf>,
    /// Put every request into the JSON
    #[arg(long, requires = "json")]
    save_requests: bool,
    /// A longer gap within a reply is a stall
    #[arg(long, value_name = "MS", default_value_t = 500.0)]
    stall_ms: f64,
    /// Show saved results instead of measuring; several files are put together
    #[arg(long, value_name = "FILE", conflicts_with = "target")]
    pub(super) from: Vec<PathBuf>,
}

fn time(text: &str) -> Result<Duration, String> {
    duration(text).ok_or_else(|| "write a time such as 500ms, 30s or 10min".to_owned())
}

/// Longest prompt or reply: longer than any model's context.
const MAX_TOKENS: u32 = 10_000_000;

impl ServeBenchArgs {
    /// The experiment these flags ask for.
    pub(super) fn experiment(&self) -> Result<Experiment, Failure> {
        self.check()?;
        let (load, workload, target) = (&self.load, &self.workload, &self.target);
        let targets = target.target.iter().map(|text| Target::parse(text)).collect::<Result<Vec<_>, _>>();
        let targets = targets.map_err(Failure::usage)?;
        let endpoint = match target.endpoint {
            Api::Completions => Endpoint::Completions,
            Api::Chat => Endpoint::Chat,
        };
        let find_rate = load.find_rate.then(|| FindRate {
            start: load.start_rate,
            share: load.goodput_share,
            ..FindRate::default()
        });
        Ok(Experiment {
            baseline: baseline(&targets, target.baseline.as_deref()).map_err(Failure::usage)?,
            targets,
            api_key: target.api_key.clone(),
            model: target.model.clone(),
            request: RequestOptions {
                endpoint,
                ignore_eos: !target.no_ignore_eos,
                temperature: target.temperature,
                timeout: target.timeout,
            },
            workload: workload.workload(load.requests).map_err(Failure::usage)?,
            turns: workload.turns,
            think: workload.think_time,
            loads: self.loads(),
            find_rate,
            slo: load.goodput.as_deref().map(Slo::parse).transpose().map_err(Failure::usage)?,
            requests: load.requests,
            warmup: load.warmup,
            repeats: load.repeats,
            seed: workload.seed,
            stall: Duration::from_secs_f64(self.output.stall_ms / 1e3),
            max_in_flight: load.max_in_flight,
            keep_records: self.output.save_requests,
        })
    }

    fn check(&self) -> Result<(), Failure> {
        let (load, workload) = (&self.load, &self.workload);
        let checks = [
            ((1..=MAX_TOKENS).contains(&workload.input_tokens), "--input-tokens: from 1 to 10000000"),
            ((1..=MAX_TOKENS).contains(&workload.output_tokens), "--output-tokens: from 1 to 10000000"),
            ((0.0..1.0).contains(&workload.range_ratio), "--range-ratio: from 0 to below 1"),
            ((0.01..=1e4).contains(&workload.scale_lengths), "--scale-lengths: from 0.01 to 10000"),
            (
                workload.prefix_tokens.is_none_or(|n| (1..=MAX_TOKENS).contains(&n)),
                "--prefix-tokens: from 1 to 10000000",
            ),
            ((0.01..=1e4).contains(&load.start_rate), "--start-rate: from 0.01 to 10000"),
            ((0.01..=1.0).contains(&load.goodput_share), "--goodput-share: from 0.01 to 1"),
            ((1..=1000).contains(&load.repeats), "--repeats: from 1 to 1000"),
            (load.warmup <= 10_000, "--warmup: at most 10000"),
            ((1..=16_384).contains(&load.max_in_flight), "--max-in-flight: from 1 to 16384"),
            ((1..=1000).contains(&workload.turns), "--turns: from 1 to 1000"),
            ((0.1..=1e6).contains(&self.output.stall_ms), "--stall-ms: from 0.1 to 1000000"),
            ((0.0..=10.0).contains(&self.target.temperature), "--temperature: from 0 to 10"),
            (!self.target.timeout.is_zero(), "--timeout: more than 0"),
        ];
        match checks.iter().find(|(is_good, _)| !is_good) {
            Some((_, allowed)) => Err(Failure::usage(allowed)),
            None => Ok(()),
        }
    }

    fn loads(&self) -> Vec<Load> {
        let load = &self.load;
        let mut loads: Vec<Load> = load.concurrency.iter().map(|n| Load::Concurrency(*n)).collect();
        loads.extend(load.rate.iter().map(|rate| Load::Rate(*rate)));
        loads.extend(load.speed.iter().map(|speed| Load::TraceSpeed(*speed)));
        if loads.is_empty() && !load.find_rate {
            match self.workload.trace {
                Some(_) => loads.push(Load::TraceSpeed(1.0)),
                None => loads.extend([1, 8, 32].map(Load::Concurrency)),
            }
        }
        loads
    }
}

/// Rows of a trace that are read when nothing is said: more than any row of results may have.
const MAX_ROWS: usize = 100_000;

impl WorkloadArgs {
    fn workload(&self, requests: Option<usize>) -> Result<Workload, LoadError> {
        let lengths =
            Lengths { input: self.input_tokens, output: self.output_tokens, spread: self.range_ratio };
        if let Some(file) = &self.trace {
            let rows =
                read_trace(&text_of(file)?, &file.display().to_string(), requests.unwrap_or(MAX_ROWS))?;
            let caps = Caps { input: self.max_input_tokens, output: self.max_output_tokens };
            return Ok(Workload::Trace { rows, divisor: self.scale_lengths, caps });
        }
        if let Some(file) = &self.prompts {
            let name = file.display().to_string();
            return Ok(Workload::Given(read_prompts(&text_of(file)?, &name, self.output_tokens)?));
        }
        Ok(match self.prefix_tokens {
            Some(prefix) => Workload::SharedPrefix { prefix, tail: lengths },
            None => Workload::Random(lengths),
        })
    }
}

/// A file's text, if it is not too large.
pub(super) fn text_of(file: &Path) -> Result<String, LoadError> {
    let failed = |why: String| LoadError::File { file: file.display().to_string(), why };
    let opened = File::open(file).map_err(|error| failed(error.to_string()))?;
    let mut text = String::new();
    let read = opened.take(MAX_TRACE_BYTES + 1).read_to_string(&mut text);
    read.map_err(|error| failed(error.to_string()))?;
    if text.len() as u64 > MAX_TRACE_BYTES {
        return Err(failed(format!("more than {} MiB", MAX_TRACE_BYTES >> 20)));
    }
    Ok(text)
}
