//! `motet bench kernels`: the machine's limits, and how near each kernel comes.

mod plot;
mod points;

use std::path::{Path, PathBuf};

use clap::Args;
use motet_kernels::{
    BlockFormat, HugePages, ThreadPool, huge_pages,
    machine::{self, Limits},
    memory_nodes,
};
use motet_model::{Gguf, Isa, ModelConfig};
use serde_json::json;

use crate::{
    config::{Config, human_bytes},
    failure::Failure,
    load::find,
    output::{print, say},
};
use points::{AttentionCase, Heads, MatmulCase, Point};

pub(crate) const HELP: &str = "\
Examples:
  motet bench kernels
  motet bench kernels --model tiny.gguf --plot roofline.svg
  motet bench kernels --formats Q4_0,Q8_0 --batch 1,64 --json

The limits come first, measured on all threads: 8-bit and f32 arithmetic by instruction set, and
reading memory. A kernel's share is that of min(arithmetic, bandwidth × operations per byte).
Weights are read from many copies that add up to 96 MiB, since a model's layers don't find theirs
in a core's cache either. Without --model the shapes are those of SmolLM2-135M.";

/// `motet bench kernels`.
#[derive(Debug, Args)]
pub(crate) struct KernelsArgs {
    /// Take the shapes of this model: GGUF file, folder, name from `motet model list`, or hf:owner/name[:file]
    #[arg(long, short, value_name = "MODEL")]
    pub(super) model: Option<String>,
    #[command(flatten)]
    pub(super) compute: super::ComputeArgs,
    /// Formats of the weights, where no model gives them [default: Q4_0,Q4_1,Q8_0,F16]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    formats: Vec<String>,
    /// Rows that are multiplied at once
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = [1, 8, 32, 128, 512])]
    batch: Vec<u16>,
    /// Context lengths of attention; none with 0
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = [128, 512, 2048, 8192])]
    ctx: Vec<u32>,
    /// Instruction set, such as avx2 or neon [default: the fastest]
    #[arg(long, value_name = "NAME")]
    isa: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Draw the roofline into this file
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

/// Measures and prints.
pub(crate) async fn bench(args: &KernelsArgs, config: &Config) -> Result<(), Failure> {
    let (isa, pool) = (super::isa(args.isa.as_deref())?, ThreadPool::new(config.engine.threads));
    if args.batch.contains(&0) || args.ctx.iter().any(|ctx| *ctx > MAX_CONTEXT) {
        return Err(Failure::usage(format!("--batch takes at least 1, --ctx at most {MAX_CONTEXT}")));
    }
    let shapes = match args.model {
        Some(_) => Shapes::of_model(&find(&config.model).await?)?,
        None => Shapes::default_model(&args.formats)?,
    };
    say("measuring the machine…");
    let limits = machine::measure(&pool);
    let setup = points::Setup { pool: &pool, isa, limits: &limits };
    let mut all = Vec::new();
    for (format, rows, cols) in &shapes.matrices {
        say(&format!("matmul {rows} × {cols} {}", format.name()));
        let case = MatmulCase { format: *format, rows: *rows, cols: *cols };
        all.extend(points::matmul(&setup, case, &args.batch));
    }
    for context in args.ctx.iter().copied().filter(|context| *context > 0) {
        say(&format!("attention over {context} tokens"));
        let case = AttentionCase { heads: shapes.heads, format: config.engine.kv_format, context };
        all.extend(points::attention(&setup, case)?);
    }
    if let Some(file) = &args.plot {
        std::fs::write(file, plot::svg(&limits, isa, &all))
            .map_err(|e| Failure::usage(format!("--plot {}: {e}", file.display())))?;
    }
    print(&if args.json { json_text(&limits, isa, &all) } else { text(&limits, isa, &all) })
}

/// Longest context of the attention cases.
const MAX_CONTEXT: u32 = 1 << 17;

/// What is measured: matrices as (format, rows, columns), and the attention's heads.
struct Shapes {
    matrices: Vec<(BlockFormat, usize, usize)>,
    heads: Heads,
}

impl Shapes {
    /// Those of SmolLM2-135M in the formats that are named.
    fn default_model(names: &[String]) -> Result<Self, Failure> {
        let usual = ["Q4_0", "Q4_1", "Q8_0", "F16"].map(str::to_owned);
        let names = if names.is_empty() { &usual } else { names };
        let mut matrices = Vec::new();
        for name in names {
            let format = format_named(name).ok_or_else(|| {
                let known: Vec<_> = BlockFormat::ALL.iter().map(|format| format.name()).collect();
                Failure::usage(format!("--formats {name}: not a format; there are {}", known.join(", ")))
            })?;
            let shapes = [(576, 576), (192, 576), (1536, 576), (576, 1536), (49_152, 576)];
            matrices.extend(shapes.map(|(rows, cols)| (format, rows, cols)));
        }
        Ok(Self { matrices, heads: Heads { heads: 9, kv_heads: 3, head_dim: 64 } })
    }

    /// Every different matrix of a file that the kernels have a format for.
    fn of_model(path: &Path) -> Result<Self, Failure> {
        let gguf = Gguf::open(path).map_err(Failure::usage)?;
        let shape = ModelConfig::read(&gguf).map_err(Failure::usage)?.head_shape();
        let mut matrices = Vec::new();
        for tensor in gguf.tensors() {
            if let (&[cols, rows], Some(format)) = (tensor.shape(), format_named(tensor.ty().name()))
                && cols.is_multiple_of(motet_kernels::BLOCK)
                && !matrices.contains(&(format, rows, cols))
            {
                matrices.push((format, rows, cols));
            }
        }
        let (heads, kv_heads, head_dim) = (shape.heads, shape.kv_heads, shape.head_dim);
        Ok(Self { matrices, heads: Heads { heads, kv_heads, head_dim } })
    }
}

