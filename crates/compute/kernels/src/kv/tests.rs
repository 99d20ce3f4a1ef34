use half::f16;
use proptest::prelude::*;

use super::*;
use crate::{Isa, ThreadPool};

const FORMATS: [KvFormat; 3] = [KvFormat::F32, KvFormat::F16, KvFormat::Int8];

/// Key and value of one head of a token as they come back.
fn read(arena: &KvArena, block: u32, kv_head: usize, slot: usize) -> [Vec<f32>; 2] {
    let head_dim = arena.shape.head_dim;
    let section = arena.section(block, kv_head);
    let elements = head_dim * BLOCK_TOKENS;
    let word = |at: usize| f32::from_ne_bytes(section[at..][..4].try_into().unwrap());
    let element = |i: usize, kind: usize| match arena.format {
        KvFormat::F32 => word(4 * i),
        KvFormat::F16 => f16::from_ne_bytes(section[2 * i..][..2].try_into().unwrap()).to_f32(),
        KvFormat::Int8 => f32::from(section[i] as i8) * word(2 * elements + 4 * (kind * BLOCK_TOKENS + slot)),
    };
    [
        (0..head_dim).map(|d| element(d * BLOCK_TOKENS + slot, 0)).collect(),
        (0..head_dim).map(|d| element(elements + slot * head_dim + d, 1)).collect(),
    ]
}

fn rows(len: usize, seed: u32) -> Vec<f32> {
    (0..len as u32).map(|i| ((i + seed) * (seed % 911 + 1) % 997) as f32 / 100.0 - 5.0).collect()
}

proptest! {
    /// What was written comes back, to the format's precision; the bytes are the same on every ISA and for
    /// any number of threads and cuts, for any head size.
    #[test]
    fn tokens_come_back(
        head_dim in prop_oneof![Just(2usize), Just(6), Just(16), Just(64), Just(80)],
        start in 0usize..40,
        len in 1usize..70,
        cut in 0usize..70,
        seed in 1u32..1000,
    ) {
        let shape = HeadShape { heads: 2, kv_heads: 2, head_dim };
        let width = 2 * head_dim;
        let (keys, values) = (rows(len * width, seed), rows(len * width, seed + 77));
        let blocks = [5, 2, 7, 0, 3, 9, 1];
        for format in FORMATS {
            let write = |threads: usize, isa: Isa, cut: usize| {
                let mut arena = KvArena::new(format, shape, 10).unwrap();
                let pool = ThreadPool::new(threads);
                for (first_row, len) in [(0, cut), (cut, len - cut)] {
                    let spans = &[Span { first_row, len, start: start + first_row, blocks: &blocks }];
                    arena.write(&pool, isa, KvRows { keys: &keys, values: &values, spans, stored: &[] });
                }
                arena
            };
            let reference = write(1, Isa::Scalar, 0);
            for isa in Isa::available() {
                let other = write(2, isa, cut.min(len));
                prop_assert!(reference.bytes.as_slice() == other.bytes.as_slice(), "{format:?} on {isa:?}");
            }
            let tolerance = if format == KvFormat::F32 { 0.0 } else { 0.025 };
            for token in 0..len {
                let position = start + token;
                let block = blocks[position / BLOCK_TOKENS];
                for head in 0..2 {
                    let [key, value] = read(&reference, block, head, position % BLOCK_TOKENS);
                    let at = token * width + head * head_dim;
                    let close = |a: &[f32], b: &[f32]| {
                        a.iter().zip(b).all(|(a, b)| (a - b).abs() <= tolerance)
                    };
                    prop_assert!(close(&key, &keys[at..]) && close(&value, &values[at..]), "{format:?}");
                }
            }
        }
    }

    /// Eight-bit elements are the nearest multiples of the scale, whatever the size of the values.
    #[test]
    fn int8_is_the_nearest(values in proptest::collection::vec(any::<i32>(), 16), exponent in -149i32..120) {
        let values: Vec<f32> = values.iter().map(|v| *v as f32 / 2f32.powi(31) * 2f32.powi(exponent)).collect();
        let shape = HeadShape { heads: 1, kv_heads: 1, head_dim: 16 };
        let spans = &[Span { first_row: 0, len: 1, start: 3, blocks: &[0] }];
        for isa in Isa::available() {
            let mut arena = KvArena::new(KvFormat::Int8, shape, 1).unwrap();
            let rows = KvRows { keys: &values, values: &values, spans, stored: &[] };
            arena.write(&ThreadPool::new(1), isa, rows);
            let section = arena.section(0, 0);
            let scale = values.iter().fold(0f32, |m, v| m.max(v.abs())) / 127.0;
            for (d, v) in values.iter().enumerate() {
                let exact = (v / scale).round_ties_even().clamp(-127.0, 127.0) as i8;
                prop_assert_eq!(section[d * BLOCK_TOKENS + 3] as i8, exact);
                prop_assert_eq!(section[16 * BLOCK_TOKENS + 3 * 16 + d] as i8, exact);
            }
        }
    }
}

