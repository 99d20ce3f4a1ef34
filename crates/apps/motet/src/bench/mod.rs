//! `motet bench …`: measures speed. One module per subcommand.

mod door;
mod engine;
mod kernels;
mod serve;
mod serve_args;

use clap::{Args, Subcommand};
use motet_model::Isa;

use crate::{config::Config, failure::Failure};

/// What to measure.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Each kernel's share of what this machine can do at most
    #[command(after_help = kernels::HELP)]
    Kernels(kernels::KernelsArgs),
    /// Prefill and decode of a model, by batch and context
    #[command(after_help = engine::HELP)]
    Engine(engine::EngineBenchArgs),
    /// What the HTTP server, accounts and limits add to a reply, in front of a simulated replica
    #[command(after_help = door::HELP)]
    Door(door::DoorBenchArgs),
    /// Put load on servers with an OpenAI-compatible API and compare them
    #[command(after_help = serve_args::HELP)]
    Serve(Box<serve_args::ServeBenchArgs>),
}

/// How a benchmark computes.
#[derive(Debug, Args)]
pub(crate) struct ComputeArgs {
    /// Threads that compute [default: one per core]
    #[arg(long, value_name = "N")]
    threads: Option<String>,
    /// How keys and values are kept: f16 or int8 [default: f16]
    #[arg(long, value_name = "FORMAT")]
    kv_format: Option<String>,
}

impl BenchCommand {
    /// Names of configuration keys and what the flags say.
    pub(crate) fn flags(&self) -> Vec<(&'static str, &Option<String>)> {
        let (model, ComputeArgs { threads, kv_format }) = match self {
            Self::Kernels(args) => (&args.model, &args.compute),
            Self::Engine(args) => (&args.model, &args.compute),
            Self::Serve(_) | Self::Door(_) => return Vec::new(),
        };
        vec![("model", model), ("engine.threads", threads), ("engine.kv_format", kv_format)]
    }
}

/// Measures and prints.
pub(crate) async fn bench(command: &BenchCommand, config: &Config) -> Result<(), Failure> {
    match command {
        BenchCommand::Kernels(args) => kernels::bench(args, config).await,
        BenchCommand::Engine(args) => engine::bench(args, config).await,
        BenchCommand::Door(args) => door::bench(args).await,
        BenchCommand::Serve(args) => serve::serve(args).await,
    }
}

/// The instruction set named `name`, the fastest without one.
fn isa(name: Option<&str>) -> Result<Isa, Failure> {
    let Some(name) = name else { return Ok(Isa::detect()) };
    let all = Isa::available();
    all.iter().find(|isa| isa.name() == name).copied().ok_or_else(|| {
        let names: Vec<_> = all.iter().map(|isa| isa.name()).collect();
        Failure::usage(format!("--isa {name}: this machine has {}", names.join(", ")))
    })
}

/// Something that was timed several times.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Timed {
    median: f64,
    best: f64,
}

impl Timed {
    /// Of times in seconds, at least one.
    fn of(mut seconds: Vec<f64>) -> Option<Self> {
        seconds.sort_by(f64::total_cmp);
        let (best, median) = (*seconds.first()?, *seconds.get(seconds.len() / 2)?);
        Some(Self { median, best })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_and_the_shortest() {
        assert_eq!(Timed::of(vec![3.0, 1.0, 2.0]), Some(Timed { median: 2.0, best: 1.0 }));
        assert_eq!(Timed::of(vec![]), None);
    }

    #[test]
    fn sets_are_found_by_name() {
        assert_eq!(isa(Some("scalar")).ok(), Some(Isa::Scalar));
        assert_eq!(isa(None).ok(), Some(Isa::detect()));
        assert!(isa(Some("mmx")).is_err_and(|e| e.line().is_some_and(|line| line.contains("scalar"))));
    }
}