fn format_named(name: &str) -> Option<BlockFormat> {
    BlockFormat::ALL.into_iter().find(|format| format.name().eq_ignore_ascii_case(name))
}

fn text(limits: &Limits, isa: Isa, points: &[Point]) -> String {
    let peaks = |peaks: &[machine::Peak], unit: &str| -> String {
        let lines = peaks.iter().map(|peak| format!("  {:<14}{:>10.0} {unit}\n", peak.isa, peak.gops));
        lines.collect()
    };
    let cache = machine::last_cache_bytes().map_or_else(|| "unknown".to_owned(), |n| human_bytes(n as u64));
    let mut out = format!(
        "{} threads, kernels for {}; last-level cache {cache}, {} NUMA node(s), transparent huge pages: {}{}\n",
        limits.threads,
        isa.name(),
        memory_nodes().len(),
        huge_pages().name(),
        if huge_pages() == HugePages::Never {
            " (large memory is in small pages, which costs speed)"
        } else {
            ""
        },
    );
    out += &format!("\n8-bit dot products\n{}", peaks(&limits.int8, "Gop/s"));
    out += &format!("f32 multiply-adds\n{}", peaks(&limits.f32, "GFLOP/s"));
    let (memory, small) =
        (human_bytes(limits.memory_bytes as u64), human_bytes(machine::SMALL_MODEL_BYTES as u64));
    out += &format!("reading\n  {memory:<14}{:>10.1} GB/s\n", limits.memory);
    out += &format!("  {small:<14}{:>10.1} GB/s\n\n", limits.small_model);
    out += &format!("{:<34}{:>6}{:>10}{:>10}{:>10}{:>8}\n", "", "rows", "Gop/s", "GB/s", "limit", "share");
    for point in points {
        out += &format!(
            "{:<34}{:>6}{:>10.1}{:>10.1}{:>10.0}{:>7.0}%\n",
            point.name,
            point.rows,
            point.gops,
            point.gigabytes,
            point.limit,
            100.0 * point.share()
        );
    }
    out
}

fn json_text(limits: &Limits, isa: Isa, points: &[Point]) -> String {
    let peaks = |peaks: &[machine::Peak]| -> serde_json::Value {
        peaks
            .iter()
            .map(|peak| (peak.isa.to_owned(), json!(peak.gops)))
            .collect::<serde_json::Map<_, _>>()
            .into()
    };
    let points: Vec<_> = points
        .iter()
        .map(|point| {
            json!({
                "kernel": point.kernel, "name": point.name, "rows": point.rows, "format": point.format,
                "gops": point.gops, "gigabytes_per_second": point.gigabytes,
                "operations_per_byte": point.intensity(), "limit_gops": point.limit, "share": point.share(),
            })
        })
        .collect();
    let report = json!({
        "threads": limits.threads,
        "isa": isa.name(),
        "huge_pages": huge_pages().name(),
        "numa_nodes": memory_nodes().len(),
        "last_cache_bytes": machine::last_cache_bytes(),
        "int8_gops": peaks(&limits.int8),
        "f32_gflops": peaks(&limits.f32),
        "memory_gigabytes_per_second": limits.memory,
        "memory_bytes": limits.memory_bytes,
        "small_model_gigabytes_per_second": limits.small_model,
        "points": points,
    });
    format!("{report}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_asked_for_by_name() {
        let shapes = Shapes::default_model(&["q4_0".to_owned()]).map(|shapes| shapes.matrices.len());
        assert_eq!(shapes.ok(), Some(5));
        let error = Shapes::default_model(&["Q9".to_owned()]).err().and_then(|e| e.line()).unwrap();
        assert!(error.contains("Q9") && error.contains("Q8_0"), "{error}");
    }

    #[test]
    fn the_report_names_limits_and_points() {
        let peak = |isa, gops| machine::Peak { isa, gops };
        let limits = Limits {
            threads: 2,
            int8: vec![peak("avx2", 500.0)],
            f32: vec![peak("avx2", 100.0)],
            memory: 20.0,
            memory_bytes: 1 << 30,
            small_model: 30.0,
        };
        let pool = ThreadPool::new(1);
        let setup = points::Setup { pool: &pool, isa: Isa::Scalar, limits: &limits };
        let heads = Heads { heads: 2, kv_heads: 1, head_dim: 16 };
        let format = motet_model::KvFormat::F16;
        let points = points::attention(&setup, AttentionCase { heads, format, context: 40 }).unwrap();
        let shown = text(&limits, Isa::Scalar, &points);
        assert!(
            shown.contains("500 Gop/s") && shown.contains("1 GiB") && shown.contains("attention"),
            "{shown}"
        );
        let json: serde_json::Value =
            serde_json::from_str(&json_text(&limits, Isa::Scalar, &points)).unwrap();
        assert_eq!(json["int8_gops"]["avx2"], 500.0);
        assert_eq!(json["points"].as_array().unwrap().len(), points.len());
        let svg = plot::svg(&limits, Isa::Scalar, &points);
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{svg}");
        assert_eq!(svg.matches("<title>attention").count(), points.len(), "{svg}");
    }
}
