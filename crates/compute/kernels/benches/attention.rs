//! Attention of one layer: chunks of prefill at several positions, decode at several lengths, against a
//! slower instruction set in the same run.
//!
//! `cargo bench -p motet-kernels --bench attention`. Machines are shared and noisy: each figure is the best
//! of several runs, and only the ratios travel. GFLOP/s count what the queries see, GB/s the keys and
//! values that a sequence's queries read once.
#![allow(clippy::print_stdout)]

use std::time::Instant;

use motet_kernels::attention::{Attention, AttentionScratch, HeadShape, Span};
use motet_kernels::kv::{BLOCK_TOKENS, KvArena, KvFormat, KvRows};
use motet_kernels::{Isa, ThreadPool};

/// Seconds that a figure's runs take together, at least.
const SECONDS: f64 = 0.15;

/// Sequences that have `start` tokens behind them and compute `len` more.
struct Step {
    name: &'static str,
    sequences: usize,
    start: usize,
    len: usize,
    /// Whether all of `start` is one prefix that the sequences share.
    is_shared: bool,
}

const STEPS: [Step; 11] = [
    Step { name: "prefill 128 at 0", sequences: 1, start: 0, len: 128, is_shared: false },
    Step { name: "prefill 128 at 1,024", sequences: 1, start: 1024, len: 128, is_shared: false },
    Step { name: "prefill 128 at 4,096", sequences: 1, start: 4096, len: 128, is_shared: false },
    Step { name: "decode 1 at 128", sequences: 1, start: 128, len: 1, is_shared: false },
    Step { name: "decode 1 at 2,000", sequences: 1, start: 2000, len: 1, is_shared: false },
    Step { name: "decode 1 at 8,000", sequences: 1, start: 8000, len: 1, is_shared: false },
    Step { name: "decode 32 at 128", sequences: 32, start: 128, len: 1, is_shared: false },
    Step { name: "decode 32 at 2,000", sequences: 32, start: 2000, len: 1, is_shared: false },
    Step { name: "decode 32 at 8,000", sequences: 32, start: 8000, len: 1, is_shared: false },
    Step { name: "32 on one 2,000", sequences: 32, start: 2000, len: 1, is_shared: true },
    Step { name: "32 on one 8,000", sequences: 32, start: 8000, len: 1, is_shared: true },
];

const SHAPES: [HeadShape; 2] =
    [HeadShape { heads: 9, kv_heads: 3, head_dim: 64 }, HeadShape { heads: 4, kv_heads: 1, head_dim: 256 }];

fn main() {
    let pool = ThreadPool::new(std::thread::available_parallelism().map_or(1, usize::from));
    let isa = Isa::detect();
    let slower = Isa::available().into_iter().rfind(|other| *other < isa && other.name() == "avx2");
    let slower = slower.unwrap_or(Isa::Scalar);
    println!("{} threads, {} (times {})", pool.threads(), isa.name(), slower.name());
    for shape in SHAPES {
        for format in [KvFormat::F16, KvFormat::Int8] {
            println!("{} / {} heads of {}, {format:?}", shape.heads, shape.kv_heads, shape.head_dim);
            for step in &STEPS {
                step.print(&pool, (isa, slower), (shape, format));
            }
        }
    }
}

impl Step {
    fn print(&self, pool: &ThreadPool, (isa, slower): (Isa, Isa), (shape, format): (HeadShape, KvFormat)) {
        let tables = self.tables();
        let blocks = tables.iter().flatten().max().map_or(0, |block| *block as usize + 1);
        let Some(mut arena) = KvArena::new(format, shape, blocks) else { return };
        fill(&mut arena, (pool, isa), blocks);
        let span = |(i, blocks)| Span { first_row: i * self.len, len: self.len, start: self.start, blocks };
        let spans: Vec<Span<'_>> = tables.iter().map(Vec::as_slice).enumerate().map(span).collect();
        let rows = self.sequences * self.len;
        let queries = random(rows * shape.heads * shape.head_dim);
        let mut out = vec![0f32; queries.len()];
        let attention = Attention::new(&arena, 0.125, &queries, &spans);
        let mut scratch = AttentionScratch::default();
        let mut time = |isa| best(|| attention.run(pool, isa, &mut scratch, &mut out));
        let (seconds, reference) = (time(isa), time(slower));
        let seen: usize = (self.start + 1..=self.start + self.len).sum::<usize>() * self.sequences;
        let flops = (4 * seen * shape.heads * shape.head_dim) as f64;
        let read = (self.start + self.len) * self.sequences * format.block_bytes(shape) / BLOCK_TOKENS;
        println!(
            "  {:<22}{:>10.1} µs{:>8.1} GFLOP/s{:>8.1} GB/s{:>8.1}×",
            self.name,
            seconds * 1e6,
            flops / seconds / 1e9,
            read as f64 / seconds / 1e9,
            reference / seconds
        );
    }

    fn tables(&self) -> Vec<Vec<u32>> {
        let shared = if self.is_shared { self.start / BLOCK_TOKENS } else { 0 };
        let blocks = (self.start + self.len).div_ceil(BLOCK_TOKENS);
        let own = blocks - shared;
        let table = |i: usize| (0..shared).chain(shared + i * own..shared + (i + 1) * own);
        (0..self.sequences).map(|i| table(i).map(|block| block as u32).collect()).collect()
    }
}

/// Writes one block and copies it over the others.
fn fill(arena: &mut KvArena, (pool, isa): (&ThreadPool, Isa), blocks: usize) {
    let width = arena.shape().kv_heads * arena.shape().head_dim;
    let rows = random(BLOCK_TOKENS * width);
    let spans = &[Span { first_row: 0, len: BLOCK_TOKENS, start: 0, blocks: &[0] }];
    arena.write(pool, isa, KvRows { keys: &rows, values: &rows, spans, stored: &[] });
    (1..blocks as u32).for_each(|block| arena.copy(0, block));
}

fn random(len: usize) -> Vec<f32> {
    (0..len as u32).map(|i| ((i + 1).wrapping_mul(2_654_435_761) >> 8) as f32 / 8e6 - 1.0).collect()
}

fn best(mut body: impl FnMut()) -> f64 {
    body();
    let began = Instant::now();
    let mut fastest = f64::INFINITY;
    while began.elapsed().as_secs_f64() < SECONDS || fastest.is_infinite() {
        let began = Instant::now();
        body();
        fastest = fastest.min(began.elapsed().as_secs_f64());
    }
    fastest
}
