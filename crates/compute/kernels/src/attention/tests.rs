use proptest::prelude::*;

use super::*;
use crate::kv::{KvFormat, KvRows};

const FORMATS: [KvFormat; 3] = [KvFormat::F32, KvFormat::F16, KvFormat::Int8];
const SHAPE: HeadShape = HeadShape { heads: 6, kv_heads: 2, head_dim: 32 };

fn random(len: usize, seed: u32) -> Vec<f32> {
    (0..len as u32)
        .map(|i| ((i + 1).wrapping_mul(seed * 2 + 1).wrapping_mul(2_654_435_761) >> 8) as f32 / 8e6 - 1.0)
        .collect()
}

/// The kinds of attention.
#[derive(Debug, Clone, Copy, Default)]
struct Kind {
    window: Option<usize>,
    softcap: Option<f32>,
    has_sinks: bool,
}

const KINDS: [Kind; 5] = [
    Kind { window: None, softcap: None, has_sinks: false },
    Kind { window: Some(1), softcap: None, has_sinks: false },
    Kind { window: Some(37), softcap: None, has_sinks: true },
    Kind { window: None, softcap: Some(2.0), has_sinks: false },
    Kind { window: Some(100), softcap: Some(0.5), has_sinks: true },
];

/// How it is run, of which nothing may show.
#[derive(Debug, Clone, Copy)]
struct Way {
    isa: Isa,
    threads: usize,
    chunk: usize,
    split: Option<bool>,
}

const PLAIN: Way = Way { isa: Isa::Scalar, threads: 1, chunk: usize::MAX, split: Some(false) };

/// The tokens of one sequence and what is asked about them.
#[derive(Debug, Clone, Copy)]
struct Case {
    shape: HeadShape,
    format: KvFormat,
    kind: Kind,
    len: usize,
    /// Positions from here on are queries.
    first: usize,
}

impl Case {
    fn rows(&self) -> [Vec<f32>; 3] {
        let HeadShape { heads, kv_heads, head_dim } = self.shape;
        let width = kv_heads * head_dim;
        [random(self.len * width, 1), random(self.len * width, 2), random(self.len * heads * head_dim, 3)]
    }

    /// Computes the queries in chunks; `blocks` are where the sequence lies.
    fn attend(&self, blocks: &[u32], way: Way) -> Vec<f32> {
        let HeadShape { heads, kv_heads, head_dim } = self.shape;
        let [keys, values, queries] = self.rows();
        let (width, query_width) = (kv_heads * head_dim, heads * head_dim);
        let mut arena = KvArena::new(self.format, self.shape, 256).unwrap();
        let (pool, mut scratch) = (ThreadPool::new(way.threads), AttentionScratch::default());
        scratch.plan.forced_split = way.split;
        let write = |arena: &mut KvArena, start: usize, len: usize| {
            let spans = &[Span { first_row: 0, len, start, blocks }];
            let rows = |all: &[f32]| all[start * width..][..len * width].to_vec();
            let (keys, values) = (rows(&keys), rows(&values));
            arena.write(&pool, way.isa, KvRows { keys: &keys, values: &values, spans, stored: &[] });
        };
        write(&mut arena, 0, self.first);
        let mut out = Vec::new();
        let mut start = self.first;
        while start < self.len {
            let len = way.chunk.min(self.len - start);
            write(&mut arena, start, len);
            let spans = [Span { first_row: 0, len, start, blocks }];
            let queries = &queries[start * query_width..][..len * query_width];
            out.extend(run(&arena, queries, &spans, (self.kind, way, &mut scratch, &pool)));
            start += len;
        }
        out
    }