/// Enough tokens for several tasks, two of whose spans name the same blocks: the later one stays.
#[test]
fn many_threads_write_what_one_does() {
    let shape = HeadShape { heads: 2, kv_heads: 2, head_dim: 64 };
    let (keys, values) = (rows(600 * 128, 3), rows(600 * 128, 4));
    let blocks: Vec<u32> = (0..40).map(|i| i * 7 % 40).collect();
    let spans = [
        Span { first_row: 0, len: 300, start: 5, blocks: &blocks },
        Span { first_row: 300, len: 300, start: 200, blocks: &blocks },
    ];
    for format in FORMATS {
        let write = |threads, isa| {
            let mut arena = KvArena::new(format, shape, 40).unwrap();
            let rows = KvRows { keys: &keys, values: &values, spans: &spans, stored: &[0, 310] };
            arena.write(&ThreadPool::new(threads), isa, rows);
            arena
        };
        let reference = write(1, Isa::Scalar);
        for threads in 1..4 {
            let other = write(threads, Isa::detect());
            assert!(reference.bytes.as_slice() == other.bytes.as_slice(), "{format:?}, {threads} threads");
        }
    }
}

#[test]
fn what_is_stored_is_not_written_again() {
    let shape = HeadShape { heads: 1, kv_heads: 1, head_dim: 2 };
    let mut arena = KvArena::new(KvFormat::F32, shape, 1).unwrap();
    let spans = &[Span { first_row: 0, len: 2, start: 0, blocks: &[0] }];
    let pool = ThreadPool::new(1);
    for (stored, rows) in [(0, [1.0; 4]), (1, [2.0; 4])] {
        let rows = KvRows { keys: &rows, values: &rows, spans, stored: &[stored] };
        arena.write(&pool, Isa::detect(), rows);
    }
    assert_eq!([0, 1].map(|slot| read(&arena, 0, 0, slot)[0][0]), [1.0, 2.0]);
}

#[test]
fn what_is_not_finite_stays_visible() {
    let shape = HeadShape { heads: 1, kv_heads: 1, head_dim: 2 };
    for format in FORMATS {
        let mut arena = KvArena::new(format, shape, 1).unwrap();
        let spans = &[Span { first_row: 0, len: 1, start: 0, blocks: &[0] }];
        let rows = KvRows { keys: &[f32::INFINITY, 1.0], values: &[f32::NAN, 1.0], spans, stored: &[] };
        arena.write(&ThreadPool::new(1), Isa::detect(), rows);
        let [key, value] = read(&arena, 0, 0, 0);
        assert!(!key[0].is_finite() && !value[0].is_finite(), "{format:?}");
    }
}

#[test]
fn blocks_and_rows_that_are_not_there_are_refused() {
    let shape = HeadShape { heads: 1, kv_heads: 1, head_dim: 2 };
    for (blocks, rows, why) in [(&[1u32][..], 2, "block"), (&[], 2, "table"), (&[0], 1, "rows")] {
        let mut arena = KvArena::new(KvFormat::F16, shape, 1).unwrap();
        let spans = &[Span { first_row: 0, len: 2, start: 0, blocks }];
        let rows = vec![0f32; 2 * rows];
        let rows = KvRows { keys: &rows, values: &rows, spans, stored: &[] };
        let write = || arena.write(&ThreadPool::new(1), Isa::detect(), rows);
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(write)).is_err(), "{why}");
    }
}

#[test]
fn blocks_are_copied() {
    let shape = HeadShape { heads: 1, kv_heads: 1, head_dim: 2 };
    let mut arena = KvArena::new(KvFormat::F16, shape, 2).unwrap();
    arena.block_mut(0).fill(7);
    arena.copy(0, 1);
    assert!(arena.block(1).iter().all(|b| *b == 7));
}
