//! Kernels timed on weights, keys and values that no core has in its own cache.

use std::time::{Duration, Instant};

use motet_kernels::{
    Activations, BlockFormat, Isa, PackedMatrix, Precision, Product, Source, Sum, ThreadPool,
    attention::{Attention, AttentionScratch, HeadShape, Span},
    kv::{BLOCK_TOKENS, KvArena, KvFormat},
    machine::{Limits, SMALL_MODEL_BYTES},
    matmul as multiply,
};

use crate::failure::Failure;

/// Shortest run: the clock is nothing beside it, and on a busy machine some runs are left in peace.
const RUN_TIME: Duration = Duration::from_millis(1);
/// Runs whose best counts, at least.
const RUNS: usize = 4;
/// Time for all runs of a point, where they are short.
const ALL_RUNS: Duration = Duration::from_millis(80);
/// A byte that, repeated, is a moderate number in every format, so that sums stay finite and normal.
const FILL: u8 = 0x35;

/// What all points share.
pub(super) struct Setup<'a> {
    pub(super) pool: &'a ThreadPool,
    pub(super) isa: Isa,
    pub(super) limits: &'a Limits,
}

/// One measured kernel.
#[derive(Debug, Clone)]
pub(super) struct Point {
    pub(super) kernel: &'static str,
    pub(super) name: String,
    /// Of weights, or of keys and values.
    pub(super) format: &'static str,
    /// Rows that were computed at once.
    pub(super) rows: usize,
    /// 10⁹ operations a second.
    pub(super) gops: f64,
    /// 10⁹ bytes a second, of weights or keys and values, inputs and outputs.
    pub(super) gigabytes: f64,
    /// 10⁹ operations a second that the machine allows at this intensity.
    pub(super) limit: f64,
}

impl Point {
    /// Operations per byte.
    pub(super) fn intensity(&self) -> f64 {
        self.gops / self.gigabytes
    }

    /// Part of the limit that is reached.
    pub(super) fn share(&self) -> f64 {
        self.gops / self.limit
    }
}

/// What a call costs at least.
#[derive(Clone, Copy)]
struct Work {
    operations: f64,
    bytes: f64,
    /// Ceiling of the arithmetic, in 10⁹ operations a second.
    peak: f64,
}

impl Work {
    fn point(self, seconds: f64, limits: &Limits) -> Point {
        Point {
            kernel: "",
            name: String::new(),
            format: "",
            rows: 0,
            gops: self.operations / seconds / 1e9,
            gigabytes: self.bytes / seconds / 1e9,
            limit: self.peak.min(limits.small_model * self.operations / self.bytes),
        }
    }
}

/// A weight matrix.
#[derive(Debug, Clone, Copy)]
pub(super) struct MatmulCase {
    pub(super) format: BlockFormat,
    pub(super) rows: usize,
    pub(super) cols: usize,
}

/// The product of each number of input rows with the matrix.
pub(super) fn matmul(setup: &Setup<'_>, case: MatmulCase, batches: &[u16]) -> Vec<Point> {
    let MatmulCase { format, rows, cols } = case;
    let raw = vec![FILL; format.bytes(rows * cols)];
    let copies = SMALL_MODEL_BYTES.div_ceil(raw.len());
    let pack = |_| {
        let source = Source { format, raw: &raw, rows, cols };
        PackedMatrix::pack(setup.pool, source, Precision::Fast)
    };
    let weights: Vec<PackedMatrix> = (0..copies).map(pack).collect();
    let is_float = matches!(format, BlockFormat::F32 | BlockFormat::F16 | BlockFormat::BF16);
    let peak =
        if is_float { setup.limits.f32_of(setup.isa.name()) } else { setup.limits.int8_of(setup.isa.name()) };
    let mut points = Vec::new();
    for batch in batches.iter().map(|batch| usize::from(*batch)) {
        let mut x = Activations::default();
        x.fill(batch, cols).fill(0.5);
        x.quantize(setup.pool, setup.isa);
        let mut out = vec![0f32; batch * rows];
        let mut turn = 0;
        let seconds = seconds_per_call(|| {
            let weights = &weights[turn % copies];
            turn += 1;
            multiply(setup.pool, setup.isa, &x, &mut [Product { weights, out: &mut out, sum: Sum::Replace }]);
        });
        // A byte and the block's scale and sums, or the f32 values.
        let input = if is_float { 4.0 } else { 1.0 + 12.0 / motet_kernels::BLOCK as f64 };
        let work = Work {
            operations: 2.0 * (batch * rows * cols) as f64,
            bytes: raw.len() as f64 + (batch * cols) as f64 * input + (batch * rows * 4) as f64,
            peak,
        };
        points.push(Point {
            kernel: "matmul",
            name: format!("matmul {rows} × {cols} {}", format.name()),
            format: format.name(),
            rows: batch,
            ..work.point(seconds, setup.limits)
        });
    }
    points
}