    /// Textbook attention in double precision.
    fn textbook(&self) -> Vec<f64> {
        let HeadShape { heads, kv_heads, head_dim } = self.shape;
        let [keys, values, queries] = self.rows();
        let sinks = sinks(heads);
        let mut out = Vec::new();
        for (position, head) in (self.first..self.len).flat_map(|p| (0..heads).map(move |h| (p, h))) {
            let query = &queries[(position * heads + head) * head_dim..][..head_dim];
            let at = |token: usize| (token * kv_heads + head / (heads / kv_heads)) * head_dim;
            let seen = (position + 1).saturating_sub(self.kind.window.unwrap_or(usize::MAX))..position + 1;
            let weight = |token: usize| {
                let products =
                    query.iter().zip(&keys[at(token)..]).map(|(q, k)| f64::from(*q) * f64::from(*k));
                let score = products.sum::<f64>() * f64::from(0.2f32);
                self.kind.softcap.map_or(score, |cap| f64::from(cap) * (score / f64::from(cap)).tanh()).exp()
            };
            let weights: Vec<f64> = seen.clone().map(weight).collect();
            let sink = if self.kind.has_sinks { f64::from(sinks[head]).exp() } else { 0.0 };
            let total = weights.iter().sum::<f64>() + sink;
            out.extend((0..head_dim).map(|d| {
                let values = seen.clone().map(|token| f64::from(values[at(token) + d]));
                values.zip(&weights).map(|(value, weight)| weight / total * value).sum::<f64>()
            }));
        }
        out
    }
}

fn sinks(heads: usize) -> Vec<f32> {
    (0..heads).map(|head| head as f32 * 1.5 - 2.0).collect()
}

fn run(
    arena: &KvArena,
    queries: &[f32],
    spans: &[Span<'_>],
    (kind, way, scratch, pool): (Kind, Way, &mut AttentionScratch, &ThreadPool),
) -> Vec<f32> {
    let sinks = sinks(arena.shape().heads);
    let layer = Attention {
        window: kind.window,
        softcap: kind.softcap,
        sinks: kind.has_sinks.then_some(&sinks[..]),
        ..Attention::new(arena, 0.2, queries, spans)
    };
    let mut out = vec![f32::NAN; queries.len()];
    layer.run(pool, way.isa, scratch, &mut out);
    out
}

fn assert_same(a: &[f32], b: &[f32], what: &dyn std::fmt::Debug) {
    assert!(a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits()), "{what:?}");
}

/// Blocks of a sequence, in order or scattered.
fn placed(len: usize, stride: u32) -> Vec<u32> {
    (0..len.div_ceil(BLOCK_TOKENS) as u32).map(|i| i * stride % 251).collect()
}

#[test]
fn equals_the_textbook() {
    let isa = Isa::detect();
    let shapes = [
        SHAPE,
        HeadShape { heads: 4, kv_heads: 1, head_dim: 64 },
        HeadShape { heads: 2, kv_heads: 2, head_dim: 6 },
        HeadShape { heads: 7, kv_heads: 1, head_dim: 80 },
    ];
    for (shape, kind) in shapes.into_iter().flat_map(|shape| KINDS.map(|kind| (shape, kind))) {
        for (format, tolerance) in FORMATS.into_iter().zip([2e-6, 1e-3, 2e-2]) {
            let case = Case { shape, format, kind, len: 150, first: 0 };
            let out = case.attend(&placed(150, 7), Way { isa, threads: 2, ..PLAIN });
            let off = out.iter().zip(case.textbook()).map(|(a, b)| (f64::from(*a) - b).abs());
            let worst = off.fold(0.0, f64::max);
            assert!(worst < tolerance, "{worst:e}: {case:?}");
        }
    }
}

#[test]
fn same_bits_however_it_is_cut_placed_or_run() {
    for (format, kind) in FORMATS.into_iter().flat_map(|format| KINDS.map(|kind| (format, kind))) {
        let case = Case { shape: SHAPE, format, kind, len: 140, first: 0 };
        let reference = case.attend(&placed(140, 1), PLAIN);
        for isa in Isa::available() {
            for (chunk, threads) in [(1, 1), (7, 2), (16, 3), (33, 2), (140, 2)] {
                if isa == Isa::Scalar && chunk == 1 {
                    continue;
                }
                let way = Way { isa, threads, chunk, split: None };
                assert_same(&case.attend(&placed(140, 7), way), &reference, &(case, way));
            }
        }
    }
}

