//! Attention and KV writes allocate nothing once they have had their largest step.
#![allow(unsafe_code, clippy::unwrap_used)]

mod counting;

use counting::allocations;
use motet_kernels::attention::{Attention, AttentionScratch, HeadShape, Span};
use motet_kernels::kv::{KvArena, KvFormat, KvRows};
use motet_kernels::{Isa, ThreadPool};

#[test]
fn a_step_allocates_nothing() {
    let shape = HeadShape { heads: 6, kv_heads: 2, head_dim: 32 };
    let mut arena = KvArena::new(KvFormat::F16, shape, 200).unwrap();
    let (pool, isa) = (ThreadPool::new(2), Isa::detect());
    let mut scratch = AttentionScratch::default();
    let (long, shared): (Vec<u32>, Vec<u32>) = ((0..100).collect(), (100..110).collect());
    let spans = [
        Span { first_row: 0, len: 300, start: 1200, blocks: &long },
        Span { first_row: 300, len: 1, start: 130, blocks: &shared },
        Span { first_row: 301, len: 1, start: 140, blocks: &shared },
    ];
    let decode = [Span { first_row: 0, len: 1, start: 1499, blocks: &long }];
    let (keys, queries) = (vec![0.5; 302 * 64], vec![0.25; 302 * 192]);
    let mut out = vec![0f32; queries.len()];
    let mut step = || {
        let rows = KvRows { keys: &keys, values: &keys, spans: &spans, stored: &[] };
        arena.write(&pool, isa, rows);
        // The second plan has so few tasks that segments are computed apart.
        for (rows, spans) in [(302, &spans[..]), (1, &decode[..])] {
            let attention = Attention::new(&arena, 0.2, &queries[..rows * 192], spans);
            attention.run(&pool, isa, &mut scratch, &mut out[..rows * 192]);
        }
    };
    step();
    let before = allocations();
    for _ in 0..3 {
        step();
    }
    assert_eq!(allocations(), before);
}