/// Sizes of an attention layer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Heads {
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
    pub(super) head_dim: usize,
}

/// Attention over a context.
#[derive(Debug, Clone, Copy)]
pub(super) struct AttentionCase {
    pub(super) heads: Heads,
    pub(super) format: KvFormat,
    pub(super) context: u32,
}

/// Sequences that are decoded at once.
const SEQUENCES: usize = 8;
/// Queries of a chunk of a prompt.
const CHUNK: usize = 128;

/// One query each of eight sequences, and a chunk of one sequence, that see the whole context.
pub(super) fn attention(setup: &Setup<'_>, case: AttentionCase) -> Result<Vec<Point>, Failure> {
    let AttentionCase { heads: Heads { heads, kv_heads, head_dim }, format, context } = case;
    let shape = HeadShape { heads, kv_heads, head_dim };
    let context = context as usize;
    let per_sequence = context.div_ceil(BLOCK_TOKENS);
    // As many layers as it takes to leave the cores' own caches.
    let layer_bytes = SEQUENCES * per_sequence * format.block_bytes(shape);
    let layers = SMALL_MODEL_BYTES.div_ceil(layer_bytes);
    let mut arena = KvArena::new(format, shape, layers * SEQUENCES * per_sequence)
        .ok_or_else(|| Failure::runtime("the system refused the memory for keys and values"))?;
    let blocks: Vec<u32> = (0..(layers * SEQUENCES * per_sequence) as u32).collect();
    blocks.iter().for_each(|block| arena.block_mut(*block).fill(FILL));
    let chunk = CHUNK.min(context);
    let mut points = Vec::new();
    for (name, sequences, queries) in [("decode", SEQUENCES, 1), ("prefill", 1, chunk)] {
        let rows = sequences * queries;
        let values = vec![0.25f32; rows * heads * head_dim];
        let mut out = vec![0f32; values.len()];
        let mut turn = 0;
        let mut scratch = AttentionScratch::default();
        let seconds = seconds_per_call(|| {
            let layer = &blocks[turn % layers * SEQUENCES * per_sequence..];
            turn += 1;
            let spans: Vec<Span<'_>> = (0..sequences)
                .map(|sequence| Span {
                    first_row: sequence * queries,
                    len: queries,
                    start: context - queries,
                    blocks: &layer[sequence * per_sequence..][..per_sequence],
                })
                .collect();
            let scale = 1.0 / (head_dim as f32).sqrt();
            Attention::new(&arena, scale, &values, &spans).run(setup.pool, setup.isa, &mut scratch, &mut out);
        });
        let seen = (context - queries) as f64 + (queries as f64 + 1.0) / 2.0;
        let kv_bytes = sequences as f64 * (context * format.block_bytes(shape) / BLOCK_TOKENS) as f64;
        let work = Work {
            // A multiply-add for the score and one for the sum, per query, head, element and key.
            operations: 4.0 * (rows * heads * head_dim) as f64 * seen,
            bytes: kv_bytes + (rows * heads * head_dim * 8) as f64,
            peak: setup.limits.f32_of(setup.isa.name()),
        };
        points.push(Point {
            kernel: "attention",
            name: format!("attention, {name} at {context}"),
            format: "KV",
            rows,
            ..work.point(seconds, setup.limits)
        });
    }
    Ok(points)
}

/// Best of several runs of several calls, after one that is not counted.
fn seconds_per_call(mut call: impl FnMut()) -> f64 {
    let mut time = |calls: u32| {
        let began = Instant::now();
        (0..calls).for_each(|_| call());
        began.elapsed().as_secs_f64() / f64::from(calls)
    };
    time(1);
    let calls = (RUN_TIME.as_secs_f64() / time(1).max(1e-9)).ceil().clamp(1.0, 100_000.0) as u32;
    let began = Instant::now();
    let (mut shortest, mut runs) = (f64::INFINITY, 0);
    while runs < RUNS || began.elapsed() < ALL_RUNS {
        shortest = shortest.min(time(calls));
        runs += 1;
    }
    shortest
}