/// Several segments, one after the other and apart.
#[test]
fn same_bits_over_long_contexts() {
    let shape = HeadShape { heads: 3, kv_heads: 1, head_dim: 16 };
    for (format, window) in [
        (KvFormat::F32, None),
        (KvFormat::F16, None),
        (KvFormat::Int8, None),
        (KvFormat::F16, Some(1500)),
        (KvFormat::F16, Some(1024)),
    ] {
        let kind = Kind { window, ..Kind::default() };
        let case = Case { shape, format, kind, len: 3080, first: 3065 };
        let reference = case.attend(&placed(3080, 1), PLAIN);
        let off = reference.iter().zip(case.textbook()).map(|(a, b)| (f64::from(*a) - b).abs());
        assert!(off.fold(0.0, f64::max) < 2e-2, "{case:?}");
        for isa in Isa::available() {
            for (chunk, split) in [(1, Some(true)), (4, None), (15, Some(true)), (15, Some(false))] {
                let way = Way { isa, threads: 2, chunk, split };
                assert_same(&case.attend(&placed(3080, 7), way), &reference, &(case, way));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// A step of sequences that share prefixes of several lengths, in any order, gives what each gives alone.
    #[test]
    fn same_bits_alone_and_grouped(
        sequences in proptest::collection::vec((0usize..3, 0usize..9, 1usize..80, 1usize..6), 1..12),
        format in prop_oneof![Just(KvFormat::F32), Just(KvFormat::F16), Just(KvFormat::Int8)],
        kind in proptest::sample::select(&KINDS[..]),
        head_dim in prop_oneof![Just(16usize), Just(24)],
    ) {
        let shape = HeadShape { heads: 4, kv_heads: 2, head_dim };
        let mut arena = KvArena::new(format, shape, 256).unwrap();
        let (keys, values) = (random(256 * 16 * 2 * head_dim, 1), random(256 * 16 * 2 * head_dim, 2));
        let all: Vec<u32> = (0..256).collect();
        let whole = [Span { first_row: 0, len: 256 * 16, start: 0, blocks: &all }];
        let pool = ThreadPool::new(2);
        let rows = KvRows { keys: &keys, values: &values, spans: &whole, stored: &[] };
        arena.write(&pool, Isa::detect(), rows);
        // A sequence is one of three stems, then blocks of its own.
        let tables: Vec<Vec<u32>> = sequences.iter().enumerate().map(|(i, (stem, shared, own, len))| {
            let shared = (0..*shared as u32).map(|block| *stem as u32 * 9 + block);
            let own = (0..(own + len).div_ceil(16) as u32).map(|block| 40 + i as u32 * 8 + block);
            shared.chain(own).collect()
        }).collect();
        let mut spans: Vec<Span<'_>> = Vec::new();
        for ((_, shared, own, len), blocks) in sequences.iter().zip(&tables) {
            let first_row = spans.last().map_or(0, |span| span.first_row + span.len);
            spans.push(Span { first_row, len: *len, start: shared * 16 + own, blocks });
        }
        let width = 4 * head_dim;
        let queries = random(spans.iter().map(|span| span.len).sum::<usize>() * width, 3);
        let mut scratch = AttentionScratch::default();
        let way = Way { isa: Isa::detect(), threads: 2, ..PLAIN };
        let together = run(&arena, &queries, &spans, (kind, way, &mut scratch, &pool));
        for span in &spans {
            let part = span.first_row * width..(span.first_row + span.len) * width;
            let alone = [Span { first_row: 0, ..*span }];
            let alone = run(&arena, &queries[part.clone()], &alone, (kind, way, &mut scratch, &pool));
            assert_same(&together[part], &alone, &span);
        }
    }
}

/// All bits set is a NaN in every format. Blocks before the window are not even there.
#[test]
fn what_no_query_sees_is_not_read() {
    for (format, isa) in FORMATS.into_iter().flat_map(|f| Isa::available().into_iter().map(move |i| (f, i))) {
        for (start, len, window) in [(0, 3, None), (70, 5, Some(20)), (200, 1, Some(30)), (64, 40, Some(1))] {
            let mut arena = KvArena::new(format, SHAPE, 16).unwrap();
            (0..16).for_each(|block| arena.block_mut(block).fill(0xff));
            let first_seen = window.map_or(0, |window: usize| (start + 1usize).saturating_sub(window));
            let blocks: Vec<u32> = (0..16u32)
                .map(|i| if (i as usize) < first_seen / BLOCK_TOKENS { u32::MAX - i } else { i })
                .collect();
            let (first, rows) = (first_seen, start + len - first_seen);
            let width = SHAPE.kv_heads * SHAPE.head_dim;
            let (keys, values) = (random(rows * width, 1), random(rows * width, 2));
            let (pool, mut scratch) = (ThreadPool::new(1), AttentionScratch::default());
            let spans = &[Span { first_row: 0, len: rows, start: first, blocks: &blocks }];
            arena.write(&pool, isa, KvRows { keys: &keys, values: &values, spans, stored: &[] });
            let queries = random(len * SHAPE.heads * SHAPE.head_dim, 3);
            let spans = [Span { first_row: 0, len, start, blocks: &blocks }];
            let kind = Kind { window, ..Kind::default() };
            let way = Way { isa, ..PLAIN };
            let out = run(&arena, &queries, &spans, (kind, way, &mut scratch, &pool));
            assert!(out.iter().all(|v| v.is_finite()), "{format:?} {isa:?} {start} {len} {window:?}");
        }
    }
}

/// A value that is not finite shows in those that see it, with equal bits, and in no other.
#[test]
fn what_is_not_finite_stays_visible() {
    let width = SHAPE.kv_heads * SHAPE.head_dim;
    for format in FORMATS {
        for poison in [0, 1] {
            let mut rows = [random(80 * width, 1), random(80 * width, 2)];
            rows[poison][41 * width + 3] = f32::NAN;
            let blocks = placed(80, 7);
            let outputs = Isa::available().into_iter().map(|isa| {
                let mut arena = KvArena::new(format, SHAPE, 256).unwrap();
                let (pool, mut scratch) = (ThreadPool::new(1), AttentionScratch::default());
                let spans = [Span { first_row: 0, len: 80, start: 0, blocks: &blocks }];
                let kv = KvRows { keys: &rows[0], values: &rows[1], spans: &spans, stored: &[] };
                arena.write(&pool, isa, kv);
                let queries = random(80 * SHAPE.heads * SHAPE.head_dim, 3);
                let way = Way { isa, ..PLAIN };
                run(&arena, &queries, &spans, (Kind::default(), way, &mut scratch, &pool))
            });
            let outputs: Vec<Vec<f32>> = outputs.collect();
            let query_width = SHAPE.heads * SHAPE.head_dim;
            assert!(outputs[0][..41 * query_width].iter().all(|v| v.is_finite()));
            assert!(outputs[0][41 * query_width..].chunks(query_width).all(|row| row[3].is_nan()));
            outputs.iter().for_each(|out| assert_same(out, &outputs[0], &format));
        }
    }
}

#[test]
fn spans_that_do_not_fit_are_refused() {
    let check = |spans: &[Span<'_>], sinks: usize, why: &str| {
        let queries = vec![0f32; 2 * SHAPE.heads * SHAPE.head_dim];
        let arena = KvArena::new(KvFormat::F32, SHAPE, 1).unwrap();
        let sinks = vec![0f32; sinks];
        let layer = Attention { sinks: Some(&sinks), ..Attention::new(&arena, 1.0, &queries, spans) };
        let mut scratch = AttentionScratch::default();
        let mut out = vec![0f32; queries.len()];
        let run = || layer.run(&ThreadPool::new(1), Isa::detect(), &mut scratch, &mut out);
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).map_err(|_| why.to_owned())
    };
    let span = Span { first_row: 0, len: 2, start: 0, blocks: &[0] };
    let heads = SHAPE.heads;
    assert_eq!(check(&[span], heads, "fits"), Ok(()));
    for (spans, sinks, why) in [
        (&[Span { start: 15, ..span }][..], heads, "too few blocks"),
        (&[Span { first_row: 1, ..span }], heads, "rows outside the step"),
        (&[span, span], heads, "a row in two spans"),
        (&[Span { len: 1, ..span }], heads, "rows without a span"),
        (&[Span { blocks: &[1], ..span }], heads, "a block that is not there"),
        (&[span], heads - 1, "too few sinks"),
    ] {
        assert_eq!(check(spans, sinks, why), Err(why.to_owned()));
    }
}
